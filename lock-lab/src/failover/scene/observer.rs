//! Looks at the servers themselves, past the proxies, while a fault strikes.

use std::{sync::Arc, time::Duration};

use futures::stream::{FuturesUnordered, StreamExt};
use lock_core::{Clock, LockName};

use crate::{
    LabError,
    deployment::{Deployment, GroundTruth},
    failover::{
        check::Quorum,
        events::{Lock, Residue, Truth, now},
    },
};

/// How long the servers may take until they serve again.
const SERVED_LIMIT: Duration = Duration::from_secs(120);

/// Looks at the servers of a scene. Clones look through the same connections.
#[derive(Debug, Clone)]
pub struct Observer {
    deployment: Deployment,
    /// The lock that the fault's victim holds.
    kept: LockName,
    servers: Arc<dyn GroundTruth>,
}

impl Observer {
    pub(super) fn new(deployment: Deployment, kept: LockName, servers: Arc<dyn GroundTruth>) -> Self {
        Self { deployment, kept, servers }
    }

    /// On how many of how many servers a holder has to be.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        if self.deployment.is_quorum() { Quorum::majority(self.deployment.voters()) } else { Quorum::ONE }
    }

    /// What the servers hold for that lock: one sample for each that answered and whose word counts. Cancel safe.
    pub async fn truth(&self, lock: Lock, round: u64) -> Vec<Truth> {
        let Ok(name) = LockName::new(lock.name()) else { return Vec::new() };
        let samples = self.servers.holders(&name).await.into_iter();
        samples.map(|sample| Truth::of(lock, round, sample)).collect()
    }

    /// What the servers have of both locks. The word of replicas does not count; each other server is waited for only a
    /// short while. Cancel safe.
    pub async fn residue(&self) -> Residue {
        let asked = now();
        let names: Vec<_> = Lock::ALL.into_iter().filter_map(|lock| LockName::new(lock.name()).ok()).collect();
        let left = self.servers.residue(&names, true).await.and(self.servers.sessions_left().await);
        Residue { asked, answered: now(), left: left.things, silent: left.silent }
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
        // Each by itself: one that is frozen must not hold up the news of the others. Replicas take no writes.
        let servers = 0..self.deployment.servers;
        let mut serving: FuturesUnordered<_> = servers.map(|server| self.servers.serves(server, &self.kept)).collect();
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
}
