//! A connection, for callers that block.

use std::{sync::Arc, time::Duration};

use super::{
    kinds::{Election, MultiLock, Mutex, RwLock, Semaphore},
    streams::Snapshots,
    waiting::wait,
};
use crate::{Capabilities, Contender, Error, Feature, FencingToken, LockName, Snapshot};

/// A connection to a lock service; see [`crate::Locks`]. Clones share it.
#[derive(Debug, Clone)]
pub struct Locks(crate::Locks);

impl Locks {
    /// The exclusive lock of that name.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex(self.0.mutex(name))
    }

    /// All the locks of those names at once.
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock(self.0.multi(names))
    }

    /// The read-write lock of that name.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock(self.0.rwlock(name))
    }

    /// The semaphore of that name, with so many permits.
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore(self.0.semaphore(name, permits))
    }

    /// The election of that name.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election(self.0.election(name))
    }

    /// What the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    /// Refuses what the backend does not promise.
    ///
    /// # Errors
    /// Those of [`crate::Locks::require`].
    pub fn require(&self, feature: Feature) -> Result<(), Error> {
        self.0.require(feature)
    }

    /// Who holds that name and who waits for it.
    ///
    /// # Errors
    /// Those of [`crate::Locks::inspect`].
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        wait(self.0.inspect(name))
    }

    /// Who holds that name and who waits for it now, then again after each change; see [`crate::Locks::watch`].
    ///
    /// # Errors
    /// Those of [`crate::Locks::watch`].
    pub fn watch(&self, name: impl AsRef<str>) -> Result<Snapshots, Error> {
        self.0.watch(name).map(Snapshots)
    }

    /// The names that begin with `prefix` and are held; see [`crate::Locks::list`].
    ///
    /// # Errors
    /// Those of [`crate::Locks::list`].
    pub fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<LockName>, Error> {
        wait(self.0.list(prefix))
    }

    /// Ends the grant of that name with this token, and no other; see [`crate::Locks::revoke`].
    ///
    /// # Errors
    /// Those of [`crate::Locks::revoke`].
    pub fn revoke(&self, name: impl AsRef<str>, token: FencingToken) -> Result<Option<Contender>, Error> {
        wait(self.0.revoke(name, token))
    }

    /// Lets what is held come to its end, and nothing new begin: the step before [`Locks::close`]. Returns how many guards were
    /// ended because `limit` had passed; see [`crate::Locks::drain`] for that and for the order of a shutdown.
    #[must_use = "it says how many guards were ended before their holders released them"]
    pub fn drain(&self, limit: Duration) -> usize {
        wait(self.0.drain(limit))
    }

    /// Ends guards that are still held, at once, and the connection within `limit`; see [`crate::Locks::close`].
    ///
    /// # Errors
    /// Those of [`crate::Locks::close`].
    pub fn close(&self, limit: Duration) -> Result<(), Error> {
        wait(self.0.close(limit))
    }

    /// The fencing token whose number a look has shown: with this connection's era.
    #[must_use]
    pub fn fencing_token(&self, number: u64) -> FencingToken {
        self.0.fencing_token(number)
    }

    /// Who this program is, for those who look at a lock.
    #[must_use]
    pub fn payload(&self) -> Arc<[u8]> {
        self.0.payload()
    }
}

/// The same connection for callers that block. One that was made in a runtime is driven by that runtime, also while its
/// callers block: they must not do so on all its threads.
impl From<crate::Locks> for Locks {
    fn from(locks: crate::Locks) -> Self {
        Self(locks)
    }
}
