//! Waiting: a entry in line on each node, and the channels on which a waiter is told that it is its turn.

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
    nodes::{
        quorum::Quorum,
        scripts::{LockKeys, WaiterEntry, waiter_name},
    },
    protocol::enrollments::Enrollments,
};

/// How long after the first node's news a waiter gives the others to follow before it tries.
const GRACE: Duration = Duration::from_millis(5);

/// For how long a waiter's channels are kept for the next one after it.
const CHANNEL_KEPT: Duration = Duration::from_secs(5);

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
    idle: Vec<IdleChannel>,
    next: u32,
}

/// A channel with the subscriptions of its last user.
#[derive(Debug)]
struct IdleChannel {
    channel: u32,
    lock: String,
    subscriptions: Subscriptions,
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
    pub(crate) enrollments: Enrollments,
}

/// What a waiter listens with. Its channel is free for the next one when this is dropped, whatever of the waiter itself is
/// still to be cleared from a node that stands still.
#[derive(Debug)]
pub(crate) struct Listener {
    channel: u32,
    lock: String,
    subscriptions: Option<Subscriptions>,
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
        let (channel, subscriptions) = self.free(|free| free.take(lock, now));
        let visit = self.visits.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter {
            name: waiter_name(&self.channel(channel), visit),
            clock: self.clock,
            came: now,
            enrollments: Enrollments::default(),
        };
        (waiter, Listener { channel, lock: lock.to_owned(), subscriptions, waiters: Arc::clone(self) })
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
    fn take(&mut self, lock: &str, now: BootInstant) -> (u32, Option<Subscriptions>) {
        let old = self.idle.extract_if(.., |kept| kept.until <= now).map(|kept| kept.channel);
        self.channels.extend(old);
        if let Some(index) = self.idle.iter().position(|kept| kept.lock == lock) {
            let kept = self.idle.swap_remove(index);
            return (kept.channel, Some(kept.subscriptions));
        }
        let channel = self.channels.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        (channel, None)
    }
}

impl Waiter {
    /// Its entry, as it is sent now.
    pub(crate) fn entry(&self, ttl: Duration) -> WaiterEntry {
        let waited = self.clock.now().saturating_since(self.came);
        WaiterEntry { waiter: self.name.clone(), waited, ttl }
    }
}

impl Listener {
    /// To be called before the lock is looked at: what is heard from now on is news.
    pub(crate) fn mark_unchanged(&mut self) {
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.mark_unchanged();
        }
    }

    /// Resolves when the lock is to be looked at again; see [`Subscriptions::news`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub(crate) async fn changed(&mut self, quorum: &Quorum, keys: &LockKeys) {
        let channel = self.waiters.channel(self.channel);
        self.subscriptions.take_if(|subscriptions| subscriptions.is_outdated(quorum));
        self.subscriptions.get_or_insert_with(|| Subscriptions::new(quorum, &keys.channel(&channel))).changed().await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let (channel, lock, subscriptions) = (self.channel, std::mem::take(&mut self.lock), self.subscriptions.take());
        let until = self.waiters.clock.now().saturating_add(CHANNEL_KEPT);
        self.waiters.free(|free| match subscriptions {
            Some(subscriptions) => free.idle.push(IdleChannel { channel, lock, subscriptions, until }),
            None => free.channels.push(channel),
        });
    }
}

/// Listens to a channel of all nodes: for a waiter's turn, or for changes.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    subscriptions: Vec<Subscription>,
    /// What had been heard before the last look at the lock.
    heard: Vec<u64>,
    /// Whether a majority confirmed before the last look: only then it is told of every release after it.
    confirmed: bool,
    needed: usize,
    clock: Clock,
    /// How many servers had come to the entry of another.
    replacements: u64,
}

impl Subscriptions {
    pub(crate) fn new(quorum: &Quorum, channel: &str) -> Self {
        let replacements = quorum.replacements();
        let subscriptions: Vec<Subscription> = quorum.nodes().iter().map(|node| node.subscribe(channel)).collect();
        let heard = subscriptions.iter().map(Subscription::changes).collect();
        Self { subscriptions, heard, confirmed: false, needed: quorum.majority(), clock: quorum.clock(), replacements }
    }

    /// Whether a server has been replaced since.
    pub(crate) fn is_outdated(&self, quorum: &Quorum) -> bool {
        self.replacements != quorum.replacements()
    }

    /// To be called before the lock is looked at: what is heard from now on is news.
    pub(crate) fn mark_unchanged(&mut self) {
        self.heard = self.subscriptions.iter().map(Subscription::changes).collect();
        self.confirmed = self.count_confirmed() >= self.needed;
    }

    /// Resolves when the lock is to be looked at again: it is this waiter's turn, messages may have been missed, or
    /// the subscriptions were confirmed only after the last look.
    pub(crate) async fn changed(&mut self) {
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
        let ((first, its_listener), (second, _listener)) = (waiters.enter("a"), waiters.enter("a"));
        assert_eq!((first.name.as_str(), second.name.as_str()), ("c.0@0", "c.1@1"));
        // Although the first is not forgotten yet.
        drop(its_listener);
        let (third, _listener) = waiters.enter("b");
        assert_eq!((third.name.as_str(), first.name.as_str()), ("c.0@2", "c.0@0"));
    }
}
