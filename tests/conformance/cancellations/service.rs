//! The services, and what their servers still have of the locks of a batch.

use std::{sync::Arc, time::Duration};

use lock::{Error, Feature, LockName, Locks};
use lock_lab::{
    deployment::{Connection, GroundTruth, Running},
    proxy::Proxy,
};

use crate::cancellations::choices::Way;

/// The ttl, or ZooKeeper's session time-out: what is left behind a cut connection is gone after it.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// The limit for one request.
const REQUEST_LIMIT: Duration = Duration::from_millis(500);

/// The connection of a batch.
pub(crate) struct Link {
    pub(crate) locks: Locks,
    /// In front of each server, where there is one.
    pub(crate) proxies: Vec<Proxy>,
}

pub(crate) struct Service {
    running: Running,
    truth: Arc<dyn GroundTruth>,
}

impl Service {
    pub(crate) fn of(running: Running) -> Self {
        Self { truth: running.ground_truth(), running }
    }

    /// Whether there is a connection to a server that can be cut.
    pub(crate) fn is_remote(&self) -> bool {
        self.running.deployment().servers > 0
    }

    /// How long after a cut everything must be gone.
    pub(crate) fn bound(&self) -> Duration {
        self.running.deployment().lingers(TTL)
    }

    /// The ways in which its locks can be asked for; the plain one comes first.
    pub(crate) fn ways(locks: &Locks) -> Vec<Way> {
        let capabilities = locks.capabilities();
        let mut ways = vec![Way::Lock];
        if capabilities.supports(Feature::ReadWrite) {
            ways.extend([Way::Read, Way::Write]);
        }
        if capabilities.supports(Feature::Semaphore) {
            ways.push(Way::Permit);
        }
        ways
    }

    pub(crate) async fn connect(&self) -> Locks {
        self.connect_by(Connection::default()).await
    }

    /// A connection that can be cut.
    pub(crate) async fn link(&self) -> Link {
        let servers = self.running.all_ports();
        let mut proxies = Vec::new();
        for port in &servers {
            proxies.push(Proxy::start(*port).await.expect("a proxy"));
        }
        let way = Connection::default().through(servers.into_iter().zip(proxies.iter().map(Proxy::port)));
        Link { locks: self.connect_by(way).await, proxies }
    }

    async fn connect_by(&self, way: Connection) -> Locks {
        let url = self.running.url(&way.with_lease(TTL).with_answer_limit(REQUEST_LIMIT));
        // Connecting is not what is on trial: on a busy machine it may take more than one limit.
        loop {
            match lock::connect(&url).await {
                Ok(locks) => return locks,
                Err(Error::Unavailable { reason, .. }) => println!("connecting again: {reason}"),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What the servers have of `names`, holders and waiters alike.
    pub(crate) async fn left(&self, names: &[LockName]) -> Vec<String> {
        self.truth.residue(names, true).await.complete().expect("the servers answer")
    }
}
