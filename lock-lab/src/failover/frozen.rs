//! Redlock with frozen nodes: what acquisitions cost while one of three servers stands still (SIGSTOP), and how an
//! attempt fails, and what it leaves, when a majority does.
//!
//! A frozen server is the worst of the slow ones: its kernel goes on taking connections and requests, and nothing ever
//! says that nobody will answer. All figures count from the moment of the freeze on, so those acquisitions are among them
//! that come before anybody can know of it.

pub(in crate::failover) mod tables;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock::Locks;
use lock_core::{BootInstant, Clock, Error, LockName};
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::{
    LabError,
    deployment::GroundTruth,
    latency::{Latency, Recorder},
    servers::RedisNodes,
    truth::RedisTruth,
};

/// What 99 of 100 acquisitions may cost while a minority is frozen.
pub const P99_BOUND: Duration = Duration::from_millis(50);

/// After a failed attempt nothing of it is on the reachable nodes any more after this.
const UNDONE_WITHIN: Duration = Duration::from_millis(100);

/// How long a reachable node may take to say what is left on it.
const LOOK_LIMIT: Duration = Duration::from_secs(30);

/// How long the clients may take to disconnect.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What is measured, and for how long.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Whose attempts are measured.
    pub loads: Vec<Clients>,
    /// With which ttls.
    pub ttls: Vec<Duration>,
    /// For how long before the freeze.
    pub healthy: Duration,
    /// For how long from the freeze on. Longer than the node limit, so that the attempts to reach the frozen node again
    /// are in it, too.
    pub frozen: Duration,
    /// The node limits with which a majority is frozen.
    pub node_limits: Vec<Duration>,
    /// How often an attempt is made while a majority is frozen, for each of them.
    pub attempts: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            loads: vec![Clients::Alone, Clients::Apart(4), Clients::Contending(4), Clients::Contending(16)],
            ttls: vec![Duration::from_secs(30), Duration::from_millis(300)],
            healthy: Duration::from_secs(2),
            frozen: Duration::from_secs(4),
            node_limits: vec![Duration::from_millis(200), Duration::from_secs(1)],
            attempts: 5,
        }
    }
}

/// Who acquires and releases, each on a connection of its own, one acquisition after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Clients {
    /// One client.
    Alone,
    /// So many, each with a lock of its own.
    Apart(usize),
    /// So many that all want one lock.
    Contending(usize),
}

impl Clients {
    const fn count(self) -> usize {
        match self {
            Self::Alone => 1,
            Self::Apart(count) | Self::Contending(count) => count,
        }
    }

    fn name(self, client: usize) -> String {
        match self {
            Self::Alone | Self::Contending(_) => "frozen".to_owned(),
            Self::Apart(_) => format!("frozen-{client}"),
        }
    }
}

/// Everything that was measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Frozen {
    /// How many nodes there are.
    pub nodes: usize,
    /// One of them frozen.
    pub minority: Vec<Minority>,
    /// All but one of them frozen.
    pub majority: Vec<Majority>,
}

/// The same load before a node is frozen, and from then on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Minority {
    /// Who acquired.
    pub clients: Clients,
    /// With this ttl, in milliseconds.
    pub ttl_ms: u64,
    /// All nodes answer.
    pub healthy: Phase,
    /// One is frozen.
    pub frozen: Phase,
}

/// What was measured in one of the two times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Phase {
    /// From the request to the grant, in microseconds.
    pub acquisitions: Latency,
    /// From the release to its confirmation, in microseconds.
    pub releases: Latency,
    /// The first acquisition of each client that began in it: the slowest of them, in microseconds.
    pub slowest_first: f64,
    /// How many acquisitions or releases failed.
    pub failures: usize,
    /// Why, of one of them.
    pub failure: Option<String>,
}

impl Phase {
    /// Whether acquisitions succeeded all the time, 99 of 100 within [`P99_BOUND`].
    #[must_use]
    pub fn is_within_bound(&self) -> bool {
        self.failures == 0 && self.acquisitions.count > 0 && self.acquisitions.p99 <= P99_BOUND.as_secs_f64() * 1e6
    }
}

/// Attempts while a majority is frozen, the first of them just after the freeze.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Majority {
    /// The limit for one request to a node, in milliseconds.
    pub node_limit_ms: u64,
    /// Whether they waited for the lock, if need be.
    pub waiting: bool,
    /// How many there were.
    pub attempts: usize,
    /// How many of them were granted, which cannot be.
    pub granted: usize,
    /// From the request to the error, in microseconds.
    pub errors: Latency,
    /// In how many cases something was left on the reachable node a tenth of a second after the error.
    pub left: usize,
}

impl Majority {
    /// Whether each attempt failed within twice the node limit and left nothing.
    #[must_use]
    pub fn is_within_bound(&self) -> bool {
        #[allow(clippy::cast_precision_loss)] // A limit is some milliseconds.
        let limit = self.node_limit_ms as f64 * 2e3;
        self.granted == 0 && self.left == 0 && self.errors.max <= limit
    }
}

impl Frozen {
    /// Whether everything kept its bounds.
    #[must_use]
    pub fn is_within_bounds(&self) -> bool {
        self.minority.iter().all(|run| run.frozen.is_within_bound())
            && self.majority.iter().all(Majority::is_within_bound)
    }
}

/// Measures on three servers of its own.
///
/// # Errors
/// [`LabError`]; `Missing` when redis is not installed.
///
/// # Cancel safety
/// The servers are taken down when the future is dropped.
pub async fn run(options: &Options) -> Result<Frozen, LabError> {
    let mut minority = Vec::new();
    for ttl in &options.ttls {
        for clients in &options.loads {
            minority.push(one_frozen(*clients, *ttl, options).await?);
        }
    }
    let mut majority = Vec::new();
    for limit in &options.node_limits {
        for waiting in [false, true] {
            majority.push(most_frozen(*limit, waiting, options.attempts).await?);
        }
    }
    Ok(Frozen { nodes: NODES, minority, majority })
}

const NODES: usize = 3;

/// The figures as tables, for a terminal.
#[must_use]
pub fn text(measured: &Frozen) -> String {
    let tables = tables::all(measured);
    let shown = tables.iter().map(|table| format!("{}\n{}\n", table.title, table.text()));
    shown.collect::<Vec<_>>().join("\n")
}

/// The acquisitions, releases and failures that one client measured, before and while nodes were frozen.
#[derive(Default)]
struct ClientMeasurements {
    acquisitions: Vec<(BootInstant, Duration)>,
    releases: Vec<(BootInstant, Duration)>,
    failures: Vec<(BootInstant, Error)>,
}

async fn one_frozen(clients: Clients, ttl: Duration, options: &Options) -> Result<Minority, LabError> {
    let nodes = RedisNodes::start(NODES).await?;
    let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let url = format!("{}/?ttl={ttl_ms}ms", nodes.url());
    let clock = Clock::boot();
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = JoinSet::new();
    for client in 0..clients.count() {
        let locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
        running.spawn(acquire_all_the_time(locks, clients.name(client), Arc::clone(&stop)));
    }
    clock.sleep(options.healthy).await;
    // Before the signal: what begins now may meet the frozen node.
    let frozen_at = clock.now();
    nodes.nodes()[NODES - 1].stop()?;
    clock.sleep(options.frozen).await;
    stop.store(true, Ordering::Release);
    let mut seen = Vec::new();
    while let Some(done) = running.join_next().await {
        seen.push(LabError::joined(done)?);
    }
    Ok(Minority {
        clients,
        ttl_ms,
        healthy: phase(&seen, |at| at < frozen_at),
        frozen: phase(&seen, |at| at >= frozen_at),
    })
}

async fn acquire_all_the_time(locks: Locks, name: String, stop: Arc<AtomicBool>) -> ClientMeasurements {
    let clock = Clock::boot();
    let mut seen = ClientMeasurements::default();
    let mutex = locks.mutex(&name);
    while !stop.load(Ordering::Acquire) {
        let asked = clock.now();
        let guard = match mutex.lock().await {
            Ok(guard) => guard,
            Err(error) => {
                seen.failures.push((asked, error));
                continue;
            }
        };
        let granted = clock.now();
        seen.acquisitions.push((asked, granted.saturating_since(asked)));
        match guard.release().await {
            Ok(()) => seen.releases.push((granted, clock.now().saturating_since(granted))),
            Err(error) => seen.failures.push((granted, error)),
        }
    }
    // What a frozen node still has to give back would be waited for.
    let _ = locks.close(CLOSE_LIMIT.min(Duration::from_millis(100))).await;
    seen
}

fn phase(seen: &[ClientMeasurements], is_in: impl Fn(BootInstant) -> bool) -> Phase {
    let taken = |durations: fn(&ClientMeasurements) -> &Vec<(BootInstant, Duration)>| -> Latency {
        let durations = seen.iter().flat_map(durations).filter(|(at, _)| is_in(*at));
        durations.map(|(_, duration)| *duration).collect::<Recorder>().latency()
    };
    let first =
        |seen: &ClientMeasurements| seen.acquisitions.iter().find(|(at, _)| is_in(*at)).map(|(_, duration)| *duration);
    let slowest_first = seen.iter().filter_map(first).max().unwrap_or_default();
    let failures: Vec<&Error> =
        seen.iter().flat_map(|seen| &seen.failures).filter(|(at, _)| is_in(*at)).map(|(_, error)| error).collect();
    Phase {
        acquisitions: taken(|seen| &seen.acquisitions),
        releases: taken(|seen| &seen.releases),
        slowest_first: slowest_first.as_secs_f64() * 1e6,
        failures: failures.len(),
        failure: failures.first().map(ToString::to_string),
    }
}

async fn most_frozen(limit: Duration, waiting: bool, attempts: usize) -> Result<Majority, LabError> {
    let nodes = RedisNodes::start(NODES).await?;
    let node_limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    let url = format!("{}/?node_timeout={node_limit_ms}ms&outage_timeout=0s", nodes.url());
    let locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
    let clock = Clock::boot();
    let mutex = locks.mutex("frozen");
    let held = mutex.lock().await.map_err(LabError::lock("an acquisition before the freeze"))?;
    held.release().await.map_err(LabError::lock("a release before the freeze"))?;
    let (reachable, frozen) = nodes.nodes().split_at(NODES / 2);
    for node in frozen {
        node.stop()?;
    }
    let reachable: Vec<_> = reachable.iter().map(|node| RedisTruth::of_one(vec![node.port()], LOOK_LIMIT)).collect();
    let name = LockName::new("frozen").map_err(LabError::lock("naming the lock"))?;
    let (mut granted, mut left, mut errors) = (0, 0, Recorder::new());
    for _ in 0..attempts {
        let asked = clock.now();
        let guard = if waiting { mutex.lock().await.map(Some) } else { mutex.try_lock().await };
        errors.record(clock.now().saturating_since(asked));
        granted += usize::from(guard.is_ok_and(|guard| guard.is_some()));
        clock.sleep(UNDONE_WITHIN).await;
        for node in &reachable {
            let names = std::slice::from_ref(&name);
            left += usize::from(!node.residue(names, false).await.complete()?.is_empty());
        }
    }
    let _ = locks.close(CLOSE_LIMIT.min(UNDONE_WITHIN)).await;
    Ok(Majority { node_limit_ms, waiting, attempts, granted, errors: errors.latency(), left })
}
