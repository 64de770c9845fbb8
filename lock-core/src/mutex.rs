//! The exclusive lock.

use crate::{
    Error, Guard, LockName, Mode, Owner, Reentrant, Wait,
    acquire_options::{AcquireOptions, options},
    connection::Connection,
};

/// The exclusive lock of one name: at most one guard at a time, over all processes that use the same servers. It is the
/// same lock as the [`RwLock`](crate::RwLock) of that name, of which it is the write side.
///
/// # Fairness
/// Waiters are granted in the order of their arrival where [`Feature::Fifo`](crate::Feature::Fifo) is promised;
/// elsewhere any of them may be next.
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call lock or try_lock"]
pub struct Mutex {
    pub(crate) options: AcquireOptions,
}

impl Mutex {
    pub(crate) fn new(connection: Connection, name: Result<LockName, Error>) -> Self {
        Self { options: AcquireOptions::new(connection, name) }
    }

    options!();

    /// Waits for the lock, and holds it.
    ///
    /// # Errors
    /// [`Error::NotAcquired`] when the wait limit passed (it is kept to within one round trip),
    /// [`Error::Unavailable`] when the service did not answer until then, or, without a limit, for longer than an outage is bridged
    /// ([`LocksOptions::with_outage_timeout`](crate::LocksOptions::with_outage_timeout)), [`Error::Refused`] when it refuses this
    /// program, [`Error::Lost`] when the lease ended before it could be handed over, [`Error::InvalidName`], [`Error::Config`],
    /// [`Error::Unsupported`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the place in the queue is given up, and a grant that comes in the same moment is
    /// released: in the background, by the runtime.
    ///
    /// # Unknown outcomes
    /// None: after an error this attempt does not hold the lock, and what it may have left on the server is removed as
    /// soon as the server can be reached, or ends with its ttl.
    pub async fn lock(&self) -> Result<Guard, Error> {
        self.options.acquire(Mode::Exclusive, Wait::UntilStopped).await
    }

    /// Takes the lock if it is free, and does not wait: `None` when somebody else holds it.
    ///
    /// # Errors
    /// As those of [`Mutex::lock`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`].
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        self.options.try_acquire(Mode::Exclusive).await
    }

    /// This lock for `owner`, who may take it again while it holds it. Others wait, and so does the owner itself where it
    /// takes the plain [`Mutex`]. See [`Owner`] for an example.
    pub fn reentrant(&self, owner: &Owner) -> Reentrant {
        Reentrant::new(self.options.clone(), owner.clone())
    }

    /// This lock for the owner of the scope that the caller is in; see [`Owner::scope`] for an example.
    ///
    /// # Errors
    /// [`Error::NoOwner`] outside of a scope.
    pub fn reentrant_in_scope(&self) -> Result<Reentrant, Error> {
        Owner::current().map(|owner| self.reentrant(&owner)).ok_or(Error::NoOwner)
    }
}
