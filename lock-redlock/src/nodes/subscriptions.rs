//! One pub/sub channel, on all nodes.

use std::time::Duration;

use futures::{StreamExt, stream::FuturesUnordered};
use lock_core::Clock;
use lock_redis::node::Subscription;

use crate::nodes::quorum::Quorum;

/// How long after the first node's message the other nodes are given to follow.
const GRACE: Duration = Duration::from_millis(5);

/// The subscriptions of one channel, on all nodes.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    nodes: Vec<Subscription>,
    /// How many messages each node had sent at the last [`Subscriptions::mark_unchanged`].
    seen: Vec<u64>,
    /// Whether a majority had confirmed by then: only then every later release is heard of.
    confirmed: bool,
    needed: usize,
    clock: Clock,
    /// [`Quorum::replacements`] when the subscriptions began.
    replacements: u64,
}

impl Subscriptions {
    pub(crate) fn new(quorum: &Quorum, channel: &str) -> Self {
        let replacements = quorum.replacements();
        let nodes: Vec<Subscription> = quorum.nodes().iter().map(|node| node.subscribe(channel)).collect();
        let seen = nodes.iter().map(Subscription::changes).collect();
        Self { nodes, seen, confirmed: false, needed: quorum.majority(), clock: quorum.clock(), replacements }
    }

    /// Whether a server was replaced since.
    pub(crate) fn is_outdated(&self, quorum: &Quorum) -> bool {
        self.replacements != quorum.replacements()
    }

    /// Makes [`Subscriptions::changed`] wait for messages from now on. To be called before each look at the lock.
    pub(crate) fn mark_unchanged(&mut self) {
        self.seen = self.nodes.iter().map(Subscription::changes).collect();
        self.confirmed = self.nodes.iter().filter(|node| node.is_confirmed()).count() >= self.needed;
    }

    /// Whether a majority had confirmed at the last [`Subscriptions::mark_unchanged`].
    pub(crate) const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Resolves when the lock is to be looked at again: a message has come or may have been missed, or the subscriptions were
    /// confirmed only after the last look.
    pub(crate) async fn changed(&mut self) {
        if !self.confirmed {
            let mut confirmations: FuturesUnordered<_> = self.nodes.iter_mut().map(Subscription::confirmed).collect();
            for _ in 0..self.needed {
                confirmations.next().await;
            }
            return;
        }
        let nodes = self.nodes.iter_mut().zip(&self.seen);
        let mut changes: FuturesUnordered<_> = nodes.map(|(node, seen)| node.changed_since(*seen)).collect();
        changes.next().await;
        // Nodes that have not announced the release yet have not seen it, and would refuse.
        let majority = async {
            for _ in 1..self.needed {
                changes.next().await;
            }
        };
        let _ = self.clock.timeout(GRACE, majority).await;
    }
}
