//! The SPI: what a backend implements. Programs use [`Locks`](crate::Locks) instead.

use std::{fmt::Debug, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_core::{Stream, stream::BoxStream};
use tokio_util::sync::CancellationToken;

use crate::{Capabilities, Clock, Contender, Context, Error, Feature, LockName, Mode, Outage, Snapshot, Validity};

/// What is asked of a backend.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// What is to be locked.
    pub name: LockName,
    /// How it is to be shared.
    pub mode: Mode,
    /// Whether a read-write lock asks. Who excludes whom goes by the mode alone; this is for a backend that shares its locks with
    /// the programs of another library, which has a format for mutexes and another one for read-write locks.
    pub by_rwlock: bool,
    /// How long the server keeps the lease without a renewal; `None` for the backend's own setting.
    pub ttl: Option<Duration>,
    /// Whether to wait.
    pub wait: Wait,
    /// Who asks, for people who look at the lock; at most [`Request::MAX_PAYLOAD`] bytes.
    pub payload: Arc<[u8]>,
    /// How long the server keeps the lock closed after the end of this lease, unless it was given back in order
    /// ([`Feature::LockDelay`]).
    pub delay: Option<Duration>,
    /// Where a backend that bridges an outage within the acquisition reports it.
    pub outage: Outage,
}

impl Request {
    /// The longest payload, in bytes.
    pub const MAX_PAYLOAD: usize = 1024;

    /// A request to hold `name` in `mode`, waiting for it, with the backend's own ttl and no payload.
    #[must_use]
    pub fn new(name: LockName, mode: Mode) -> Self {
        Self {
            name,
            mode,
            by_rwlock: mode == Mode::Read,
            ttl: None,
            wait: Wait::UntilStopped,
            payload: Arc::default(),
            delay: None,
            outage: Outage::default(),
        }
    }
}

/// Whether an acquisition waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Answer at once: the lease, or [`Error::NotAcquired`] with nothing left on the server.
    No,
    /// Wait until granted, or until told to stop. Limits in time are `lock-core`'s business: it stops the acquisition.
    UntilStopped,
}

/// One connection to a lock service. Object-safe: [`Locks`](crate::Locks) holds an `Arc<dyn Backend>`.
///
/// # What `lock-core` does, so that a backend need not
/// It checks names, payloads, modes, ttls, delays and downgrades against [`Capabilities`]; ends a limited wait; keeps an
/// acquisition whose caller went away running until it has ended in order (it cancels `stop` instead of dropping the
/// future). It keeps the table of held leases: it ends the validity of each exactly once, calls [`Lease::release`] exactly
/// once, whether the program released its guard, dropped it, held it for its maximum time or closed the connection, and
/// never drops that future half-way. When a connection is closed, it waits for the background cleanup, too.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// What this connection was given when it was made.
    fn context(&self) -> &Context;

    /// What this backend can do.
    fn capabilities(&self) -> Capabilities;

    /// Acquires or fails.
    ///
    /// Never dropped half-way: when `stop` is cancelled it withdraws what it has on the server and returns
    /// [`Error::Cancelled`], or returns the lease that came in the same moment. A withdrawal that cannot be confirmed in
    /// one try goes to the [`Cleanup`](crate::Cleanup): `stop` is answered within about one round trip (or the backend's
    /// time limit for one request), reachable or not.
    ///
    /// [`Error::Unavailable`] when the service does not answer within the backend's limits for one attempt. An acquisition that
    /// waits is asked for again then, until an outage has lasted too long. A backend that bridges an outage by itself, so that a
    /// waiter keeps its place in the queue, reports it to `request.outage` and goes on until `stop`; limits in time are not its
    /// business. With [`Wait::No`] nothing is bridged. [`Error::Refused`] where asking again is of no use.
    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error>;

    /// Who holds `name` and who waits for it, as the server sees it now.
    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error>;

    /// Follows `name`: how it is now, then again whenever a holder or a waiter came or went. Changes that follow each
    /// other closely may be merged into one item, so that only the newest state is given. Every exclusive holder that
    /// stays for a second or more is seen. An item may be like the one before it. During an outage the items are errors,
    /// with pauses between them; a stream ends only when the connection is closed.
    ///
    /// Unless a backend has something better, it looks four times a second.
    fn watch(self: Arc<Self>, name: LockName) -> BoxStream<'static, Result<Snapshot, Error>> {
        let clock = self.context().clock();
        Box::pin(by_looking(self, name, clock))
    }

    /// The names that begin with `prefix` and have a holder, of a lock or of a semaphore, in the order of their bytes, each
    /// once. A name that was granted or given back during the call may be missing or among them. Only reads.
    ///
    /// Called only where the backend has [`Feature::Listing`], without which the default is as good as any.
    async fn list(&self, prefix: &str) -> Result<Vec<LockName>, Error> {
        let _ = prefix;
        Err(Error::unsupported(Feature::Listing, self.capabilities().backend))
    }

    /// Ends the grant of `name` with this token number, and no other, whatever becomes of it meanwhile: the number is compared
    /// in the step that ends it. Returns its holder as it was; `None` when that grant is not there (any more). Those who
    /// wait go on as after a release, but that a lock delay stays. The holder's validity ends with
    /// [`Loss::Revoked`](crate::Loss::Revoked) no later than at its next renewal.
    ///
    /// Where its holder gives it back at the same time, one of both is told that it has ended the grant; where
    /// several servers vote, it may be neither. Never are both, unless the holder's release gave up on a server that did not
    /// answer in time.
    ///
    /// An outcome that is not known is [`Error::Unavailable`]; the caller may repeat it. Called only where the backend has
    /// [`Feature::ForcedRelease`], without which the default is as good as any.
    async fn revoke(&self, name: &LockName, token: u64) -> Result<Option<Contender>, Error> {
        let _ = (name, token);
        Err(Error::unsupported(Feature::ForcedRelease, self.capabilities().backend))
    }

    /// Disconnects, within `limit`. Acquisitions have been stopped before, every lease was released, and the cleanup has
    /// ended or was given up.
    async fn close(&self, limit: Duration);
}

/// What a server said of a lease that was given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// It was held until now, and is not any more.
    Released,
    /// The server did not have it any more.
    Gone,
}

/// A grant. Renewal is the backend's own business and shows only in [`Validity`].
#[async_trait]
pub trait Lease: Debug + Send + Sync + 'static {
    /// The number of this grant: of its fencing token, higher than that of every earlier grant of the name that it was in
    /// conflict with. A permit's number only tells it from the other permits of its name.
    fn token(&self) -> u64;

    /// Until when it is held.
    fn validity(&self) -> &Validity;

    /// Stops the renewal and gives the lock back. Its validity has ended by then: a successor may hold the lock before
    /// the answer is here.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no definite answer came: then the cleanup goes on until the server has confirmed it or
    /// the lease has certainly ended.
    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error>;

    /// Goes on as a reader, without a moment in which a writer could come between, and without waiting: for a lease that
    /// was asked for as [`Mode::Exclusive`] from a backend with [`Feature::Downgrade`]. Number and validity stay.
    /// Never dropped half-way, as a release.
    ///
    /// # Errors
    /// [`Error::Lost`] and [`Error::Unavailable`]. Then the validity has ended, and the lease is given back, as by a release.
    /// Without that feature nobody calls it, and the default is as good as any.
    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        self.release().await?;
        Err(Error::unsupported(Feature::Downgrade, "this backend"))
    }
}

/// How often a name is looked at where the server announces nothing.
const LOOK: Duration = Duration::from_millis(250);

/// What comes and goes between two looks is not seen. A look that fails is an item, too, and the next one follows all the
/// same.
fn by_looking<B: Backend + ?Sized>(
    backend: Arc<B>,
    name: LockName,
    clock: Clock,
) -> impl Stream<Item = Result<Snapshot, Error>> {
    futures_util::stream::unfold((backend, name, true), move |(backend, name, first)| async move {
        if !first {
            clock.sleep(LOOK).await;
        }
        let look = backend.inspect(&name).await;
        Some((look, (backend, name, false)))
    })
}
