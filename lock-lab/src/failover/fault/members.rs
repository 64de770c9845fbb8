//! Changes of who the members of a deployment are, and clients that do not know them right.

use std::time::Duration;

use super::scenario::{Act, Awaited, Disagreement, Disturbance, ExpectedEffects, Place, Scenario, Step};

/// What they have in common.
const OF_MEMBERS: Scenario = Scenario {
    why_not: |on| (!on.is_quorum()).then_some("its servers have no record of members that clients go by"),
    ..Scenario::USUAL
};

/// A held lock has to join the new member in its quarantine, which takes two renewals.
const LEASE: Duration = Duration::from_secs(2);
/// How long the others do without as many members as may fail: longer than a lease and its margin.
const WITHOUT_OTHERS: Duration = Duration::from_secs(3);

pub(super) const REPLACED: Scenario = Scenario {
    key: "member-replaced",
    title: "member replaced by another server",
    what: "One server is killed with SIGKILL for good, and a new, empty one is made a member in its place. Clients go on with \
           it by themselves: when it gives votes, as many of the others as may fail are stopped with SIGSTOP for three \
           seconds.",
    steps: |_| {
        vec![
            Step::Server(Act::Kill, Place::Leading),
            Step::Server(Act::Replace, Place::Leading),
            Step::Until(Awaited::TakesPart(0)),
            Step::Server(Act::Freeze, Place::Minority),
            Step::Rest(WITHOUT_OTHERS),
        ]
    },
    shows: |_| ExpectedEffects { lock_survives: true, goes_on: true, ..ExpectedEffects::NOTHING },
    lease: |_| Some(LEASE),
    ..OF_MEMBERS
};

pub(super) const REPLACED_MINIMAL_QUORUM: Scenario = Scenario {
    key: "member-replaced-minimal-quorum",
    title: "member replaced by another server, at a bare majority",
    what: "The holder is cut off from a minority of the nodes before it is granted the lock; then a new, empty server is made \
           a member in the place of one of those that granted it, which goes on running.",
    prepare: &[Step::Network(Disturbance::CutOffMinority)],
    steps: |_| vec![Step::Server(Act::Replace, Place::Leading), Step::Until(Awaited::Lasted)],
    // The holder reaches too few of the members of now to hear of the change, and to renew its lock.
    shows: |_| ExpectedEffects { loss: true, goes_on: true, ..ExpectedEffects::NOTHING },
    ..OF_MEMBERS
};

pub(super) const DISAGREE: Scenario = Scenario {
    key: "clients-disagree",
    title: "clients that disagree with the deployment",
    what: "Processes come whose settings are not those of the deployment: one has an empty server in its list that is no \
           member, in the place of one that is, the other one another max_ttl. All their clients try to connect again and \
           again.",
    why_not: |on| (!on.is_quorum()).then_some("its servers have no record of settings that clients must share"),
    steps: |_| vec![Step::Strangers, Step::Until(Awaited::Lasted)],
    is_momentary: true,
    shows: |_| ExpectedEffects { lock_survives: true, goes_on: true, ..ExpectedEffects::NOTHING },
    strangers: &[Disagreement::Servers, Disagreement::MaxTtl],
    ..OF_MEMBERS
};
