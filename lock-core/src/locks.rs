//! A connection to a lock service, as a program uses it.

use std::{fmt, sync::Arc, time::Duration};

use futures_core::stream::BoxStream;

use crate::{
    Backend, Capabilities, Contender, Election, Error, Feature, FencingToken, LockName, LocksOptions, MultiLock, Mutex,
    RwLock, Semaphore, Snapshot, connection::Connection,
};

/// A connection to a lock service, whichever it is. Clones share it.
///
/// Call [`Locks::close`] before the program ends: guards that were dropped are released in the background, and a program
/// that returns from `main` earlier leaves its locks to their ttl.
#[derive(Clone)]
pub struct Locks {
    pub(crate) connection: Connection,
}

impl Locks {
    /// Locks of `backend`.
    #[must_use]
    pub fn new(backend: Arc<dyn Backend>) -> Self {
        Self::with_options(backend, LocksOptions::default())
    }

    /// Locks of `backend`, with settings.
    #[must_use]
    pub fn with_options(backend: Arc<dyn Backend>, options: LocksOptions) -> Self {
        Self { connection: Connection::new(backend, options) }
    }

    /// The exclusive lock of that name. A name that is not allowed is reported by the first operation on it.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.connection.clone(), LockName::new(name))
    }

    /// All the locks of those names at once. An empty list, or a name that is not allowed, is reported by the first
    /// operation.
    pub fn multi(&self, names: impl IntoIterator<Item = impl AsRef<str>>) -> MultiLock {
        MultiLock::new(self.connection.clone(), names)
    }

    /// The read-write lock of that name; as for [`Locks::mutex`].
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.connection.clone(), LockName::new(name))
    }

    /// The semaphore of that name, with so many permits; as for [`Locks::mutex`].
    pub fn semaphore(&self, name: impl AsRef<str>, permits: u32) -> Semaphore {
        Semaphore::new(self.connection.clone(), LockName::new(name), permits)
    }

    /// The election of that name; as for [`Locks::mutex`].
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.connection.clone(), LockName::new(name))
    }

    /// What the backend can do.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.connection.capabilities()
    }

    /// Refuses what the backend does not promise: for a program that says what it needs before it starts.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the names of the feature and of the backend.
    pub fn require(&self, feature: Feature) -> Result<(), Error> {
        self.connection.require(feature)
    }

    /// Who holds that name and who waits for it.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::Unavailable`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Only reads; nothing is lost when the future is dropped.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Snapshot, Error> {
        self.connection.inspect(&LockName::new(name)?).await
    }

    /// The names that begin with `prefix` and have a holder, of a lock or of a semaphore, sorted. All of them for an empty prefix.
    ///
    /// The services read this off one name after the other: what was granted or given back meanwhile may be missing or among
    /// them. How much a service reads for it grows with all that it keeps, so it is for people and their tools.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without [`Feature::Listing`], [`Error::Unavailable`], [`Error::Closed`].
    ///
    /// # Cancel safety
    /// Only reads; nothing is lost when the future is dropped.
    pub async fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<LockName>, Error> {
        self.connection.list(prefix.as_ref()).await
    }

    /// Takes the lock, or one permit of the semaphore, of that name away from the holder with this token, and from nobody else.
    /// Returns the holder as it was; `None` when that grant is not there, or not any more.
    ///
    /// **This breaks the promise that at most one holds the lock**: the next one is granted at once, and the former holder
    /// learns of its loss later, as [`Loss::Revoked`](crate::Loss::Revoked), at its next renewal at the latest, or never if it is
    /// stopped. Only a store that compares fencing tokens keeps its writes out. A lock delay that it had asked for stays.
    ///
    /// # Errors
    /// [`Error::Config`] for a token of another era than this connection's, [`Error::InvalidName`], [`Error::Unsupported`]
    /// without [`Feature::ForcedRelease`], [`Error::Closed`]. [`Error::Unavailable`] when it is not known whether the
    /// grant was ended: repeat it, which never ends another one.
    ///
    /// # Cancel safety
    /// When the future is dropped, the grant may have been ended or not.
    pub async fn revoke(&self, name: impl AsRef<str>, token: FencingToken) -> Result<Option<Contender>, Error> {
        self.connection.revoke(&LockName::new(name)?, token).await
    }

    /// Follows that name: who holds it and who waits for it now, then again after each change. Changes that follow each
    /// other closely may be merged. While the backend is out of reach the items are errors; the stream ends when the
    /// connection is closed.
    ///
    /// # Errors
    /// [`Error::InvalidName`], [`Error::Closed`].
    pub fn watch(&self, name: impl AsRef<str>) -> Result<BoxStream<'static, Result<Snapshot, Error>>, Error> {
        self.connection.watch(LockName::new(name)?)
    }

    /// Lets what is held come to its end, and nothing new begin. Acquisitions are refused from here on, those that wait are
    /// stopped (both get [`Error::Closed`]), and guards go on, with their renewals, until their holders release them or `limit`
    /// has passed. What is still held then is ended as by [`Locks::close`]: with [`Loss::Closed`](crate::Loss::Closed), and
    /// released in the background.
    ///
    /// Returns how many guards were ended because of the limit; 0 when their holders released all. A guard that its holder
    /// keeps although the lock is lost counts as held.
    ///
    /// # The order of a shutdown
    /// 1. Stop taking work: close the listener, leave the queue. The work that is under way may need one more lock.
    /// 2. `drain`, for as long as that work may take.
    /// 3. [`close`](Locks::close), for as long as the servers may take to confirm the releases.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), lock_core::Error> {
    /// # use lock_core::{Locks, memory::{Config, Memory, MemoryServer}};
    /// # let locks = Locks::new(Memory::connect(Config::new(MemoryServer::new()))?);
    /// use std::time::Duration;
    ///
    /// let guard = locks.mutex("orders/4711").lock().await?;
    /// let work = tokio::spawn(async move { guard.release().await }); // is at it when the program is told to end
    ///
    /// let cut_off = locks.drain(Duration::from_secs(30)).await;
    /// if cut_off > 0 {
    ///     eprintln!("{cut_off} locks were taken from work that did not come to its end");
    /// }
    /// locks.close(Duration::from_secs(5)).await?;
    /// # work.await.unwrap()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When the future is dropped, acquisitions stay refused, and what is held is held; call it again to wait for it.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.connection.drain(limit).await
    }

    /// Ends guards that are still held, at once, and the connection within `limit`. [`Locks::drain`] comes before it where work
    /// under a lock is to come to its end: see there for the order of a shutdown.
    ///
    /// Guards end with [`Loss::Closed`](crate::Loss::Closed) and are released; acquisitions that still wait are stopped (they
    /// get [`Error::Closed`]); the releases of dropped guards are finished.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when something on the server had to be left to its ttl.
    ///
    /// # Cancel safety
    /// When the future is dropped, the connection is closed for new acquisitions, and what was left goes on in the
    /// background; call it again to wait for it.
    pub async fn close(&self, limit: Duration) -> Result<(), Error> {
        self.connection.close(limit).await
    }

    /// The fencing token whose number a look has shown: with this connection's era.
    #[must_use]
    pub fn fencing_token(&self, number: u64) -> FencingToken {
        self.connection.fencing_token(number)
    }

    /// Who this program is, for those who look at a lock.
    #[must_use]
    pub fn payload(&self) -> Arc<[u8]> {
        self.connection.payload()
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locks").field(&self.connection).finish()
    }
}
