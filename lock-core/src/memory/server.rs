//! The server: a value that connections share.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::watch;

use super::{contender::ServerTime, table::LockTable};
use crate::{Clock, LockName, Snapshot};

/// What memory connections connect to. Clones are the same server.
#[derive(Clone)]
pub struct MemoryServer {
    shared: Arc<ServerState>,
}

/// The state that the clones of a [`MemoryServer`] share.
struct ServerState {
    clock: Clock,
    table: Mutex<LockTable>,
    next_id: AtomicU64,
    up: watch::Sender<bool>,
}

impl MemoryServer {
    /// A server of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::boot())
    }

    /// A server that counts its leases on `clock`.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        let server =
            ServerState { clock, table: Mutex::default(), next_id: AtomicU64::new(1), up: watch::Sender::new(true) };
        Self { shared: Arc::new(server) }
    }

    /// The server of that name in this process: what `memory://NAME` connects to. It lives until the process ends.
    #[must_use]
    pub fn named(name: &str) -> Self {
        static SERVERS: OnceLock<Mutex<HashMap<String, MemoryServer>>> = OnceLock::new();
        let mut servers = SERVERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        servers.entry(name.to_owned()).or_default().clone()
    }

    /// Stops or starts the server. While it is stopped nothing is answered; leases run on.
    pub fn set_up(&self, up: bool) {
        self.shared.up.send_replace(up);
    }

    /// Takes the lock and the permits from whoever holds them, as an operator would who deletes a key or a node. A lock
    /// delay begins.
    pub fn delete(&self, name: &LockName) {
        self.table(|table, now| table.delete(now, name));
    }

    /// What the server keeps under `name`.
    #[must_use]
    pub fn snapshot(&self, name: &LockName) -> Snapshot {
        self.table(|table, now| table.snapshot(now, name))
    }

    pub(crate) fn clock(&self) -> Clock {
        self.shared.clock
    }

    pub(super) fn up(&self) -> &watch::Sender<bool> {
        &self.shared.up
    }

    pub(super) fn next_id(&self) -> u64 {
        self.shared.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Works on the table, at the present moment.
    pub(super) fn table<T>(&self, work: impl FnOnce(&mut LockTable, ServerTime) -> T) -> T {
        let mut table = self.shared.table.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that the table's time never runs backwards.
        work(&mut table, ServerTime::now(self.shared.clock))
    }
}

impl Default for MemoryServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryServer").field("up", &*self.shared.up.borrow()).finish_non_exhaustive()
    }
}
