//! Renewal by majority: all leases that are due, in one burst per node.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BootInstant, Loss, Renew, validity::Observed, validity::deadline};
use lock_redis::node::{NodeError, ScriptCall, Value};

use crate::{
    lease::shared::SharedLease,
    members::servers::stranger,
    nodes::{
        quorum::Quorum,
        replies::{NoReply, Replies, Reply},
        requests::ask_many,
        scripts::ballot,
    },
    protocol::{
        ballots::Ballot,
        quorum_lease::{LeaseState, RenewAnswer, RenewRequest},
    },
};

/// Renews the leases of one connection.
#[derive(Debug)]
pub(crate) struct Renewals(pub(crate) Arc<Quorum>);

/// The renewals of several leases that are sent to each node in one message.
struct Burst {
    items: Vec<Item>,
    /// Which member each node was when it was asked.
    members: Vec<u32>,
    replies: Replies<Vec<Result<Value, NodeError>>>,
    /// Why a lease ends, if no majority renews it.
    expiry_cause: Loss,
}

/// One lease in a [`Burst`], with the renewal that each node is asked for.
struct Item {
    lease: Arc<SharedLease>,
    observed: Observed,
    /// What is sent to each node.
    plan: Vec<RenewRequest>,
    /// How many nodes have extended the lease.
    extended: usize,
}

#[async_trait]
impl Renew for Renewals {
    type Lease = SharedLease;

    async fn renew(&self, batch: &[Arc<SharedLease>]) {
        let quorum = &self.0;
        let mut burst = Burst::new(quorum, batch);
        let Some(ttl) = burst.items.iter().map(|item| item.lease.ttl()).min() else { return };
        // With a short ttl a slow answer is as good as none, and must not hold the next burst up.
        let limit = quorum.config.node_timeout.min(ttl / 6);
        let _ = quorum.clock().timeout(limit, burst.decide(quorum.majority())).await;
        for item in burst.items.iter().filter(|item| item.extended < quorum.majority()) {
            item.lease.validity.set_expiry_cause(burst.expiry_cause);
        }
        quorum.show();
        // The slower nodes are not waited for, but their answers count when they come.
        quorum.cleanup().spawn(async move {
            while let Some((node, reply)) = burst.replies.next_of_any().await {
                burst.apply(node, reply);
            }
        });
    }
}

impl Burst {
    fn new(quorum: &Arc<Quorum>, batch: &[Arc<SharedLease>]) -> Self {
        let roster = quorum.members.roster();
        let item = |shared: &Arc<SharedLease>| {
            let observed = shared.validity.observe()?;
            let expected = deadline(quorum.clock().now(), shared.ttl());
            let plan = shared.quorum_lease(|lease| {
                lease.move_to(roster.members());
                (!lease.is_handed_over()).then(|| lease.renew(expected))
            })?;
            Some(Item { lease: Arc::clone(shared), observed, plan, extended: 0 })
        };
        let items: Vec<Item> = batch.iter().filter_map(item).collect();
        let calls = |node: usize| {
            let stamp = roster.stamp(node).ok()?;
            Some(items.iter().map(|item| item.call(node, stamp)).collect())
        };
        let replies = ask_many(quorum, calls);
        quorum.identify();
        Self { items, members: roster.members().collect(), replies, expiry_cause: Loss::Unreachable }
    }

    /// Waits until each lease is renewed by a majority, or lost.
    async fn decide(&mut self, majority: usize) {
        while !self.items.iter().all(|item| item.extended >= majority || item.lease.validity.loss().is_some()) {
            let Some((node, reply)) = self.replies.next().await else { return };
            self.apply(node, reply);
        }
    }

    fn apply(&mut self, node: usize, reply: Reply<Vec<Result<Value, NodeError>>>) {
        let denied = |error: &NodeError| error.expiry_cause() == Loss::Denied;
        let is_denied = match &reply {
            Ok(answers) => answers.iter().any(|answer| answer.as_ref().is_err_and(denied)),
            Err(NoReply::Failed(error)) => denied(error),
            Err(NoReply::NotSent(_)) => false,
        };
        if is_denied {
            self.expiry_cause = Loss::Denied;
        }
        let (Ok(answers), Some(sent)) = (reply, self.replies.sent(node)) else { return };
        for (item, answer) in self.items.iter_mut().zip(answers) {
            let until = deadline(sent.at, item.lease.ttl());
            item.extended += usize::from(item.take(node, self.members[node], answer, until));
        }
    }
}

impl Item {
    fn call(&self, node: usize, stamp: &str) -> ScriptCall {
        match self.plan[node] {
            // By value and number: a holding of the same value that a resent acquisition made later is not the holding that was
            // counted, and another holder may have been granted in between.
            RenewRequest::Extend(number) => self.lease.claim.extend(number, stamp),
            RenewRequest::Rejoin => self.lease.claim.rejoin(self.lease.token, stamp),
        }
    }

    /// Takes a node's answer into account. Returns whether the node has extended the lease.
    fn take(&self, node: usize, member: u32, answer: Result<Value, NodeError>, until: BootInstant) -> bool {
        let plan = self.plan[node];
        let (answer, stranger) = read(plan, answer);
        if let Some(why) = stranger {
            self.lease.quorum.members.set_unknown(node, why);
            self.lease.quorum.identify();
        }
        let state = self.lease.quorum_lease(|lease| {
            // The answer of a server that was replaced meanwhile does not count.
            if lease.is(node, member) { lease.renewed(node, plan, answer, until) } else { None }
        });
        match state {
            None => return false,
            Some(LeaseState::Kept(until)) => {
                self.lease.validity.advance(self.observed, until);
            }
            Some(LeaseState::Lost) => self.lease.validity.end(Loss::Revoked),
        }
        answer == RenewAnswer::Extended
    }
}

/// A node's answer, and if the node is not the member that it was asked as, what it is instead.
fn read(plan: RenewRequest, answer: Result<Value, NodeError>) -> (RenewAnswer, Option<String>) {
    match plan {
        RenewRequest::Extend(_) => match answer {
            Ok(Value::Int(1)) => (RenewAnswer::Extended, None),
            Ok(Value::Int(0)) => (RenewAnswer::Denied, None),
            // The server has lost everything, this holding included.
            Ok(Value::Int(-2)) => (RenewAnswer::Denied, Some(stranger(""))),
            // What the member has is unknown: this server is another one.
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
