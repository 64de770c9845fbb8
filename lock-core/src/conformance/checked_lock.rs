//! Locks of all kinds as the cases use them: every grant goes through the checker.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use super::{checker::Checker, guards::CheckedGuard};
use crate::{Election, Error, Guard, Leaders, Mode, Mutex, Permit, RwLock, Semaphore, Term, WriteGuard};

/// A lock of any kind, every grant of which goes through the [`Checker`].
#[derive(Debug, Clone)]
pub(super) struct CheckedLock<L> {
    lock: L,
    checker: Arc<Checker>,
}

impl<L> CheckedLock<L> {
    pub(super) const fn new(lock: L, checker: Arc<Checker>) -> Self {
        Self { lock, checker }
    }

    /// With other options.
    pub(super) fn with(self, options: impl FnOnce(L) -> L) -> Self {
        Self { lock: options(self.lock), checker: self.checker }
    }
}

impl CheckedLock<Mutex> {
    pub(super) fn timeout(self, limit: Duration) -> Self {
        self.with(|mutex| mutex.timeout(limit))
    }

    pub(super) fn ttl(self, ttl: Duration) -> Self {
        self.with(|mutex| mutex.ttl(ttl))
    }

    pub(super) fn payload(self, payload: &[u8]) -> Self {
        self.with(|mutex| mutex.payload(payload))
    }

    pub(super) async fn lock(&self) -> Result<CheckedGuard, Error> {
        let guard = self.lock.lock().await?;
        Ok(CheckedGuard::admit(&self.checker, guard, Mode::Exclusive).await)
    }

    pub(super) async fn try_lock(&self) -> Result<Option<CheckedGuard>, Error> {
        let Some(guard) = self.lock.try_lock().await? else { return Ok(None) };
        Ok(Some(CheckedGuard::admit(&self.checker, guard, Mode::Exclusive).await))
    }
}

impl CheckedLock<RwLock> {
    pub(super) async fn read(&self) -> Result<CheckedGuard<Guard>, Error> {
        let guard = self.lock.read().await?;
        Ok(CheckedGuard::admit(&self.checker, guard, Mode::Read).await)
    }

    pub(super) async fn try_read(&self) -> Result<Option<CheckedGuard<Guard>>, Error> {
        let Some(guard) = self.lock.try_read().await? else { return Ok(None) };
        Ok(Some(CheckedGuard::admit(&self.checker, guard, Mode::Read).await))
    }

    pub(super) async fn write(&self) -> Result<CheckedGuard<WriteGuard>, Error> {
        let guard = self.lock.write().await?;
        Ok(CheckedGuard::admit(&self.checker, guard, Mode::Exclusive).await)
    }

    pub(super) async fn try_write(&self) -> Result<Option<CheckedGuard<WriteGuard>>, Error> {
        let Some(guard) = self.lock.try_write().await? else { return Ok(None) };
        Ok(Some(CheckedGuard::admit(&self.checker, guard, Mode::Exclusive).await))
    }
}

/// A semaphore, and how many permits it has.
impl CheckedLock<(Semaphore, u32)> {
    pub(super) async fn acquire(&self) -> Result<CheckedGuard<Permit>, Error> {
        let permit = self.lock.0.acquire().await?;
        Ok(self.admit(permit).await)
    }

    pub(super) async fn try_acquire(&self) -> Result<Option<CheckedGuard<Permit>>, Error> {
        let Some(permit) = self.lock.0.try_acquire().await? else { return Ok(None) };
        Ok(Some(self.admit(permit).await))
    }

    async fn admit(&self, permit: Permit) -> CheckedGuard<Permit> {
        // One of no permits cannot have been granted; the checker would say so.
        let of = NonZeroU32::new(self.lock.1).unwrap_or(NonZeroU32::MIN);
        CheckedGuard::admit(&self.checker, permit, Mode::Permit { of }).await
    }
}

impl CheckedLock<Election> {
    pub(super) async fn campaign(&self, payload: &[u8]) -> Result<CheckedGuard<Term>, Error> {
        let term = self.lock.campaign(payload).await?;
        Ok(CheckedGuard::admit(&self.checker, term, Mode::Exclusive).await)
    }

    pub(super) async fn try_campaign(&self, payload: &[u8]) -> Result<Option<CheckedGuard<Term>>, Error> {
        let Some(term) = self.lock.try_campaign(payload).await? else { return Ok(None) };
        Ok(Some(CheckedGuard::admit(&self.checker, term, Mode::Exclusive).await))
    }

    pub(super) fn observe(&self) -> Result<Leaders, Error> {
        self.lock.observe()
    }
}
