//! The memory backend: locks of one process. For tests, for development, and for a program that runs alone.
//!
//! It keeps every promise of the SPI, leases and their renewal included, so that a program which works on it works on the
//! others. Its servers are values: connections to the same [`MemoryServer`] compete, and a test may cut one off, stop the
//! server, or let it all run in virtual time.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), lock_core::Error> {
//! use lock_core::{Locks, memory::{Config, Memory, MemoryServer}};
//!
//! let server = MemoryServer::new();
//! let locks = Locks::new(Memory::connect(Config::new(server))?);
//! let guard = locks.mutex("orders/4711").lock().await?;
//! assert!(locks.mutex("orders/4711").try_lock().await?.is_none());
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```

mod table;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use tokio::{runtime::Handle, sync::watch};
use tokio_util::sync::CancellationToken;

use self::table::{Attempt, Entered, Grant, Table};
use crate::{
    Backend, Capabilities, Clock, Error, Feature, Janitor, Keeper, Kept, Lease, LockName, Loss, Renewer, Request,
    Settings, Snapshot, Validity, Wait, validity::deadline,
};

/// The name of this backend.
const BACKEND: &str = "memory";

/// The shortest and the longest ttl.
const TTL: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86_400);

/// How many times a lease is renewed within its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// What memory connections connect to. Clones are the same server.
#[derive(Clone)]
pub struct MemoryServer {
    shared: Arc<Server>,
}

struct Server {
    clock: Clock,
    table: Mutex<Table>,
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
            Server { clock, table: Mutex::default(), next_id: AtomicU64::new(1), up: watch::Sender::new(true) };
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

    /// Takes the lock from whoever holds it, as an operator would who deletes a key or a node.
    pub fn delete(&self, name: &LockName) {
        let now = self.shared.clock.now();
        self.shared.table(|table| table.delete(now, name));
    }

    /// What the server keeps under `name`.
    #[must_use]
    pub fn snapshot(&self, name: &LockName) -> Snapshot {
        let now = self.shared.clock.now();
        self.shared.table(|table| table.snapshot(now, name))
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

impl Server {
    fn table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        work(&mut self.table.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Settings of a memory connection.
#[derive(Debug, Clone)]
pub struct Config {
    server: MemoryServer,
    ttl: Duration,
}

impl Config {
    /// A connection to `server` with a ttl of 30 s.
    #[must_use]
    pub const fn new(server: MemoryServer) -> Self {
        Self { server, ttl: Duration::from_secs(30) }
    }

    /// How long the server keeps a lease without a renewal, from 10 ms to a day.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Reads `memory://NAME?ttl=30s`: the server of that name in this process; without a name, the unnamed one.
    ///
    /// # Errors
    /// [`Error::Config`] for an unknown key, a value that is not allowed, several names, or a path.
    pub fn from_settings(mut settings: Settings) -> Result<Self, Error> {
        let name = match settings.hosts.as_slice() {
            [] => String::new(),
            [(name, None)] => name.clone(),
            several => return Err(Error::config("host", format!("{several:?}"), "one name without a port, or none")),
        };
        if !settings.path.trim_matches('/').is_empty() {
            return Err(Error::config("path", settings.path, "no path with memory://"));
        }
        let ttl = settings.duration("ttl", Duration::from_secs(30), TTL)?;
        settings.finish()?;
        Ok(Self { server: MemoryServer::named(&name), ttl })
    }
}

/// A connection to a [`MemoryServer`].
pub struct Memory {
    server: MemoryServer,
    ttl: Duration,
    /// Whether this connection is whole; see [`Memory::set_connected`].
    connected: watch::Sender<bool>,
    held: Mutex<HashMap<u64, Arc<Held>>>,
    keeper: Keeper<Held>,
    janitor: Janitor,
}

/// What is renewed.
struct Held {
    id: u64,
    name: LockName,
    ttl: Duration,
    validity: Validity,
}

struct MemoryRenewer {
    memory: Weak<Memory>,
}

struct MemoryLease {
    memory: Arc<Memory>,
    held: Arc<Held>,
    token: u64,
    /// Dropped by the release, which ends the renewal.
    kept: Kept<Held>,
}

impl Memory {
    /// Connects.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the server is stopped, [`Error::Config`] for a ttl that is not allowed.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn connect(config: Config) -> Result<Arc<Self>, Error> {
        let Config { server, ttl } = config;
        if !TTL.contains(&ttl) {
            return Err(Error::config("ttl", format!("{ttl:?}"), format!("{:?} to {:?}", TTL.start(), TTL.end())));
        }
        let clock = server.shared.clock;
        let memory = Arc::new_cyclic(|memory| Self {
            server,
            ttl,
            connected: watch::Sender::new(true),
            held: Mutex::default(),
            keeper: Keeper::new(clock, &Handle::current(), Arc::new(MemoryRenewer { memory: Weak::clone(memory) })),
            janitor: Janitor::new(clock, Handle::current()),
        });
        memory.check_reachable()?;
        Ok(memory)
    }

    /// Cuts this connection off from its server, or mends it: as a broken network would, without the server's noticing.
    pub fn set_connected(&self, connected: bool) {
        self.connected.send_replace(connected);
    }

    fn check_reachable(&self) -> Result<(), Error> {
        if *self.connected.borrow() && *self.server.shared.up.borrow() {
            return Ok(());
        }
        Err(Error::no_answer(BACKEND, "the server is stopped or this connection was cut off"))
    }

    fn clock(&self) -> Clock {
        self.server.shared.clock
    }

    fn table<T>(&self, work: impl FnOnce(&mut Table) -> T) -> T {
        self.server.shared.table(work)
    }

    fn held<T>(&self, work: impl FnOnce(&mut HashMap<u64, Arc<Held>>) -> T) -> T {
        work(&mut self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn leave(&self, held: &Held) -> bool {
        let now = self.clock().now();
        self.table(|table| table.leave(now, &held.name, held.id))
    }

    fn lease(self: Arc<Self>, name: LockName, attempt: &Attempt, grant: Grant) -> Box<dyn Lease> {
        let validity = Validity::new(self.clock(), deadline(grant.at, attempt.ttl));
        let held = Arc::new(Held { id: attempt.id, name, ttl: attempt.ttl, validity: validity.clone() });
        self.held(|all| all.insert(attempt.id, Arc::clone(&held)));
        let kept = self.keeper.keep(Arc::clone(&held), validity, attempt.ttl / RENEWALS_PER_TTL);
        Box::new(MemoryLease { memory: self, held, token: grant.token, kept })
    }

    /// Waits for a grant. Waiters that the server cannot wake, because a lease just ran out, wake by its end.
    async fn queued(
        &self,
        name: &LockName,
        mut grant: tokio::sync::oneshot::Receiver<Grant>,
        stop: &CancellationToken,
    ) -> Result<Grant, Error> {
        let mut connected = self.connected.subscribe();
        let mut up = self.server.shared.up.subscribe();
        loop {
            let ends_at = self.table(|table| table.ends_at(name)).unwrap_or_else(|| self.clock().now());
            tokio::select! {
                biased;
                granted = &mut grant => {
                    return granted.map_err(|_| Error::no_answer(BACKEND, "the place in the queue was lost"));
                }
                () = stop.cancelled() => return Err(Error::Cancelled),
                _ = connected.wait_for(|connected| !connected) => self.check_reachable()?,
                _ = up.wait_for(|up| !up) => self.check_reachable()?,
                () = self.clock().sleep_until(ends_at) => {
                    let now = self.clock().now();
                    self.table(|table| table.promote(now, name));
                }
            }
        }
    }
}

#[async_trait]
impl Backend for Memory {
    fn capabilities(&self) -> Capabilities {
        Capabilities::new(BACKEND)
            .with_ttl(TTL)
            .with(Feature::Fifo)
            .with(Feature::Queue)
            .with(Feature::Expiry)
            .with(Feature::ClocklessToken)
    }

    async fn acquire(self: Arc<Self>, request: Request, stop: CancellationToken) -> Result<Box<dyn Lease>, Error> {
        self.check_reachable()?;
        let Request { name, ttl, wait, payload, .. } = request;
        let id = self.server.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let attempt = Attempt { id, ttl: ttl.unwrap_or(self.ttl), payload };
        let now = self.clock().now();
        let grant = match self.table(|table| table.enter(now, &name, attempt.clone(), wait == Wait::UntilStopped)) {
            Entered::Granted(grant) => grant,
            Entered::Refused => return Err(Error::NotAcquired { name }),
            Entered::Queued(grant) => match self.queued(&name, grant, &stop).await {
                Ok(grant) => grant,
                Err(error) => {
                    // A grant that came in the same moment goes with it.
                    let now = self.clock().now();
                    self.table(|table| table.leave(now, &name, id));
                    return Err(error);
                }
            },
        };
        Ok(self.lease(name, &attempt, grant))
    }

    async fn inspect(&self, name: &LockName) -> Result<Snapshot, Error> {
        self.check_reachable()?;
        Ok(self.server.snapshot(name))
    }

    async fn close(&self, limit: Duration) -> Result<(), Error> {
        let held: Vec<_> = self.held(|all| all.drain().map(|(_, held)| held).collect());
        let reachable = self.check_reachable();
        for held in &held {
            held.validity.end(Loss::Closed);
            if reachable.is_ok() {
                self.leave(held);
            }
        }
        let clean = self.janitor.drain(limit).await;
        match reachable {
            Err(error) if !held.is_empty() => Err(error),
            _ if !clean => Err(Error::no_answer(BACKEND, "a release was not confirmed in time")),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn token(&self) -> u64 {
        self.token
    }

    fn validity(&self) -> &Validity {
        &self.held.validity
    }

    async fn release(self: Box<Self>) -> Result<(), Error> {
        let Self { memory, held, kept, .. } = *self;
        drop(kept);
        held.validity.end(Loss::Released);
        memory.held(|all| all.remove(&held.id));
        if let Err(error) = memory.check_reachable() {
            let janitor = memory.janitor.clone();
            let until = memory.clock().now().saturating_add(held.ttl);
            janitor.clean("release", until, move || {
                let left = memory.check_reachable().map(|()| memory.leave(&held));
                async move { left.map(|_| ()) }
            });
            return Err(error);
        }
        if memory.leave(&held) { Ok(()) } else { Err(Error::Lost { name: held.name.clone(), loss: Loss::TakenAway }) }
    }
}

#[async_trait]
impl Renewer for MemoryRenewer {
    type Lease = Held;

    async fn renew(&self, batch: &[Arc<Held>]) {
        let Some(memory) = self.memory.upgrade() else { return };
        for held in batch {
            let Some(observed) = held.validity.observe() else { continue };
            if memory.check_reachable().is_err() {
                held.validity.suspect(Loss::Unreachable);
                continue;
            }
            let now = memory.clock().now();
            if memory.table(|table| table.renew(now, &held.name, held.id, held.ttl)) {
                held.validity.advance(observed, deadline(now, held.ttl));
            } else {
                held.validity.end(Loss::TakenAway);
            }
        }
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("server", &self.server).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

impl fmt::Debug for MemoryLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLease").field("name", &self.held.name).field("token", &self.token).finish_non_exhaustive()
    }
}
