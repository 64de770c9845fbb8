//! Re-entrancy: a lock that its owner may take again while it holds it.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    ops::Deref,
    sync::{Arc, Mutex as StdMutex, PoisonError, Weak},
};

use crate::{Error, Guard, LockName, Loss, Mode, Wait, acquire_options::AcquireOptions, connection::Connection};

/// On whose behalf locks are taken: who holds one already takes it again at once, instead of waiting for itself.
///
/// An owner stands for one flow of work, which may call itself or be spread over several tasks. What is done on behalf of
/// one owner is *not* kept apart: two tasks of one owner may be inside the lock together. Clones are the same owner. It
/// keeps its locks apart by connection and name; it is nothing that a server knows of.
///
/// # Example
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), lock_core::Error> {
/// # use lock_core::{Locks, memory::{Config, Memory, MemoryServer}};
/// # let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new()))?);
/// use lock_core::Owner;
///
/// let owner = Owner::new();
/// let outer = locks.mutex("orders").reentrant(&owner).lock().await?;
/// let inner = locks.mutex("orders").reentrant(&owner).lock().await?; // does not wait for `outer`
/// assert_eq!(inner.token(), outer.token());
///
/// outer.release().await?; // `inner` still holds it
/// assert!(locks.mutex("orders").try_lock().await?.is_none());
/// inner.release().await?; // now it is released on the server
/// assert!(locks.mutex("orders").try_lock().await?.is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Owner {
    entries: Arc<OwnedLocks>,
}

tokio::task_local! {
    static SCOPE: Owner;
}

/// The locks that an [`Owner`] holds or is acquiring.
type OwnedLocks = StdMutex<HashMap<OwnedLockKey, Weak<OwnedLock>>>;

/// The key of an [`Owner`]'s locks: a lock name on one connection.
#[derive(Clone, PartialEq, Eq, Hash)]
struct OwnedLockKey {
    connection: usize,
    name: LockName,
}

/// One lock that an [`Owner`] holds or is acquiring.
struct OwnedLock {
    key: OwnedLockKey,
    /// Keeps the connection, so that no other one can be taken for it.
    connection: Connection,
    owner: Weak<OwnedLocks>,
    /// Held by the task that acquires on behalf of all.
    turn: tokio::sync::Mutex<()>,
    hold: StdMutex<Weak<SharedGuard>>,
}

/// The guard of one acquisition, shared by the re-entrant guards of its [`Owner`]. The last one to go takes the guard
/// out.
#[derive(Debug)]
struct SharedGuard {
    guard: Guard,
    entry: Arc<OwnedLock>,
}

impl Owner {
    /// An owner like no other.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `future` on behalf of this owner: calls in it find the owner by [`Owner::current`] and
    /// [`Mutex::reentrant_in_scope`](crate::Mutex::reentrant_in_scope), however deep they are. An inner scope hides an outer one.
    ///
    /// The scope is that of the task: what `future` spawns is outside of it, unless it is given a scope again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_core::Error> {
    /// # use lock_core::{Error, Locks, Owner, memory::{Config, Memory, MemoryServer}};
    /// # let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new()))?);
    /// async fn transfer(locks: &Locks) -> Result<(), Error> {
    ///     let _guard = locks.mutex("accounts").reentrant_in_scope()?.lock().await?;
    ///     audit(locks).await
    /// }
    ///
    /// async fn audit(locks: &Locks) -> Result<(), Error> {
    ///     let _guard = locks.mutex("accounts").reentrant_in_scope()?.lock().await?;
    ///     Ok(())
    /// }
    ///
    /// Owner::new().scope(transfer(&locks)).await?;
    /// assert!(matches!(transfer(&locks).await, Err(Error::NoOwner)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPE.scope(self.clone(), future)
    }

    /// The owner of the innermost scope around this call; `None` outside of one.
    #[must_use]
    pub fn current() -> Option<Self> {
        SCOPE.try_with(Clone::clone).ok()
    }

    fn entry(&self, connection: &Connection, name: LockName) -> Arc<OwnedLock> {
        let key = OwnedLockKey { connection: connection.address(), name };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = entries.get(&key).and_then(Weak::upgrade) {
            return entry;
        }
        let entry = Arc::new(OwnedLock {
            key: key.clone(),
            connection: connection.clone(),
            owner: Arc::downgrade(&self.entries),
            turn: tokio::sync::Mutex::default(),
            hold: StdMutex::default(),
        });
        entries.insert(key, Arc::downgrade(&entry));
        entry
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.entries, &other.entries)
    }
}

impl Eq for Owner {}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owner").field(&Arc::as_ptr(&self.entries)).finish()
    }
}

impl OwnedLock {
    /// Joins the hold that there is; `None` when there is none.
    fn enter(&self) -> Result<Option<ReentrantGuard>, Error> {
        self.connection.check_open()?;
        let Some(hold) = self.hold.lock().unwrap_or_else(PoisonError::into_inner).upgrade() else {
            return Ok(None);
        };
        // What the outer call does is not protected any more. A fresh acquisition would hide that from both of them.
        // Safeguard: a hold that was lost is not entered again
        match hold.guard.validity().loss() {
            None => Ok(Some(ReentrantGuard { hold })),
            Some(Loss::Closed) => Err(Error::Closed),
            Some(loss) => Err(Error::Lost { name: hold.guard.name().clone(), loss }),
        }
    }

    fn hold(self: Arc<Self>, guard: Guard) -> ReentrantGuard {
        let hold = Arc::new(SharedGuard { guard, entry: self });
        *hold.entry.hold.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&hold);
        ReentrantGuard { hold }
    }
}

impl Drop for OwnedLock {
    fn drop(&mut self) {
        let Some(entries) = self.owner.upgrade() else { return };
        let mut entries = entries.lock().unwrap_or_else(PoisonError::into_inner);
        // A new one may have taken its place.
        if entries.get(&self.key).is_some_and(|entry| entry.strong_count() == 0) {
            entries.remove(&self.key);
        }
    }
}

impl fmt::Debug for OwnedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("name", &self.key.name).finish_non_exhaustive()
    }
}

/// A [`Mutex`](crate::Mutex) in the hands of an [`Owner`], who may take it again while it holds it; see [`Mutex::reentrant`](crate::Mutex::reentrant).
///
/// The options of the mutex are those of the acquisition. Only the wait limit counts for a call that finds the lock held by
/// its owner already: a hold keeps the ttl, the payload, the lock delay and the maximum time that it was acquired with.
#[derive(Debug, Clone)]
#[must_use = "it only describes the lock; call lock or try_lock"]
pub struct Reentrant {
    options: AcquireOptions,
    owner: Owner,
}

/// One of the guards by which an [`Owner`] holds a lock. Beyond what is here it is a [`Guard`], whose token, validity and
/// name are those of all of them.
///
/// The lock is released on the server when the last of them goes, whatever their order.
#[derive(Debug)]
#[must_use = "the lock is released when the last guard of its owner is dropped"]
pub struct ReentrantGuard {
    hold: Arc<SharedGuard>,
}

impl Reentrant {
    pub(crate) fn new(options: AcquireOptions, owner: Owner) -> Self {
        Self { options, owner }
    }

    /// Holds the lock: at once when its owner holds it already, otherwise as [`Mutex::lock`](crate::Mutex::lock) does. When another task of the
    /// same owner is acquiring it, this call waits for that one, within its own wait limit, and shares what it gets; when
    /// the other one gets nothing or goes away, this call acquires by itself.
    ///
    /// A hold that was lost is not entered again, since the work of the outer call is not protected any more: that is
    /// [`Error::Lost`] until all guards of that hold are gone.
    ///
    /// # Errors
    /// Those of [`Mutex::lock`](crate::Mutex::lock); [`Error::Lost`] also when the owner has a guard of a hold that was lost.
    ///
    /// # Fairness
    /// Tasks of one owner that acquire at the same time are served in their order. Between owners it is that of a [`Mutex`](crate::Mutex).
    ///
    /// # Cancel safety
    /// As that of [`Mutex::lock`](crate::Mutex::lock); another task of the owner that waited for this call acquires by itself.
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn lock(&self) -> Result<ReentrantGuard, Error> {
        let AcquireOptions { connection, timeout, .. } = &self.options;
        let clock = connection.clock();
        let name = self.options.name()?;
        let entry = self.owner.entry(connection, name.clone());
        if let Some(guard) = entry.enter()? {
            return Ok(guard);
        }
        let deadline = timeout.map(|limit| clock.now().saturating_add(limit));
        let turn = connection.until_closed(entry.turn.lock());
        let _turn = match timeout {
            None => turn.await?,
            Some(limit) => {
                clock.timeout(*limit, turn).await.ok_or_else(|| Error::NotAcquired { name: name.clone() })??
            }
        };
        if let Some(guard) = entry.enter()? {
            return Ok(guard);
        }
        let options = AcquireOptions {
            timeout: deadline.map(|deadline| deadline.saturating_since(clock.now())),
            ..self.options.clone()
        };
        let guard = options.acquire(Mode::Exclusive, Wait::UntilStopped).await?;
        Ok(Arc::clone(&entry).hold(guard))
    }

    /// Holds the lock if that is possible at once: when its owner holds it already, or nobody does. `None` when another
    /// owner holds it, and also when another task of the same owner is acquiring it at this moment.
    ///
    /// # Errors
    /// As those of [`Reentrant::lock`], but for [`Error::NotAcquired`].
    ///
    /// # Cancel safety
    /// As that of [`Reentrant::lock`].
    ///
    /// # Unknown outcomes
    /// As those of [`Mutex::lock`](crate::Mutex::lock).
    pub async fn try_lock(&self) -> Result<Option<ReentrantGuard>, Error> {
        let entry = self.owner.entry(&self.options.connection, self.options.name()?.clone());
        if let Some(guard) = entry.enter()? {
            return Ok(Some(guard));
        }
        let Ok(_turn) = entry.turn.try_lock() else { return Ok(None) };
        if let Some(guard) = entry.enter()? {
            return Ok(Some(guard));
        }
        let guard = self.options.try_acquire(Mode::Exclusive).await?;
        Ok(guard.map(|guard| Arc::clone(&entry).hold(guard)))
    }
}

impl ReentrantGuard {
    /// Lets go. The last guard of the owner releases the lock on the server and reports; the others only count down.
    ///
    /// # Errors
    /// Of the last guard those of [`Guard::release`]. Of the others [`Error::Lost`] when the lock is lost.
    ///
    /// # Cancel safety
    /// When the future is dropped, the release goes on in the background.
    ///
    /// # Unknown outcomes
    /// As those of [`Guard::release`].
    pub async fn release(self) -> Result<(), Error> {
        // Asked while this guard still keeps the lock: once it is gone, the last one may release the lock, which is no loss.
        let lost = self.validity().loss().map(|loss| Error::Lost { name: self.name().clone(), loss });
        // Exactly one of the guards that go at the same time is the last one.
        match Arc::into_inner(self.hold) {
            Some(hold) => hold.guard.release().await,
            None => lost.map_or(Ok(()), Err),
        }
    }
}

impl Deref for ReentrantGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.hold.guard
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Locks;
    use crate::memory::{Config, Memory, MemoryServer};

    #[tokio::test]
    async fn an_owner_remembers_only_what_it_holds() {
        let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new())).unwrap());
        let owner = Owner::new();
        let remembered = || owner.entries.lock().unwrap().len();
        for name in ["a", "b", "c"] {
            let outer = locks.mutex(name).reentrant(&owner).lock().await.unwrap();
            let inner = locks.mutex(name).reentrant(&owner).lock().await.unwrap();
            drop(outer);
            assert_eq!(remembered(), 1);
            inner.release().await.unwrap();
            assert_eq!(remembered(), 0);
            drop(locks.mutex(name).reentrant(&owner).lock());
        }
        assert_eq!(remembered(), 0);
    }
}
