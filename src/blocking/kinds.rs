//! The kinds of locks, for callers that block.

use std::time::Duration;

use super::{
    guards::{Guard, MultiGuard, Permit, ReentrantGuard, Term, WriteGuard},
    streams::Leaders,
    waiting::wait,
};
use crate::{Error, Owner};

/// The options of an acquisition, as methods of a type that wraps the lock of the same name.
macro_rules! options {
    () => {
        /// Waits for at most `limit`; then it is [`Error::NotAcquired`].
        pub fn timeout(self, limit: Duration) -> Self {
            Self(self.0.timeout(limit))
        }

        /// Asks for another ttl than the connection's: how long the server keeps the lock after its holder died.
        pub fn ttl(self, ttl: Duration) -> Self {
            Self(self.0.ttl(ttl))
        }

        /// Shows `payload` to those who look at the lock, instead of the connection's own.
        pub fn payload(self, payload: impl AsRef<[u8]>) -> Self {
            Self(self.0.payload(payload))
        }

        /// Holds it for at most `limit`, counted from the grant on the holder's own clock.
        pub fn max_hold(self, limit: Duration) -> Self {
            Self(self.0.max_hold(limit))
        }

        /// Keeps the lock closed for `delay` after this holder's lease ended in any way but by a release.
        pub fn lock_delay(self, delay: Duration) -> Self {
            Self(self.0.lock_delay(delay))
        }
    };
}

/// The exclusive lock of one name; see [`crate::Mutex`].
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call lock or try_lock"]
pub struct Mutex(pub(super) crate::Mutex);

/// Several exclusive locks, taken together; see [`crate::MultiLock`].
#[derive(Debug, Clone)]
#[must_use = "it only describes the locks; call lock or try_lock"]
pub struct MultiLock(pub(super) crate::MultiLock);

/// A lock that its owner may take again; see [`crate::Reentrant`].
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call lock or try_lock"]
pub struct Reentrant(crate::Reentrant);

/// The read-write lock of one name; see [`crate::RwLock`].
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call read or write"]
pub struct RwLock(pub(super) crate::RwLock);

/// The semaphore of one name; see [`crate::Semaphore`].
#[derive(Debug, Clone)]
#[must_use = "it only describes the semaphore; call acquire or try_acquire"]
pub struct Semaphore(pub(super) crate::Semaphore);

/// An election; see [`crate::Election`].
#[derive(Debug, Clone)]
#[must_use = "it only describes the election; call campaign or observe"]
pub struct Election(pub(super) crate::Election);

impl Mutex {
    options!();

    /// Waits for the lock, and holds it.
    ///
    /// # Errors
    /// Those of [`crate::Mutex::lock`].
    pub fn lock(&self) -> Result<Guard, Error> {
        wait(self.0.lock()).map(Guard)
    }

    /// Takes the lock if it is free, and does not wait: `None` when somebody else holds it.
    ///
    /// # Errors
    /// Those of [`crate::Mutex::try_lock`].
    pub fn try_lock(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_lock())?.map(Guard))
    }

    /// This lock for `owner`, who may take it again while it holds it.
    pub fn reentrant(&self, owner: &Owner) -> Reentrant {
        Reentrant(self.0.reentrant(owner))
    }
}

impl MultiLock {
    options!();

    /// Waits for all the locks, and holds them.
    ///
    /// # Errors
    /// Those of [`crate::MultiLock::lock`].
    pub fn lock(&self) -> Result<MultiGuard, Error> {
        wait(self.0.lock()).map(MultiGuard)
    }

    /// Takes all the locks if they are free, and does not wait: `None` when somebody else holds one of them.
    ///
    /// # Errors
    /// Those of [`crate::MultiLock::try_lock`].
    pub fn try_lock(&self) -> Result<Option<MultiGuard>, Error> {
        Ok(wait(self.0.try_lock())?.map(MultiGuard))
    }
}

impl Reentrant {
    /// Holds the lock: at once when its owner holds it already.
    ///
    /// # Errors
    /// Those of [`crate::Reentrant::lock`].
    pub fn lock(&self) -> Result<ReentrantGuard, Error> {
        wait(self.0.lock()).map(ReentrantGuard)
    }

    /// Holds the lock if that is possible at once: `None` when somebody else holds it, or is acquiring it for the same owner.
    ///
    /// # Errors
    /// Those of [`crate::Reentrant::try_lock`].
    pub fn try_lock(&self) -> Result<Option<ReentrantGuard>, Error> {
        Ok(wait(self.0.try_lock())?.map(ReentrantGuard))
    }
}

impl RwLock {
    options!();

    /// Waits until it may read, beside other readers.
    ///
    /// # Errors
    /// Those of [`crate::RwLock::read`].
    pub fn read(&self) -> Result<Guard, Error> {
        wait(self.0.read()).map(Guard)
    }

    /// Reads if that is possible at once: `None` when a writer holds the lock, or waits for it.
    ///
    /// # Errors
    /// Those of [`crate::RwLock::try_read`].
    pub fn try_read(&self) -> Result<Option<Guard>, Error> {
        Ok(wait(self.0.try_read())?.map(Guard))
    }

    /// Waits until it may write, alone.
    ///
    /// # Errors
    /// Those of [`crate::RwLock::write`].
    pub fn write(&self) -> Result<WriteGuard, Error> {
        wait(self.0.write()).map(WriteGuard)
    }

    /// Writes if that is possible at once: `None` when anybody else holds the lock.
    ///
    /// # Errors
    /// Those of [`crate::RwLock::try_write`].
    pub fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        Ok(wait(self.0.try_write())?.map(WriteGuard))
    }
}

impl Semaphore {
    options!();

    /// Waits for a permit, and holds it.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::acquire`].
    pub fn acquire(&self) -> Result<Permit, Error> {
        wait(self.0.acquire()).map(Permit)
    }

    /// Takes a permit if one is free, and does not wait: `None` when all are held.
    ///
    /// # Errors
    /// Those of [`crate::Semaphore::try_acquire`].
    pub fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        Ok(wait(self.0.try_acquire())?.map(Permit))
    }
}

impl Election {
    options!();

    /// Campaigns until it is elected; `payload` tells observers who it is.
    ///
    /// # Errors
    /// Those of [`crate::Election::campaign`].
    pub fn campaign(&self, payload: impl AsRef<[u8]>) -> Result<Term, Error> {
        wait(self.0.campaign(payload)).map(Term)
    }

    /// Leads if nobody else does, and does not wait: `None` when somebody leads.
    ///
    /// # Errors
    /// Those of [`crate::Election::try_campaign`].
    pub fn try_campaign(&self, payload: impl AsRef<[u8]>) -> Result<Option<Term>, Error> {
        Ok(wait(self.0.try_campaign(payload))?.map(Term))
    }

    /// The present leader, then each later one; see [`crate::Election::observe`].
    ///
    /// # Errors
    /// Those of [`crate::Election::observe`].
    pub fn observe(&self) -> Result<Leaders, Error> {
        self.0.observe().map(Leaders)
    }
}
