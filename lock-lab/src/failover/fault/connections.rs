//! Faults of the connections between the processes and the servers.

use std::time::Duration;

use super::scenario::{
    Awaited, ClientLoad, ClientNetwork, Disturbance, ExpectedEffects, ProcessAction, Scenario, Step, Who,
};

fn and_lasts(disturbance: Disturbance) -> Vec<Step> {
    vec![Step::Network(disturbance), Step::Until(Awaited::Lasted)]
}

pub(super) const DELAY: Scenario = Scenario {
    key: "delay",
    title: "delay",
    what: "A proxy delays each request and each reply by 30 ms, for everybody.",
    steps: |_| and_lasts(Disturbance::Delay),
    ..Scenario::USUAL
};

pub(super) const PARTITION_HOLDER: Scenario = Scenario {
    key: "partition-holder",
    title: "holder cut off",
    what: "Nothing passes between the holder's process and any server; connections stay open, and what was sent arrives when \
           the fault is over.",
    steps: |_| and_lasts(Disturbance::HoldAll),
    shows: |_| WHEN_CUT_OFF,
    ..Scenario::USUAL
};

pub(super) const HOLDER_REQUESTS_LOST: Scenario = Scenario {
    key: "holder-requests-lost",
    title: "holder's requests held",
    what: "What the holder's process sends arrives only when the fault is over; what the servers send arrives.",
    steps: |_| and_lasts(Disturbance::HoldRequests),
    ..Scenario::USUAL
};

pub(super) const HOLDER_REPLIES_LOST: Scenario = Scenario {
    key: "holder-replies-lost",
    title: "replies to the holder held",
    what: "What the servers send arrives at the holder's process only when the fault is over; what it sends arrives.",
    steps: |_| and_lasts(Disturbance::HoldReplies),
    ..Scenario::USUAL
};

pub(super) const REPLY_CUT: Scenario = Scenario {
    key: "reply-cut",
    title: "replies lost after the request was applied",
    what: "On each connection path one reply is swallowed and the connection broken: the request was carried out, and its \
           client is not told.",
    steps: |_| vec![Step::Network(Disturbance::CutReplies)],
    is_momentary: true,
    ..Scenario::USUAL
};

/// A kernel sends again after 0.2 s, and then after twice the time before: 0.2, 0.6, 1.4, 3.0, 6.2, 12.6 s after the first
/// sending. What was sent in the first second of the fault, because a lease had to end or a waiter looked again, has had its
/// fifth repetition dropped, too. The sixth arrives five seconds and more after the fault, when the undo of its request was
/// long there, and may have been forgotten.
const DROPPED: Duration = Duration::from_millis(7_500);
/// Until that sixth repetition, and a lease more.
const REPEATED: Duration = Duration::from_millis(9_500);

pub(super) const PACKETS_DROPPED: Scenario = Scenario {
    key: "packets-dropped",
    title: "packets to and from the holder dropped",
    what: "The holder's process is in a network namespace of its own; between it and the servers each packet is dropped for \
           7.5 s. The kernels send again what was not acknowledged, also of connections that were closed meanwhile: it \
           arrives up to 7 s after the fault.",
    why_not: |on| match on {
        on if on.is_ensemble() => {
            Some("its servers serve one address, and a session ends what a dead connection has left")
        }
        on if on.replicates() => Some("its servers tell their clients addresses of one network"),
        _ => None,
    },
    steps: |_| {
        vec![
            Step::Network(Disturbance::DropPackets),
            Step::Rest(DROPPED),
            // What arrives late and finds the lock held is refused, and does no harm.
            Step::Process(Who::All, ProcessAction::Rest),
        ]
    },
    shows: |_| ExpectedEffects { retransmission: true, ..WHEN_CUT_OFF },
    network: ClientNetwork::Namespaces,
    // So several requests are late.
    load: ClientLoad { victims: 4, ..ClientLoad::USUAL },
    afterwards: REPEATED,
    ..Scenario::USUAL
};

const WHEN_CUT_OFF: ExpectedEffects = ExpectedEffects { loss: true, ..ExpectedEffects::NOTHING };
