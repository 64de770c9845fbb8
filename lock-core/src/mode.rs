//! How locks are shared, and who waits for whom.

use std::{fmt, num::NonZeroU32};

use crate::Feature;

/// How a lock is shared.
///
/// `Exclusive` and `Read` are two ways to hold one and the same lock: a mutex and the write side of a read-write lock are
/// the same request, so those of one name exclude each other. A semaphore is a thing of its own: permits of a name have
/// nothing to do with its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mode {
    /// One holder, and no reader beside it: a mutex, or a writer.
    Exclusive,
    /// Many holders, and no writer beside them. One that waits does not overtake a writer that waits
    /// ([`Feature::ReadWrite`]).
    Read,
    /// One of `of` holders ([`Feature::Semaphore`]). The number that the oldest live contender names is the one that
    /// counts; who names another is refused with [`Error::permits`](crate::Error::permits).
    Permit {
        /// How many holders there may be.
        of: NonZeroU32,
    },
}

impl Mode {
    /// What a backend must be able to do for it.
    #[must_use]
    pub const fn needs(self) -> Option<Feature> {
        match self {
            Self::Exclusive => None,
            Self::Read => Some(Feature::ReadWrite),
            Self::Permit { .. } => Some(Feature::Semaphore),
        }
    }

    /// How many permits a contender of a semaphore says that there are; `None` for a contender of a lock.
    #[must_use]
    pub const fn permits(self) -> Option<NonZeroU32> {
        if let Self::Permit { of } = self { Some(of) } else { None }
    }

    /// Which of those `ahead` in one line, nearest first, a contender of this mode waits for: `None` when it may hold. A
    /// writer waits for whoever is next ahead, a reader for the nearest writer, and of N permits for the Nth ahead (of those
    /// who leave ahead of it, anybody may make room for it). Looks at no more of them than it needs.
    ///
    /// Those that come later never matter: so a grant is final, and whoever looks again after some ahead have left sees the
    /// same or better.
    ///
    /// # Errors
    /// The first that `ahead` gives.
    pub fn waits_for<T, E>(self, ahead: impl IntoIterator<Item = Result<(T, Self), E>>) -> Result<Option<T>, E> {
        // Safeguard: no more holders than permits (memory, local)
        let mut room = self.permits().map_or(1, NonZeroU32::get);
        for other in ahead {
            let (who, other) = other?;
            // Readers share. Everybody else ahead takes one place, of which all but a semaphore have one.
            // Safeguard: no reader beside a writer (memory, local)
            room -= u32::from(!(self == Self::Read && other == Self::Read));
            if room == 0 {
                return Ok(Some(who));
            }
        }
        Ok(None)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Read => f.write_str("read"),
            Self::Permit { of } => write!(f, "permit of {of}"),
        }
    }
}
