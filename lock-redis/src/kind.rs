//! The ways to hold: which script does what for each of them.

use std::{
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

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

/// An attempt, and how it holds what it was granted: all that its renewal, its release and its undo need.
#[derive(Debug, Clone)]
pub(crate) struct Holding {
    pub(crate) kind: Kind,
    pub(crate) attempt: Attempt,
    pub(crate) ttl: Duration,
    /// The lock delay; zero for none.
    pub(crate) delay: Duration,
    sent_again: Arc<AtomicBool>,
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

impl Holding {
    pub(crate) fn new(kind: Kind, attempt: Attempt, ttl: Duration, delay: Duration) -> Self {
        Self { kind, attempt, ttl, delay, sent_again: Arc::default() }
    }

    /// Notes, for all clones, that its acquisition was sent down a second connection: the first request may still come,
    /// even after a release.
    pub(crate) fn note_sent_again(&self) {
        self.sent_again.store(true, Ordering::Release);
    }

    pub(crate) fn is_sent_again(&self) -> bool {
        self.sent_again.load(Ordering::Acquire)
    }

    /// Takes it. `waited` is for how long it has waited so far; `intent` counts for one who would hold the lock alone.
    pub(crate) fn acquire(&self, ask: &Ask<'_>, waited: Duration, intent: Option<&Intent<'_>>) -> ScriptCall {
        match self.kind {
            Kind::Alone => self.attempt.acquire(ask, intent),
            Kind::Reader => self.attempt.acquire_read(ask, waited),
            Kind::Permit(of) => self.attempt.acquire_permit(ask, of),
        }
    }

    pub(crate) fn renew(&self) -> ScriptCall {
        match self.kind.members() {
            None => self.attempt.renew(self.ttl, self.delay, None),
            Some(members) => self.attempt.renew_member(members, self.ttl, self.delay, None),
        }
    }

    pub(crate) fn release(&self) -> ScriptCall {
        match self.kind.members() {
            None => self.attempt.release(self.delay),
            Some(members) => self.attempt.release_member(members, self.delay),
        }
    }

    pub(crate) fn undo(&self) -> ScriptCall {
        match self.kind.members() {
            None => self.attempt.undo(self.delay),
            Some(members) => self.attempt.undo_member(members, self.delay),
        }
    }

    /// Makes a reader of one that holds the lock alone.
    pub(crate) fn downgrade(&self) -> ScriptCall {
        self.attempt.downgrade(self.ttl, self.delay)
    }

    /// The same as a reader.
    pub(crate) fn as_reader(&self) -> Self {
        Self { kind: Kind::Reader, ..self.clone() }
    }
}
