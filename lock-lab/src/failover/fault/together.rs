//! Two faults at once, where at most a minority of the servers fails.

use super::{
    holder::{WHEN_STOPPED, stopped},
    scenario::{Act, Awaited, Disturbance, ExpectedEffects, Place, Scenario, Step},
};

/// What they have in common.
const TOGETHER: Scenario =
    Scenario { why_not: |on| (on.voters() == 1).then_some("one server that fails is no minority"), ..Scenario::USUAL };

fn after(act: Act, place: Place, then: Vec<Step>) -> Vec<Step> {
    [vec![Step::Server(act, place)], then].concat()
}

pub(super) const STOPPED_AND_FROZEN: Scenario = Scenario {
    key: "holder-stopped-servers-frozen",
    title: "holder stopped past its lease, a minority of the servers frozen",
    what: "As many servers as may fail are stopped with SIGSTOP (in an ensemble, followers), then the holder's process, until \
           its lease is over and others held the lock; all go on when the fault is over.",
    steps: |_| after(Act::Freeze, Place::Minority, stopped()),
    shows: |_| WHEN_STOPPED,
    ..TOGETHER
};

pub(super) const STOPPED_AND_KILLED: Scenario = Scenario {
    key: "holder-stopped-server-killed",
    title: "holder stopped past its lease, a server killed",
    what: "The ensemble's leader, or one server, is killed with SIGKILL, and the holder's process is stopped with SIGSTOP \
           until its lease is over and others held the lock; the server is started again when the fault is over.",
    steps: |_| after(Act::Kill, Place::Leading, stopped()),
    shows: |_| WHEN_STOPPED,
    ..TOGETHER
};

pub(super) const CUT_OFF_AND_RESTARTED: Scenario = Scenario {
    key: "partition-holder-servers-restarted",
    title: "holder cut off, a minority of the servers restarted",
    what: "Nothing passes between the holder's process and any server, and as many servers as may fail are killed with \
           SIGKILL and come back with what is on their disks.",
    steps: |_| {
        vec![
            Step::Network(Disturbance::HoldAll),
            Step::Server(Act::Restart, Place::Minority),
            Step::Until(Awaited::Lasted),
        ]
    },
    shows: |_| ExpectedEffects { loss: true, ..ExpectedEffects::NOTHING },
    ..TOGETHER
};

pub(super) const KILLED_AND_FROZEN: Scenario = Scenario {
    key: "server-killed-another-frozen",
    title: "one server killed, another one frozen",
    what: "One server is killed with SIGKILL and another one stopped with SIGSTOP; both are back when the fault is over.",
    why_not: |on| {
        let is_enough = on.is_quorum() && on.voters() >= 5;
        (!is_enough).then_some("two servers that fail are no minority")
    },
    steps: |_| {
        vec![
            Step::Server(Act::Kill, Place::Following(0)),
            Step::Server(Act::Freeze, Place::Following(1)),
            Step::Until(Awaited::Lasted),
        ]
    },
    shows: |_| ExpectedEffects { lock_survives: true, ..ExpectedEffects::NOTHING },
    ..TOGETHER
};
