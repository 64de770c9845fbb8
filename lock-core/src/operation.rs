//! Guarded operations: work that takes hold only while its lock is held, and is undone otherwise.

use std::{
    any::Any,
    fmt,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::pin,
    task::Poll,
};

use futures_util::future::select_all;
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use crate::{Error, FencingToken, LockName, Validity, connection::Connection};

/// Work in four steps, of which the third makes it count. [`Guard::transact`](crate::Guard::transact) runs them.
///
/// 1. [`snapshot`](Operation::snapshot) records what the work will change.
/// 2. [`apply`](Operation::apply) does the work, but for its last step. It may be cut off at any await, so it changes
///    nothing that a snapshot cannot bring back.
/// 3. [`commit`](Operation::commit) makes it count: best in one write to the store, which is given the fencing token and
///    refuses one that is lower than the highest it has seen. It is begun only while the lock is held, and never cut off.
/// 4. [`restore`](Operation::restore) brings back what the snapshot recorded, when it does not come to a commit.
///
/// Between the last look at the lock and the arrival of a write at the store, time passes, and no lock can hold that time
/// still: the process may be stopped there. That is what the token is for, in `commit` and in `restore` alike. What
/// `restore` writes to a shared store may come after a later holder's work; with the token the store refuses it then.
///
/// `T` is what the steps get as their fencing token: the [`FencingToken`] of a [`Guard`](crate::Guard), the
/// [`Tokens`](crate::Tokens) of a [`MultiGuard`](crate::MultiGuard), nothing of a [`Permit`](crate::Permit), which has none.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use lock_core::{Locks, memory::{Config, Memory, MemoryServer}};
/// # let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new()))?);
/// use std::sync::{Arc, Mutex};
/// use lock_core::{Fence, FencingToken, Operation, StaleToken};
///
/// /// A ledger in the process, and the fence in front of it.
/// #[derive(Default)]
/// struct Ledger {
///     fence: Fence,
///     balance: Mutex<i64>,
/// }
///
/// struct Deposit {
///     ledger: Arc<Ledger>,
///     amount: i64,
///     balance: i64,
/// }
///
/// impl Operation for Deposit {
///     type Snapshot = i64;
///     type Output = i64;
///     type Error = StaleToken;
///
///     async fn snapshot(&mut self) -> Result<i64, StaleToken> {
///         self.balance = *self.ledger.balance.lock().unwrap();
///         Ok(self.balance)
///     }
///     async fn apply(&mut self, _token: FencingToken) -> Result<(), StaleToken> {
///         self.balance += self.amount; // nobody else sees it yet
///         Ok(())
///     }
///     async fn commit(&mut self, token: FencingToken) -> Result<i64, StaleToken> {
///         self.ledger.fence.admit("ledger", token, || *self.ledger.balance.lock().unwrap() = self.balance)?;
///         Ok(self.balance)
///     }
///     async fn restore(&mut self, snapshot: i64, _token: FencingToken) -> Result<(), StaleToken> {
///         self.balance = snapshot;
///         Ok(())
///     }
/// }
///
/// let ledger = Arc::new(Ledger::default());
/// let guard = locks.mutex("ledger").lock().await?;
/// let committed = guard.transact(Deposit { ledger: ledger.clone(), amount: 5, balance: 0 }).await?;
/// assert_eq!(committed.output, 5);
/// assert_eq!(*ledger.balance.lock().unwrap(), 5);
/// # Ok(())
/// # }
/// ```
pub trait Operation<T = FencingToken>: Send + 'static {
    /// What is recorded before the work, to be brought back.
    type Snapshot: Send;
    /// What a commit gives.
    type Output: Send + 'static;
    /// Why a step failed.
    type Error: Send + 'static;

    /// Records what the work will change, and changes nothing.
    ///
    /// # Errors
    /// The operation's own: then it has ended, with nothing changed.
    fn snapshot(&mut self) -> impl Future<Output = Result<Self::Snapshot, Self::Error>> + Send;

    /// Does the work, but for its last step.
    ///
    /// # Errors
    /// The operation's own: then the snapshot is restored.
    ///
    /// # Cancel safety
    /// It is dropped when the lock is lost, or when nobody waits for the operation any more; then the snapshot is restored.
    fn apply(&mut self, token: T) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes the work count.
    ///
    /// # Errors
    /// The operation's own, when nothing of it counts: then the snapshot is restored. Where a store gave no answer, find
    /// out here, before it returns, whether it counts.
    ///
    /// # Cancel safety
    /// It is never dropped, unless the runtime is: once begun, it is brought to its end.
    fn commit(&mut self, token: T) -> impl Future<Output = Result<Self::Output, Self::Error>> + Send;

    /// Brings back what the snapshot recorded. The lock may have been lost before, and be another's by now.
    ///
    /// # Errors
    /// The operation's own: then the state is neither that before nor that after it.
    ///
    /// # Cancel safety
    /// As that of [`Operation::commit`].
    fn restore(&mut self, snapshot: Self::Snapshot, token: T) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// An operation that counts.
#[derive(Debug)]
#[non_exhaustive]
pub struct Committed<T> {
    /// What its commit gave.
    pub output: T,
    /// [`Error::Lost`] when the lock was lost while the commit ran. A store that checks the fencing token has seen to it
    /// that the commit came before any work of a later holder; with any other store that is not known.
    pub late: Option<Error>,
}

/// An operation that does not count.
#[derive(Debug)]
#[non_exhaustive]
pub struct Abandoned<E> {
    /// Why.
    pub cause: Cause<E>,
    /// What has become of the state that it works on.
    pub state: StateAfter<E>,
}

/// Why an operation was abandoned.
#[derive(Debug)]
#[non_exhaustive]
pub enum Cause<E> {
    /// The lock was lost, with [`Error::Lost`]: before the operation began, or in it, but before its commit.
    Lock(Error),
    /// [`Operation::snapshot`] failed.
    Snapshot(E),
    /// [`Operation::apply`] failed.
    Apply(E),
    /// [`Operation::commit`] failed.
    Commit(E),
}

/// The state after an operation that was abandoned.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateAfter<E> {
    /// The work had not begun.
    Untouched,
    /// It is as it was before the operation.
    Restored,
    /// [`Operation::restore`] failed: somebody has to look at it.
    RestoreFailed(E),
}

impl<E> Abandoned<E> {
    /// Whether the state is as it was before the operation.
    #[must_use]
    pub const fn is_as_before(&self) -> bool {
        !matches!(self.state, StateAfter::RestoreFailed(_))
    }

    const fn untouched(cause: Cause<E>) -> Self {
        Self { cause, state: StateAfter::Untouched }
    }
}

impl<E: fmt::Display> fmt::Display for Abandoned<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the operation was abandoned, {}; {}", self.cause, self.state)
    }
}

impl<E: fmt::Display> fmt::Display for Cause<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => error.fmt(f),
            Self::Snapshot(error) => write!(f, "its snapshot failed: {error}"),
            Self::Apply(error) => write!(f, "its work failed: {error}"),
            Self::Commit(error) => write!(f, "its commit failed: {error}"),
        }
    }
}

impl<E: fmt::Display> fmt::Display for StateAfter<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untouched => f.write_str("nothing was changed"),
            Self::Restored => f.write_str("the state was restored"),
            Self::RestoreFailed(error) => write!(f, "the state was NOT restored: {error}"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for Abandoned<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Lock(error) => Some(error),
            Cause::Snapshot(error) | Cause::Apply(error) | Cause::Commit(error) => Some(error),
        }
    }
}

/// The locks that a guarded operation runs under, none of which is released while this value lives. They are not released
/// for as long as this lives.
pub(crate) struct OperationLocks {
    held: Vec<(LockName, Validity)>,
    _uses: Vec<TaskTrackerToken>,
}

impl OperationLocks {
    pub(crate) fn new(parts: impl IntoIterator<Item = (LockName, Validity, TaskTrackerToken)>) -> Self {
        let (held, uses) = parts.into_iter().map(|(name, validity, using)| ((name, validity), using)).unzip();
        Self { held, _uses: uses }
    }

    fn check(&self) -> Result<(), Error> {
        let lost = |(name, validity): &(LockName, Validity)| {
            validity.loss().map(|loss| Error::Lost { name: name.clone(), loss })
        };
        self.held.iter().find_map(lost).map_or(Ok(()), Err)
    }

    async fn lost(&self) {
        select_all(self.held.iter().map(|(_, validity)| Box::pin(validity.lost()))).await;
    }

    /// Runs `step` while the locks are held and somebody waits for it; its result counts only if they still are at its end.
    async fn under<F: Future>(&self, stop: &CancellationToken, step: F) -> Result<F::Output, Error> {
        self.check()?;
        let done = tokio::select! {
            biased;
            () = self.lost() => None,
            () = stop.cancelled() => None,
            done = step => Some(done),
        };
        // Safeguard: the lock is looked at between the work and the commit of an operation
        self.check().and(done.ok_or(Error::Cancelled))
    }
}

/// Runs `operation` under `held_set`. When the caller goes away, what is left of it is done in the background.
pub(crate) async fn transact<T, O>(
    connection: &Connection,
    held_set: OperationLocks,
    token: T,
    operation: O,
) -> Result<Committed<O::Output>, Abandoned<O::Error>>
where
    T: Clone + Send + Sync + 'static,
    O: Operation<T>,
{
    let stop = CancellationToken::new();
    let steps = steps(held_set, stop.clone(), token, operation);
    connection.run_to_completion(stop, steps).await
}

async fn steps<T, O>(
    held_set: OperationLocks,
    stop: CancellationToken,
    token: T,
    mut operation: O,
) -> Result<Committed<O::Output>, Abandoned<O::Error>>
where
    T: Clone + Send + Sync + 'static,
    O: Operation<T>,
{
    let snapshot = match held_set.under(&stop, operation.snapshot()).await {
        Ok(Ok(snapshot)) => snapshot,
        Ok(Err(error)) => return Err(Abandoned::untouched(Cause::Snapshot(error))),
        Err(error) => return Err(Abandoned::untouched(Cause::Lock(error))),
    };
    let applied = unless_panicked(held_set.under(&stop, operation.apply(token.clone()))).await;
    let committed = match applied {
        // The look at the locks that ended `under` was the last one, and nothing can come between it and the commit's
        // first poll but a stop of the whole process.
        Ok(Ok(Ok(()))) => {
            unless_panicked(operation.commit(token.clone())).await.map(|done| done.map_err(Cause::Commit))
        }
        Ok(Ok(Err(error))) => Ok(Err(Cause::Apply(error))),
        Ok(Err(error)) => Ok(Err(Cause::Lock(error))),
        Err(panic) => Err(panic),
    };
    if let Ok(Ok(output)) = committed {
        return Ok(Committed { output, late: held_set.check().err() });
    }
    let state = match operation.restore(snapshot, token).await {
        Ok(()) => StateAfter::Restored,
        Err(error) => {
            // Said here, too: there may be nobody left who gets the result.
            tracing::error!("an abandoned operation could not restore its state");
            StateAfter::RestoreFailed(error)
        }
    };
    match committed {
        Err(panic) => resume_unwind(panic),
        Ok(Err(cause)) => Err(Abandoned { cause, state }),
        Ok(Ok(_)) => unreachable!("it was returned above"),
    }
}

/// Runs `step`; what it panicked with is the error. After that the operation is asked for nothing but to restore.
async fn unless_panicked<F: Future>(step: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut step = pin!(step);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| step.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}
