//! The waiters of a connection, and the channels on which they are woken.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_core::{BootInstant, Clock};

use crate::{
    nodes::{
        quorum::Quorum,
        scripts::{LockKeys, WaiterEntry, waiter_name},
        subscriptions::Subscriptions,
    },
    protocol::enrollments::Enrollments,
};

/// For how long the subscriptions of a waiter are kept for the next one.
const CHANNEL_KEPT: Duration = Duration::from_secs(5);

/// Gives the waiters of one connection their names, and the channels on which they listen. Channels are used again, so that
/// a busy lock does not subscribe over and over; names of waiters are not.
#[derive(Debug)]
pub(crate) struct Waiters {
    connection: String,
    clock: Clock,
    visits: AtomicU64,
    channels: Mutex<Channels>,
}

/// The channels of one connection that no waiter listens on now.
#[derive(Debug, Default)]
struct Channels {
    free: Vec<u32>,
    /// Free channels that are still subscribed to.
    subscribed: Vec<IdleChannel>,
    next: u32,
}

/// A channel that no waiter listens on now, with the subscriptions of the waiter that did so last.
#[derive(Debug)]
struct IdleChannel {
    channel: u32,
    lock: String,
    subscriptions: Subscriptions,
    until: BootInstant,
}

/// A contender that waits for a lock, by the name that its nodes know. Its requests may reach a node long after it has
/// gone, so no other waiter ever gets its name.
#[derive(Debug)]
pub(crate) struct Waiter {
    name: String,
    clock: Clock,
    came: BootInstant,
    pub(crate) enrollments: Arc<Enrollments>,
}

/// The subscriptions by which a waiter hears that it may have the lock. Dropping it frees the channel, even while the
/// waiter is still to be cleared from a node.
#[derive(Debug)]
pub(crate) struct Listener {
    channel: u32,
    lock: String,
    subscriptions: Option<Subscriptions>,
    waiters: Arc<Waiters>,
}

impl Waiters {
    /// The waiters of the connection with this unique id.
    pub(crate) fn new(connection: String, clock: Clock) -> Arc<Self> {
        Arc::new(Self { connection, clock, visits: AtomicU64::new(0), channels: Mutex::default() })
    }

    /// A waiter for the lock with this key, as of now.
    pub(crate) fn enter(self: &Arc<Self>, lock: &str) -> (Waiter, Listener) {
        let now = self.clock.now();
        let (channel, subscriptions) = self.channels(|channels| channels.take(lock, now));
        let visit = self.visits.fetch_add(1, Ordering::Relaxed);
        let waiter = Waiter {
            name: waiter_name(&self.channel(channel), visit),
            clock: self.clock,
            came: now,
            enrollments: Arc::default(),
        };
        (waiter, Listener { channel, lock: lock.to_owned(), subscriptions, waiters: Arc::clone(self) })
    }

    fn channel(&self, channel: u32) -> String {
        format!("{}.{channel}", self.connection)
    }

    fn channels<T>(&self, work: impl FnOnce(&mut Channels) -> T) -> T {
        work(&mut self.channels.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Channels {
    /// A free channel, if possible one that is subscribed to for this lock.
    fn take(&mut self, lock: &str, now: BootInstant) -> (u32, Option<Subscriptions>) {
        let old = self.subscribed.extract_if(.., |idle| idle.until <= now).map(|idle| idle.channel);
        self.free.extend(old);
        if let Some(index) = self.subscribed.iter().position(|idle| idle.lock == lock) {
            let idle = self.subscribed.swap_remove(index);
            return (idle.channel, Some(idle.subscriptions));
        }
        let channel = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        (channel, None)
    }
}

impl Waiter {
    /// The waiter's entry in the queues, if it is sent now.
    pub(crate) fn entry(&self, ttl: Duration) -> WaiterEntry {
        let waited = self.clock.now().saturating_since(self.came);
        WaiterEntry { waiter: self.name.clone(), waited, ttl }
    }
}

impl Listener {
    /// See [`Subscriptions::mark_unchanged`].
    pub(crate) fn mark_unchanged(&mut self) {
        if let Some(subscriptions) = &mut self.subscriptions {
            subscriptions.mark_unchanged();
        }
    }

    /// See [`Subscriptions::changed`].
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
        let (channel, lock) = (self.channel, mem::take(&mut self.lock));
        let until = self.waiters.clock.now().saturating_add(CHANNEL_KEPT);
        let subscriptions = self.subscriptions.take();
        self.waiters.channels(|channels| match subscriptions {
            Some(subscriptions) => channels.subscribed.push(IdleChannel { channel, lock, subscriptions, until }),
            None => channels.free.push(channel),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_waiters_at_a_time_have_different_channels_which_are_used_again_and_no_two_have_the_same_name() {
        let waiters = Waiters::new("c".to_owned(), Clock::boot());
        let ((first, listener), (second, _listener)) = (waiters.enter("a"), waiters.enter("a"));
        assert_eq!((first.name.as_str(), second.name.as_str()), ("c.0@0", "c.1@1"));
        // The channel is free although the first waiter is still known.
        drop(listener);
        let (third, _listener) = waiters.enter("b");
        assert_eq!((third.name.as_str(), first.name.as_str()), ("c.0@2", "c.0@0"));
    }
}
