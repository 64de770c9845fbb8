//! What happened in a run: one event a line, all stamped by the clock that every process of the machine shares.

use std::{fmt, time::Duration};

use lock_core::{BootInstant, Clock, FencingToken};
use serde::{Deserialize, Serialize};

use crate::deployment::{Held, Sample};

/// One of the two locks of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lock {
    /// Taken and released as quickly as it goes, by every client: what shows for how long nobody could be granted.
    Busy,
    /// Taken on order, and kept until it is lost or the order is withdrawn: what the victim of a fault holds.
    Kept,
}

impl Lock {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Busy, Self::Kept];

    /// The lock name that the workers use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Busy => "failover/busy",
            Self::Kept => "failover/kept",
        }
    }
}

/// One attempt to hold a lock. Its text form `PROCESS/CLIENT/ATTEMPT` is also the payload that the servers keep with the
/// holder, by which [`Held`] is told from others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Attempt {
    /// Which lock.
    pub lock: Lock,
    /// Which process, from 0.
    pub process: usize,
    /// Which client of the process, from 0.
    pub client: usize,
    /// Which attempt of the client, from 1; 0 in what is not about an attempt.
    pub attempt: u64,
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.process, self.client, self.attempt)
    }
}

/// Something that a worker process saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// When: read right before the event was written down, and right after what it tells.
    #[serde(with = "nanos")]
    pub at: BootInstant,
    /// Whose.
    #[serde(flatten)]
    pub whose: Attempt,
    /// What.
    pub what: What,
}

/// What a worker process saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// The process has connected all its clients. Not about an attempt.
    Ready {
        /// Its wall clock, in microseconds since 1970.
        wall_micros: u64,
    },
    /// A client could not connect. Not about an attempt.
    NotConnected {
        /// Why.
        error: String,
        /// Whether its settings were refused; else the servers could not be asked.
        refused: bool,
    },
    /// The acquisition begins: stamped before the call.
    Asked,
    /// The lock is held.
    Granted {
        /// The fencing token.
        #[serde(with = "text")]
        token: FencingToken,
        /// Until when, without a renewal.
        #[serde(with = "nanos")]
        valid_until: BootInstant,
    },
    /// A renewal has moved the deadline, as seen within a few milliseconds after it did.
    Extended {
        /// The new deadline.
        #[serde(with = "nanos")]
        valid_until: BootInstant,
    },
    /// Somebody else held the lock until the wait limit passed.
    NotGranted,
    /// The client went away before there was an answer: what it may have been granted is released in the background.
    Withdrawn,
    /// The acquisition failed, and certainly left nothing.
    Failed {
        /// Why.
        error: String,
    },
    /// The acquisition failed, and may stand on the servers until it is undone there or its lease ends.
    Unknown {
        /// Why.
        error: String,
    },
    /// The store has answered a write.
    Wrote {
        /// The token of the write.
        #[serde(with = "text")]
        token: FencingToken,
        /// Whether the client had looked whether it still holds the lock.
        checked: bool,
        /// Whether the fenced register took it.
        fenced: bool,
        /// Whether the register without a fence went back by it: it had seen a higher token.
        went_back: bool,
    },
    /// `lost()` has resolved, before the client began to release.
    Lost {
        /// Why, in the words of `Loss`.
        loss: String,
    },
    /// A look at `is_valid()` said for the first time that the lock is not held any more.
    FirstInvalid {
        /// The clock right before the last look that said that it is held; `None` when there was none.
        #[serde(with = "nanos::option")]
        last_valid: Option<BootInstant>,
    },
    /// The release begins: stamped before the call. From here on the client does not hold the lock.
    Releasing,
    /// The release is confirmed, or there was nothing left to release.
    Released,
    /// The release failed.
    ReleaseFailed {
        /// Why.
        error: String,
        /// Whether the lock may stand on the servers until the release is done in the background, or its lease ends; not so
        /// where it had been lost before.
        unknown: bool,
    },
    /// The connection of a client could not be closed in order: what it has on the servers goes with its ttl. Not about an
    /// attempt.
    NotClosed {
        /// Why.
        error: String,
    },
}

/// A write as it arrived at the store, which is in one process and stamps each on arrival.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// When it arrived: in the order of application.
    #[serde(with = "nanos")]
    pub at: BootInstant,
    /// Whose.
    #[serde(flatten)]
    pub whose: Attempt,
    /// Its token.
    #[serde(with = "text")]
    pub token: FencingToken,
    /// Whether the fenced register took it.
    pub fenced: bool,
    /// Whether the register without a fence, the control, went back by it: a stale write.
    pub went_back: bool,
}

/// A read-modify-write of the value that the busy lock protects, as it arrived at the store: what was read is written back
/// with one element more. Updates are numbered from 1, in the order of their arrival, and a register's value is told by the
/// update that was written last: its element, and all that this one had read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Update {
    /// When it arrived.
    #[serde(with = "nanos")]
    pub at: BootInstant,
    /// Whose.
    #[serde(flatten)]
    pub whose: Attempt,
    /// Its token.
    #[serde(with = "text")]
    pub token: FencingToken,
    /// What it had read of each register.
    pub read: Values,
    /// Whether the register behind the fence took it. The other one takes all.
    pub fenced: bool,
}

/// The value of each register: the number of the update that was written last, 0 when there was none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// Behind the fence.
    pub fenced: u64,
    /// Without one, the control.
    pub unfenced: u64,
}

/// What was done to a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessFault {
    /// SIGKILL: stamped before the signal.
    Killed,
    /// SIGSTOP: stamped when the process stood still.
    Stopped,
    /// SIGCONT: stamped before the signal.
    Continued,
    /// The runtime was told to stand still, while the other threads go on: stamped before the order.
    Starved {
        /// For how long.
        millis: u64,
    },
}

/// A fault of a worker process, and when it struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultEvent {
    /// When the fault struck.
    #[serde(with = "nanos")]
    pub at: BootInstant,
    /// Number of the process.
    pub process: usize,
    /// What was done to the process.
    pub fault: ProcessFault,
}

/// All that was recorded of a run, each list in the order of time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// What the processes saw.
    pub events: Vec<Event>,
    /// What the store saw.
    pub writes: Vec<Write>,
    /// The updates that the store saw.
    #[serde(default)]
    pub updates: Vec<Update>,
    /// What was done to the processes.
    pub fault_events: Vec<FaultEvent>,
    /// The longest time for which a thread of the laboratory, which had to do with nothing, stood still against its will.
    #[serde(default)]
    pub stood_still: Duration,
    /// How many segments the kernel has sent again while the processes ran; `None` where nobody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<u64>,
    /// What was on the servers when all processes had ended; `None` when they were not looked at any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub post_check: Option<PostCheck>,
}

impl History {
    /// Puts each list into the order of time. Processes report on their own pipes, so lines of two of them may arrive the
    /// other way round.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.at);
        self.writes.sort_by_key(|write| write.at);
        // Updates are numbered by the order in which the store took them, which is that of the list.
        self.fault_events.sort_by_key(|event| event.at);
    }
}

/// What one server, or the service as a whole, really held for a lock: read between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truth {
    /// Which lock.
    pub lock: Lock,
    /// Samples of several servers that were read together, as one question to the service, have the same number.
    pub round: u64,
    /// Which server.
    pub server: String,
    /// Right before the question was sent.
    #[serde(with = "nanos")]
    pub asked: BootInstant,
    /// Right after the answer came.
    #[serde(with = "nanos")]
    pub answered: BootInstant,
    /// What the server holds; a server that did not answer has no sample.
    pub held: Option<Held>,
    /// For how long it grants nothing to anybody, in nanoseconds: it is in quarantine. `None` when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_nanos: Option<u64>,
}

impl Truth {
    /// What was seen of that lock in that round.
    pub(crate) fn of(lock: Lock, round: u64, sample: Sample) -> Self {
        let Sample { server, asked, answered, held, closed_nanos } = sample;
        Self { lock, round, server, asked, answered, held, closed_nanos }
    }
}

/// What was on the servers when all processes had ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostCheck {
    /// When the fault was over, and the servers and the network whole again.
    #[serde(with = "nanos")]
    pub whole: BootInstant,
    /// When the last process had ended.
    #[serde(with = "nanos")]
    pub ended: BootInstant,
    /// Looks at the servers, one after the other, until nothing was left or long enough after it had to be gone.
    pub looks: Vec<Residue>,
}

/// What the servers had of the locks at one look. What is meant to stay without anybody who holds or waits is not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residue {
    /// Right before the first question was sent.
    #[serde(with = "nanos")]
    pub asked: BootInstant,
    /// Right after the last answer came.
    #[serde(with = "nanos")]
    pub answered: BootInstant,
    /// What is left, and where, in words.
    pub left: Vec<String>,
    /// Servers whose word counts and that gave no answer.
    pub silent: Vec<String>,
}

impl Residue {
    /// Whether every server said that it has nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        // Safeguard: a server that gives no answer is not taken for an empty one (checker)
        self.left.is_empty() && self.silent.is_empty()
    }
}

/// The present moment on the clock of every event.
#[must_use]
pub fn now() -> BootInstant {
    Clock::boot().now()
}

/// Instants as nanoseconds since the machine was booted.
pub(crate) mod nanos {
    use lock_core::BootInstant;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(at: &BootInstant, to: S) -> Result<S::Ok, S::Error> {
        at.as_nanos().serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<BootInstant, D::Error> {
        u64::deserialize(from).map(BootInstant::from_nanos)
    }

    pub(crate) mod option {
        use lock_core::BootInstant;
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        #[allow(clippy::ref_option, reason = "the form that serde calls")]
        pub(crate) fn serialize<S: Serializer>(at: &Option<BootInstant>, to: S) -> Result<S::Ok, S::Error> {
            at.map(BootInstant::as_nanos).serialize(to)
        }

        pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Option<BootInstant>, D::Error> {
            Ok(Option::<u64>::deserialize(from)?.map(BootInstant::from_nanos))
        }
    }
}

/// Tokens in their text form.
pub(crate) mod text {
    use lock_core::FencingToken;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(crate) fn serialize<S: Serializer>(token: &FencingToken, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(token)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<FencingToken, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_comes_back_as_it_was() {
        let whose = Attempt { lock: Lock::Kept, process: 1, client: 2, attempt: 3 };
        let at = BootInstant::from_nanos(u64::MAX - 1);
        let token = FencingToken { era: 1, number: 42 };
        for what in [
            What::Ready { wall_micros: u64::MAX },
            What::Granted { token, valid_until: at },
            What::Unknown { error: "line\nbreak".into() },
            What::Wrote { token, checked: true, fenced: false, went_back: true },
            What::Withdrawn,
            What::NotConnected { error: "not a member".into(), refused: true },
            What::FirstInvalid { last_valid: None },
            What::FirstInvalid { last_valid: Some(at) },
        ] {
            let event = Event { at, whose, what };
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event, "{line}");
        }
    }
}
