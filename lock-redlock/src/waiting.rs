//! Waiting: a place in line on each node, and the channels on which a waiter is told that it is its turn.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::{BootInstant, Clock, clock::wall_micros};
use lock_redis::node::Subscription;

use crate::{
    panel::Panel,
    places::Places,
    scripts::{LockKeys, Place},
};

/// How long after the first node's news a waiter gives the others to follow before it tries.
const GRACE: Duration = Duration::from_millis(5);

/// For how long a waiter's channels are kept for the next one after it.
const EAR_KEPT: Duration = Duration::from_secs(5);

/// The waiters of one connection. They are numbered from 0, and numbers are used again together with the channels that
/// the last one listened to, so that a busy lock does not subscribe over and over.
#[derive(Debug)]
pub(crate) struct Waiters {
    connection: String,
    clock: Clock,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    numbers: Vec<u32>,
    ears: Vec<Kept>,
    next: u32,
}

/// A number with the channels that its last user listened to.
#[derive(Debug)]
struct Kept {
    number: u32,
    lock: String,
    ear: Ear,
    until: BootInstant,
}

/// One waiter; its number is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    name: String,
    number: u32,
    /// When it came, by the wall clock that its place in line is told by.
    since: u64,
    came: BootInstant,
    lock: String,
    /// Where it stands.
    pub(crate) places: Places,
    /// What it listens with, between two rounds.
    ear: Mutex<Option<Ear>>,
    waiters: Arc<Waiters>,
}

impl Waiters {
    /// Of the connection with this unique id.
    pub(crate) fn new(connection: String, clock: Clock) -> Arc<Self> {
        Arc::new(Self { connection, clock, free: Mutex::default() })
    }

    /// A waiter for the lock with this key that comes now.
    pub(crate) fn enter(self: &Arc<Self>, lock: &str) -> Waiter {
        let now = self.clock.now();
        let (number, ear) = self.free(|free| free.take(lock, now));
        Waiter {
            name: format!("{}.{number}", self.connection),
            number,
            since: wall_micros(),
            came: now,
            lock: lock.to_owned(),
            places: Places::default(),
            ear: Mutex::new(ear),
            waiters: Arc::clone(self),
        }
    }

    fn free<T>(&self, work: impl FnOnce(&mut Free) -> T) -> T {
        work(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Free {
    /// A number, if possible one that listens for this lock already.
    fn take(&mut self, lock: &str, now: BootInstant) -> (u32, Option<Ear>) {
        let old = self.ears.extract_if(.., |kept| kept.until <= now).map(|kept| kept.number);
        self.numbers.extend(old);
        if let Some(index) = self.ears.iter().position(|kept| kept.lock == lock) {
            let kept = self.ears.swap_remove(index);
            return (kept.number, Some(kept.ear));
        }
        let number = self.numbers.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        (number, None)
    }
}

impl Waiter {
    /// Its place, as it is sent now.
    pub(crate) fn place(&self, ttl: Duration) -> Place {
        let waited = self.waiters.clock.now().saturating_since(self.came);
        Place { waiter: self.name.clone(), since: self.since, waited, ttl }
    }

    /// To be called before the lock is looked at: what is heard from now on is news.
    pub(crate) fn look(&self) {
        if let Some(ear) = self.ear().as_mut() {
            ear.look();
        }
    }

    /// Resolves when the lock is to be looked at again; see [`Ear::news`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn news(&self, panel: &Panel, keys: &LockKeys) {
        // Taken out while it listens: the waiter has one task, and the lock is not held across an await.
        let ear = self.ear().take().unwrap_or_else(|| Ear::new(panel, &keys.channel(&self.name)));
        let mut listening = Listening { waiter: self, ear: Some(ear) };
        if let Some(ear) = &mut listening.ear {
            ear.news().await;
        }
    }

    fn ear(&self) -> MutexGuard<'_, Option<Ear>> {
        self.ear.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts the ear back, also when the listening is cut short.
struct Listening<'a> {
    waiter: &'a Waiter,
    ear: Option<Ear>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        *self.waiter.ear() = self.ear.take();
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let (number, lock) = (self.number, std::mem::take(&mut self.lock));
        let until = self.waiters.clock.now().saturating_add(EAR_KEPT);
        let ear = self.ear().take();
        self.waiters.free(|free| match ear {
            Some(ear) => free.ears.push(Kept { number, lock, ear, until }),
            None => free.numbers.push(number),
        });
    }
}

/// Listens to a channel of all nodes: for a waiter's turn, or for changes.
#[derive(Debug)]
pub(crate) struct Ear {
    subscriptions: Vec<Subscription>,
    /// What had been heard before the last look at the lock.
    heard: Vec<u64>,
    /// Whether a majority confirmed before the last look: only then it is told of every release after it.
    confirmed: bool,
    needed: usize,
    clock: Clock,
}

impl Ear {
    pub(crate) fn new(panel: &Panel, channel: &str) -> Self {
        let subscriptions: Vec<Subscription> = panel.nodes.iter().map(|node| node.subscribe(channel)).collect();
        let heard = subscriptions.iter().map(Subscription::changes).collect();
        Self { subscriptions, heard, confirmed: false, needed: panel.majority(), clock: panel.clock() }
    }

    /// To be called before the lock is looked at: what is heard from now on is news.
    pub(crate) fn look(&mut self) {
        self.heard = self.subscriptions.iter().map(Subscription::changes).collect();
        self.confirmed = self.count_confirmed() >= self.needed;
    }

    /// Resolves when the lock is to be looked at again: it is this waiter's turn, messages may have been missed, or
    /// the subscriptions were confirmed only after the last look.
    pub(crate) async fn news(&mut self) {
        let needed = self.needed;
        if !self.confirmed {
            let mut confirmations: FuturesUnordered<_> =
                self.subscriptions.iter_mut().map(Subscription::confirmed).collect();
            for _ in 0..needed {
                confirmations.next().await;
            }
            return;
        }
        let mut changes: FuturesUnordered<_> = self
            .subscriptions
            .iter_mut()
            .zip(&self.heard)
            .map(|(subscription, heard)| subscription.changed_since(*heard))
            .collect();
        changes.next().await;
        // The nodes that have not said so have not seen the release yet, and would refuse.
        let majority = async {
            for _ in 1..needed {
                changes.next().await;
            }
        };
        let _ = self.clock.timeout(GRACE, majority).await;
    }

    /// Whether a majority had confirmed at the last look.
    pub(crate) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    fn count_confirmed(&self) -> usize {
        self.subscriptions.iter().filter(|subscription| subscription.is_confirmed()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_waiters_at_a_time_have_different_channels_and_numbers_are_used_again() {
        let waiters = Waiters::new("c".to_owned(), Clock::boot());
        let (first, second) = (waiters.enter("a"), waiters.enter("a"));
        assert_eq!((first.name.as_str(), second.name.as_str()), ("c.0", "c.1"));
        drop(first);
        assert_eq!(waiters.enter("b").name, "c.0");
    }
}
