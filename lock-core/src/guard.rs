//! The guard: what a program has while it holds a lock.

use std::{future::Future, sync::OnceLock, time::Duration};

use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

use crate::{
    Abandoned, BootInstant, Committed, Error, FencingToken, LockName, Loss, Operation, Validity,
    connection::Connection,
    held::{EndedLease, HeldLease},
    observe::Hold,
    operation::{self, OperationLocks},
};

/// A held lock. Dropping it releases the lock in the background; [`Guard::release`] waits for that and reports.
///
/// It is renewed by itself for as long as it lives. Whether it is *still* held is for the program to ask, by
/// [`Guard::is_valid`], before it does what the lock protects; and for the store to check, by the fencing token.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct Guard {
    connection: Connection,
    name: LockName,
    token: FencingToken,
    /// `None` once released.
    held: Option<HeldLease>,
    validity: Validity,
    /// Operations that began under this guard; its release waits for them. Made by the first of them.
    operations: OnceLock<TaskTracker>,
}

impl Guard {
    pub(crate) fn new(
        connection: Connection,
        name: LockName,
        token: FencingToken,
        held: HeldLease,
        validity: Validity,
    ) -> Self {
        Self { connection, name, token, held: Some(held), validity, operations: OnceLock::new() }
    }

    /// Ends the hold after `limit`: the deadline by the clock alone, the release in the background.
    pub(crate) fn limit(&self, limit: Duration) {
        let Some(held) = self.held.clone() else { return };
        self.validity.limit(self.validity.clock().now().saturating_add(limit));
        let (connection, name, validity) = (self.connection.clone(), self.name.clone(), self.validity.clone());
        self.connection.spawn_until_closed(async move {
            if validity.lost().await == Loss::MaxHoldExceeded
                && let Some(ended) = held.end(Loss::MaxHoldExceeded)
            {
                drop(connection.give_back(name, ended));
            }
        });
    }

    pub(crate) const fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Goes on as a reader.
    pub(crate) async fn downgrade(self) -> Result<Self, Error> {
        self.check()?;
        let connection = self.connection.clone();
        // The guard goes with it: should the caller go away, it is released there.
        let ending = connection.keep_open();
        let downgrade = async move {
            let _ending = ending;
            if let Some(held) = &self.held {
                let Some(writer) = held.take() else { return Err(self.taken_error()) };
                match held.put(writer.downgrade().await?) {
                    Ok(()) => self.validity.hold().into_iter().for_each(Hold::downgraded),
                    Err(reader) => {
                        // Its maximum time or the connection ended meanwhile.
                        let _ = EndedLease::new(reader, Loss::Closed).lease.release().await;
                    }
                }
            }
            self.check().map(|()| self)
        };
        connection.in_order(downgrade).await
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
    /// [`Locks::close`](crate::Locks::close) waits for it, too, within its limit.
    ///
    /// # Unknown outcomes
    /// None, where its `commit` leaves none. When the process ends in the middle, or the runtime is shut down, nothing is
    /// restored: what has to survive that is the business of the store's own transactions.
    pub async fn transact<O: Operation>(&self, operation: O) -> Result<Committed<O::Output>, Abandoned<O::Error>> {
        let held = OperationLocks::new([self.as_held()]);
        operation::transact(&self.connection, held, self.token, operation).await
    }

    /// What an operation under this guard needs of it. The lock is not released before it is dropped.
    pub(crate) fn as_held(&self) -> (LockName, Validity, TaskTrackerToken) {
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
        let Some(operations) = self.operations.take() else { return self.end().await };
        // The guard goes with it: should the caller go away, it is released there.
        let connection = self.connection.clone();
        connection.in_order(async move { self.end_after(operations).await }).await
    }

    /// Gives it back when the operations under it have come to their end.
    async fn end_after(mut self, operations: TaskTracker) -> Result<(), Error> {
        operations.close();
        operations.wait().await;
        self.end().await
    }

    /// Gives it back. What somebody else has ended, as the end of its maximum time, is lost.
    fn end(&mut self) -> impl Future<Output = Result<(), Error>> + use<> {
        let ended = self.held.take().and_then(|held| held.end(Loss::Released));
        let given_back = match ended {
            Some(ended) => Ok(self.connection.give_back(self.name.clone(), ended)),
            None => Err(self.taken_error()),
        };
        async move { given_back?.await }
    }

    fn check(&self) -> Result<(), Error> {
        self.validity.loss().map_or(Ok(()), |loss| Err(self.lost_error(loss)))
    }

    /// The error of a guard whose lease somebody else has taken out of the table. Its validity may not show that yet: a close takes
    /// all leases first, and then ends the validity of one after the other.
    fn taken_error(&self) -> Error {
        // Safeguard: a guard whose lease a close has taken was lost
        self.lost_error(self.validity.loss().unwrap_or(Loss::Closed))
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Error::Lost { name: self.name.clone(), loss }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(held) = self.held.take() else { return };
        let (connection, name) = (self.connection.clone(), self.name.clone());
        let end = move || held.end(Loss::Released).map(|ended| connection.give_back(name, ended));
        // Safeguard: a dropped guard waits for the operations that began under it
        match self.operations.take().filter(|operations| !operations.is_empty()) {
            // Safeguard: catalogue: a dropped guard releases
            None => drop(end()),
            Some(operations) => drop(self.connection.in_order(async move {
                operations.close();
                operations.wait().await;
                // It stays in the table until then, for the end of its maximum time or of the connection.
                drop(end());
            })),
        }
    }
}
