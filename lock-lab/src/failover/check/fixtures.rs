//! Histories for tests, in milliseconds.

use lock_core::{BootInstant, FencingToken};

use super::holds::Hold;
use crate::failover::events::{Attempt, Event, FaultEvent, History, Lock, ProcessFault, What, Write};

pub(super) fn at(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

pub(super) fn token(number: u64) -> FencingToken {
    FencingToken { era: 0, number }
}

/// A hold whose validity was never extended and ran out.
pub(super) fn held(number: u64, asked: u64, granted: u64, until: u64) -> Hold {
    Hold {
        whose: kept(0, number),
        asked: at(asked),
        granted: at(granted),
        token: token(number),
        deadlines: vec![(at(granted), at(until))],
        lost: None,
        invalid: None,
        releasing: None,
        released: None,
        killed: None,
    }
}

pub(super) const fn kept(process: usize, attempt: u64) -> Attempt {
    Attempt { lock: Lock::Kept, process, client: 0, attempt }
}

pub(super) const fn busy(process: usize, attempt: u64) -> Attempt {
    Attempt { lock: Lock::Busy, process, client: 1, attempt }
}

/// Builds a history event by event, for tests of the checks.
#[derive(Debug, Default)]
pub(super) struct HistoryBuilder(pub(super) History);

impl HistoryBuilder {
    pub(super) fn event(mut self, millis: u64, whose: Attempt, what: What) -> Self {
        self.0.events.push(Event { at: at(millis), whose, what });
        self
    }

    pub(super) fn granted(self, asked: u64, granted: u64, whose: Attempt, number: u64, until: u64) -> Self {
        self.event(asked, whose, What::Asked).event(
            granted,
            whose,
            What::Granted { token: token(number), valid_until: at(until) },
        )
    }

    pub(super) fn extended(self, millis: u64, whose: Attempt, until: u64) -> Self {
        self.event(millis, whose, What::Extended { valid_until: at(until) })
    }

    pub(super) fn released(self, from: u64, done: u64, whose: Attempt) -> Self {
        self.event(from, whose, What::Releasing).event(done, whose, What::Released)
    }

    /// A look that says that it is lost, and `lost()` a millisecond later.
    pub(super) fn lost(self, last_valid: u64, millis: u64, whose: Attempt) -> Self {
        self.event(millis, whose, What::FirstInvalid { last_valid: Some(at(last_valid)) }).event(
            millis + 1,
            whose,
            What::Lost { loss: "Expired".into() },
        )
    }

    pub(super) fn wrote(mut self, millis: u64, whose: Attempt, number: u64, fenced: bool, went_back: bool) -> Self {
        self.0.writes.push(Write { at: at(millis), whose, token: token(number), fenced, went_back });
        self
    }

    pub(super) fn struck(mut self, millis: u64, process: usize, fault: ProcessFault) -> Self {
        self.0.fault_events.push(FaultEvent { at: at(millis), process, fault });
        self
    }

    /// A client that takes and releases the busy lock every 10 ms in this time.
    pub(super) fn traffic(mut self, from: u64, until: u64, process: usize) -> Self {
        for (number, millis) in (1..).zip((from..until).step_by(10)) {
            let whose = busy(process, number + from);
            self = self.granted(millis, millis + 1, whose, millis + 1, millis + 500).released(
                millis + 3,
                millis + 4,
                whose,
            );
        }
        self
    }

    pub(super) fn done(mut self) -> History {
        self.0.sort();
        self.0
    }
}
