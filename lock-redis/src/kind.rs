//! The ways to hold: which script does what for each of them.

use std::{num::NonZeroU32, time::Duration};

use lock_core::{Error, Feature, Mode};

use crate::{
    keys::Keys,
    node::ScriptCall,
    scripts::{Ask, Attempt, Intent, sharing::Members},
};

/// How something is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The lock, alone.
    Alone,
    /// The lock, beside other readers.
    Reader,
    /// One of so many permits.
    Permit(NonZeroU32),
}

/// What is waited for: contenders of one family wait for each other's releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Family {
    /// The lock of a name.
    Lock,
    /// The semaphore of a name.
    Semaphore,
}

impl Kind {
    /// How `mode` is held.
    pub(crate) const fn of(mode: Mode) -> Result<Self, Error> {
        match mode {
            Mode::Exclusive => Ok(Self::Alone),
            Mode::Read => Ok(Self::Reader),
            Mode::Permit { of } => Ok(Self::Permit(of)),
            _ => Err(Error::unsupported(Feature::ReadWrite, "redis")),
        }
    }

    pub(crate) const fn family(self) -> Family {
        match self {
            Self::Alone | Self::Reader => Family::Lock,
            Self::Permit(_) => Family::Semaphore,
        }
    }

    /// Takes it. `waited` is how long it has waited; `intent` counts for one who would hold it alone.
    pub(crate) fn acquire(
        self,
        attempt: &Attempt,
        ask: &Ask<'_>,
        waited: Duration,
        intent: Option<&Intent<'_>>,
    ) -> ScriptCall {
        match self {
            Self::Alone => attempt.acquire(ask, intent),
            Self::Reader => attempt.acquire_read(ask, waited),
            Self::Permit(of) => attempt.acquire_permit(ask, of),
        }
    }

    pub(crate) fn renew(self, attempt: &Attempt, ttl: Duration, delay: Duration) -> ScriptCall {
        match self.members() {
            None => attempt.renew(ttl, delay, None),
            Some(members) => attempt.renew_member(members, ttl, delay, None),
        }
    }

    pub(crate) fn release(self, attempt: &Attempt, delay: Duration) -> ScriptCall {
        match self.members() {
            None => attempt.release(delay),
            Some(members) => attempt.release_member(members, delay),
        }
    }

    pub(crate) fn undo(self, attempt: &Attempt, delay: Duration) -> ScriptCall {
        match self.members() {
            None => attempt.undo(delay),
            Some(members) => attempt.undo_member(members, delay),
        }
    }

    const fn members(self) -> Option<Members> {
        match self {
            Self::Alone => None,
            Self::Reader => Some(Members::Readers),
            Self::Permit(_) => Some(Members::Permits),
        }
    }
}

impl Family {
    /// The channel on which releases are published.
    pub(crate) fn channel(self, keys: &Keys) -> String {
        match self {
            Self::Lock => keys.channel(),
            Self::Semaphore => keys.permit_channel(),
        }
    }
}
