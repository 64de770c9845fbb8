//! Waiting: a place in line on each node, and the channels on which a waiter is told that it is its turn.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::{BootInstant, Clock};
use lock_redis::node::Subscription;

use crate::{
    panel::Panel,
    places::Places,
    scripts::{LockKeys, Place, waiter_name},
};

/// How long after the first node's news a waiter gives the others to follow before it tries.
const GRACE: Duration = Duration::from_millis(5);

/// For how long a waiter's channels are kept for the next one after it.
const EAR_KEPT: Duration = Duration::from_secs(5);

/// The waiters of one connection, and the channels that they listen to. A channel is used again by those who come later, so
/// that a busy lock does not subscribe over and over; the name of a waiter is not.
#[derive(Debug)]
pub(crate) struct Waiters {
    connection: String,
    clock: Clock,
    visits: AtomicU64,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    channels: Vec<u32>,
    ears: Vec<Kept>,
    next: u32,
}

/// A channel with the subscriptions of its last user.
#[derive(Debug)]
struct Kept {
    channel: u32,
    lock: String,
    ear: Ear,
    until: BootInstant,
}

/// One waiter, as the nodes know it. What was sent for it may reach a node long after it has gone, so nobody else is called
/// that, ever.
#[derive(Debug)]
pub(crate) struct Waiter {
    name: String,
    clock: Clock,
    came: BootInstant,
    /// Where it stands.
    pub(crate) places: Places,
}

/// What a waiter listens with. Its channel is free for the next one when this is dropped, whatever of the waiter itself is
/// still to be cleared from a node that stands still.
#[derive(Debug)]
pub(crate) struct Listener {
    channel: u32,
    lock: String,
    ear: Option<Ear>,
    waiters: Arc<Waiters>,
}

impl Waiters {
    /// Of the connection with this unique id.
    pub(crate) fn new(connection: String, clock: Clock) -> Arc<Self> {
        Arc::new(Self { connection, clock, visits: AtomicU64::new(0), free: Mutex::default() })
    }

    /// A waiter for the lock with this key that comes now.
    pub(crate) fn enter(self: &Arc<Self>, lock: &str) -> (Waiter, Listener) {
        let now = self.clock.now();
        let (channel, ear) = self.free(|free| free.take(lock, now));
        let visit = self.visits.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter {
            name: waiter_name(&self.channel(channel), visit),
            clock: self.clock,
            came: now,
            places: Places::default(),
        };
        (waiter, Listener { channel, lock: lock.to_owned(), ear, waiters: Arc::clone(self) })
    }

    fn channel(&self, channel: u32) -> String {
        format!("{}.{channel}", self.connection)
    }

    fn free<T>(&self, work: impl FnOnce(&mut Free) -> T) -> T {
        work(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Free {
    /// A channel, if possible one that is listened to for this lock already.
    fn take(&mut self, lock: &str, now: BootInstant) -> (u32, Option<Ear>) {
        let old = self.ears.extract_if(.., |kept| kept.until <= now).map(|kept| kept.channel);
        self.channels.extend(old);
        if let Some(index) = self.ears.iter().position(|kept| kept.lock == lock) {
            let kept = self.ears.swap_remove(index);
            return (kept.channel, Some(kept.ear));
        }
        let channel = self.channels.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        (channel, None)
    }
}

impl Waiter {
    /// Its place, as it is sent now.
    pub(crate) fn place(&self, ttl: Duration) -> Place {
        let waited = self.clock.now().saturating_since(self.came);
        Place { waiter: self.name.clone(), waited, ttl }
    }
}

impl Listener {
    /// To be called before the lock is looked at: what is heard from now on is news.
    pub(crate) fn look(&mut self) {
        if let Some(ear) = &mut self.ear {
            ear.look();
        }
    }

    /// Resolves when the lock is to be looked at again; see [`Ear::news`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn news(&mut self, panel: &Panel, keys: &LockKeys) {
        let channel = self.waiters.channel(self.channel);
        self.ear.take_if(|ear| ear.misses_a_server(panel));
        self.ear.get_or_insert_with(|| Ear::new(panel, &keys.channel(&channel))).news().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (channel, lock, ear) = (self.channel, std::mem::take(&mut self.lock), self.ear.take());
        let until = self.waiters.clock.now().saturating_add(EAR_KEPT);
        self.waiters.free(|free| match ear {
            Some(ear) => free.ears.push(Kept { channel, lock, ear, until }),
            None => free.channels.push(channel),
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
    /// How many servers had come to the place of another.
    moves: u64,
}

impl Ear {
    pub(crate) fn new(panel: &Panel, channel: &str) -> Self {
        let moves = panel.moves();
        let subscriptions: Vec<Subscription> = panel.nodes().iter().map(|node| node.subscribe(channel)).collect();
        let heard = subscriptions.iter().map(Subscription::changes).collect();
        Self { subscriptions, heard, confirmed: false, needed: panel.majority(), clock: panel.clock(), moves }
    }

    /// Whether a server has been replaced since.
    pub(crate) fn misses_a_server(&self, panel: &Panel) -> bool {
        self.moves != panel.moves()
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
    fn two_waiters_at_a_time_have_different_channels_which_are_used_again_and_no_two_have_the_same_name() {
        let waiters = Waiters::new("c".to_owned(), Clock::boot());
        let ((first, its_ear), (second, _ear)) = (waiters.enter("a"), waiters.enter("a"));
        assert_eq!((first.name.as_str(), second.name.as_str()), ("c.0@0", "c.1@1"));
        // Although the first is not forgotten yet.
        drop(its_ear);
        let (third, _ear) = waiters.enter("b");
        assert_eq!((third.name.as_str(), first.name.as_str()), ("c.0@2", "c.0@0"));
    }
}
