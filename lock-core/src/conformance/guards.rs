//! What the cases hold: guards of all kinds, each watched by the checker for as long as it lives.

use std::{fmt, ops::Deref, sync::Arc};

use super::checker::{Checker, WatchedGrant};
use crate::{DowngradeFailed, Error, Guard, Mode, Permit, Term, WriteGuard};

/// A guard of any kind that a conformance case can hold and release.
pub(super) trait AnyGuard: Send + Sync + 'static {
    /// What they all are underneath.
    fn guard(&self) -> &Guard;

    /// Releases it and reports.
    fn give_back(self) -> impl Future<Output = Result<(), Error>> + Send;
}

impl AnyGuard for Guard {
    fn guard(&self) -> &Guard {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.release().await
    }
}

impl AnyGuard for WriteGuard {
    fn guard(&self) -> &Guard {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.release().await
    }
}

impl AnyGuard for Permit {
    fn guard(&self) -> &Guard {
        self.guard()
    }

    async fn give_back(self) -> Result<(), Error> {
        self.release().await
    }
}

impl AnyGuard for Term {
    fn guard(&self) -> &Guard {
        self
    }

    async fn give_back(self) -> Result<(), Error> {
        self.resign().await
    }
}

/// A guard whose grant the [`Checker`] watches for as long as the guard is held.
pub(super) struct CheckedGuard<G: AnyGuard = Guard> {
    /// `None` only once given back, or handed on.
    guard: Option<G>,
    /// Whether another value watches it on.
    handed_on: bool,
    hold: Arc<WatchedGrant>,
    checker: Arc<Checker>,
}

impl<G: AnyGuard> CheckedGuard<G> {
    /// Has a new grant watched, and compared with the servers at once if the checker asks for that.
    pub(super) async fn admit(checker: &Arc<Checker>, guard: G, mode: Mode) -> Self {
        let (hold, is_compared) = checker.admit(guard.guard(), mode);
        let checked = Self { guard: Some(guard), handed_on: false, hold, checker: Arc::clone(checker) };
        if is_compared {
            checker.compare(&checked.hold).await;
        }
        checked
    }

    /// Gives it back and reports.
    pub(super) async fn release(mut self) -> Result<(), Error> {
        self.checker.forget(&self.hold);
        match self.guard.take() {
            Some(guard) => guard.give_back().await,
            None => Ok(()),
        }
    }

    /// Notes that somebody else is about to take the lock away from this holder.
    pub(super) fn disturb(&self) {
        self.hold.disturb();
    }

    /// What it is underneath, for what only its kind can do. It is watched on.
    pub(super) fn get(&self) -> &G {
        self.guard.as_ref().expect("only a release or a downgrade takes the guard, and each takes this value, too")
    }
}

impl CheckedGuard<WriteGuard> {
    /// Goes on as a reader.
    pub(super) async fn downgrade(mut self) -> Result<CheckedGuard, DowngradeFailed<WriteGuard>> {
        let Some(guard) = self.guard.take() else { unreachable!("only what takes this value takes its guard") };
        // Readers may come in before the answer is here; for a writer it goes on being held.
        self.hold.admit_readers();
        let guard = guard.downgrade().await?;
        self.handed_on = true;
        let (hold, checker) = (Arc::clone(&self.hold), Arc::clone(&self.checker));
        let checked = CheckedGuard { guard: Some(guard), handed_on: false, hold, checker };
        checked.checker.compare(&checked.hold).await;
        Ok(checked)
    }
}

impl<G: AnyGuard> Drop for CheckedGuard<G> {
    fn drop(&mut self) {
        // Before the guard's own drop, which releases it.
        if !self.handed_on {
            self.checker.forget(&self.hold);
        }
    }
}

impl<G: AnyGuard> Deref for CheckedGuard<G> {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.get().guard()
    }
}

impl<G: AnyGuard> fmt::Debug for CheckedGuard<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.hold, f)
    }
}
