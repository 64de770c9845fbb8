//! Looks at the servers themselves, past the proxies, while a fault strikes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::stream::{FuturesUnordered, StreamExt};
use lock_core::{Clock, LockName};

use super::{PREFIX, SENTINEL_NODES, server::Server, truth};
use crate::{
    LabError,
    failover::{
        arrangement::Arrangement,
        check::Quorum,
        events::{Lock, Residue, Truth, now},
    },
    servers::zookeeper::session,
};

/// How long the servers may take until they serve again.
const SERVED_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);

/// Looks at the servers of a scene. Clones look through the same connections.
#[derive(Debug, Clone)]
pub struct Observer {
    arrangement: Arrangement,
    name: LockName,
    places: Places,
    /// By their ports.
    servers: Arc<Mutex<BTreeMap<u16, Arc<Server>>>>,
    ensemble: truth::Ensemble,
}

/// Which servers there are, which may change while they are looked at. Clones tell the same.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Mutex<Ports>>);

#[derive(Debug)]
struct Ports {
    /// In the order of their numbers.
    numbered: Vec<u16>,
    /// Of running servers that have no say, but may have nothing of the locks in the end either.
    beside: Vec<u16>,
}

impl Places {
    pub(super) fn new(numbered: Vec<u16>) -> Self {
        Self(Arc::new(Mutex::new(Ports { numbered, beside: Vec::new() })))
    }

    /// Another server has come to the place of that number.
    pub(super) fn put(&self, server: usize, port: u16) {
        self.ports().numbered[server] = port;
    }

    /// A running server has no say, or none any more.
    pub(super) fn put_beside(&self, port: u16) {
        self.ports().beside.push(port);
    }

    pub(super) fn numbered(&self) -> Vec<u16> {
        self.ports().numbered.clone()
    }

    fn beside(&self) -> Vec<u16> {
        self.ports().beside.clone()
    }

    fn ports(&self) -> MutexGuard<'_, Ports> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer {
    pub(super) fn new(arrangement: Arrangement, name: LockName, places: Places) -> Self {
        let ensemble = truth::Ensemble::new(&places.numbered());
        Self { arrangement, name, places, servers: Arc::default(), ensemble }
    }

    /// On how many of how many servers a holder has to be.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        if self.arrangement.is_redlock() { Quorum::majority(self.arrangement.voters()) } else { Quorum::ONE }
    }

    /// What the servers hold for that lock: one sample for each that answered and whose word counts. Replicas, and nodes
    /// of a cluster that have not got its slot, give none. While a primary that was replaced does not know that yet, it
    /// gives one beside its successor. Cancel safe.
    pub async fn truth(&self, lock: Lock, round: u64) -> Vec<Truth> {
        if self.arrangement.is_zookeeper() {
            return self.ensemble.look(lock, round).await.into_iter().collect();
        }
        // A new member is kept from voting also where those that restart are not.
        let closes = self.arrangement.is_redlock();
        let servers = self.data_servers();
        let looks = servers.iter().map(|server| truth::look(server, PREFIX, lock, round, closes));
        futures::future::join_all(looks).await.into_iter().flatten().collect()
    }

    /// What the servers have of both locks. The word of replicas does not count; each other server is waited for only a
    /// short while. Cancel safe.
    pub async fn residue(&self) -> Residue {
        let asked = now();
        let (left, silent) = if self.arrangement.is_zookeeper() {
            match self.ensemble.residue().await {
                Some(left) => (left, Vec::new()),
                None => (Vec::new(), vec!["the ensemble".into()]),
            }
        } else {
            self.keys_left().await
        };
        Residue { asked, answered: now(), left, silent }
    }

    /// What is left on the servers of Redis, and which of them do not say.
    async fn keys_left(&self) -> (Vec<String>, Vec<String>) {
        let mut servers = self.data_servers();
        servers.extend(self.places.beside().into_iter().map(|port| self.server(port)));
        let answers = futures::future::join_all(servers.iter().map(|server| truth::residue(server, PREFIX))).await;
        let (mut left, mut silent, mut primaries) = (Vec::new(), Vec::new(), 0);
        for (server, answer) in servers.iter().zip(answers) {
            match answer {
                Some(truth::Keys::Left(keys)) => {
                    primaries += 1;
                    left.extend(keys.into_iter().map(|key| format!("{key} on 127.0.0.1:{}", server.port)));
                }
                Some(truth::Keys::Replicated) => {}
                None => silent.push(format!("127.0.0.1:{}", server.port)),
            }
        }
        if primaries == 0 && silent.is_empty() {
            silent.push("a primary".into());
        }
        (left, silent)
    }

    /// Waits until the servers commit a write of their own clients again, and returns how long that took from now: for an
    /// ensemble its own re-election, for a primary its replacement, for Redlock a majority of nodes that answer. To be
    /// called right after the fault. Cancel safe.
    ///
    /// # Errors
    /// [`LabError::Run`] when they do not within two minutes.
    pub async fn served_again(&self) -> Result<Duration, LabError> {
        let clock = Clock::boot();
        let began = clock.now();
        // Each by itself: one that is frozen must not hold up the news of the others.
        let servers = self.data_servers();
        let mut serving: FuturesUnordered<_> = servers.iter().map(|server| self.serving(server)).collect();
        let enough = async {
            for _ in 0..self.quorum().needed {
                serving.next().await;
            }
        };
        match clock.timeout(SERVED_LIMIT, enough).await {
            Some(()) => Ok(clock.now().saturating_since(began)),
            None => Err(LabError::run(format!("the servers take no write for {SERVED_LIMIT:?}"))),
        }
    }

    /// Waits until this server takes a write, in the slot of the lock. Replicas take none, nor does a server of an
    /// ensemble that knows of no leader.
    async fn serving(&self, server: &Server) {
        // Not a key of the lock, but in its slot.
        let key = format!("observer:{{{PREFIX}:{}}}", self.name);
        let mut write = redis::pipe();
        write.cmd("SET").arg(&key).arg(1).arg("PX").arg(1000).ignore();
        loop {
            let taken = if self.arrangement.is_zookeeper() {
                session::open_and_close(server.port).await.is_ok()
            } else {
                server.ask::<()>(&write).await.is_some()
            };
            if taken {
                return;
            }
            Clock::boot().sleep(PAUSE).await;
        }
    }

    /// Those that keep locks.
    fn data_servers(&self) -> Vec<Arc<Server>> {
        let mut ports = self.places.numbered();
        if matches!(self.arrangement, Arrangement::Sentinel | Arrangement::SentinelMinReplicas) {
            ports.truncate(SENTINEL_NODES);
        }
        ports.into_iter().map(|port| self.server(port)).collect()
    }

    fn server(&self, port: u16) -> Arc<Server> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Server::new(port));
        Arc::clone(servers.entry(port).or_insert_with(new))
    }
}
