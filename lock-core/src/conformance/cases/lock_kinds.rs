//! The kinds of lock that can be held, for the cases that check the same promise of each kind.

use super::super::{
    client::CheckedClient,
    guards::{AnyGuard, CheckedGuard},
};
use crate::{Error, Guard, LockName, Permit, WriteGuard};

/// A kind of lock that a conformance case can acquire: mutex, reader, writer or permit.
pub(super) trait LockKind: Send + Sync + 'static {
    /// The guard of this kind of lock.
    type Guard: AnyGuard;

    /// Waits for the lock.
    fn wait(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<CheckedGuard<Self::Guard>, Error>> + Send + 'static;

    /// Tries to take the lock without waiting.
    fn attempt(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<CheckedGuard<Self::Guard>>, Error>> + Send + 'static;
}

/// Acquisition through [`Mutex`](crate::Mutex).
pub(super) struct MutexKind;

/// Acquisition as a reader of a [`RwLock`](crate::RwLock).
pub(super) struct ReaderKind;

/// Acquisition as the writer of a [`RwLock`](crate::RwLock).
pub(super) struct WriterKind;

/// Acquisition of the permit of a [`Semaphore`](crate::Semaphore) that has only one.
pub(super) struct SinglePermitKind;

impl LockKind for MutexKind {
    type Guard = Guard;

    fn wait(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<CheckedGuard, Error>> + Send + 'static {
        let mutex = client.mutex(name);
        async move { mutex.lock().await }
    }

    fn attempt(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<CheckedGuard>, Error>> + Send + 'static {
        let mutex = client.mutex(name);
        async move { mutex.try_lock().await }
    }
}

impl LockKind for ReaderKind {
    type Guard = Guard;

    fn wait(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<CheckedGuard, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.read().await }
    }

    fn attempt(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<CheckedGuard>, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.try_read().await }
    }
}

impl LockKind for WriterKind {
    type Guard = WriteGuard;

    fn wait(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<CheckedGuard<WriteGuard>, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.write().await }
    }

    fn attempt(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<CheckedGuard<WriteGuard>>, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.try_write().await }
    }
}

impl LockKind for SinglePermitKind {
    type Guard = Permit;

    fn wait(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<CheckedGuard<Permit>, Error>> + Send + 'static {
        let semaphore = client.semaphore(name, 1);
        async move { semaphore.acquire().await }
    }

    fn attempt(
        client: &CheckedClient,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<CheckedGuard<Permit>>, Error>> + Send + 'static {
        let semaphore = client.semaphore(name, 1);
        async move { semaphore.try_acquire().await }
    }
}
