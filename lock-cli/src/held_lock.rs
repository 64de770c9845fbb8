//! A lock that is held, whichever way.

use lock::{Error, FencingToken, Guard, LockName, Permit, Term, Validity};

/// The guard, permit or term of leadership that `lock` holds while its command runs.
#[derive(Debug)]
pub(crate) enum HeldLock {
    /// The lock, alone or as a reader.
    Lock(Guard),
    /// A permit of a semaphore.
    Permit(Permit),
    /// The leadership of an election.
    Term(Term),
}

impl HeldLock {
    pub(crate) fn name(&self) -> &LockName {
        match self {
            Self::Lock(guard) => guard.name(),
            Self::Permit(permit) => permit.name(),
            Self::Term(term) => term.name(),
        }
    }

    /// The fencing token; a permit has none.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        match self {
            Self::Lock(guard) => Some(guard.token()),
            Self::Permit(_) => None,
            Self::Term(term) => Some(term.token()),
        }
    }

    pub(crate) fn validity(&self) -> &Validity {
        match self {
            Self::Lock(guard) => guard.validity(),
            Self::Permit(permit) => permit.validity(),
            Self::Term(term) => term.validity(),
        }
    }

    /// Gives it back and reports.
    pub(crate) async fn release(self) -> Result<(), Error> {
        match self {
            Self::Lock(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
            Self::Term(term) => term.resign().await,
        }
    }
}
