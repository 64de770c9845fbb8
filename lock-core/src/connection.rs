//! What `Locks`, locks and guards of one connection share: the backend, what is held, and what is under way.

use std::{fmt, future::Future, ops::RangeInclusive, pin::pin, sync::Arc, time::Duration};

use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use tokio_util::{
    sync::CancellationToken,
    task::{TaskTracker, task_tracker::TaskTrackerToken},
};
use tracing::{Instrument, Span};

use crate::{
    Backend, Capabilities, Clock, Contender, Context, Error, Feature, FencingToken, LockName, LocksOptions, Loss,
    ReleaseOutcome, Request, Snapshot, Validity, Wait,
    held::{EndedLease, HeldLease, HeldLeases},
    observe::{Acquisition, Hold},
    outage,
    run_to_completion::{Background, RunToCompletion},
};

/// A connection to a lock service: the backend, its context, the leases held through it, and the acquisitions under way.
/// Clones share it.
#[derive(Clone)]
pub(crate) struct Connection(Arc<ConnectionState>);

/// The state that the clones of a [`Connection`] share.
struct ConnectionState {
    backend: Arc<dyn Backend>,
    options: LocksOptions,
    held: HeldLeases,
    /// Cancelled by `close`.
    closed: CancellationToken,
    /// Cancelled by `drain`, and with `closed`, whose child it is; every acquisition's own stop is a child of this one.
    draining: CancellationToken,
    /// Acquisitions whose callers went away, and releases, end there by themselves, in the backend's context.
    background: Arc<Background>,
    /// Acquisitions whose callers still wait for them, and drive them.
    attempts: TaskTracker,
}

/// The lock delays that a request may ask for.
const LOCK_DELAYS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(3600);

/// How long after its limit an acquisition may take to withdraw before it is left to end in the background.
pub(crate) const WITHDRAWAL: Duration = Duration::from_millis(500);

impl Connection {
    pub(crate) fn new(backend: Arc<dyn Backend>, options: LocksOptions) -> Self {
        backend.context().observer().connected(backend.capabilities().backend);
        let closed = CancellationToken::new();
        Self(Arc::new(ConnectionState {
            background: Arc::new(Background { context: backend.context().clone(), tasks: TaskTracker::new() }),
            backend,
            options,
            held: HeldLeases::default(),
            draining: closed.child_token(),
            closed,
            attempts: TaskTracker::new(),
        }))
    }

    pub(crate) fn capabilities(&self) -> Capabilities {
        self.0.backend.capabilities()
    }

    pub(crate) fn require(&self, feature: Feature) -> Result<(), Error> {
        self.capabilities().require(feature)
    }

    fn context(&self) -> &Context {
        &self.0.background.context
    }

    /// The clock for time limits.
    pub(crate) fn clock(&self) -> Clock {
        self.context().clock()
    }

    /// Who this program is, for those who look at a lock.
    pub(crate) fn payload(&self) -> Arc<[u8]> {
        Arc::clone(&self.0.options.payload)
    }

    /// The fencing token of that number, with this connection's era.
    pub(crate) fn fencing_token(&self, number: u64) -> FencingToken {
        FencingToken { era: self.0.options.era, number }
    }

    /// What tells this connection from all others that live.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.0.closed.is_cancelled() { Err(Error::Closed) } else { Ok(()) }
    }

    /// Waits for `future`, but not beyond the end of the connection.
    pub(crate) async fn until_closed<F: Future>(&self, future: F) -> Result<F::Output, Error> {
        self.0.closed.run_until_cancelled(future).await.ok_or(Error::Closed)
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.check_open()?;
        self.0.backend.inspect(name).await
    }

    pub(crate) async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        self.check_open()?;
        self.require(Feature::Listing)?;
        self.0.backend.list(prefix).await
    }

    pub(crate) async fn revoke(&self, name: &LockName, token: FencingToken) -> Result<Option<Contender>, Error> {
        self.check_open()?;
        self.require(Feature::ForcedRelease)?;
        if token.era != self.0.options.era {
            let allowed = format!("a token of the era {}, which this connection has", self.0.options.era);
            return Err(Error::config("fencing token", token.to_string(), allowed));
        }
        self.0.backend.revoke(name, token.number).await
    }

    pub(crate) fn watch(&self, name: LockName) -> Result<BoxStream<'static, Result<Snapshot, Error>>, Error> {
        self.check_open()?;
        let closed = self.0.closed.clone();
        Ok(Arc::clone(&self.0.backend).watch(name).take_until(closed.cancelled_owned()).boxed())
    }

    /// Has `request` for `name`, which is about to be made, observed.
    pub(crate) fn observe<'a>(&self, name: &'a LockName, request: &Request) -> Acquisition<'a> {
        let is_waiting = request.wait == Wait::UntilStopped;
        self.context().observer().acquisition(self.clock(), name, request.mode, is_waiting)
    }

    /// Acquires within `limit` (no limit: until it is granted, or an outage has lasted too long). No attempt is dropped half-way; while
    /// the service does not answer, an acquisition that waits makes one attempt after another. `guard` makes of the grant what
    /// releases it when it is dropped: a caller that goes away leaves nothing behind. What acquires runs in `span`.
    pub(crate) async fn acquire<G: Send + 'static>(
        &self,
        request: Request,
        limit: Option<Duration>,
        guard: fn(Self, LockName, FencingToken, HeldLease, Validity) -> G,
        span: Span,
    ) -> Result<G, Error> {
        self.check(&request)?;
        let clock = self.clock();
        let deadline = limit.map(|limit| clock.now().saturating_add(limit));
        let outage = &request.outage;
        // What waits is boxed: who is granted at once reserves no memory for it.
        let mut too_long = pin!(async {
            match deadline {
                None => {
                    let limit = self.0.options.outage_timeout;
                    Box::pin(outage.outlasts(limit, clock, self.context().observer())).await;
                }
                Some(deadline) => Box::pin(clock.sleep_until(deadline)).await,
            }
        });
        let mut pauses = outage::pauses();
        let acquired = loop {
            let stop = self.0.draining.child_token();
            let mut attempt = self.run_to_completion(stop.clone(), {
                let (connection, request) = (self.clone(), request.clone());
                let tracked = self.0.attempts.token();
                let attempt = async move {
                    let _tracked = tracked;
                    let name = request.name.clone();
                    let lease = Arc::clone(&connection.0.backend).acquire(request, stop).await?;
                    let token = connection.fencing_token(lease.token());
                    match connection.0.held.insert(lease) {
                        Ok((held, validity)) => Ok(guard(connection, name, token, held, validity)),
                        Err(lease) => {
                            let _ = EndedLease::new(lease, Loss::Closed).lease.release().await;
                            Err(Error::Closed)
                        }
                    }
                };
                attempt.instrument(span.clone())
            });
            let error = tokio::select! {
                biased;
                attempted = &mut attempt => match attempted {
                    Err(error @ Error::Unavailable { .. }) if request.wait == Wait::UntilStopped => error,
                    attempted => break attempted,
                },
                () = &mut too_long => {
                    attempt.stop();
                    break clock.timeout(WITHDRAWAL, attempt).await.unwrap_or(Err(Error::Cancelled));
                }
            };
            span.in_scope(|| tracing::debug!(%error, "the service does not answer"));
            outage.failed(error);
            let pause = clock.sleep(pauses.pause());
            tokio::select! {
                biased;
                () = &mut too_long => break Err(Error::Cancelled),
                // Safeguard: a drain ends the pause between two attempts
                paused = Box::pin(self.0.draining.run_until_cancelled(pause)) => {
                    if paused.is_none() {
                        break Err(Error::Cancelled);
                    }
                }
            }
        };
        match acquired {
            Err(Error::Cancelled) if self.0.draining.is_cancelled() => Err(Error::Closed),
            // Safeguard: an outage is not told as a lock that another holds
            Err(Error::Cancelled) => Err(outage.take().unwrap_or(Error::NotAcquired { name: request.name.clone() })),
            other => other,
        }
    }

    /// Gives an ended lease back and says whether it was held until then; in the background unless the returned future is
    /// awaited.
    pub(crate) fn give_back(
        &self,
        name: LockName,
        ended: EndedLease,
    ) -> impl Future<Output = Result<(), Error>> + use<> {
        // A release is never told to stop: it ends by itself, and the cleanup takes what it could not do.
        self.in_order(async move {
            let validity = ended.lease.validity().clone();
            let released = ended.lease.release().await;
            let loss = match (ended.lost, released) {
                (None, Ok(ReleaseOutcome::Released)) => return Ok(()),
                (None, Err(error)) => return Err(error),
                (None, Ok(ReleaseOutcome::Gone)) => {
                    validity.hold().into_iter().for_each(Hold::found_gone);
                    Loss::Revoked
                }
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
        RunToCompletion::new(None, &self.0.background, future)
    }

    /// Runs `future` to its end, soon after `stop` is cancelled when its caller goes away.
    pub(crate) fn run_to_completion<T, F>(&self, stop: CancellationToken, future: F) -> RunToCompletion<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        RunToCompletion::new(Some(stop), &self.0.background, future)
    }

    /// Runs `future` in the background until it ends or the connection is closed.
    pub(crate) fn spawn_until_closed(&self, future: impl Future<Output = ()> + Send + 'static) {
        let closed = self.0.closed.clone();
        self.0.background.spawn(async move {
            closed.run_until_cancelled(future).await;
        });
    }

    /// Has the end of the connection wait until the returned token is dropped.
    pub(crate) fn keep_open(&self) -> TaskTrackerToken {
        self.0.background.tasks.token()
    }

    /// Stops acquisitions, and waits until nothing is held any more, but not beyond `limit`. Returns how many leases were
    /// ended because of that.
    pub(crate) async fn drain(&self, limit: Duration) -> usize {
        let clock = self.clock();
        let deadline = clock.now().saturating_add(limit);
        self.0.draining.cancel();
        // A grant that came in the same moment is held, too, or given back, before the last look.
        self.withdraw_attempts(limit).await;
        clock.timeout(deadline.saturating_since(clock.now()), self.0.held.emptied()).await;
        self.end_held()
    }

    pub(crate) async fn close(&self, limit: Duration) -> Result<(), Error> {
        let ConnectionState { closed, background, backend, .. } = self.0.as_ref();
        let clock = self.clock();
        let deadline = clock.now().saturating_add(limit);
        let left = || deadline.saturating_since(clock.now());
        closed.cancel();
        self.withdraw_attempts(limit).await;
        self.end_held();
        background.tasks.close();
        let released = clock.timeout(left(), background.tasks.wait()).await.is_some();
        let clean = background.context.cleanup().close(left()).await;
        backend.close(left()).await;
        if released && clean {
            return Ok(());
        }
        let backend = self.capabilities().backend;
        Err(Error::no_answer(backend, "closed before everything was given back; the rest ends by itself"))
    }

    /// Waits until the acquisitions that were told to stop have withdrawn.
    async fn withdraw_attempts(&self, limit: Duration) {
        // A caller that still has its future but does not poll it must not hold this up for the whole limit.
        self.0.attempts.close();
        let _ = self.clock().timeout(limit.min(WITHDRAWAL), self.0.attempts.wait()).await;
    }

    /// Ends what is held, has it released in the background, and says how much that was. Nothing is held from here on.
    fn end_held(&self) -> usize {
        let ended = self.0.held.close();
        let count = ended.len();
        for ended in ended {
            drop(self.in_order(ended.lease.release()));
        }
        count
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        // Safeguard: a connection that is drained acquires nothing
        if self.0.draining.is_cancelled() {
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

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("backend", &self.0.backend).finish_non_exhaustive()
    }
}
