//! The semaphore.

use std::{future::Future, num::NonZeroU32, time::Duration};

use crate::{
    Abandoned, BootInstant, Committed, Error, Guard, LockName, Loss, Mode, Operation, Validity, Wait,
    acquire_options::{AcquireOptions, options},
    connection::Connection,
    operation::{self, OperationLocks},
};

/// A semaphore: at most so many permits of one name are held at a time. [`Error::Unsupported`] without
/// [`Feature::Semaphore`](crate::Feature::Semaphore).
///
/// All its users name the number of permits. The one that the oldest live contender named counts; another gets an
/// [`Error::Config`] with both numbers. A semaphore has nothing to do with the mutex of the same name.
///
/// # Another number of permits
/// While programs with the old and with the new number run beside each other, those of the one number are refused: never are
/// more permits held than the number that counts. From the moment on when no contender with the old number is left, the new
/// one counts. So a rollout, from 2 to 4 or back, is safe in any order; this one keeps programs from failing meanwhile:
///
/// 1. Have the program take the refusal for *all permits are held*, as below, and roll that out with the old number.
/// 2. Roll out the new number, one instance after the other. Those of the one number wait until those of the other let go;
///    when the last instance is replaced, all of them agree.
///
/// Where programs must not wait for that, let the name have the number in it, as `gpu/4`, and two semaphores stand beside each
/// other during the rollout: then as many as both together may be held.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_core::Error> {
/// use lock_core::{Error, Locks, Permit};
/// # use lock_core::memory::{Config, Memory, MemoryServer};
/// use std::time::Duration;
///
/// async fn acquire(locks: &Locks, permits: u32) -> Result<Permit, Error> {
///     loop {
///         match locks.semaphore("gpu", permits).acquire().await {
///             // Instances with another number hold or wait.
///             Err(Error::Config { key, .. }) if key == "permits" && permits > 0 => {}
///             other => return other,
///         }
///         tokio::time::sleep(Duration::from_millis(500)).await;
///     }
/// }
///
/// # let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new()))?);
/// let old = acquire(&locks, 2).await?;
/// let new = tokio::spawn({
///     let locks = locks.clone();
///     async move { acquire(&locks, 4).await }
/// });
/// # tokio::task::yield_now().await;
/// # assert!(!new.is_finished());
/// old.release().await?;
/// let new = new.await.unwrap()?; // 4 counts from here on
/// # assert!(matches!(locks.semaphore("gpu", 2).acquire().await, Err(Error::Config { .. })));
/// # new.release().await
/// # }
/// ```
///
/// # Fairness
/// As that of a [`Mutex`](crate::Mutex).
#[derive(Debug, Clone)]
#[must_use = "it only describes the semaphore; call acquire or try_acquire"]
pub struct Semaphore {
    options: AcquireOptions,
    permits: u32,
}

/// A held permit. Dropping it releases it in the background; [`Permit::release`] waits for that and reports. As a
/// [`Guard`], but that several may be held: so it has no fencing token, since none of one would keep out the other ones.
#[derive(Debug)]
#[must_use = "the permit is released when it is dropped"]
pub struct Permit(Guard);

impl Semaphore {
    pub(crate) fn new(connection: Connection, name: Result<LockName, Error>, permits: u32) -> Self {
        Self { options: AcquireOptions::new(connection, name), permits }
    }

    options!();

    /// Waits for a permit, and holds it.
    ///
    /// # Errors
    /// Those of [`Mutex::lock`](crate::Mutex::lock); [`Error::Config`] when the number of permits is zero, or not that of
    /// the oldest live contender; [`Error::Unsupported`] without [`Feature::Semaphore`](crate::Feature::Semaphore).
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn acquire(&self) -> Result<Permit, Error> {
        self.options.acquire(self.mode()?, Wait::UntilStopped).await.map(Permit)
    }

    /// Takes a permit if one is free, and does not wait: `None` when all are held.
    ///
    /// # Errors
    /// As those of [`Semaphore::acquire`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_acquire(&self) -> Result<Option<Permit>, Error> {
        Ok(self.options.try_acquire(self.mode()?).await?.map(Permit))
    }

    fn mode(&self) -> Result<Mode, Error> {
        let of = NonZeroU32::new(self.permits).ok_or_else(|| Error::config("permits", "0", "1 or more"))?;
        Ok(Mode::Permit { of })
    }
}

impl Permit {
    /// Of what it is a permit.
    #[must_use]
    pub const fn name(&self) -> &LockName {
        self.0.name()
    }

    /// Whether the permit is held now; see [`Guard::is_valid`].
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.0.is_valid()
    }

    /// How long it is certainly held without a further renewal; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    /// Until when it is certainly held without a further renewal; `None` when it is lost.
    #[must_use]
    pub fn valid_until(&self) -> Option<BootInstant> {
        self.0.valid_until()
    }

    /// The validity itself; see [`Guard::validity`].
    #[must_use]
    pub const fn validity(&self) -> &Validity {
        self.0.validity()
    }

    /// Resolves when the permit is lost; see [`Guard::lost`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn lost(&self) -> Loss {
        self.0.lost().await
    }

    /// Runs `operation` while the permit is held; see [`Guard::run`].
    ///
    /// # Errors
    /// Those of [`Guard::run`].
    ///
    /// # Cancel safety
    /// As that of `operation`.
    pub async fn run<F: Future>(&self, operation: F) -> Result<F::Output, Error> {
        self.0.run(operation).await
    }

    /// Runs `operation` so that it takes hold only while the permit is held; see [`Guard::transact`]. Its steps get no
    /// fencing token.
    ///
    /// # Errors
    /// Those of [`Guard::transact`].
    ///
    /// # Panics
    /// As [`Guard::transact`].
    ///
    /// # Cancel safety
    /// As that of [`Guard::transact`].
    ///
    /// # Unknown outcomes
    /// As those of [`Guard::transact`].
    pub async fn transact<O>(&self, operation: O) -> Result<Committed<O::Output>, Abandoned<O::Error>>
    where
        O: Operation<()>,
    {
        let held_set = OperationLocks::new([self.0.as_held()]);
        operation::transact(self.0.connection(), held_set, (), operation).await
    }

    /// Releases the permit and reports; see [`Guard::release`].
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

    /// Only for the checker of the conformance suite, which tells permits apart by their numbers.
    #[cfg(feature = "conformance")]
    pub(crate) const fn guard(&self) -> &Guard {
        &self.0
    }
}
