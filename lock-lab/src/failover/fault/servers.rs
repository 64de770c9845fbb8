//! Faults of servers, and of what they keep, of one step each.

use std::time::Duration;

use super::{
    promise::{self, Promise},
    scenario::{Act, Awaited, Disturbance, ExpectedEffects, Place, ProcessAction, Scenario, Step, Who},
};
use crate::deployment::{Decides, Deployment};

/// Where two holders are to be seen: the old one must not ask for a renewal, by which it would hear of its loss, before the
/// failover is over and the next one holds.
const LEASE_FOR_TWO_HOLDERS: Duration = Duration::from_secs(15);
/// Where a replica takes the place of a primary: a failover, of some two seconds, has to fit into it.
const LEASE_WITH_REPLICAS: Duration = Duration::from_secs(4);

/// What the faults of one server have in common.
const OF_A_SERVER: Scenario = Scenario {
    promise: promise::of_failed_servers,
    within_a_minority: |on| on.voters() > 1,
    lease: |on| on.replicates().then_some(LEASE_WITH_REPLICAS),
    ..Scenario::USUAL
};

/// Whether another server takes the place of one that is silent.
fn is_replaced(on: Deployment) -> bool {
    on.replicates() || (on.is_ensemble() && on.voters() > 1)
}

fn and_lasts(act: Act, place: Place) -> Vec<Step> {
    vec![Step::Server(act, place), Step::Until(Awaited::Served), Step::Until(Awaited::Lasted)]
}

fn at_once(act: Act, place: Place) -> Vec<Step> {
    vec![Step::Server(act, place), Step::Until(Awaited::Served)]
}

pub(super) const KILLED: Scenario = Scenario {
    key: "server-killed",
    title: "server killed",
    what: "The ensemble's leader, the primary, or one server is killed with SIGKILL and started again when the fault is over.",
    why_not: |on| {
        let comes_back_empty = on.voters() == 1 && !on.replicates() && !on.is_durable;
        comes_back_empty
            .then_some("the one server comes back without its data, which is the fault server-restarted-empty")
    },
    steps: |_| and_lasts(Act::Kill, Place::Leading),
    stops_service: is_replaced,
    ..OF_A_SERVER
};

pub(super) const RESTARTED_EMPTY: Scenario = Scenario {
    key: "server-restarted-empty",
    title: "server restarted without its data",
    what: "The ensemble's leader, the primary, or one server is killed with SIGKILL and comes back without its data.",
    why_not: |on| match on.decides {
        Decides::Ensemble(1) => {
            Some("a service that has lost everything is another one, whose transactions start anew")
        }
        Decides::Quorum(_) if !on.has_quarantine => {
            Some("this deployment was told that its nodes forget nothing (restart_quarantine=off)")
        }
        _ => None,
    },
    steps: |_| at_once(Act::RestartEmpty, Place::Leading),
    is_momentary: true,
    promise: |on| if on.voters() > 1 { Promise::Safe } else { promise::FORGOTTEN },
    stops_service: |on| !on.is_quorum(),
    ..OF_A_SERVER
};

pub(super) const RESTARTED_DURABLE: Scenario = Scenario {
    key: "server-restarted-durable",
    title: "server restarted with its data",
    what: "The ensemble's leader or one server is killed with SIGKILL and comes back with its data.",
    why_not: |on| (!on.is_durable).then_some("its servers keep everything in memory"),
    steps: |_| at_once(Act::Restart, Place::Leading),
    is_momentary: true,
    promise: promise::promised_everywhere,
    stops_service: |on| !on.is_quorum(),
    ..OF_A_SERVER
};

pub(super) const FROZEN: Scenario = Scenario {
    key: "server-frozen",
    title: "server frozen",
    what: "The ensemble's leader, the primary, or one server is stopped with SIGSTOP and goes on when the fault is over.",
    steps: |_| and_lasts(Act::Freeze, Place::Leading),
    promise: |on| on.stopped_leader.map_or_else(|| promise::of_failed_servers(on), Promise::MayBreak),
    stops_service: is_replaced,
    ..OF_A_SERVER
};

pub(super) const MAJORITY_FROZEN: Scenario = Scenario {
    key: "majority-frozen",
    title: "majority of servers frozen",
    what: "So many servers that the others are no majority are stopped with SIGSTOP and go on when the fault is over.",
    why_not: |on| (on.voters() == 1).then_some("no majority decides here"),
    steps: |_| vec![Step::Server(Act::Freeze, Place::Majority), Step::Until(Awaited::Lasted)],
    promise: promise::promised_everywhere,
    within_a_minority: |_| false,
    ..OF_A_SERVER
};

pub(super) const FAILOVER_BEFORE_REPLICATION: Scenario = Scenario {
    key: "failover-before-replication",
    title: "failover before replication",
    what: "The replicas are stopped and their links cut before the acquisition; then the primary is killed, the replicas go \
           on, and one of them is promoted.",
    why_not: |on| match on.decides {
        Decides::Primary { waits_for_replicas: true, .. } => {
            Some("a primary that hears of no replica grants nothing, so there is no grant to be lost")
        }
        Decides::Primary { .. } => None,
        _ => Some("nothing is replicated to a server in waiting"),
    },
    // With the links up, what is written would still reach the replicas' sockets, and be read when they go on.
    prepare: &[Step::Server(Act::Freeze, Place::Replicas), Step::Server(Act::CutReplicas, Place::Leading)],
    steps: |_| {
        vec![
            Step::Server(Act::Kill, Place::Leading),
            Step::Server(Act::Continue, Place::Frozen),
            Step::Until(Awaited::Served),
            // Those that wait may hear late that the servers are back.
            Step::Process(Who::Late, ProcessAction::Ask),
            Step::Until(Awaited::Lasted),
        ]
    },
    stops_service: |_| true,
    // Two servers that know nothing of each other both have a holder: if that does not show, the fault did not happen.
    shows: |_| ExpectedEffects { two_holders: true, stale_write: true, ..ExpectedEffects::NOTHING },
    lease: |_| Some(LEASE_FOR_TWO_HOLDERS),
    ..OF_A_SERVER
};

pub(super) const CLOCK_JUMP: Scenario = Scenario {
    key: "clock-jump",
    title: "wall clock of one server jumps",
    what: "The wall clock of the primary, or of one server, jumps 60 s ahead.",
    why_not: |on| on.is_ensemble().then_some("its sessions are counted on the monotonic clock"),
    steps: |_| vec![Step::Server(Act::JumpAhead, Place::Leading), Step::Until(Awaited::Lasted)],
    // One node's wall clock is a minority's, as long as all nodes knew of the lock.
    promise: |on| if on.is_quorum() { Promise::Safe } else { promise::WALL_CLOCK },
    own_clocks: true,
    ..OF_A_SERVER
};

pub(super) const CLOCK_JUMP_MINIMAL_QUORUM: Scenario = Scenario {
    key: "clock-jump-minimal-quorum",
    title: "wall clock of one server jumps, at a bare majority",
    what: "The holder is cut off from a minority of the nodes before it is granted the lock; then the wall clock of one of \
           the others jumps 60 s ahead.",
    why_not: |on| (!on.is_quorum()).then_some("no majority of clocks decides here"),
    prepare: &[Step::Network(Disturbance::CutOffMinority)],
    promise: |_| promise::MINIMAL,
    within_a_minority: |_| false,
    ..CLOCK_JUMP
};

pub(super) const KEY_DELETED: Scenario = Scenario {
    key: "key-deleted",
    title: "key or node deleted by somebody else",
    what: "A third party deletes the holder's key on every server, or its node.",
    steps: |_| vec![Step::Server(Act::DeleteLock, Place::Leading)],
    is_momentary: true,
    promise: |_| promise::DELETED,
    within_a_minority: |_| false,
    ..OF_A_SERVER
};

pub(super) const SCRIPT_FLUSH: Scenario = Scenario {
    key: "script-flush",
    title: "scripts flushed",
    what: "SCRIPT FLUSH on every server.",
    why_not: |on| on.is_ensemble().then_some(NO_SUCH_THING),
    steps: |_| vec![Step::Server(Act::FlushScripts, Place::All)],
    is_momentary: true,
    promise: promise::promised_everywhere,
    within_a_minority: |_| true,
    ..OF_A_SERVER
};

pub(super) const READ_ONLY: Scenario = Scenario {
    key: "read-only",
    title: "server read-only",
    what: "The server, or one node, becomes a replica and refuses writes until the fault is over; with Sentinel or Cluster \
           another server is made the primary in order.",
    why_not: |on| on.is_ensemble().then_some(NO_SUCH_THING),
    steps: |_| vec![Step::Server(Act::RefuseWrites, Place::Leading), Step::Until(Awaited::Lasted)],
    // A failover in order that waits until the replica has everything loses nothing.
    promise: |on| match on.decides {
        Decides::Primary { hands_over: true, .. } => Promise::Safe,
        _ => promise::of_failed_servers(on),
    },
    ..OF_A_SERVER
};

pub(super) const SESSION_TAKEN_OVER: Scenario = Scenario {
    key: "session-taken-over",
    title: "session taken over",
    what: "A third party connects with the id and the password of the holder's session, and closes it.",
    why_not: |on| (!on.is_ensemble()).then_some("its servers know no sessions"),
    steps: |_| vec![Step::Server(Act::EndSession, Place::Leading)],
    is_momentary: true,
    promise: |_| promise::DELETED,
    within_a_minority: |_| false,
    ..OF_A_SERVER
};

const NO_SUCH_THING: &str = "its servers know no such thing";
