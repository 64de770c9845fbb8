//! Load: clients that acquire, hold and release.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use lock::Locks;
use lock_core::{Clock, Error};
use rustix::thread::nanosleep;
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    LabError,
    history::{Grant, History},
};

/// What each client does.
#[derive(Debug, Clone)]
pub struct Load {
    /// The lock that all want.
    pub name: String,
    /// How many clients, each with a connection of its own.
    pub clients: usize,
    /// How often each holds the lock.
    pub holds: usize,
    /// For how long.
    pub hold: Duration,
}

impl Load {
    /// Runs the load to its end: what happened, and how many attempts failed and were repeated. All clients are connected
    /// before the first one asks.
    ///
    /// # Errors
    /// [`LabError::Lock`] when a client cannot connect, or fails more often than it succeeds.
    pub async fn run(&self, url: &str) -> Result<(History, usize), LabError> {
        let start = Arc::new(Barrier::new(self.clients));
        let mut clients = JoinSet::new();
        for client in 0..self.clients {
            let locks = lock::connect(url).await.map_err(LabError::lock("connecting"))?;
            let (load, start) = (self.clone(), Arc::clone(&start));
            clients.spawn(async move {
                start.wait().await;
                let outcome = load.client(client, &locks).await;
                // The next measurement must not find this one's connections; what fails here was reported above.
                let _ = locks.close(CLOSE_LIMIT).await;
                outcome
            });
        }
        let (mut grants, mut errors) = (Vec::new(), 0);
        while let Some(done) = clients.join_next().await {
            let (granted, failed) = LabError::joined(done)?.map_err(LabError::lock("contending"))?;
            grants.extend(granted);
            errors += failed;
        }
        Ok((History::new(grants), errors))
    }

    async fn client(&self, client: usize, locks: &Locks) -> Result<(Vec<Grant>, usize), Error> {
        let mut grants = Vec::with_capacity(self.holds);
        let mut errors = 0;
        while grants.len() < self.holds {
            let released = match hold_once(client, locks, &self.name, self.hold).await {
                Ok((grant, released)) => {
                    grants.push(grant);
                    released
                }
                Err(error) => Err(error),
            };
            match released {
                Err(error) if errors >= self.holds => return Err(error),
                Err(_) => errors += 1,
                Ok(()) => {}
            }
        }
        Ok((grants, errors))
    }
}

/// How long the clients of a load may take to disconnect.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Acquires, holds and releases once: the grant, and how the release ended.
async fn hold_once(
    client: usize,
    locks: &Locks,
    name: &str,
    hold: Duration,
) -> Result<(Grant, Result<(), Error>), Error> {
    let clock = Clock::boot();
    let requested = clock.now();
    let guard = locks.mutex(name).lock().await?;
    let granted = clock.now();
    // A holder that loses the lock holds it no longer than that, whatever it does.
    tokio::select! {
        () = work_for(hold) => {}
        _ = guard.lost() => {}
    }
    let ended = clock.now();
    let token = guard.token();
    Ok((Grant { client, requested, granted, ended, token }, guard.release().await))
}

/// Sleeps for `duration`, exactly: the runtime's own timer would round a millisecond up to two.
pub async fn work_for(duration: Duration) {
    let sleep = move || {
        let time = rustix::time::Timespec::try_from(duration).unwrap_or_default();
        // Cut short by a signal, which makes this hold a little shorter; what it really took is what counts.
        let _ = nanosleep(&time);
    };
    // Only a panic of the closure fails it, and it has none.
    let _ = tokio::task::spawn_blocking(sleep).await;
}

/// Clients that keep one lock busy until they are told to stop, whatever happens to the servers.
#[derive(Debug)]
pub struct Busy {
    clients: JoinSet<Vec<Grant>>,
    shared: Arc<BusyCounters>,
}

/// The stop flag and the counters that the clients of a [`Busy`] share.
#[derive(Debug, Default)]
struct BusyCounters {
    stop: AtomicBool,
    grants: AtomicUsize,
    errors: AtomicUsize,
}

/// How long a client of [`Busy`] pauses after an error.
const PAUSE: Duration = Duration::from_millis(10);

impl Busy {
    /// Starts `clients` that hold the lock `name` for `hold` each, again and again.
    ///
    /// # Errors
    /// [`LabError::Lock`] when one cannot connect.
    pub async fn start(url: &str, name: &str, clients: usize, hold: Duration) -> Result<Self, LabError> {
        let shared = Arc::new(BusyCounters::default());
        let mut all = JoinSet::new();
        for client in 0..clients {
            let locks = lock::connect(url).await.map_err(LabError::lock("connecting"))?;
            all.spawn(keep_busy(client, locks, name.to_string(), hold, Arc::clone(&shared)));
        }
        Ok(Self { clients: all, shared })
    }

    /// How many grants there were so far.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.shared.grants.load(Ordering::Relaxed)
    }

    /// Stops the clients: what happened, and how many attempts failed, in the acquisition or in the release.
    ///
    /// # Errors
    /// [`LabError::Run`] when a client failed itself.
    pub async fn finish(mut self) -> Result<(History, usize), LabError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut grants = Vec::new();
        while let Some(done) = self.clients.join_next().await {
            grants.extend(LabError::joined(done)?);
        }
        Ok((History::new(grants), self.shared.errors.load(Ordering::Relaxed)))
    }
}

async fn keep_busy(client: usize, locks: Locks, name: String, hold: Duration, shared: Arc<BusyCounters>) -> Vec<Grant> {
    let mut grants = Vec::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let released = match hold_once(client, &locks, &name, hold).await {
            Ok((grant, released)) => {
                shared.grants.fetch_add(1, Ordering::Relaxed);
                grants.push(grant);
                released
            }
            Err(error) => Err(error),
        };
        if released.is_err() {
            shared.errors.fetch_add(1, Ordering::Relaxed);
            Clock::boot().sleep(PAUSE).await;
        }
    }
    // Its servers may be gone.
    let _ = locks.close(CLOSE_LIMIT).await;
    grants
}
