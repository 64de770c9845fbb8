//! What a node is asked, and what it says; and which of its checks are in place.

use lock_redlock::protocol::{ballots::Ballot, token::Renumbered};

/// What tells an attempt from all others.
pub type Value = u32;

/// Which waiter.
pub type Waiter = u8;

/// Milliseconds of the node's clock.
pub(super) type Ms = u64;

/// For how long a release keeps the lock for those who were woken.
pub const RESERVATION: Ms = 10;
/// For how long a node remembers who waits.
pub const WAITERS_KEPT: Ms = 10_000;
/// For how long after its last look a writer that waits keeps readers out.
pub const INTENT_KEPT: Ms = 5_000;
/// For how long a tombstone is kept.
pub const TOMBSTONE: Ms = 5_000;

/// What a node does not check when it is taken out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checks {
    /// A node that forgot gives no vote for a while.
    pub quarantine: bool,
    /// Each vote begins with a comparison of run ids.
    pub run: bool,
    /// A write-back is for the holding of that number only.
    pub write_back_number: bool,
    /// A renewal is for the holding of that number only.
    pub renewal_number: bool,
    /// A downgrade is for the holding of that number only.
    pub downgrade_number: bool,
    /// An undo leaves a tombstone when it is asked to.
    pub tombstone: bool,
    /// Also where it finds something.
    pub tombstone_always: bool,
    /// An undo removes only what is its own.
    pub own_value: bool,
    /// A writer is refused where somebody reads.
    pub writer_behind_readers: bool,
    /// A reader is refused where a writer holds.
    pub reader_behind_writer: bool,
    /// A number is given to one reader only.
    pub number_once: bool,
    /// A node is joined to a lease only where nobody else holds.
    pub rejoin_if_free: bool,
    /// A reader does not overtake a writer that waits.
    pub intent: bool,
    /// A number is no lower than the clock, but for a quarter of a second.
    pub clock_floor: bool,
}

/// With all of them.
pub const ALL: Checks = Checks {
    quarantine: true,
    run: true,
    write_back_number: true,
    renewal_number: true,
    downgrade_number: true,
    tombstone: true,
    tombstone_always: true,
    own_value: true,
    writer_behind_readers: true,
    reader_behind_writer: true,
    number_once: true,
    rejoin_if_free: true,
    intent: true,
    clock_floor: true,
};

/// A waiter, as it tells a node of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which one.
    pub waiter: Waiter,
    /// For how long it has waited, in milliseconds.
    pub waited: u64,
}

/// A vote that is asked of a node.
#[derive(Debug, Clone, Copy)]
pub struct Vote {
    /// Whether it wants to read.
    pub reads: bool,
    /// Its value.
    pub value: Value,
    /// In milliseconds.
    pub ttl: u64,
    /// The number that it proposes.
    pub proposal: u64,
    /// `None` for one that does not wait.
    pub place: Option<Place>,
}

/// What an undo does with a waiter's place in line.
#[derive(Debug, Clone, Copy)]
pub enum Line {
    /// It has none.
    None,
    /// It goes on waiting.
    Stay {
        /// Whether it wants to read.
        reads: bool,
        /// Where it stands.
        place: Place,
    },
    /// It leaves.
    Leave {
        /// Whether it wanted to read.
        reads: bool,
        /// Which one.
        waiter: Waiter,
    },
}

/// A request to a node.
#[derive(Debug, Clone, Copy)]
pub enum Call {
    /// `acquire.lua` or `acquire_read.lua`.
    Vote(Vote),
    /// `write_back.lua` (a writer's) or `renumber.lua` (a reader's).
    Renumber {
        /// Whether it is a reader's.
        reads: bool,
        /// Its value.
        value: Value,
        /// The number that the node gave.
        number: u64,
        /// The other one.
        token: u64,
    },
    /// `renew.lua` or `renew_member.lua`, with a number.
    Extend {
        /// Whether it is a reader's.
        reads: bool,
        /// Its value.
        value: Value,
        /// In milliseconds.
        ttl: u64,
        /// The number that the node gave.
        number: u64,
    },
    /// `rejoin.lua` or `rejoin_read.lua`.
    Rejoin {
        /// Whether it is a reader's.
        reads: bool,
        /// Its value.
        value: Value,
        /// In milliseconds.
        ttl: u64,
        /// Of the grant.
        token: u64,
    },
    /// `downgrade.lua`.
    Downgrade {
        /// Its value.
        value: Value,
        /// In milliseconds.
        ttl: u64,
        /// The number that the node gave.
        number: u64,
        /// Of the grant.
        token: u64,
    },
    /// `undo.lua`.
    Undo {
        /// Its value.
        value: Value,
        /// Whether it leaves a tombstone.
        tombstone: bool,
        /// What becomes of the waiter.
        line: Line,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// To a vote or a rejoin.
    Ballot(Ballot),
    /// To everything else.
    Done(bool),
    /// To another number.
    Renumbered(Renumbered),
}
