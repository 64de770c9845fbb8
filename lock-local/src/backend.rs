//! The SPI.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use lock_core::{
    Backend, Backoff, Capabilities, Contender as Shown, Context, Error, Feature, Lease, LockName, Loss, ReleaseOutcome,
    Request, Snapshot, Validity,
};
use tokio::{sync::Notify, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    files::{Contender, LockDirectory, QueuePosition, found},
    listing, trust,
    watch::watch,
};

/// How long another may stand at a door before something is wrong with it; well below a millisecond is usual.
const DOOR: Duration = Duration::from_secs(5);
/// How often things are looked at without news of the kernel.
const LOOK: Duration = Duration::from_secs(1);
/// The pauses of who waits: short ones after each news.
const PATIENCE: Backoff = Backoff::new(Duration::from_millis(2), LOOK);
/// The kernel holds a lock for as long as its process lives: validity has no end of its own, and is put a century ahead.
const NO_END: Duration = Duration::from_secs(100 * 365 * 86_400);

/// A connection to the locks of a directory.
#[derive(Debug)]
pub struct Local {
    config: Config,
    context: Context,
}

/// The state behind a [`LocalLease`]: the contender's locked file, and the validity of the grant.
#[derive(Debug)]
struct HeldFile {
    local: Arc<Local>,
    name: LockName,
    contender: Arc<Contender>,
    validity: Validity,
}

/// The lease of a lock on files.
#[derive(Debug)]
struct LocalLease(Arc<HeldFile>);

impl Local {
    /// Connects: makes the directory if it is missing, for this user alone.
    ///
    /// # Errors
    /// [`Error::Config`] when it is another user's, when others may write to it and it is not sticky, or when it is on a network's
    /// file system; [`Error::Unavailable`] when it cannot be made.
    pub fn connect(config: Config) -> Result<Arc<Self>, Error> {
        Self::connect_in(config, Context::current())
    }

    /// As [`Local::connect`], with tasks in `context`.
    ///
    /// # Errors
    /// Those of [`Local::connect`].
    pub fn connect_in(config: Config, context: Context) -> Result<Arc<Self>, Error> {
        let made = trust::make(&config.directory);
        let local = Self { config, context };
        made.map_err(|error| local.failed("making the directory", error))?;
        tracing::debug!(directory = %local.config.directory.display(), "the locks are files of this directory");
        Ok(Arc::new(local))
    }

    /// Does something with files, where it holds up no other task.
    async fn with<T: Send + 'static>(
        &self,
        what: &str,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        let done = spawn_blocking(work).await.unwrap_or_else(|stopped| Err(io::Error::other(stopped)));
        done.map_err(|error| self.failed(what, error))
    }

    /// A refusal as it is, and everything else as a failure of the file system.
    fn failed(&self, what: &str, error: io::Error) -> Error {
        let unavailable = |error| Error::unavailable(self.config.url(), format!("{what} failed"), error);
        error.downcast::<Error>().unwrap_or_else(unavailable)
    }

    /// The directory of the lock of that name, and that of the semaphore.
    fn directories(&self, name: &LockName) -> [LockDirectory; 2] {
        [false, true].map(|semaphore| LockDirectory::new(&self.config, name, semaphore))
    }

    /// Enters once nobody else stands at the door.
    async fn enter(
        &self,
        directory: &LockDirectory,
        request: &Request,
        stop: &CancellationToken,
    ) -> Result<QueuePosition, Error> {
        let clock = self.context.clock();
        let deadline = clock.now().saturating_add(DOOR);
        let mut pauses = Backoff::new(Duration::from_micros(500), Duration::from_millis(20));
        loop {
            let (at, asked) = (directory.clone(), request.clone());
            // Nothing found: somebody else was there, or deleted something under our hands.
            let entering = move || Ok(found(at.enter(&asked))?.flatten());
            if let Some(place) = self.with("entering the queue", entering).await? {
                return Ok(place);
            }
            if stop.is_cancelled() {
                return Err(Error::Cancelled);
            }
            if clock.now() >= deadline {
                let why = "a process that is stopped, or does not get on, stands at the door of the queue";
                return Err(Error::no_answer(self.config.url(), why));
            }
            clock.sleep(pauses.pause()).await;
        }
    }

    /// Waits until it holds.
    async fn contend(&self, request: &Request, stop: &CancellationToken) -> Result<Arc<Contender>, Error> {
        let permit = request.mode.permits().is_some();
        let directory = &self.directories(&request.name)[usize::from(permit)];
        let (mut contender, mut ahead) = self.enter(directory, request, stop).await?;
        let (news, mut watched, mut pauses) = (Arc::new(Notify::new()), None, PATIENCE);
        while let Some(number) = ahead {
            if watched == ahead {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Err(Error::Cancelled),
                    // The kernel announces the end of a process a moment before it gives up its locks, so it is looked at
                    // several times, with growing pauses.
                    () = news.notified() => pauses = PATIENCE,
                    () = self.context.clock().sleep(pauses.pause()) => {}
                }
            } else {
                // A permit may be freed by anybody.
                let path = if permit { directory.path.clone() } else { directory.file(number) };
                watch(&path, &news);
                watched = ahead;
            }
            let me = Arc::clone(&contender);
            match self.with("looking at the queue", move || found(me.ahead())).await? {
                Some(now_ahead) => ahead = now_ahead,
                // Somebody deleted our file, or put another directory in the place of the one that it is in.
                None => (contender, ahead) = self.enter(directory, request, stop).await?,
            }
        }
        Ok(contender)
    }
}

#[async_trait]
impl Backend for Local {
    fn context(&self) -> &Context {
        &self.context
    }

    fn capabilities(&self) -> Capabilities {
        let features = [
            Feature::Fifo,
            Feature::Queue,
            Feature::ReadWrite,
            Feature::Downgrade,
            Feature::Semaphore,
            Feature::Listing,
            Feature::ForcedRelease,
        ];
        Capabilities::new("local").with_all(&features)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let contender = self.contend(&request, &stop).await?;
        let clock = self.context.clock();
        let validity = Validity::new(clock, clock.now().saturating_add(NO_END));
        let held = Arc::new(HeldFile { local: self, name: request.name, contender, validity });
        drop(held.local.context.spawn(Arc::clone(&held).guard()));
        Ok(Box::new(LocalLease(held)))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let directories = self.directories(name);
        let look = move || directories.iter().try_fold(Snapshot::default(), |all, directory| directory.show(all));
        self.with("looking at the queue", look).await
    }

    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        let (config, prefix) = (self.config.clone(), prefix.to_owned());
        let names = self.with("listing the locks", move || listing::held(&config, &prefix)).await?;
        Ok(names.into_iter().collect())
    }

    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Shown>, Error> {
        let directories = self.directories(name);
        let revoke = move || {
            directories
                .iter()
                .map(|directory| directory.revoke(token))
                .find(|it| !matches!(it, Ok(None)))
                .unwrap_or(Ok(None))
        };
        self.with("a forced release", revoke).await
    }

    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        let news = Arc::new(Notify::new());
        // It begins with a look.
        news.notify_one();
        Box::pin(futures_util::stream::unfold((self, name, news), |(local, name, news)| async move {
            let [lock, _] = local.directories(&name).map(|directory| watch(&directory.path, &news));
            // A directory that does not exist yet has no news.
            let clock = local.context.clock();
            clock.timeout(if lock { LOOK } else { LOOK / 4 }, news.notified()).await;
            let look = local.inspect(&name).await;
            Some((look, (local, name, news)))
        }))
    }

    async fn close(&self, _limit: Duration) {}
}

#[async_trait]
impl Lease for LocalLease {
    fn token(&self) -> u64 {
        self.0.contender.number
    }

    fn validity(&self) -> &Validity {
        &self.0.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        Ok(if self.0.contender.leave() { ReleaseOutcome::Released } else { ReleaseOutcome::Gone })
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let done = self.0.contender.downgrade();
        self.0.check();
        let failed = match done {
            Ok(()) if self.0.validity.is_valid() => return Ok(self),
            Ok(()) => self.0.lost(),
            Err(error) => self.0.local.failed("becoming a reader", error),
        };
        self.0.validity.end(Loss::Released);
        self.0.contender.leave();
        Err(failed)
    }
}

impl HeldFile {
    /// Notices when its file or the connection is gone, until it has ended.
    async fn guard(self: Arc<Self>) {
        while self.validity.is_valid() {
            tokio::select! {
                _ = self.validity.lost() => {}
                () = self.validity.clock().sleep(LOOK) => self.check(),
            }
        }
    }

    /// Notices that somebody deleted its file.
    fn check(&self) {
        if matches!(self.contender.is_there(), Ok(false)) {
            self.validity.end(Loss::Revoked);
            self.contender.leave();
        }
    }

    fn lost(&self) -> Error {
        Error::Lost { name: self.name.clone(), loss: self.validity.loss().unwrap_or(Loss::Revoked) }
    }
}
