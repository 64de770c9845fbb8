//! What is due when, for one task that does what is due first.

use std::{collections::BTreeSet, future::pending};

use tokio::sync::Notify;

use crate::{BootInstant, Clock};

/// A timer queue for one task: the times at which its entries are due, each with the number of the entry. Most entries are
/// removed before they are due, so that the task is woken only for what is due before it looks again, and finds the others by
/// then.
#[derive(Debug)]
pub(crate) struct DueTimes {
    due: BTreeSet<(BootInstant, u64)>,
    /// When the task looks again, unless it is woken: also for what is not due any more by then, as the next is not, either.
    looks_at: BootInstant,
    /// It is not asleep, and looks before it is.
    is_awake: bool,
}

const NEVER: BootInstant = BootInstant::from_nanos(u64::MAX);

impl Default for DueTimes {
    fn default() -> Self {
        Self { due: BTreeSet::new(), looks_at: NEVER, is_awake: true }
    }
}

impl DueTimes {
    /// Notes when something is due, and returns whether the task has to be woken for that.
    #[must_use]
    pub(crate) fn add(&mut self, at: BootInstant, id: u64) -> bool {
        self.due.insert((at, id));
        // Safeguard: a task is woken for what is due before it looks
        let wakes = !self.is_awake && at < self.looks_at;
        self.looks_at = self.looks_at.min(at);
        self.is_awake |= wakes;
        wakes
    }

    /// Forgets what is due then, and returns whether it was there.
    pub(crate) fn remove(&mut self, at: BootInstant, id: u64) -> bool {
        self.due.remove(&(at, id))
    }

    /// What is due first.
    pub(crate) fn first(&self) -> Option<(BootInstant, u64)> {
        self.due.first().copied()
    }

    /// Takes what is due until then, that included.
    pub(crate) fn take(&mut self, until: BootInstant) -> impl Iterator<Item = u64> + use<> {
        self.is_awake = true;
        if self.looks_at <= until {
            self.looks_at = NEVER;
        }
        let later = match until.as_nanos().checked_add(1) {
            Some(after) => self.due.split_off(&(BootInstant::from_nanos(after), 0)),
            None => BTreeSet::new(),
        };
        std::mem::replace(&mut self.due, later).into_iter().map(|(_, id)| id)
    }

    /// When the task is to look again, if at all. It waits for that, and is woken for what is due before it.
    pub(crate) fn sleep(&mut self) -> Option<BootInstant> {
        self.is_awake = false;
        self.looks_at = self.first().map_or(self.looks_at, |(at, _)| self.looks_at.min(at));
        Some(self.looks_at).filter(|&at| at < NEVER)
    }
}

/// Waits for that time, if there is one, or for `woken`.
pub(crate) async fn wait(clock: Clock, until: Option<BootInstant>, woken: &Notify) {
    let is_due = async {
        match until {
            Some(until) => clock.sleep_until(until).await,
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        () = is_due => {}
        () = woken.notified() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(nanos: u64) -> BootInstant {
        BootInstant::from_nanos(nanos)
    }

    #[test]
    fn a_task_is_woken_once_for_what_is_due_before_it_looks() {
        let mut due = DueTimes::default();
        assert!(!due.add(at(20), 0), "it looks after its work");
        assert_eq!(due.sleep(), Some(at(20)));
        assert!(!due.add(at(20), 1) && !due.add(at(30), 2), "it finds them when it looks");
        assert!(due.add(at(10), 3));
        assert!(!due.add(at(5), 4), "it is awake already");
        assert!(due.remove(at(5), 4) && !due.remove(at(5), 4));
        assert_eq!(due.take(at(20)).collect::<Vec<_>>(), [3, 0, 1]);
        assert_eq!(due.sleep(), Some(at(30)));
        assert_eq!(due.take(at(u64::MAX)).collect::<Vec<_>>(), [2]);
        assert_eq!(due.sleep(), None);
        assert!(due.add(at(u64::MAX - 1), 5), "it would never look");
    }

    #[test]
    fn what_is_over_before_it_is_due_wakes_nobody_but_the_first_time() {
        let mut due = DueTimes::default();
        assert_eq!(due.sleep(), None);
        let woken = (0..100).filter(|&id| {
            let woken = due.add(at(1000 + id), id);
            due.remove(at(1000 + id), id);
            if woken {
                // It comes too late to find it.
                assert_eq!(due.take(at(1)).count(), 0);
                assert_eq!(due.sleep(), Some(at(1000)));
            }
            woken
        });
        assert_eq!(woken.count(), 1);
        assert_eq!(due.take(at(1000)).count(), 0);
        assert_eq!(due.sleep(), None);
    }
}
