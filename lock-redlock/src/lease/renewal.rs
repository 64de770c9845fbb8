//! Renewal by majority: all leases that are due, in one burst per node.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BootInstant, Loss, Renew, validity::Observed, validity::deadline};
use lock_redis::node::{NodeError, ScriptCall, Value};

use crate::{
    lease::SharedLease,
    members::identify::stranger,
    nodes::{
        quorum::Quorum,
        replies::{Replies, Reply},
        scripts::ballot,
    },
    protocol::ballots::Ballot,
    protocol::quorum_lease::{LeaseState, RenewAnswer, RenewRequest},
};

/// Renews the leases of one connection.
#[derive(Debug)]
pub(crate) struct Renewals(pub(crate) Arc<Quorum>);

/// A lease in a burst.
struct Item {
    held: Arc<SharedLease>,
    observed: Observed,
    /// What is sent to each node.
    plan: Vec<RenewRequest>,
    /// How many nodes extended it.
    extended: usize,
}

struct Burst {
    items: Vec<Item>,
    /// Which member each node was when it was asked.
    members: Vec<u32>,
    replies: Replies<Reply<Vec<Result<Value, NodeError>>>>,
}

#[async_trait]
impl Renew for Renewals {
    type Lease = SharedLease;

    async fn renew(&self, batch: &[Arc<SharedLease>]) {
        let quorum = &self.0;
        let mut burst = Burst::new(quorum, batch);
        let Some(ttl) = burst.items.iter().map(|item| item.held.ttl()).min() else { return };
        // Where a ttl is short, an answer that takes long is as good as none: the next burst is not held up by it.
        let limit = quorum.config.node_timeout.min(ttl / 6);
        let _ = quorum.clock().timeout(limit, burst.decide(quorum)).await;
        for item in burst.items.iter().filter(|item| item.extended < quorum.majority()) {
            item.held.validity.set_expiry_cause(Loss::Unreachable);
        }
        // The slower nodes are not waited for; what they answer counts when it comes.
        quorum.cleanup().spawn(async move {
            while let Some((node, answer)) = burst.replies.next_of_any().await {
                burst.apply(node, answer);
            }
        });
    }
}

impl Burst {
    fn new(quorum: &Arc<Quorum>, batch: &[Arc<SharedLease>]) -> Self {
        let roster = quorum.members.roster();
        let item = |held: &Arc<SharedLease>| {
            let observed = held.validity.observe()?;
            let worth = deadline(quorum.clock().now(), held.ttl());
            let plan = held.quorum_lease(|lease| {
                lease.move_to(roster.members());
                (!lease.is_handed_over()).then(|| lease.renew(worth))
            })?;
            Some(Item { held: Arc::clone(held), observed, plan, extended: 0 })
        };
        let items: Vec<Item> = batch.iter().filter_map(item).collect();
        let calls = |node: usize| {
            let stamp = roster.stamp(node).ok()?;
            Some(items.iter().map(|item| item.call(node, stamp)).collect())
        };
        let replies = quorum.ask_many(calls);
        quorum.identify();
        Self { items, members: roster.members().collect(), replies }
    }

    /// Waits until each lease is renewed by a majority, or lost.
    async fn decide(&mut self, quorum: &Quorum) {
        while !self.is_decided(quorum.majority()) {
            let Some((node, answer)) = self.replies.next(quorum).await else { return };
            self.apply(node, answer);
        }
    }

    fn is_decided(&self, majority: usize) -> bool {
        self.items.iter().all(|item| item.extended >= majority || item.held.validity.loss().is_some())
    }

    fn apply(&mut self, node: usize, answer: Reply<Vec<Result<Value, NodeError>>>) {
        let (Ok(answers), Some(sent)) = (answer, self.replies.sent(node)) else { return };
        for (item, answer) in self.items.iter_mut().zip(answers) {
            let until = deadline(sent.at, item.held.ttl());
            item.extended += usize::from(item.take(node, self.members[node], answer, until));
        }
    }
}

impl Item {
    fn call(&self, node: usize, stamp: &str) -> ScriptCall {
        let attempt = &self.held.attempt;
        let (kind, keys, value, ttl) = (attempt.kind, &attempt.keys, &attempt.value, attempt.ttl);
        match self.plan[node] {
            // Value and number: a holding of the same value that a resent acquisition made later is not the one that
            // was counted, and somebody else may have been granted in between.
            RenewRequest::Extend(number) => kind.extend(keys, value, ttl, number, stamp),
            RenewRequest::Rejoin => kind.rejoin(keys, value, ttl, self.held.token, &attempt.payload, stamp),
        }
    }

    /// Takes a node's answer into account. Returns whether it extended the lease.
    fn take(&self, node: usize, member: u32, answer: Result<Value, NodeError>, until: BootInstant) -> bool {
        let plan = self.plan[node];
        let (answer, stranger) = read(plan, answer);
        if let Some(why) = stranger {
            let quorum = &self.held.quorum;
            quorum.members.set_unknown(node, why);
            quorum.identify();
        }
        let renewed = self.held.quorum_lease(|lease| {
            // Of a server that was replaced meanwhile it is of no account.
            if lease.is(node, member) { lease.renewed(node, plan, answer, until) } else { None }
        });
        match renewed {
            None => return false,
            Some(LeaseState::Kept(until)) => {
                self.held.validity.advance(self.observed, until);
            }
            Some(LeaseState::Lost) => self.held.validity.end(Loss::Revoked),
        }
        answer == RenewAnswer::Extended
    }
}

/// What a node answered, and if it is not the member that it was asked as, what it is.
fn read(plan: RenewRequest, answer: Result<Value, NodeError>) -> (RenewAnswer, Option<String>) {
    match plan {
        RenewRequest::Extend(_) => match answer {
            Ok(Value::Int(1)) => (RenewAnswer::Extended, None),
            Ok(Value::Int(0)) => (RenewAnswer::Denied, None),
            // It has lost everything, this holding included.
            Ok(Value::Int(-2)) => (RenewAnswer::Denied, Some(stranger(""))),
            // What the member has of which this server is not the one, nobody knows.
            Ok(Value::Int(-1)) => (RenewAnswer::Nothing, Some("it is another server than it was".to_owned())),
            _ => (RenewAnswer::Nothing, None),
        },
        RenewRequest::Rejoin => match answer.and_then(|answer| ballot(&answer)) {
            Ok(Ballot::Granted(number)) => (RenewAnswer::Joined(number), None),
            Ok(Ballot::Stranger(stamp)) => (RenewAnswer::Nothing, Some(stranger(&stamp))),
            _ => (RenewAnswer::Nothing, None),
        },
    }
}
