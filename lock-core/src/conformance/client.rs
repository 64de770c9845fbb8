//! A connection as the cases use it: every grant goes through the checker.

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Failure, Link,
    checker::{Checker, Hold},
    failure::Outcome,
    limits::within,
};
use crate::{Error, Guard, LockName, Locks, Mutex, Snapshot};

/// One connection. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Client {
    locks: Locks,
    checker: Arc<Checker>,
    link: Option<Arc<dyn Link>>,
    closed: Arc<AtomicBool>,
}

impl Client {
    pub(super) fn new(locks: Locks, checker: Arc<Checker>, link: Option<Arc<dyn Link>>) -> Self {
        Self { locks, checker, link, closed: Arc::default() }
    }

    pub(super) const fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(super) fn mutex(&self, name: &LockName) -> CheckedMutex {
        self.checker.uses(name);
        CheckedMutex { mutex: self.locks.mutex(name.as_str()), checker: Arc::clone(&self.checker) }
    }

    /// Waits for the lock.
    pub(super) async fn lock(&self, name: &LockName) -> Outcome<Checked> {
        Ok(within("an acquisition", self.mutex(name).lock()).await??)
    }

    /// Takes the lock if it is free.
    pub(super) async fn try_lock(&self, name: &LockName) -> Outcome<Option<Checked>> {
        Ok(within("an attempt without waiting", self.mutex(name).try_lock()).await??)
    }

    pub(super) async fn inspect(&self, name: &LockName) -> Outcome<Snapshot> {
        Ok(within("a look at the lock", self.locks.inspect(name.as_str())).await??)
    }

    /// Closes the connection; its end is not judged again at the end of the case.
    pub(super) async fn close(&self, limit: Duration) -> Outcome<Result<(), Error>> {
        self.closed.store(true, Ordering::Relaxed);
        within("closing a connection", self.locks.close(limit)).await
    }

    /// Whether the case has closed it itself.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Stops its traffic; connections stay open.
    pub(super) async fn hold(&self) -> Outcome {
        self.link()?.hold().await;
        Ok(())
    }

    /// Breaks its connections.
    pub(super) async fn cut(&self) -> Outcome {
        self.link()?.cut().await;
        Ok(())
    }

    /// Delays its traffic in each direction.
    pub(super) async fn slow_down(&self, delay: Duration) -> Outcome {
        self.link()?.slow_down(delay).await;
        Ok(())
    }

    fn link(&self) -> Outcome<&Arc<dyn Link>> {
        self.link.as_ref().ok_or_else(|| Failure::new("this connection cannot be cut off"))
    }

    /// Lets its traffic through again, if it was ever held or cut.
    pub(super) async fn heal(&self) {
        if let Some(link) = &self.link {
            link.heal().await;
        }
    }
}

/// A [`Mutex`] whose grants are watched.
#[derive(Debug, Clone)]
pub(super) struct CheckedMutex {
    mutex: Mutex,
    checker: Arc<Checker>,
}

impl CheckedMutex {
    pub(super) fn wait(mut self, limit: Duration) -> Self {
        self.mutex = self.mutex.wait(limit);
        self
    }

    pub(super) fn ttl(mut self, ttl: Duration) -> Self {
        self.mutex = self.mutex.ttl(ttl);
        self
    }

    pub(super) fn payload(mut self, payload: &[u8]) -> Self {
        self.mutex = self.mutex.payload(payload);
        self
    }

    pub(super) async fn lock(&self) -> Result<Checked, Error> {
        let guard = self.mutex.lock().await?;
        Ok(self.admit(guard).await)
    }

    pub(super) async fn try_lock(&self) -> Result<Option<Checked>, Error> {
        match self.mutex.try_lock().await? {
            Some(guard) => Ok(Some(self.admit(guard).await)),
            None => Ok(None),
        }
    }

    async fn admit(&self, guard: Guard) -> Checked {
        let hold = self.checker.admit(&guard);
        let checked = Checked { guard: Some(guard), hold, checker: Arc::clone(&self.checker) };
        self.checker.compare(&checked.hold).await;
        checked
    }
}

/// A [`Guard`] that is watched for as long as it is held.
pub(super) struct Checked {
    /// `None` only once given back.
    guard: Option<Guard>,
    hold: Arc<Hold>,
    checker: Arc<Checker>,
}

impl Checked {
    /// Gives the lock back and reports.
    pub(super) async fn release(mut self) -> Result<(), Error> {
        self.checker.forget(&self.hold);
        match self.guard.take() {
            Some(guard) => guard.release().await,
            None => Ok(()),
        }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        // Before the guard's own drop, which releases it.
        self.checker.forget(&self.hold);
    }
}

impl Deref for Checked {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        self.guard.as_ref().expect("only a release takes the guard, and it takes this value, too")
    }
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.hold, f)
    }
}
