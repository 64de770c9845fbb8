//! A connection to a lock service, as a program uses it.

use std::{fmt, ops::RangeInclusive, sync::Arc, time::Duration};

use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};

use futures_core::stream::BoxStream;
use futures_util::StreamExt;

use crate::{
    Backend, Capabilities, Clock, Context, Election, Error, Feature, FencingToken, Guard, LockName, Loss, Mutex,
    ReleaseOutcome, Request, RwLock, Semaphore, Snapshot,
    held::{Ended, HeldLeases},
    run_to_completion::RunToCompletion,
};

/// A connection to a lock service, whichever it is. Clones share it.
///
/// Call [`Locks::close`] before the program ends: guards that were dropped are released in the background, and a program
/// that returns from `main` earlier leaves its locks to their ttl.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
}

struct Shared {
    backend: Arc<dyn Backend>,
    options: LocksOptions,
    /// Cancelled by `close`; every acquisition's own stop is its child.
    closed: CancellationToken,
    /// Acquisitions whose callers went away, and releases: they run on the runtime and end by themselves.
    tasks: TaskTracker,
    /// Acquisitions whose callers still wait for them, and drive them.
    attempts: TaskTracker,
    held: HeldLeases,
    /// The backend's.
    context: Context,
}

/// Settings of [`Locks`] that do not depend on the backend.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct LocksOptions {
    /// The era of the fencing tokens; 0 if not set.
    pub era: u32,
    /// Who this program is, shown to those who look at a lock; at most [`Request::MAX_PAYLOAD`] bytes.
    pub payload: Arc<[u8]>,
}

impl LocksOptions {
    /// Sets the era of the fencing tokens.
    #[must_use]
    pub const fn with_era(mut self, era: u32) -> Self {
        self.era = era;
        self
    }

    /// Sets who this program is.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Arc<[u8]>>) -> Self {
        self.payload = payload.into();
        self
    }
}

/// The lock delays that a request may ask for.
const LOCK_DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// How long after its limit an acquisition may take to withdraw before it is left to end in the background.
pub(crate) const WITHDRAWAL: Duration = Duration::from_millis(500);

impl Locks {
    /// Locks of `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::with_options(backend, LocksOptions::default())
    }

    /// Locks of `backend`, with settings.
    #[must_use]
    pub fn with_options(backend: Arc<dyn Backend>, options: LocksOptions) -> Self {
        let shared = Shared {
            context: backend.context().clone(),
            backend,
            options,
            closed: CancellationToken::new(),
            tasks: TaskTracker::new(),
            attempts: TaskTracker::new(),
            held: HeldLeases::default(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The exclusive lock of that name. A name that is not allowed is reported by the first operation on it.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.clone(), LockName::new(name))
    }

    /// The read-write lock of that name; as for [`Locks::mutex`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.clone(), LockName::new(name))
    }

    /// The semaphore of that name, with so many permits; as for [`Locks::mutex`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.clone(), LockName::new(name), permits)
    }

    /// The election of that name; as for [`Locks::mutex`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.clone(), LockName::new(name))
    }

    /// What the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.shared.backend.capabilities()
    }

    /// Refuses what the backend does not promise: for a program that says what it needs before it starts.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the names of the feature and of the backend.
    pub fn require(&self, feature: Feature) -> Result<(), Error> {
        self.capabilities().require(feature)
    }

    /// Who holds that name and who waits for it.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::Unavailable`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Only reads; nothing is lost when the future is dropped.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        let name = LockName::new(name)?;
        if self.shared.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        self.shared.backend.inspect(&name).await
    }

    /// Follows that name: who holds it and who waits for it now, then again after each change. Changes that follow each
    /// other closely may be merged. While the backend is out of reach the items are errors; the stream ends when the
    /// connection is closed.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::Closed`].
    pub fn watch(&self, name: impl AsRef<str>) -> Result<BoxStream<'static, Result<Snapshot, Error>>, Error> {
        let name = LockName::new(name)?;
        let closed = self.shared.closed.clone();
        if closed.is_cancelled() {
            return Err(Error::Closed);
        }
        Ok(Arc::clone(&self.shared.backend).watch(name).take_until(closed.cancelled_owned()).boxed())
    }

    /// Ends the connection within `limit`: stops acquisitions that still wait (they get [`Error::Closed`]), finishes the
    /// releases of dropped guards, and releases guards that are still held (they end with
    /// [`Loss::Closed`](crate::Loss::Closed)).
    ///
    /// # Errors
    /// [`Error::Unavailable`] when something on the server had to be left to its ttl.
    ///
    /// # Cancel safety
    /// When the future is dropped, the connection is closed for new acquisitions, and what was left goes on in the
    /// background; call it again to wait for it.
    pub async fn close(&self, limit: Duration) -> Result<(), Error> {
        let Shared { closed, attempts, tasks, held, context, backend, .. } = self.shared.as_ref();
        let clock = self.clock();
        let deadline = clock.now().saturating_add(limit);
        let left = || deadline.saturating_since(clock.now());
        closed.cancel();
        // A caller that still has its future but does not poll it must not hold this up for the whole limit.
        attempts.close();
        let _ = clock.timeout(limit.min(WITHDRAWAL), attempts.wait()).await;
        for ended in held.close() {
            drop(self.in_order(ended.lease.release()));
        }
        tasks.close();
        let released = clock.timeout(left(), tasks.wait()).await.is_some();
        let clean = context.cleanup().close(left()).await;
        backend.close(left()).await;
        if released && clean {
            return Ok(());
        }
        let backend = self.capabilities().backend;
        Err(Error::no_answer(backend, "closed before everything was given back; the rest ends by itself"))
    }

    /// Acquires within `limit` (no limit: until it is granted); never dropped half-way.
    pub(crate) async fn acquire(
        &self,
        request: Request,
        limit: Option<Duration>,
        max_hold: Option<Duration>,
    ) -> Result<Guard, Error> {
        self.check(&request)?;
        if max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::config("max_hold", "0s", "more than zero"));
        }
        let clock = self.clock();
        let deadline = limit.map(|limit| clock.now().saturating_add(limit));
        let name = request.name.clone();
        let stop = self.shared.closed.child_token();
        let mut acquisition = self.run_to_completion(stop.clone(), {
            let locks = self.clone();
            let stop = stop.clone();
            let attempt = self.shared.attempts.token();
            async move {
                let _attempt = attempt;
                let name = request.name.clone();
                let lease = Arc::clone(&locks.shared.backend).acquire(request, stop).await?;
                let token = locks.fencing_token(lease.token());
                match locks.shared.held.insert(lease) {
                    Ok(held) => Ok(Guard::new(locks, name, token, held)),
                    Err(lease) => {
                        let _ = Ended::new(lease, Loss::Closed).lease.release().await;
                        Err(Error::Closed)
                    }
                }
            }
        });
        let result = match deadline {
            None => acquisition.await,
            Some(deadline) => tokio::select! {
                biased;
                result = &mut acquisition => result,
                () = clock.sleep_until(deadline) => {
                    stop.cancel();
                    clock.timeout(WITHDRAWAL, acquisition).await.unwrap_or(Err(Error::Cancelled))
                }
            },
        };
        let guard = match result {
            Err(Error::Cancelled) if self.shared.closed.is_cancelled() => return Err(Error::Closed),
            Err(Error::Cancelled) => return Err(Error::NotAcquired { name }),
            other => other?,
        };
        // A grant that took longer than its lease is none; the guard gives it back.
        match guard.validity().loss() {
            Some(loss) => Err(Error::Lost { name, loss }),
            None => {
                if let Some(limit) = max_hold {
                    guard.limit(limit);
                }
                Ok(guard)
            }
        }
    }

    /// Gives an ended lease back and says whether it was held until then; in the background unless the returned future is
    /// awaited.
    pub(crate) fn give_back(&self, name: LockName, ended: Ended) -> impl Future<Output = Result<(), Error>> + use<> {
        // A release is never told to stop: it ends by itself, and the cleanup takes what it could not do.
        self.in_order(async move {
            let released = ended.lease.release().await;
            let loss = match (ended.lost, released) {
                (None, Ok(ReleaseOutcome::Released)) => return Ok(()),
                (None, Err(error)) => return Err(error),
                (None, Ok(ReleaseOutcome::Gone)) => Loss::Revoked,
                (Some(loss), _) => loss,
            };
            Err(Error::Lost { name, loss })
        })
    }

    /// Runs `future` to its end: in the background when its caller goes away.
    pub(crate) fn in_order<T, F>(&self, future: F) -> impl Future<Output = T> + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.run_to_completion(CancellationToken::new(), future)
    }

    /// Runs `future` in the background until it ends or the connection is closed.
    pub(crate) fn spawn_until_closed(&self, future: impl Future<Output = ()> + Send + 'static) {
        let closed = self.shared.closed.clone();
        let work = async move {
            closed.run_until_cancelled(future).await;
        };
        drop(self.shared.context.spawn(self.shared.tasks.track_future(work)));
    }

    /// Has the end of the connection wait until the returned token is dropped.
    pub(crate) fn keep_open(&self) -> TaskTrackerToken {
        self.shared.tasks.token()
    }

    /// The fencing token whose number a look has shown: with this connection's era.
    #[must_use]
    pub fn fencing_token(&self, number: u64) -> FencingToken {
        FencingToken { era: self.shared.options.era, number }
    }

    /// The clock for time limits.
    pub(crate) fn clock(&self) -> Clock {
        self.shared.context.clock()
    }

    /// What tells this connection from all others that live.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.shared).addr()
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.shared.closed.is_cancelled() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits for `future`, but not beyond the end of the connection.
    pub(crate) async fn until_closed<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.shared.closed.run_until_cancelled(future).await.ok_or(Error::Closed)
    }

    /// Who this program is, for those who look at a lock.
    #[must_use]
    pub fn payload(&self) -> Arc<[u8]> {
        Arc::clone(&self.shared.options.payload)
    }

    /// Runs `future` to its end, soon after `stop` is cancelled when its caller goes away.
    pub(crate) fn run_to_completion<T, F>(&self, stop: CancellationToken, future: F) -> RunToCompletion<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        RunToCompletion::new(stop, self.shared.tasks.clone(), self.shared.context.clone(), future)
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        if self.shared.closed.is_cancelled() {
            return Err(Error::Closed);
        }
        if request.payload.len() > Request::MAX_PAYLOAD {
            let length = format!("{} bytes", request.payload.len());
            return Err(Error::config("payload", length, format!("at most {} bytes", Request::MAX_PAYLOAD)));
        }
        let capabilities = self.capabilities();
        if let Some(feature) = request.mode.needs() {
            capabilities.require(feature)?;
        }
        if let Some(delay) = request.delay {
            capabilities.require(Feature::LockDelay)?;
            check_within("lock_delay", delay, &LOCK_DELAYS)?;
        }
        let Some(ttl) = request.ttl else { return Ok(()) };
        capabilities.require(Feature::Ttl)?;
        capabilities.ttl.map_or(Ok(()), |allowed| check_within("ttl", ttl, &allowed))
    }
}

fn check_within(key: &str, value: Duration, allowed: &RangeInclusive<Duration>) -> Result<(), Error> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(Error::config(key, format!("{value:?}"), format!("{:?} to {:?}", allowed.start(), allowed.end())))
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("backend", &self.shared.backend).finish_non_exhaustive()
    }
}
