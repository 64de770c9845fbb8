//! The SPI: what a backend implements. Programs use [`Locks`](crate::Locks) instead.

use std::{fmt::Debug, ops::RangeInclusive, sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::{Error, LockName, Validity};

/// What is asked of a backend.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// What is to be locked.
    pub name: LockName,
    /// How it is to be shared.
    pub mode: Mode,
    /// How long the server keeps the lease without a renewal; `None` for the backend's own setting.
    pub ttl: Option<Duration>,
    /// Whether to wait.
    pub wait: Wait,
    /// Who asks, for people who look at the lock; at most [`Request::MAX_PAYLOAD`] bytes.
    pub payload: Arc<[u8]>,
}

impl Request {
    /// The longest payload, in bytes.
    pub const MAX_PAYLOAD: usize = 1024;

    /// A request to hold `name` alone, waiting for it, with the backend's own ttl and no payload.
    #[must_use]
    pub fn exclusive(name: LockName) -> Self {
        Self { name, mode: Mode::Exclusive, ttl: None, wait: Wait::UntilStopped, payload: Arc::new([]) }
    }
}

/// How a lock is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder.
    Exclusive,
}

/// Whether an acquisition waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// Answer at once: the lease, or [`Error::NotAcquired`] with nothing left on the server.
    No,
    /// Wait until granted, or until told to stop. Limits in time are `lock-core`'s business: it stops the acquisition.
    UntilStopped,
}

/// What a backend can do; see also [`Locks::capabilities`](crate::Locks::capabilities).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The backend's name, as in its URL.
    pub backend: &'static str,
    /// Waiters are granted in the order of their arrival.
    pub fifo: bool,
    /// The ttls that a single request may ask for; `None` where all locks share the session's.
    pub ttl: Option<RangeInclusive<Duration>>,
}

impl Capabilities {
    /// Capabilities of a backend that promises nothing beyond the SPI.
    #[must_use]
    pub const fn new(backend: &'static str) -> Self {
        Self { backend, fifo: false, ttl: None }
    }

    /// Waiters are granted in the order of their arrival.
    #[must_use]
    pub const fn with_fifo(mut self) -> Self {
        self.fifo = true;
        self
    }

    /// A request may choose its ttl within this range.
    #[must_use]
    pub const fn with_ttl(mut self, range: RangeInclusive<Duration>) -> Self {
        self.ttl = Some(range);
        self
    }
}

/// One connection to a lock service. Object-safe: [`Locks`](crate::Locks) holds an `Arc<dyn Backend>`.
///
/// # What `lock-core` does, so that a backend need not
/// Checks names, payloads and ttls against [`Capabilities`]; ends a limited wait; keeps an acquisition whose caller went
/// away running until it has ended in order (it cancels `stop` instead of dropping the future); calls
/// [`Lease::release`] exactly once for each lease, whether the program released its guard or dropped it, and never
/// drops that future half-way.
#[async_trait]
pub trait Backend: Debug + Send + Sync + 'static {
    /// What this backend can do.
    fn capabilities(&self) -> Capabilities;

    /// Acquires or fails.
    ///
    /// Never dropped half-way: when `stop` is cancelled it withdraws what it has on the server and returns
    /// [`Error::Cancelled`], or returns the lease that came in the same moment. A withdrawal that cannot be confirmed in
    /// one try goes to the [`Janitor`](crate::Janitor): `stop` is answered within about one round trip (or the backend's
    /// time limit for one request), reachable or not.
    ///
    /// An outage during a wait is bridged for as long as the connect limit; then it is [`Error::Unavailable`].
    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error>;

    /// Who holds `name` and who waits for it, as the server sees it now.
    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error>;

    /// Ends the connection: releases what is still held (its guards end with [`Loss::Closed`](crate::Loss::Closed)) and
    /// finishes the janitor's work within `limit`, then disconnects in any case. [`Error::Unavailable`] when something
    /// had to be left to its ttl. Acquisitions have been stopped before.
    async fn close(&self, limit: Duration) -> Result<(), Error>;
}

/// A grant. Renewal is the backend's own business and shows only in [`Validity`].
#[async_trait]
pub trait Lease: Debug + Send + Sync + 'static {
    /// The number of this grant's fencing token: higher than that of every earlier grant of the name.
    fn token(&self) -> u64;

    /// Until when it is held.
    fn validity(&self) -> &Validity;

    /// Stops the renewal, gives the lock back and ends the validity with [`Loss::Released`](crate::Loss::Released)
    /// (before the request is sent: a successor may hold the lock before the answer is here).
    ///
    /// # Errors
    /// [`Error::Lost`] when the server did not have the lease any more. [`Error::Unavailable`] when no definite answer
    /// came: then the janitor goes on until the server has confirmed it or the lease has certainly ended.
    async fn release(self: Box<Self>) -> Result<(), Error>;
}

/// Who holds a name and who waits for it, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Who holds it; empty when it is free.
    pub holders: Vec<Contender>,
    /// Who waits, first in line first; empty where the backend keeps no queue on the server.
    pub queue: Vec<Contender>,
}

impl Snapshot {
    /// A snapshot of these contenders.
    #[must_use]
    pub const fn new(holders: Vec<Contender>, queue: Vec<Contender>) -> Self {
        Self { holders, queue }
    }
}

/// A holder or a waiter, as the server shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// What tells it apart from all others: the unique value or the node's name.
    pub id: String,
    /// Who it is, in its own words.
    pub payload: Vec<u8>,
    /// The number of its fencing token, once granted.
    pub token: Option<u64>,
    /// How long the server still keeps it without a renewal, where the server tells.
    pub remaining: Option<Duration>,
}

impl Contender {
    /// A contender of which only the identity is known.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// With who it is.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// With the number of its fencing token.
    #[must_use]
    pub const fn with_token(mut self, token: u64) -> Self {
        self.token = Some(token);
        self
    }

    /// With how long the server still keeps it.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: Duration) -> Self {
        self.remaining = Some(remaining);
        self
    }
}
