//! The guard: what a program has while it holds a lock.

use std::{
    future::Future,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{
    Abandoned, BootInstant, Committed, Error, FencingToken, Lease, LockName, Locks, Loss, Operation, Validity,
    operation::{self, Tenure},
};

/// A held lock. Dropping it releases the lock in the background; [`Guard::release`] waits for that and reports.
///
/// It is renewed by itself for as long as it lives. Whether it is *still* held is for the program to ask, by
/// [`Guard::is_valid`], before it does what the lock protects; and for the store to check, by the fencing token.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    locks: Locks,
    name: LockName,
    token: FencingToken,
    validity: Validity,
    /// `None` once released.
    lease: Option<Slot>,
    /// Operations that began under this guard; its release waits for them. Made by the first of them.
    operations: OnceLock<TaskTracker>,
}

/// Where the lease of a guard is, for whoever takes it first: the guard itself, or the end of its maximum time.
#[derive(Debug, Clone)]
struct Slot(Arc<Mutex<Option<Box<dyn Lease>>>>);

impl Slot {
    fn new(lease: Box<dyn Lease>) -> Self {
        Self(Arc::new(Mutex::new(Some(lease))))
    }

    fn take(&self) -> Option<Box<dyn Lease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, lease: Box<dyn Lease>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
    }
}

impl Guard {
    pub(crate) fn new(locks: Locks, name: LockName, lease: Box<dyn Lease>) -> Self {
        let token = locks.fencing_token(lease.token());
        let validity = lease.validity().clone();
        tracing::debug!(%name, %token, "granted");
        Self { locks, name, token, validity, lease: Some(Slot::new(lease)), operations: OnceLock::new() }
    }

    /// Ends the hold after `limit`: the deadline by the clock alone, the release in the background.
    pub(crate) fn limit(&self, limit: Duration) {
        let Some(slot) = self.lease.clone() else { return };
        self.validity.limit(self.validity.clock().now().saturating_add(limit));
        let (locks, name, validity) = (self.locks.clone(), self.name.clone(), self.validity.clone());
        self.locks.spawn_until_closed(async move {
            if validity.lost().await == Loss::HeldTooLong
                && let Some(lease) = slot.take()
            {
                tracing::warn!(%name, ?limit, "held for its maximum time; released");
                drop(locks.release(lease));
            }
        });
    }

    pub(crate) const fn locks(&self) -> &Locks {
        &self.locks
    }

    /// Goes on as a reader.
    pub(crate) async fn downgrade(self) -> Result<Self, Error> {
        self.check()?;
        let locks = self.locks.clone();
        // The guard goes with it: should the caller go away, it is released there.
        let downgrade = async move {
            let Some(slot) = self.lease.as_ref() else { return Ok(self) };
            if let Some(lease) = slot.take() {
                slot.put(lease.downgrade().await?);
            }
            self.check().map(|()| self)
        };
        locks.in_order(downgrade).await
    }

    /// What is locked.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        &self.name
    }

    /// The fencing token of this grant: higher than that of every earlier grant of the name.
    #[must_use]
    pub const fn token(&self) -> FencingToken {
        self.token
    }

    /// Whether the lock is held now: a clock read and an atomic load, on the caller's own thread. Once false, it stays
    /// false.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.validity.is_valid()
    }

    /// How long the lock is certainly held without a further renewal; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.validity.remaining()
    }

    /// Until when the lock is certainly held without a further renewal; `None` when it is lost.
    #[must_use]
    pub fn valid_until(&self) -> Option<BootInstant> {
        self.validity.valid_until()
    }

    /// The validity itself, to be handed to another thread or kept beyond the guard.
    #[must_use]
    pub const fn validity(&self) -> &Validity {
        &self.validity
    }

    /// Resolves when the lock is lost. A convenience: it needs a running runtime, [`Guard::is_valid`] does not.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> Loss {
        self.validity.lost().await
    }

    /// Runs `operation` while the lock is held: not at all when it is lost already, dropped when it is lost meanwhile,
    /// and its result is not given out when the lock was lost by the time it ended.
    ///
    /// # Errors
    /// [`Error::Lost`]; what `operation` had done by then is done.
    ///
    /// # Cancel safety
    /// As that of `operation`.
    pub async fn run<F: Future>(&self, operation: F) -> Result<F::Output, Error> {
        self.check()?;
        let done = tokio::select! {
            biased;
            _ = self.validity.lost() => None,
            done = operation => Some(done),
        };
        self.check()?;
        // Lost is final, so a check that passes here means that the operation was not cut off.
        done.ok_or_else(|| self.lost_error(Loss::Expired))
    }

    /// Runs `operation` so that it takes hold only while the lock is held: it is not begun when the lock is lost already,
    /// cut off when it is lost meanwhile, not committed when it was lost by the time that the work was done, and what was
    /// changed is restored then, and also when a step fails or panics. See [`Operation`] for an example, and for what its
    /// steps may rely on.
    ///
    /// # Errors
    /// [`Abandoned`]: the operation does not count. It says why, and whether the state was restored.
    ///
    /// # Panics
    /// With what `apply` or `commit` panicked with, after the state was restored.
    ///
    /// # Cancel safety
    /// When the future is dropped before the commit began, the work is cut off and the state restored; when it is dropped in
    /// the commit, that is brought to its end. Both are done in the background, and the lock stays held until then: a guard
    /// that is dropped or released meanwhile waits for it, unless its maximum holding time ends first. The operation is
    /// taken by value for this sake.
    /// [`Locks::close`] waits for it, too, within its limit.
    ///
    /// # Unknown outcomes
    /// None, where its `commit` leaves none. When the process ends in the middle, or the runtime is shut down, nothing is
    /// restored: what has to survive that is the business of the store's own transactions.
    pub async fn transact<O: Operation>(&self, operation: O) -> Result<Committed<O::Output>, Abandoned<O::Error>> {
        let tenure = Tenure::new([self.tenure()]);
        operation::transact(&self.locks, tenure, self.token, operation).await
    }

    /// What an operation under this guard needs of it. The lock is not released before it is dropped.
    pub(crate) fn tenure(&self) -> (LockName, Validity, TaskTrackerToken) {
        let using = self.operations.get_or_init(TaskTracker::new).token();
        (self.name.clone(), self.validity.clone(), using)
    }

    /// Releases the lock and reports.
    ///
    /// # Errors
    /// [`Error::Lost`] when the lock had been lost before; it is another's business by then, and is left alone.
    /// [`Error::Unavailable`] when the server did not confirm it: the release goes on in the background, and the lock
    /// ends with its ttl at the latest.
    ///
    /// # Cancel safety
    /// When the future is dropped, the release goes on in the background.
    ///
    /// # Unknown outcomes
    /// After [`Error::Unavailable`] the lock may still stand on the server, until the background release or the ttl ends
    /// it. This program does not hold it in either case.
    pub async fn release(mut self) -> Result<(), Error> {
        if let Some(operations) = self.operations.take() {
            // The guard goes with it: should the caller go away, it is released there.
            let locks = self.locks.clone();
            return locks.in_order(async move { self.release_after(operations).await }).await;
        }
        let lost = self.validity.loss();
        let released = match self.lease.take().and_then(|slot| slot.take()) {
            Some(lease) => self.locks.release(lease).await,
            None => Ok(()),
        };
        match lost {
            Some(loss) => Err(self.lost_error(loss)),
            None => released,
        }
    }

    /// Releases it when the operations under it have come to their end.
    async fn release_after(mut self, operations: TaskTracker) -> Result<(), Error> {
        operations.close();
        operations.wait().await;
        let lost = self.validity.loss();
        let released = match self.lease.take().and_then(|slot| slot.take()) {
            Some(lease) => lease.release().await,
            None => Ok(()),
        };
        lost.map_or(released, |loss| Err(self.lost_error(loss)))
    }

    fn check(&self) -> Result<(), Error> {
        self.validity.loss().map_or(Ok(()), |loss| Err(self.lost_error(loss)))
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Error::Lost { name: self.name.clone(), loss }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(slot) = self.lease.take() else { return };
        match self.operations.take().filter(|operations| !operations.is_empty()) {
            None => {
                if let Some(lease) = slot.take() {
                    drop(self.locks.release(lease));
                }
            }
            Some(operations) => drop(self.locks.in_order(async move {
                operations.close();
                operations.wait().await;
                // It stays in its place until then, for the end of its maximum time.
                if let Some(lease) = slot.take() {
                    let _ = lease.release().await;
                }
            })),
        }
    }
}
