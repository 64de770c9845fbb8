//! Successive faults at different places: every server of an arrangement is restarted, one after the other.

use std::time::Duration;

use super::{
    promise::{self, Promise},
    scenario::{Act, Awaited, ExpectedEffects, Place, Scenario, Step},
};
use crate::deployment::Deployment;

const ONE_SERVER: &str =
    "there is one server: its restart is the fault server-restarted-empty or server-restarted-durable";

/// Of nodes in quarantine; of servers whose clients have to find another one meanwhile.
fn lease(on: Deployment) -> Option<Duration> {
    Some(Duration::from_secs(if on.is_quorum() { 2 } else { 4 }))
}

pub(super) const ORDERLY: Scenario = Scenario {
    key: "rolling-restart",
    title: "servers restarted one after the other",
    what: "Every server in turn is killed with SIGKILL and started again with what is on its disk; the next one follows when \
           the one before takes part in decisions again: it follows its leader, or its quarantine is over.",
    why_not: |on| (on.servers == 1).then_some(ONE_SERVER),
    steps: |on| {
        let turn = |server| {
            [
                Step::Server(Act::Kill, Place::Number(server)),
                Step::Until(Awaited::Served),
                Step::Server(Act::Start, Place::Number(server)),
                Step::Until(Awaited::TakesPart(server)),
            ]
        };
        (0..on.servers).flat_map(turn).collect()
    },
    promise: promise::of_failed_servers,
    within_a_minority: |on| on.voters() > 1,
    stops_service: |on| !on.is_quorum(),
    // A lease bears the loss of another node only when the one before has joined it again, which takes two renewals: these
    // fit into a quarantine.
    shows: |on| ExpectedEffects { lock_survives: on.voters() > 1, ..ExpectedEffects::NOTHING },
    lease,
    ..Scenario::USUAL
};

/// Until the last quarantine is over, and until it shows that the lock goes on.
const QUARANTINE_AND_MORE: Duration = Duration::from_millis(4_500);

pub(super) const QUICK: Scenario = Scenario {
    key: "rolling-restart-quick",
    title: "servers restarted one after the other, without waiting",
    what: "Every server in turn is killed with SIGKILL and started again with what is on its disk; the next one follows as \
           soon as the one before was started. Nothing need be granted until the ensemble is back, or an operator has made \
           nodes members again that have lost everything and their quarantines are over.",
    why_not: |on| match on {
        on if on.servers == 1 => Some(ONE_SERVER),
        on if on.replicates() => Some("its servers keep everything in memory, and forget it together"),
        _ => None,
    },
    steps: |on| (0..on.servers).map(|server| Step::Server(Act::Restart, Place::Number(server))).collect(),
    promise: |_| Promise::Safe,
    within_a_minority: |_| false,
    // A majority is in quarantine, so nothing is granted for about as long as a lease may live.
    shows: |on| ExpectedEffects { closed: on.has_quarantine, ..ExpectedEffects::NOTHING },
    lease,
    afterwards: QUARANTINE_AND_MORE,
    ..Scenario::USUAL
};
