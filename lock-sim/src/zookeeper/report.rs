//! What programs tell of themselves, and in which part of the schedule they are.

use std::num::NonZeroU32;

use lock_core::{Error, FencingToken, Loss, Validity};

/// The mode that a contender asks for, as its node's name on the servers says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestMode {
    Writer,
    Reader,
    Permit(NonZeroU32),
}

/// The stage of a schedule, from active faults to the end, which its programs follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScheduleStage {
    Active,
    /// Nothing goes wrong any more, nobody comes, and nobody lets go.
    Calm,
    /// The holders release.
    Ending,
    /// The connections are closed.
    Closing,
    Over,
}

/// What a simulated contender reports to the checker of invariants. `slot` is its number, and `attempt` counts what it
/// has asked for.
#[derive(Debug)]
pub(super) enum ContenderReport {
    Asks {
        slot: usize,
        attempt: u32,
        kind: RequestMode,
    },
    Granted {
        slot: usize,
        token: Option<FencingToken>,
        validity: Validity,
    },
    /// From here on it only reads.
    Downgrades {
        slot: usize,
    },
    /// It was not granted, or does not hold any more.
    Ends {
        slot: usize,
        why: AttemptEnd,
    },
    /// Its connection is closed; and what was wrong with that.
    Closed {
        slot: usize,
        failure: Option<String>,
    },
}

/// Why a simulated contender's attempt ended: a release, a loss, an error, or because it gave up.
#[derive(Debug)]
pub(super) enum AttemptEnd {
    Released,
    Dropped,
    GaveUp,
    Lost(Loss),
    Failed(Error),
}
