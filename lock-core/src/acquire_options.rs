//! How a lock is asked for: what mutexes, read-write locks, semaphores and elections have in common.

use std::{sync::Arc, time::Duration};

use crate::{Error, Guard, LockName, Mode, Outage, Request, Wait, connection::Connection};

/// The connection, the name and the options of one acquisition, collected by the builder methods of every kind of lock.
#[derive(Debug, Clone)]
pub(crate) struct AcquireOptions {
    pub(crate) connection: Connection,
    pub(crate) name: Arc<Result<LockName, Error>>,
    pub(crate) by_rwlock: bool,
    pub(crate) ttl: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) payload: Arc<[u8]>,
    pub(crate) delay: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
}

impl AcquireOptions {
    pub(crate) fn new(connection: Connection, name: Result<LockName, Error>) -> Self {
        let payload = connection.payload();
        Self {
            connection,
            name: Arc::new(name),
            by_rwlock: false,
            ttl: None,
            timeout: None,
            payload,
            delay: None,
            max_hold: None,
        }
    }

    pub(crate) fn name(&self) -> Result<&LockName, Error> {
        match self.name.as_ref() {
            Ok(name) => Ok(name),
            Err(Error::InvalidName { name, problem }) => Err(Error::InvalidName { name: name.clone(), problem }),
            Err(Error::Config { key, value, allowed }) => Err(Error::config(key, value, allowed)),
            Err(other) => Err(Error::config("name", other.to_string(), "a lock name")),
        }
    }

    /// Acquires in `mode`. The wait limit holds for an acquisition that waits.
    pub(crate) async fn acquire(&self, mode: Mode, wait: Wait) -> Result<Guard, Error> {
        let name = self.name()?;
        if self.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::config("max_hold", "0s", "more than zero"));
        }
        let request = Request {
            name: name.clone(),
            mode,
            by_rwlock: self.by_rwlock,
            ttl: self.ttl,
            wait,
            payload: Arc::clone(&self.payload),
            delay: self.delay,
            outage: Outage::default(),
        };
        let limit = self.timeout.filter(|_| wait == Wait::UntilStopped);
        let observed = self.connection.observe(name, &request);
        let acquisition = self.connection.acquire(request, limit, Guard::new, observed.span());
        let acquired = acquisition.await.and_then(|guard| {
            // A grant that took longer than its lease is none; the guard gives it back.
            // Safeguard: catalogue: a grant is looked at before it is given out
            if let Some(loss) = guard.validity().loss() {
                return Err(Error::Lost { name: name.clone(), loss });
            }
            Ok(guard)
        });
        match &acquired {
            Ok(guard) => {
                if let Some(hold) = observed.granted(guard.token()) {
                    guard.validity().observe_hold(Box::new(hold));
                }
            }
            Err(error) => observed.failed(error),
        }
        if let (Ok(guard), Some(limit)) = (&acquired, self.max_hold) {
            guard.limit(limit);
        }
        acquired
    }

    /// Acquires in `mode` if that is possible at once; `None` when somebody else holds the lock.
    pub(crate) async fn try_acquire(&self, mode: Mode) -> Result<Option<Guard>, Error> {
        match self.acquire(mode, Wait::No).await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::NotAcquired { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The options of an acquisition, as methods of a type whose field `options` is an [`AcquireOptions`].
macro_rules! options {
    () => {
        /// Waits for at most `limit`; then it is [`Error::NotAcquired`](crate::Error::NotAcquired). Kept to within one
        /// round trip.
        pub const fn timeout(mut self, limit: std::time::Duration) -> Self {
            self.options.timeout = Some(limit);
            self
        }

        /// Asks for another ttl than the connection's: how long the server keeps the lock after its holder died.
        /// [`Error::Unsupported`](crate::Error::Unsupported) without [`Feature::Ttl`](crate::Feature::Ttl).
        pub const fn ttl(mut self, ttl: std::time::Duration) -> Self {
            self.options.ttl = Some(ttl);
            self
        }

        /// Shows `payload` to those who look at the lock, instead of the connection's own.
        pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
            self.options.payload = payload.as_ref().into();
            self
        }

        /// Holds it for at most `limit`, counted from the grant on the holder's own clock. Then the guard ends with
        /// [`Loss::MaxHoldExceeded`](crate::Loss::MaxHoldExceeded), whether anything of this program runs or not, and is released
        /// in the background.
        pub const fn max_hold(mut self, limit: std::time::Duration) -> Self {
            self.options.max_hold = Some(limit);
            self
        }

        /// Keeps the lock closed for `delay` after this holder's lease ended in any way but by a release, so that what it
        /// had under way meanwhile comes to an end (M. Burrows, *The Chubby lock service*, 2006, "lock-delay").
        /// [`Error::Unsupported`](crate::Error::Unsupported) without [`Feature::LockDelay`](crate::Feature::LockDelay).
        pub const fn lock_delay(mut self, delay: std::time::Duration) -> Self {
            self.options.delay = Some(delay);
            self
        }
    };
}

pub(crate) use options;
