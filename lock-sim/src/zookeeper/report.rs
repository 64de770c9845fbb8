//! What programs tell of themselves, and in which part of the schedule they are.

use std::num::NonZeroU32;

use lock_core::{Error, FencingToken, Loss, Validity};

/// What is asked for, as a contender's name on the servers says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Writer,
    Reader,
    Permit(NonZeroU32),
}

/// The part of the schedule, for the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    Active,
    /// Nothing goes wrong any more, nobody comes, and nobody lets go.
    Calm,
    /// The holders release.
    Ending,
    /// The connections are closed.
    Closing,
    Over,
}

/// What a program tells of itself. `slot` is its number, and `attempt` counts what it has asked for.
#[derive(Debug)]
pub(super) enum Report {
    Asks {
        slot: usize,
        attempt: u32,
        kind: Kind,
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
        why: Ended,
    },
    /// Its connection is closed; and what was wrong with that.
    Closed {
        slot: usize,
        failure: Option<String>,
    },
}

#[derive(Debug)]
pub(super) enum Ended {
    Released,
    Dropped,
    GaveUp,
    Lost(Loss),
    Failed(Error),
}
