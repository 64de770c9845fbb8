//! The workload of the published test of etcd's locks (Jepsen, etcd 3.4.3): updates of one value under a lock with leases of
//! two seconds, while a process is paused every five seconds.

use std::time::Duration;

use super::scenario::{ClientLoad, ExpectedEffects, ProcessAction, Scenario, Step, Who};

/// How often.
const PAUSES: usize = 3;
/// From one pause to the next.
const EVERY: Duration = Duration::from_secs(5);
/// How long one takes: longer than a lease, by time enough for others to hold the lock and update the value.
const PAUSE: Duration = Duration::from_secs(3);
const LEASE: Duration = Duration::from_secs(2);

pub(super) const PAUSES_EVERY_FIVE_SECONDS: Scenario = Scenario {
    key: "pauses",
    title: "a process paused every five seconds, leases of two",
    what: "Every five seconds the process that holds the busy lock is stopped with SIGSTOP for three seconds, which is longer \
           than its lease of two. Whoever holds that lock reads a value, writes it back after 20 ms with an element of its \
           own, without looking whether it still holds the lock, and releases after 30 ms more.",
    steps: |_| {
        let pause = [
            Step::Rest(EVERY - PAUSE),
            Step::Process(Who::BusyHolder, ProcessAction::Stop),
            Step::Rest(PAUSE),
            Step::Process(Who::Stopped, ProcessAction::Continue),
        ];
        pause.repeat(PAUSES)
    },
    shows: |_| ExpectedEffects { lost_update: true, loss: true, ..ExpectedEffects::NOTHING },
    lease: |_| Some(LEASE),
    // Who holds for so long cannot make the operations that are asked for elsewhere.
    load: ClientLoad {
        update: Duration::from_millis(20),
        hold: Duration::from_millis(50),
        is_careless: true,
        traffic: 15.0,
        ..ClientLoad::USUAL
    },
    ..Scenario::USUAL
};
