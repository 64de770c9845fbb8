//! The ways to hold something, for what is promised of each of them alike.

use super::super::{
    client::Client,
    held::{Checked, Held},
};
use crate::{Error, Guard, LockName, Permit, WriteGuard};

/// One way to hold something.
pub(super) trait Way: Send + Sync + 'static {
    /// What is held then.
    type Guard: Held;

    /// Waits for it.
    fn wait(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Checked<Self::Guard>, Error>> + Send + 'static;

    /// Takes it without waiting.
    fn attempt(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<Checked<Self::Guard>>, Error>> + Send + 'static;
}

/// By the mutex.
pub(super) struct Locking;

/// As one of the readers.
pub(super) struct Reading;

/// As the writer.
pub(super) struct Writing;

/// By the only permit of a semaphore.
pub(super) struct OnlyPermit;

impl Way for Locking {
    type Guard = Guard;

    fn wait(client: &Client, name: &LockName) -> impl Future<Output = Result<Checked, Error>> + Send + 'static {
        let mutex = client.mutex(name);
        async move { mutex.lock().await }
    }

    fn attempt(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<Checked>, Error>> + Send + 'static {
        let mutex = client.mutex(name);
        async move { mutex.try_lock().await }
    }
}

impl Way for Reading {
    type Guard = Guard;

    fn wait(client: &Client, name: &LockName) -> impl Future<Output = Result<Checked, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.read().await }
    }

    fn attempt(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<Checked>, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.try_read().await }
    }
}

impl Way for Writing {
    type Guard = WriteGuard;

    fn wait(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Checked<WriteGuard>, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.write().await }
    }

    fn attempt(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<Checked<WriteGuard>>, Error>> + Send + 'static {
        let lock = client.rwlock(name);
        async move { lock.try_write().await }
    }
}

impl Way for OnlyPermit {
    type Guard = Permit;

    fn wait(client: &Client, name: &LockName) -> impl Future<Output = Result<Checked<Permit>, Error>> + Send + 'static {
        let semaphore = client.semaphore(name, 1);
        async move { semaphore.acquire().await }
    }

    fn attempt(
        client: &Client,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<Checked<Permit>>, Error>> + Send + 'static {
        let semaphore = client.semaphore(name, 1);
        async move { semaphore.try_acquire().await }
    }
}
