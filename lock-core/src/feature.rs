//! What not every backend can do.

use std::fmt;

/// Something that not every backend can promise. What it cannot promise it refuses, with [`Error::Unsupported`](crate::Error::Unsupported).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// Waiters are granted in the order of their arrival.
    Fifo,
    /// A look at a lock shows those who wait for it.
    Queue,
    /// A request may choose its own ttl.
    Ttl,
    /// The lease of a holder that died, was stopped or was cut off ends by itself, after its ttl.
    Expiry,
    /// Locks that readers share.
    ReadWrite,
    /// A writer may become a reader without a gap.
    Downgrade,
    /// Semaphores.
    Semaphore,
    /// A lock stays closed for a while after an abnormal loss.
    LockDelay,
    /// Fencing tokens rise by what the servers keep alone, and not by their clocks, even after a server lost its memory.
    ClocklessToken,
    /// The names of the locks that are held can be listed.
    Listing,
    /// Somebody else's grant can be ended, that one and no other.
    ForcedRelease,
}

impl Feature {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Fifo,
        Self::Queue,
        Self::Ttl,
        Self::Expiry,
        Self::ReadWrite,
        Self::Downgrade,
        Self::Semaphore,
        Self::LockDelay,
        Self::ClocklessToken,
        Self::Listing,
        Self::ForcedRelease,
    ];

    /// What it is called in errors and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "grants in the order of arrival",
            Self::Queue => "a look at those who wait",
            Self::Ttl => "a ttl for a single lock",
            Self::Expiry => "the end of a lease whose holder is out of reach",
            Self::ReadWrite => "a read-write lock",
            Self::Downgrade => "a downgrade from write to read",
            Self::Semaphore => "a semaphore",
            Self::LockDelay => "a lock delay",
            Self::ClocklessToken => "fencing tokens that need no clock",
            Self::Listing => "a list of locks",
            Self::ForcedRelease => "the forced release of another's lock",
        }
    }

    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
