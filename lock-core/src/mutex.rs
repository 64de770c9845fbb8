//! The exclusive lock.

use std::{sync::Arc, time::Duration};

use crate::{Error, Guard, LockName, Locks, Request, Wait};

/// The exclusive lock of one name: at most one guard at a time, over all processes that use the same servers.
///
/// # Fairness
/// Waiters are granted in the order of their arrival where [`Capabilities::fifo`](crate::Capabilities::fifo) says so;
/// elsewhere any of them may be next.
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call lock or try_lock"]
pub struct Mutex {
    locks: Locks,
    name: Arc<Result<LockName, Error>>,
    ttl: Option<Duration>,
    wait: Option<Duration>,
    payload: Arc<[u8]>,
}

impl Mutex {
    pub(crate) fn new(locks: Locks, name: Result<LockName, Error>) -> Self {
        let payload = locks.payload();
        Self { locks, name: Arc::new(name), ttl: None, wait: None, payload }
    }

    /// Waits for at most `limit` in [`Mutex::lock`].
    pub const fn wait(mut self, limit: Duration) -> Self {
        self.wait = Some(limit);
        self
    }

    /// Asks for another ttl than the connection's: how long the server keeps the lock after its holder died.
    /// [`Error::Unsupported`] where all locks of a connection share one session.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Shows `payload` to those who look at the lock, instead of the connection's own.
    pub fn payload(mut self, payload: impl Into<Arc<[u8]>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// Waits for the lock, and holds it.
    ///
    /// # Errors
    /// [`Error::NotAcquired`] when the wait limit passed (it is kept to within one round trip),
    /// [`Error::Unavailable`] when the backend was out of reach for longer than its connect limit, [`Error::Lost`] when
    /// the lease ended before it could be handed over, [`Error::InvalidName`], [`Error::Config`],
    /// [`Error::Unsupported`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the place in the queue is given up, and a grant that comes in the same moment is
    /// released: in the background, by the runtime.
    ///
    /// # Unknown outcomes
    /// None: after an error this attempt does not hold the lock, and what it may have left on the server is removed as
    /// soon as the server can be reached, or ends with its ttl.
    pub async fn lock(&self) -> Result<Guard, Error> {
        let request = self.request(Wait::UntilStopped)?;
        self.locks.acquire(request, self.wait).await
    }

    /// Takes the lock if it is free, and does not wait: `None` when somebody else holds it.
    ///
    /// # Errors
    /// As those of [`Mutex::lock`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`].
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`].
    pub async fn try_lock(&self) -> Result<Option<Guard>, Error> {
        let request = self.request(Wait::No)?;
        match self.locks.acquire(request, None).await {
            Ok(guard) => Ok(Some(guard)),
            Err(Error::NotAcquired { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn request(&self, wait: Wait) -> Result<Request, Error> {
        let name = match self.name.as_ref() {
            Ok(name) => name.clone(),
            Err(Error::InvalidName { name, problem }) => {
                return Err(Error::InvalidName { name: name.clone(), problem });
            }
            Err(other) => return Err(Error::config("name", other.to_string(), "a lock name")),
        };
        let mut request = Request::exclusive(name);
        request.ttl = self.ttl;
        request.wait = wait;
        request.payload = Arc::clone(&self.payload);
        Ok(request)
    }
}
