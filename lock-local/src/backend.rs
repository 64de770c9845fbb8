//! The SPI.

use std::{
    collections::HashMap,
    io::{self, ErrorKind},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use futures_core::stream::BoxStream;
use lock_core::{
    Backend, Backoff, BootInstant, Capabilities, Clock, Error, Feature, Keeper, Kept, Lease, LockName, Loss, Mode,
    Renewer, Request, Snapshot, Validity,
};
use tokio::{runtime::Handle, sync::Notify, task::spawn_blocking};
use tokio_util::sync::CancellationToken;

use crate::{
    Config,
    files::{Contender, Directory, Entered, file_name},
    queue::Standing,
    watch::Watch,
};

/// How long another may stand at a door before something is wrong with it; well below a millisecond is usual.
const DOOR: Duration = Duration::from_secs(5);
/// How often things are looked at without news of the kernel.
const LOOK: Duration = Duration::from_secs(1);

/// A connection to the locks of a directory.
#[derive(Debug)]
pub struct Local {
    config: Config,
    held: Arc<Mutex<HashMap<PathBuf, Arc<Held>>>>,
    keeper: Keeper<Held>,
}

/// A grant. Its contender is here until it is given back, taken away or closed.
#[derive(Debug)]
struct Held {
    name: LockName,
    number: u64,
    file: PathBuf,
    contender: Mutex<Option<Arc<Contender>>>,
    validity: Validity,
}

#[derive(Debug)]
struct LocalLease {
    local: Arc<Local>,
    held: Arc<Held>,
    _kept: Kept<Held>,
}

struct Check;

impl Local {
    /// Connects: makes the directory if it is missing.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when it cannot be made.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(config: Config) -> Result<Arc<Self>, Error> {
        let made = std::fs::create_dir_all(&config.directory);
        let keeper = Keeper::new(Clock::boot(), &Handle::current(), Arc::new(Check));
        let local = Self { config, held: Arc::default(), keeper };
        made.map_err(|error| local.failed("making the directory", error))?;
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

    fn failed(&self, what: &str, error: io::Error) -> Error {
        Error::unavailable(self.config.url(), format!("{what} failed"), error)
    }

    /// Enters once nobody else stands at the door.
    async fn enter(
        &self,
        directory: &Directory,
        request: &Request,
        stop: &CancellationToken,
    ) -> Result<(Arc<Contender>, Standing), Error> {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(DOOR);
        let mut pauses = Backoff::new(Duration::from_micros(500), Duration::from_millis(20));
        loop {
            let (at, asked) = (directory.clone(), request.clone());
            let entering = move || match at.enter(&asked) {
                // Somebody deleted something under our hands.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(Entered::Busy),
                entered => entered,
            };
            match self.with("entering the queue", entering).await? {
                Entered::As(contender, standing) => return Ok((contender, standing)),
                Entered::Refused => return Err(Error::NotAcquired { name: request.name.clone() }),
                Entered::Permits(there) => {
                    let asked = crate::queue::permits(request.mode).unwrap_or(there);
                    return Err(Error::permits(&request.name, asked, there));
                }
                Entered::Busy if stop.is_cancelled() => return Err(Error::Cancelled),
                Entered::Busy if clock.now() >= deadline => {
                    let why = "a process that is stopped, or does not get on, stands at the door of the queue";
                    return Err(Error::no_answer(self.config.url(), why));
                }
                Entered::Busy => clock.sleep(pauses.pause()).await,
            }
        }
    }

    /// Waits until it holds.
    async fn contend(
        &self,
        directory: &Directory,
        request: &Request,
        stop: &CancellationToken,
    ) -> Result<Arc<Contender>, Error> {
        let (mut contender, mut standing) = self.enter(directory, request, stop).await?;
        let news = Arc::new(Notify::new());
        let mut watch: Option<(u64, Option<Watch>)> = None;
        let mut pauses = patience();
        while let Standing::Behind(number) = standing {
            if watch.as_ref().is_none_or(|(watched, _)| *watched != number) {
                // A permit may be freed by anybody.
                let name = (!matches!(request.mode, Mode::Permit { .. })).then(|| file_name(number));
                watch = Some((number, Watch::new(directory.path(), name, &news)));
            } else {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return Err(Error::Cancelled),
                    // The kernel announces the end of a process a moment before it gives up its locks, so it is looked at
                    // several times, with growing pauses.
                    () = news.notified() => pauses = patience(),
                    () = Clock::boot().sleep(pauses.pause()) => {}
                }
            }
            let (at, me, mode) = (directory.clone(), Arc::clone(&contender), request.mode);
            standing = match self.with("looking at the queue", move || at.look(&me, mode)).await? {
                Some(standing) => standing,
                None => {
                    // Somebody deleted our file.
                    (contender, standing) = self.enter(directory, request, stop).await?;
                    standing
                }
            };
        }
        Ok(contender)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<Held>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Local {
    fn capabilities(&self) -> Capabilities {
        [Feature::Fifo, Feature::Queue, Feature::ReadWrite, Feature::Downgrade, Feature::Semaphore]
            .into_iter()
            .fold(Capabilities::new("local"), Capabilities::with)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        let semaphore = matches!(request.mode, Mode::Permit { .. });
        let directory = Directory::new(&self.config, &request.name, semaphore);
        let contender = self.contend(&directory, &request, &stop).await?;
        let number = contender.number;
        let held = Arc::new(Held {
            name: request.name,
            number,
            file: directory.file(number),
            contender: Mutex::new(Some(contender)),
            validity: Validity::new(Clock::boot(), far()),
        });
        self.held().insert(held.file.clone(), Arc::clone(&held));
        let _kept = self.keeper.keep(Arc::clone(&held), held.validity.clone(), LOOK);
        Ok(Box::new(LocalLease { local: self, held, _kept }))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        let directories = [false, true].map(|semaphore| Directory::new(&self.config, name, semaphore));
        let look = move || {
            let mut all = Snapshot::default();
            for directory in directories {
                let (holders, queue) = directory.show()?;
                all.holders.extend(holders);
                all.queue.extend(queue);
            }
            Ok(all)
        };
        self.with("looking at the queue", look).await
    }

    fn changes(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        let news = Arc::new(Notify::new());
        // It begins with a look.
        news.notify_one();
        Box::pin(futures_util::stream::unfold((self, name, news, None), |(local, name, news, last)| async move {
            let directories = [false, true].map(|semaphore| Directory::new(&local.config, &name, semaphore));
            // A directory that does not exist yet has no news.
            let watches = directories.map(|directory| Watch::new(directory.path(), None, &news));
            drop::<Option<[Option<Watch>; 2]>>(last);
            let pause = if watches[0].is_some() { LOOK } else { LOOK / 4 };
            Clock::boot().timeout(pause, news.notified()).await;
            let look = local.inspect(&name).await;
            Some((look, (local, name, news, Some(watches))))
        }))
    }

    async fn close(&self, _limit: Duration) -> Result<(), Error> {
        let held: Vec<_> = self.held().drain().map(|(_, held)| held).collect();
        for held in held {
            held.validity.end(Loss::Closed);
            held.leave();
        }
        Ok(())
    }
}

#[async_trait]
impl Lease for LocalLease {
    fn token(&self) -> u64 {
        self.held.number
    }

    fn validity(&self) -> &Validity {
        &self.held.validity
    }

    async fn release(self: Box<Self>) -> Result<(), Error> {
        self.held.validity.end(Loss::Released);
        self.local.held().remove(&self.held.file);
        if self.held.leave() { Ok(()) } else { Err(self.held.lost()) }
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let done = self.held.contender().as_deref().map_or(Ok(()), Contender::downgrade);
        self.held.check();
        let failed = match done {
            Ok(()) if self.held.validity.is_valid() => return Ok(self),
            Ok(()) => self.held.lost(),
            Err(error) => self.local.failed("becoming a reader", error),
        };
        self.release().await.and(Err(failed))
    }
}

impl Held {
    fn contender(&self) -> MutexGuard<'_, Option<Arc<Contender>>> {
        self.contender.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives it back; false when it was gone already.
    fn leave(&self) -> bool {
        self.contender().take().is_some_and(|contender| contender.is_there().unwrap_or(true))
    }

    /// Notices that somebody deleted its file.
    fn check(&self) {
        let gone = self.contender().as_ref().is_some_and(|contender| matches!(contender.is_there(), Ok(false)));
        if gone {
            self.validity.end(Loss::TakenAway);
            self.contender().take();
        }
    }

    fn lost(&self) -> Error {
        Error::Lost { name: self.name.clone(), loss: self.validity.loss().unwrap_or(Loss::TakenAway) }
    }
}

#[async_trait]
impl Renewer for Check {
    type Lease = Held;

    async fn renew(&self, batch: &[Arc<Held>]) {
        for held in batch {
            let observed = held.validity.observe();
            held.check();
            if let Some(observed) = observed {
                held.validity.advance(observed, far());
            }
        }
    }
}

/// The kernel holds a lock for as long as its process lives: validity has no end of its own, and is put a century ahead.
fn far() -> BootInstant {
    Clock::boot().now().saturating_add(Duration::from_secs(100 * 365 * 86_400))
}

fn patience() -> Backoff {
    Backoff::new(Duration::from_millis(2), LOOK)
}
