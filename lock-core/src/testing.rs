//! For the tests of programs that hold locks: a lock service of one's own, in memory, that fails when it is told to.
//!
//! The service and its connections count on the clock of the tokio runtime. Where a test pauses that (`start_paused`, of
//! tokio's feature `test-util`), ttls and wait limits pass in no time.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::{Loss, testing::TestService};
//!
//! let service = TestService::new();
//! let locks = service.connect()?;
//! let guard = locks.mutex("orders/4711").lock().await?;
//!
//! service.expire("orders/4711").await?; // its renewals are lost on the way
//! assert!(!guard.is_valid());
//! assert_eq!(guard.lost().await, Loss::Expired);
//! # Ok(())
//! # }
//! ```

use std::{
    ops::Deref,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    Clock, Error, LockName, Locks,
    memory::{Config, Memory, MemoryServer},
};

/// A lock service in memory that no other test knows of, with means to make it fail.
///
/// Everything works as on the memory backend of a program, but for the clock, which is that of the tokio runtime. A thread
/// outside of the runtime does not see paused time: ask a guard for its validity in a task.
#[derive(Debug)]
pub struct TestService {
    server: MemoryServer,
    name: String,
}

/// A connection to a [`TestService`], which can be cut off while others go on. It is used as [`Locks`].
#[derive(Debug)]
pub struct TestConnection {
    memory: Arc<Memory>,
    locks: Locks,
}

impl TestService {
    /// A service that nobody has used.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = format!("test-service-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let server = MemoryServer::with_clock(Clock::runtime());
        server.register(&name);
        Self { server, name }
    }

    /// The URL of this service, for a program that is told by its configuration where to connect. Valid in this process, for
    /// as long as the service lives.
    #[must_use]
    pub fn url(&self) -> String {
        format!("memory://{}", self.name)
    }

    /// Connects, as another program would. Its leases have a ttl of 30 s.
    ///
    /// # Errors
    /// [`Error::Unavailable`] while the service is cut off.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(&self) -> Result<TestConnection, Error> {
        let memory = Memory::connect(Config::new(self.server.clone()))?;
        Ok(TestConnection { locks: Locks::new(memory.clone()), memory })
    }

    /// Lets the leases of those who hold `name` now, of the lock and of permits, run out, as if their renewals were lost on the
    /// way. Returns when they have ended, after the rest of their ttl: their guards have ended with
    /// [`Loss::Expired`](crate::Loss::Expired), and who waited is granted.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the leases still run out.
    pub async fn expire(&self, name: impl AsRef<str>) -> Result<(), Error> {
        self.server.expire(&LockName::new(name)?).await;
        Ok(())
    }

    /// Takes `name`, the lock and the permits, from those who hold it now, as an operator would. Who waited is granted at once.
    /// The former holder learns of it by its next renewal, within a third of its ttl, and its guard ends with
    /// [`Loss::Revoked`](crate::Loss::Revoked): until then it believes that it holds the lock.
    ///
    /// # Errors
    /// [`Error::InvalidName`].
    pub fn revoke(&self, name: impl AsRef<str>) -> Result<(), Error> {
        self.server.delete(&LockName::new(name)?);
        Ok(())
    }

    /// Has every request from now on, of any connection, take `delay` on its way to the service; zero ends that.
    pub fn delay(&self, delay: Duration) {
        self.server.set_delay(delay);
    }

    /// Cuts the service off from all its connections: nothing is answered, and its leases run on.
    pub fn cut_off(&self) {
        self.server.set_up(false);
    }

    /// The end of [`TestService::cut_off`].
    pub fn restore(&self) {
        self.server.set_up(true);
    }
}

impl Default for TestService {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        MemoryServer::unregister(&self.name);
    }
}

impl TestConnection {
    /// The connection as a program uses it.
    #[must_use]
    pub fn locks(&self) -> Locks {
        self.locks.clone()
    }

    /// Cuts this connection off from the service, which does not notice: its guards run out with
    /// [`Loss::Unreachable`](crate::Loss::Unreachable), while other connections go on.
    pub fn cut_off(&self) {
        self.memory.set_connected(false);
    }

    /// The end of [`TestConnection::cut_off`]. A guard that was lost meanwhile stays lost.
    pub fn restore(&self) {
        self.memory.set_connected(true);
    }
}

impl Deref for TestConnection {
    type Target = Locks;

    fn deref(&self) -> &Locks {
        &self.locks
    }
}
