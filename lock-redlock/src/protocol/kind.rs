//! The two ways to hold a lock.

use lock_core::Mode;

/// How an attempt shares the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockKind {
    /// Alone.
    Writer,
    /// Beside other readers.
    Reader,
}

impl LockKind {
    /// How `mode` is held; `None` for a mode that cannot be decided by majority.
    pub(crate) const fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Exclusive => Some(Self::Writer),
            Mode::Read => Some(Self::Reader),
            _ => None,
        }
    }

    pub(crate) const fn mode(self) -> Mode {
        match self {
            Self::Writer => Mode::Exclusive,
            Self::Reader => Mode::Read,
        }
    }
}
