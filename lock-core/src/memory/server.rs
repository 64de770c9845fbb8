//! The server: a value that connections share.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
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
    /// How long a request takes to get here, in nanoseconds.
    delay: AtomicU64,
    /// The holders whose renewals are not answered any more, by the numbers of their attempts.
    unanswered: Mutex<HashSet<u64>>,
}

/// The servers of this process by their names.
type NamedServers = Mutex<HashMap<String, MemoryServer>>;

impl MemoryServer {
    /// A server of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::boot())
    }

    /// A server that counts its leases on `clock`.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        let server = ServerState {
            clock,
            table: Mutex::default(),
            next_id: AtomicU64::new(1),
            up: watch::Sender::new(true),
            delay: AtomicU64::new(0),
            unanswered: Mutex::default(),
        };
        Self { shared: Arc::new(server) }
    }

    /// The server of that name in this process: what `memory://NAME` connects to. It lives until the process ends.
    #[must_use]
    pub fn named(name: &str) -> Self {
        named().entry(name.to_owned()).or_default().clone()
    }

    /// Makes this the server of that name in this process.
    pub(crate) fn register(&self, name: &str) {
        named().insert(name.to_owned(), self.clone());
    }

    /// Forgets the name of a server. Connections to the server go on.
    pub(crate) fn unregister(name: &str) {
        named().remove(name);
    }

    /// Stops or starts the server. While it is stopped nothing is answered; leases run on.
    pub fn set_up(&self, up: bool) {
        self.shared.up.send_replace(up);
    }

    /// Has every request from now on take `delay` before the server sees it, as on a slow network.
    pub fn set_delay(&self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.shared.delay.store(nanos, Ordering::Relaxed);
    }

    /// Lets the leases of those who hold `name` now run out, as if their renewals were lost on the way. Returns when all of
    /// them have ended: after the rest of their ttl at the latest.
    pub async fn expire(&self, name: &LockName) {
        let leases = || self.table(|table, now| table.leases(now, name));
        let ids: Vec<u64> = leases().into_iter().map(|(id, _)| id).collect();
        self.unanswered().extend(&ids);
        for id in ids {
            while let Some((_, ends_at)) = leases().into_iter().find(|(held, _)| *held == id) {
                self.clock().sleep_until(ends_at).await;
            }
            self.unanswered().remove(&id);
        }
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

    /// How long a request takes to get here.
    pub(super) fn delay(&self) -> Duration {
        Duration::from_nanos(self.shared.delay.load(Ordering::Relaxed))
    }

    /// Whether the renewals of that holder are answered.
    pub(super) fn answers(&self, id: u64) -> bool {
        !self.unanswered().contains(&id)
    }

    fn unanswered(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.shared.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
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

fn named() -> MutexGuard<'static, HashMap<String, MemoryServer>> {
    static SERVERS: OnceLock<NamedServers> = OnceLock::new();
    SERVERS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
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
