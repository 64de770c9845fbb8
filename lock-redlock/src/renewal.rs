//! Renewal by majority: all leases that are due, in one burst per node.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BootInstant, Loss, Renew, validity::Observed, validity::deadline};
use lock_redis::node::{NodeError, ScriptCall, Value};

use crate::{
    holdings::{Renewal, Renewed, Standing},
    lease::Held,
    member::stranger,
    panel::Panel,
    replies::{Answer, Replies},
    scripts::{Ballot, ballot},
};

/// Renews the leases of one connection.
#[derive(Debug)]
pub(crate) struct Renewals(pub(crate) Arc<Panel>);

/// A lease in a burst.
struct Item {
    held: Arc<Held>,
    observed: Observed,
    /// What is sent to each node.
    plan: Vec<Renewal>,
    /// How many nodes extended it.
    extended: usize,
}

struct Burst {
    items: Vec<Item>,
    /// Which member each node was when it was asked.
    members: Vec<u32>,
    replies: Replies<Answer<Vec<Result<Value, NodeError>>>>,
}

#[async_trait]
impl Renew for Renewals {
    type Lease = Held;

    async fn renew(&self, batch: &[Arc<Held>]) {
        let panel = &self.0;
        let mut burst = Burst::new(panel, batch);
        let Some(ttl) = burst.items.iter().map(|item| item.held.ttl()).min() else { return };
        // Where a ttl is short, an answer that takes long is as good as none: the next burst is not held up by it.
        let limit = panel.config.node_timeout.min(ttl / 6);
        let _ = panel.clock().timeout(limit, burst.decide(panel)).await;
        for item in burst.items.iter().filter(|item| item.extended < panel.majority()) {
            item.held.validity.set_expiry_cause(Loss::Unreachable);
        }
        // The slower nodes are not waited for; what they answer counts when it comes.
        panel.cleanup().spawn(async move {
            while let Some((node, answer)) = burst.replies.next_of_all().await {
                burst.apply(node, answer);
            }
        });
    }
}

impl Burst {
    fn new(panel: &Arc<Panel>, batch: &[Arc<Held>]) -> Self {
        let seats = panel.slots.seats();
        let item = |held: &Arc<Held>| {
            let observed = held.validity.observe()?;
            let worth = deadline(panel.clock().now(), held.ttl());
            let plan = held.holdings(|holdings| {
                holdings.move_to(seats.members());
                (!holdings.is_handed_over()).then(|| holdings.renew(worth))
            })?;
            Some(Item { held: Arc::clone(held), observed, plan, extended: 0 })
        };
        let items: Vec<Item> = batch.iter().filter_map(item).collect();
        let calls = |node: usize| {
            let stamp = seats.stamp(node).ok()?;
            Some(items.iter().map(|item| item.call(node, stamp)).collect())
        };
        let replies = panel.ask_many(calls);
        panel.identify();
        Self { items, members: seats.members().collect(), replies }
    }

    /// Waits until each lease is renewed by a majority, or lost.
    async fn decide(&mut self, panel: &Panel) {
        while !self.is_decided(panel.majority()) {
            let Some((node, answer)) = self.replies.next(panel).await else { return };
            self.apply(node, answer);
        }
    }

    fn is_decided(&self, majority: usize) -> bool {
        self.items.iter().all(|item| item.extended >= majority || item.held.validity.loss().is_some())
    }

    fn apply(&mut self, node: usize, answer: Answer<Vec<Result<Value, NodeError>>>) {
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
            Renewal::Extend(number) => kind.extend(keys, value, ttl, number, stamp),
            Renewal::Rejoin => kind.rejoin(keys, value, ttl, self.held.token, &attempt.payload, stamp),
        }
    }

    /// Takes a node's answer into account. Returns whether it extended the lease.
    fn take(&self, node: usize, member: u32, answer: Result<Value, NodeError>, until: BootInstant) -> bool {
        let plan = self.plan[node];
        let (answer, stranger) = read(plan, answer);
        if let Some(why) = stranger {
            let panel = &self.held.panel;
            panel.slots.is_stranger(node, why);
            panel.identify();
        }
        let renewed = self.held.holdings(|holdings| {
            // Of a server that was replaced meanwhile it is of no account.
            if holdings.is(node, member) { holdings.renewed(node, plan, answer, until) } else { None }
        });
        match renewed {
            None => return false,
            Some(Standing::Kept(until)) => {
                self.held.validity.advance(self.observed, until);
            }
            Some(Standing::Lost) => self.held.validity.end(Loss::Revoked),
        }
        answer == Renewed::Extended
    }
}

/// What a node answered, and if it is not the member that it was asked as, what it is.
fn read(plan: Renewal, answer: Result<Value, NodeError>) -> (Renewed, Option<String>) {
    match plan {
        Renewal::Extend(_) => match answer {
            Ok(Value::Int(1)) => (Renewed::Extended, None),
            Ok(Value::Int(0)) => (Renewed::Denied, None),
            // It has lost everything, this holding included.
            Ok(Value::Int(-2)) => (Renewed::Denied, Some(stranger(""))),
            // What the member has of which this server is not the one, nobody knows.
            Ok(Value::Int(-1)) => (Renewed::Nothing, Some("it is another server than it was".to_owned())),
            _ => (Renewed::Nothing, None),
        },
        Renewal::Rejoin => match answer.and_then(|answer| ballot(&answer)) {
            Ok(Ballot::Granted(number)) => (Renewed::Joined(number), None),
            Ok(Ballot::Stranger(stamp)) => (Renewed::Nothing, Some(stranger(&stamp))),
            _ => (Renewed::Nothing, None),
        },
    }
}
