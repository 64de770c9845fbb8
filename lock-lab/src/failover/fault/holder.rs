//! Faults of the holder's process.

use std::time::Duration;

use super::scenario::{Awaited, ExpectedEffects, ProcessAction, Scenario, Step, Who};

/// How long a stopped holder stays so when the next one holds its lock.
pub(super) const OVERTAKEN: Duration = Duration::from_millis(200);

pub(super) const KILLED: Scenario = Scenario {
    key: "holder-killed",
    title: "holder killed",
    what: "The holder's process is killed with SIGKILL.",
    steps: |_| vec![Step::Process(Who::Victim, ProcessAction::Kill), Step::Until(Awaited::Overtaken)],
    is_momentary: true,
    shows: |_| ExpectedEffects { crash_bound: true, ..ExpectedEffects::NOTHING },
    ..Scenario::USUAL
};

pub(super) const STOPPED: Scenario = Scenario {
    key: "holder-stopped",
    title: "holder stopped past its lease",
    what: "The holder's process is stopped with SIGSTOP until its lease is over and others held the lock, then goes on.",
    steps: |_| stopped(),
    shows: |_| WHEN_STOPPED,
    ..Scenario::USUAL
};

pub(super) const STARVED: Scenario = Scenario {
    key: "holder-starved",
    title: "holder's runtime starved",
    what: "All threads of the program's own runtime in the holder's process are blocked until its lease is over. A session \
           with ZooKeeper has a thread of its own, which goes on: there the lock is kept.",
    steps: |_| vec![Step::Process(Who::Victim, ProcessAction::Starve), Step::Until(Awaited::Lasted)],
    // A session with ZooKeeper has a thread of its own, which renews it although the program stands still.
    shows: |on| ExpectedEffects { loss: !on.is_ensemble(), ..ExpectedEffects::NOTHING },
    ..Scenario::USUAL
};

/// Less than the minute by which a client's proposal of a token may be ahead of the server's clock, so that it counts.
const AHEAD: Duration = Duration::from_secs(50);

pub(super) const CLOCK_AHEAD: Scenario = Scenario {
    key: "holder-clock-ahead",
    title: "holder with a wall clock ahead, stopped past its lease",
    what: "The wall clock of the holder's process is 50 s ahead of all others; it is stopped with SIGSTOP until its lease is \
           over and others held the lock, then goes on.",
    why_not: |on| {
        on.is_ensemble().then_some("its tokens are the numbers of transactions, whatever the clients' clocks")
    },
    steps: |_| stopped(),
    shows: |_| WHEN_STOPPED,
    clock_ahead: AHEAD,
    ..Scenario::USUAL
};

/// A holder that is stopped looks at its lock, is stopped, and writes when it goes on.
pub(super) const WHEN_STOPPED: ExpectedEffects =
    ExpectedEffects { stale_write: true, loss: true, ..ExpectedEffects::NOTHING };

/// Stopped until another one holds the lock, and for a little longer.
pub(super) fn stopped() -> Vec<Step> {
    vec![
        Step::Process(Who::Victim, ProcessAction::Stop),
        Step::Until(Awaited::Overtaken),
        Step::Rest(OVERTAKEN),
        Step::Process(Who::Stopped, ProcessAction::Continue),
    ]
}
