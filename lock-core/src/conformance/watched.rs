//! Locks of all kinds as the cases use them: every grant goes through the checker.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use super::{checker::Checker, held::Checked};
use crate::{Election, Error, Guard, Leaders, Mode, Mutex, Permit, RwLock, Semaphore, Term, WriteGuard};

/// A lock whose grants are watched.
#[derive(Debug, Clone)]
pub(super) struct Watched<L> {
    lock: L,
    checker: Arc<Checker>,
}

impl<L> Watched<L> {
    pub(super) const fn new(lock: L, checker: Arc<Checker>) -> Self {
        Self { lock, checker }
    }

    /// With other options.
    pub(super) fn with(self, options: impl FnOnce(L) -> L) -> Self {
        Self { lock: options(self.lock), checker: self.checker }
    }
}

impl Watched<Mutex> {
    pub(super) fn timeout(self, limit: Duration) -> Self {
        self.with(|mutex| mutex.timeout(limit))
    }

    pub(super) fn ttl(self, ttl: Duration) -> Self {
        self.with(|mutex| mutex.ttl(ttl))
    }

    pub(super) fn payload(self, payload: &[u8]) -> Self {
        self.with(|mutex| mutex.payload(payload))
    }

    pub(super) async fn lock(&self) -> Result<Checked, Error> {
        let guard = self.lock.lock().await?;
        Ok(Checked::admit(&self.checker, guard, Mode::Exclusive).await)
    }

    pub(super) async fn try_lock(&self) -> Result<Option<Checked>, Error> {
        let Some(guard) = self.lock.try_lock().await? else { return Ok(None) };
        Ok(Some(Checked::admit(&self.checker, guard, Mode::Exclusive).await))
    }
}

impl Watched<RwLock> {
    pub(super) async fn read(&self) -> Result<Checked<Guard>, Error> {
        let guard = self.lock.read().await?;
        Ok(Checked::admit(&self.checker, guard, Mode::Read).await)
    }

    pub(super) async fn try_read(&self) -> Result<Option<Checked<Guard>>, Error> {
        let Some(guard) = self.lock.try_read().await? else { return Ok(None) };
        Ok(Some(Checked::admit(&self.checker, guard, Mode::Read).await))
    }

    pub(super) async fn write(&self) -> Result<Checked<WriteGuard>, Error> {
        let guard = self.lock.write().await?;
        Ok(Checked::admit(&self.checker, guard, Mode::Exclusive).await)
    }

    pub(super) async fn try_write(&self) -> Result<Option<Checked<WriteGuard>>, Error> {
        let Some(guard) = self.lock.try_write().await? else { return Ok(None) };
        Ok(Some(Checked::admit(&self.checker, guard, Mode::Exclusive).await))
    }
}

/// A semaphore, and how many permits it has.
impl Watched<(Semaphore, u32)> {
    pub(super) async fn acquire(&self) -> Result<Checked<Permit>, Error> {
        let permit = self.lock.0.acquire().await?;
        Ok(self.admit(permit).await)
    }

    pub(super) async fn try_acquire(&self) -> Result<Option<Checked<Permit>>, Error> {
        let Some(permit) = self.lock.0.try_acquire().await? else { return Ok(None) };
        Ok(Some(self.admit(permit).await))
    }

    async fn admit(&self, permit: Permit) -> Checked<Permit> {
        // One of no permits cannot have been granted; the checker would say so.
        let of = NonZeroU32::new(self.lock.1).unwrap_or(NonZeroU32::MIN);
        Checked::admit(&self.checker, permit, Mode::Permit { of }).await
    }
}

impl Watched<Election> {
    pub(super) async fn campaign(&self, payload: &[u8]) -> Result<Checked<Term>, Error> {
        let term = self.lock.campaign(payload).await?;
        Ok(Checked::admit(&self.checker, term, Mode::Exclusive).await)
    }

    pub(super) async fn try_campaign(&self, payload: &[u8]) -> Result<Option<Checked<Term>>, Error> {
        let Some(term) = self.lock.try_campaign(payload).await? else { return Ok(None) };
        Ok(Some(Checked::admit(&self.checker, term, Mode::Exclusive).await))
    }

    pub(super) fn observe(&self) -> Result<Leaders, Error> {
        self.lock.observe()
    }
}
