//! The read-write lock.

use std::ops::Deref;

use crate::{
    DowngradeFailed, Error, Feature, Guard, LockName, Mode, Wait,
    acquire_options::{AcquireOptions, options},
    connection::Connection,
};

/// The read-write lock of one name: many readers, or one writer. The write side is the [`Mutex`](crate::Mutex) of that
/// name. [`Error::Unsupported`] without [`Feature::ReadWrite`].
///
/// # Fairness
/// Writers are not starved: a reader that arrives behind a waiting writer waits for it. Beyond that, contenders are granted
/// in the order of their arrival where [`Feature::Fifo`] is promised.
///
/// # Fencing tokens
/// A reader's token is higher than that of every earlier writer, and lower than that of every later one: it says which
/// writes the reader may see. Two readers' tokens have no order.
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call read or write"]
pub struct RwLock {
    options: AcquireOptions,
}

/// A lock that is held for writing. It is a [`Guard`] that can become a reader's.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard(Guard);

impl RwLock {
    pub(crate) fn new(connection: Connection, name: Result<LockName, Error>) -> Self {
        Self { options: AcquireOptions { by_rwlock: true, ..AcquireOptions::new(connection, name) } }
    }

    options!();

    /// Waits until it may read, beside other readers.
    ///
    /// # Errors
    /// Those of [`Mutex::lock`](crate::Mutex::lock); [`Error::Unsupported`] without [`Feature::ReadWrite`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read(&self) -> Result<Guard, Error> {
        self.options.acquire(Mode::Read, Wait::UntilStopped).await
    }

    /// Reads if that is possible at once: `None` when a writer holds the lock, or waits for it.
    ///
    /// # Errors
    /// As those of [`RwLock::read`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_read(&self) -> Result<Option<Guard>, Error> {
        self.options.try_acquire(Mode::Read).await
    }

    /// Waits until it may write, alone.
    ///
    /// # Errors
    /// As those of [`RwLock::read`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.supported()?;
        self.options.acquire(Mode::Exclusive, Wait::UntilStopped).await.map(WriteGuard)
    }

    /// Writes if that is possible at once: `None` when anybody else holds the lock.
    ///
    /// # Errors
    /// As those of [`RwLock::read`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        self.supported()?;
        Ok(self.options.try_acquire(Mode::Exclusive).await?.map(WriteGuard))
    }

    /// A write lock without readers would be a mutex under a name that promises more.
    fn supported(&self) -> Result<(), Error> {
        self.options.connection.require(Feature::ReadWrite)
    }
}

impl WriteGuard {
    /// Goes on as a reader: no writer comes between, also none that waited before, and there is no wait. The fencing token
    /// stays.
    ///
    /// # Errors
    /// [`DowngradeFailed`], which turns into the [`Error`] in it: [`Error::Unsupported`] without
    /// [`Feature::Downgrade`], with the guard given back; [`Error::Lost`] and [`Error::Unavailable`], after which the lock
    /// is not held.
    ///
    /// # Cancel safety
    /// When the future is dropped, the lock is released in the background.
    ///
    /// # Unknown outcomes
    /// After [`Error::Unavailable`] something may stand on the server until the background release or the ttl ends it.
    pub async fn downgrade(self) -> Result<Guard, DowngradeFailed<Self>> {
        match self.0.connection().require(Feature::Downgrade) {
            Err(error) => Err(DowngradeFailed { error, guard: Some(self) }),
            Ok(()) => self.0.downgrade().await.map_err(|error| DowngradeFailed { error, guard: None }),
        }
    }

    /// Releases the lock and reports; see [`Guard::release`].
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    ///
    /// # Cancel safety
    /// As that of [`Guard::release`].
    ///
    /// # Unknown outcomes
    /// As those of [`Guard::release`].
    pub async fn release(self) -> Result<(), Error> {
        self.0.release().await
    }

    /// The guard without the means to become a reader.
    pub fn into_guard(self) -> Guard {
        self.0
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.0
    }
}
