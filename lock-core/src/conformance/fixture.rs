//! What a backend's test brings: connections, faults, and a look at its servers that does not go through the backend.

use std::{fmt::Debug, time::Duration};

use async_trait::async_trait;

use super::Failure;
use crate::{Clock, Error, LockName, Locks};

/// The ttl (or session) of an ordinary connection: longer than a case waits for anything, so that what is only ended by its
/// ttl counts as left behind.
pub const LONG_TTL: Duration = Duration::from_secs(60);

/// Running servers of one backend, how to connect to them, and how to look behind the backend's back.
///
/// All connections of a fixture go to the same servers. Cases run side by side on one fixture, each with lock names of its
/// own.
#[async_trait]
pub trait Fixture: Debug + Send + Sync + 'static {
    /// A new connection of its own, as another program would have it, with [`LONG_TTL`].
    async fn connect(&self) -> Result<Locks, Failure>;

    /// A new connection that can be cut off from the servers while they go on serving others, with a short ttl (or
    /// session), a few seconds: some cases wait for its end, or for a renewal; and with an `outage_timeout` of ten seconds
    /// at most: some wait until an outage was bridged for long enough. Only called where the backend has
    /// [`Feature::Expiry`](crate::Feature::Expiry).
    async fn connect_severable(&self) -> Result<Severable, Failure>;

    /// An attempt to connect to servers that are down. Only called where the backend has
    /// [`Feature::Expiry`](crate::Feature::Expiry).
    ///
    /// # Errors
    /// [`Error::Unavailable`] is expected here, or from the first acquisition where connecting is lazy.
    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error>;

    /// The clock that its connections count validity on.
    fn clock(&self) -> Clock {
        Clock::boot()
    }

    /// Whether a grant ends in one place: in one step, of which everybody sees either nothing or all. Where servers that do not
    /// know each other vote, a release and a forced release may each end it on some of them, and neither is told that it was the
    /// one.
    fn ends_grants_in_one_step(&self) -> bool {
        true
    }

    /// Everything that the servers keep for these names, in words: keys, queue entries, nodes; of each lock with its writer, its
    /// readers and their intents, and of the semaphore of that name. Not what is meant to outlive a release: the counter
    /// behind the fencing token, a server's own membership, an empty directory.
    async fn residue(&self, names: &[LockName]) -> Result<Vec<String>, Failure>;

    /// Takes `name` away from all its holders as somebody else would, by deleting their keys or nodes: those of the writer,
    /// of every reader, of every permit. Only called while nobody waits for it.
    async fn delete(&self, name: &LockName) -> Result<(), Failure>;

    /// What the servers themselves say about the grant with this number, as the lease gave it: the writer's, a reader's, or
    /// a permit's. Grants of one lock have different numbers, and so have the permits of one semaphore; where the lock and
    /// the semaphore of a name both have a grant of that number, either answer will do. A writer that became a reader keeps
    /// its number. It is answered by the state that the servers have agreed on: no stale replica may be asked.
    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure>;
}

/// A connection and the means to cut it off.
#[derive(Debug)]
pub struct Severable {
    /// The connection.
    pub locks: Locks,
    /// The means.
    pub link: Box<dyn Link>,
}

/// What lies between one connection and its servers.
#[async_trait]
pub trait Link: Debug + Send + Sync + 'static {
    /// Forwards nothing from now on, in either direction; connections stay open.
    async fn hold(&self);

    /// Breaks the connections, and refuses new ones.
    async fn cut(&self);

    /// Delays what passes in each direction by `delay`. Does nothing where nothing travels.
    async fn slow_down(&self, delay: Duration);

    /// Forwards again, without delay, and lets new connections through.
    async fn heal(&self);
}

/// How servers are down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Down {
    /// Nothing listens where they should be.
    Refusing,
    /// Connections are accepted, and nothing is ever answered.
    Silent,
}

/// What the servers keep of a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is held; without a renewal it ends this much after the moment of the look.
    For(Duration),
    /// It is held; the servers do not tell until when.
    Held,
    /// It is not held any more.
    Gone,
}
