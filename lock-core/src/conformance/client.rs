//! A connection as the cases use it: every grant goes through the checker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    Failure, Link,
    checked_lock::CheckedLock,
    checker::Checker,
    failure::CaseResult,
    guards::{AnyGuard, CheckedGuard},
    limits::within,
};
use crate::{
    Capabilities, Contender, Election, Error, Feature, LockName, Locks, Mutex, Permit, RwLock, Semaphore, Snapshot,
    WriteGuard,
};

/// A connection of a conformance run, every grant of which goes through the [`Checker`]. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct CheckedClient {
    locks: Locks,
    checker: Arc<Checker>,
    link: Option<Arc<dyn Link>>,
    closed: Arc<AtomicBool>,
}

impl CheckedClient {
    pub(super) fn new(locks: Locks, checker: Arc<Checker>, link: Option<Arc<dyn Link>>) -> Self {
        Self { locks, checker, link, closed: Arc::default() }
    }

    pub(super) const fn locks(&self) -> &Locks {
        &self.locks
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.locks.capabilities()
    }

    pub(super) fn supports(&self, feature: Feature) -> bool {
        self.capabilities().supports(feature)
    }

    pub(super) fn mutex(&self, name: &LockName) -> CheckedLock<Mutex> {
        self.watched(name, self.locks.mutex(name.as_str()))
    }

    pub(super) fn rwlock(&self, name: &LockName) -> CheckedLock<RwLock> {
        self.watched(name, self.locks.rwlock(name.as_str()))
    }

    pub(super) fn semaphore(&self, name: &LockName, permits: u32) -> CheckedLock<(Semaphore, u32)> {
        self.watched(name, (self.locks.semaphore(name.as_str(), permits), permits))
    }

    pub(super) fn election(&self, name: &LockName) -> CheckedLock<Election> {
        self.watched(name, self.locks.election(name.as_str()))
    }

    fn watched<L>(&self, name: &LockName, lock: L) -> CheckedLock<L> {
        self.uses(name);
        CheckedLock::new(lock, Arc::clone(&self.checker))
    }

    /// Notes that `name` is used, so that its residue is looked at in the end.
    pub(super) fn uses(&self, name: &LockName) {
        self.checker.uses(name);
    }

    /// Waits for the lock.
    pub(super) async fn lock(&self, name: &LockName) -> CaseResult<CheckedGuard> {
        Ok(within("an acquisition", self.mutex(name).lock()).await??)
    }

    /// Takes the lock if it is free.
    pub(super) async fn try_lock(&self, name: &LockName) -> CaseResult<Option<CheckedGuard>> {
        Ok(within("an attempt without waiting", self.mutex(name).try_lock()).await??)
    }

    /// Waits until it may read.
    pub(super) async fn read(&self, name: &LockName) -> CaseResult<CheckedGuard> {
        Ok(within("an acquisition for reading", self.rwlock(name).read()).await??)
    }

    /// Reads if that is possible at once.
    pub(super) async fn try_read(&self, name: &LockName) -> CaseResult<Option<CheckedGuard>> {
        Ok(within("an attempt to read without waiting", self.rwlock(name).try_read()).await??)
    }

    /// Waits until it may write.
    pub(super) async fn write(&self, name: &LockName) -> CaseResult<CheckedGuard<WriteGuard>> {
        Ok(within("an acquisition for writing", self.rwlock(name).write()).await??)
    }

    /// Writes if that is possible at once.
    pub(super) async fn try_write(&self, name: &LockName) -> CaseResult<Option<CheckedGuard<WriteGuard>>> {
        Ok(within("an attempt to write without waiting", self.rwlock(name).try_write()).await??)
    }

    /// Waits for a permit.
    pub(super) async fn permit(&self, name: &LockName, of: u32) -> CaseResult<CheckedGuard<Permit>> {
        Ok(within("the acquisition of a permit", self.semaphore(name, of).acquire()).await??)
    }

    /// Takes a permit if one is free.
    pub(super) async fn try_permit(&self, name: &LockName, of: u32) -> CaseResult<Option<CheckedGuard<Permit>>> {
        Ok(within("an attempt at a permit without waiting", self.semaphore(name, of).try_acquire()).await??)
    }

    pub(super) async fn inspect(&self, name: &LockName) -> CaseResult<Snapshot> {
        Ok(within("a look at the lock", self.locks.inspect(name.as_str())).await??)
    }

    /// Ends that grant, whoever holds it.
    pub(super) async fn revoke<G: AnyGuard>(&self, guard: &CheckedGuard<G>) -> CaseResult<Option<Contender>> {
        guard.disturb();
        let revoke = self.locks.revoke(guard.name().as_str(), guard.token());
        Ok(within("a forced release", revoke).await??)
    }

    /// Closes the connection; its end is not judged again at the end of the case.
    pub(super) async fn close(&self, limit: Duration) -> CaseResult<Result<(), Error>> {
        self.closed.store(true, Ordering::Relaxed);
        within("closing a connection", self.locks.close(limit)).await
    }

    /// Whether the case has closed it itself.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Stops its traffic; connections stay open.
    pub(super) async fn hold(&self) -> CaseResult {
        self.link()?.hold().await;
        Ok(())
    }

    /// Breaks its connections.
    pub(super) async fn cut(&self) -> CaseResult {
        self.link()?.cut().await;
        Ok(())
    }

    /// Delays its traffic in each direction.
    pub(super) async fn slow_down(&self, delay: Duration) -> CaseResult {
        self.link()?.slow_down(delay).await;
        Ok(())
    }

    fn link(&self) -> CaseResult<&Arc<dyn Link>> {
        self.link.as_ref().ok_or_else(|| Failure::new("this connection cannot be cut off"))
    }

    /// Lets its traffic through again, if it was ever held or cut.
    pub(super) async fn heal(&self) {
        if let Some(link) = &self.link {
            link.heal().await;
        }
    }
}
