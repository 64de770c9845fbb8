//! The waiters of this client, in a line for each lock name.
//!
//! Only the first in line talks to the server: a release wakes one waiter of each client, not all of them, and waiters
//! of one client are granted in the order of their arrival.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use lock_core::{BootInstant, LockName};
use tokio::sync::MutexGuard;

use crate::node::Subscription;

/// The lines of all names that have waiters.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<HashMap<LockName, Arc<Line>>>,
    /// Names that others waited for when it released them, and until when it lets them go first.
    courtesies: Mutex<HashMap<LockName, BootInstant>>,
}

/// More courtesies than this are looked through for those that are over.
const MANY: usize = 64;

/// A line. Its lock is fair: whoever has it is the first in line.
type Line = tokio::sync::Mutex<Front>;

/// What the first in line knows, and leaves to the next one.
#[derive(Debug, Default)]
pub(crate) struct Front {
    /// The channel of releases.
    pub(crate) subscription: Option<Subscription>,
    /// The lock is held by somebody, as far as anybody knows.
    pub(crate) held: Option<SeenHeld>,
    /// Since when every try has failed.
    pub(crate) failing_since: Option<BootInstant>,
}

/// The lock was held when the messages up to `changes` had come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeenHeld {
    /// [`Subscription::changes`] as it was before the look.
    pub(crate) changes: u64,
    /// When the holder's lease ends unless it is renewed.
    pub(crate) look_again: BootInstant,
}

/// A place in a line; leaving it is dropping it.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    lines: &'a Lines,
    name: LockName,
    line: Arc<Line>,
}

impl Lines {
    /// Joins the line of `name`, at its end.
    pub(crate) fn join(&self, name: &LockName) -> Place<'_> {
        let line = self.open(|lines| Arc::clone(lines.entry(name.clone()).or_default()));
        Place { lines: self, name: name.clone(), line }
    }

    /// Lets others go first on `name` until then.
    pub(crate) fn let_others_go_first(&self, name: &LockName, now: BootInstant, until: BootInstant) {
        let mut courtesies = self.courtesies.lock().unwrap_or_else(PoisonError::into_inner);
        if courtesies.len() >= MANY {
            courtesies.retain(|_, until| now < *until);
        }
        courtesies.insert(name.clone(), until);
    }

    /// Until when others go first on `name`; asked once.
    pub(crate) fn others_go_first(&self, name: &LockName, now: BootInstant) -> Option<BootInstant> {
        let mut courtesies = self.courtesies.lock().unwrap_or_else(PoisonError::into_inner);
        courtesies.remove(name).filter(|until| now < *until)
    }

    fn open<T>(&self, work: impl FnOnce(&mut HashMap<LockName, Arc<Line>>) -> T) -> T {
        work(&mut self.lines.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place<'_> {
    /// Resolves when this place is the first one.
    pub(crate) async fn first(&self) -> MutexGuard<'_, Front> {
        self.line.lock().await
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.lines.open(|lines| {
            // Only the map and this place have it, and joining needs the map.
            if Arc::strong_count(&self.line) == 2 {
                lines.remove(&self.name);
            }
        });
    }
}

impl Front {
    /// Until when the lock is held, as far as is known without asking; `None` when it is time to ask.
    pub(crate) fn held_until(&self, now: BootInstant) -> Option<SeenHeld> {
        let subscription = self.subscription.as_ref().filter(|subscription| subscription.is_confirmed())?;
        self.held.filter(|held| subscription.changes() == held.changes && now < held.look_again)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_is_gone_when_the_last_one_leaves_it() {
        let lines = Lines::default();
        let name = LockName::new("a").unwrap();
        let (first, second) = (lines.join(&name), lines.join(&name));
        first.first().await.failing_since = Some(BootInstant::from_nanos(7));
        drop(first);
        assert!(second.first().await.failing_since.is_some(), "what the first one knew is left to the next");
        drop(second);
        assert_eq!(lines.open(|lines| lines.len()), 0);
    }
}
