//! Waiting: a place in line on each node, and the channels on which a waiter is told that it is its turn.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::{Clock, clock::wall_micros};
use lock_redis::node::Subscription;

use crate::{
    panel::Panel,
    scripts::{LockKeys, Place},
};

/// How long after the first node's news a waiter gives the others to follow before it tries.
const GRACE: Duration = Duration::from_millis(5);

/// The waiters of one connection. They are numbered from 0, and numbers are used again, so that a busy lock listens to
/// the same few channels instead of subscribing over and over.
#[derive(Debug)]
pub(crate) struct Waiters {
    connection: String,
    free: Mutex<Free>,
}

#[derive(Debug, Default)]
struct Free {
    numbers: Vec<u32>,
    next: u32,
}

/// One waiter; its number is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) place: Place,
    number: u32,
    waiters: Arc<Waiters>,
}

impl Waiters {
    /// Of the connection with this unique id.
    pub(crate) fn new(connection: String) -> Arc<Self> {
        Arc::new(Self { connection, free: Mutex::default() })
    }

    /// A waiter that comes now.
    pub(crate) fn enter(self: &Arc<Self>) -> Waiter {
        let number = self.free(|free| {
            free.numbers.pop().unwrap_or_else(|| {
                free.next += 1;
                free.next - 1
            })
        });
        let place = Place { waiter: format!("{}.{number}", self.connection), since: wall_micros() };
        Waiter { place, number, waiters: Arc::clone(self) }
    }

    fn free<T>(&self, work: impl FnOnce(&mut Free) -> T) -> T {
        work(&mut self.free.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.waiters.free(|free| free.numbers.push(self.number));
    }
}

/// Listens for a waiter's turn on all nodes.
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
    pub(crate) fn new(panel: &Panel, keys: &LockKeys, place: &Place) -> Self {
        let channel = keys.channel(&place.waiter);
        let subscriptions: Vec<Subscription> = panel.nodes.iter().map(|node| node.subscribe(&channel)).collect();
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

    fn count_confirmed(&self) -> usize {
        self.subscriptions.iter().filter(|subscription| subscription.is_confirmed()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_waiters_at_a_time_have_different_channels_and_numbers_are_used_again() {
        let waiters = Waiters::new("c".to_owned());
        let (first, second) = (waiters.enter(), waiters.enter());
        assert_eq!((first.place.waiter.as_str(), second.place.waiter.as_str()), ("c.0", "c.1"));
        drop(first);
        assert_eq!(waiters.enter().place.waiter, "c.0");
    }
}
