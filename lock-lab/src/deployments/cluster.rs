//! Redis Cluster: three primaries that share the locks, each with a replica.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::LockName;
use lock_redis::keys::Keys;

use crate::{
    LabError,
    deployment::{Connection, Decides, Description, GroundTruth, Lease, Servers, StartOptions, StartFuture, Trials},
    servers::{Cluster, ClusterOptions, Redis, rights},
    truth::{PREFIX, RedisTruth},
};

inventory::submit! {
    Description {
        scheme: "redis+cluster",
        lease: Some(Lease { has_claims: true, ..Lease::TTL }),
        answer_limit: Some("response_timeout"),
        servers: 6,
        decides: Decides::Primary { waits_for_replicas: false, hands_over: true },
        trials: Trials::OfTheWay,
        is_struck: true,
        quick: &["pauses", "failover-before-replication"],
        column: Some("Redis Cluster"),
        ..Description::new("cluster", "Redis Cluster", start)
    }
}

fn start(options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let told = ClusterOptions::default().with_own_clocks(options.own_clocks).with_tls(options.tls);
        let cluster = Cluster::start_with(told.with_bears_silence(options.bears_silence)).await?;
        if options.users {
            rights::grant_all(cluster.nodes(), "Redis").await?;
            rights::grant_all(cluster.nodes(), "Redis Cluster").await?;
        }
        let truth = RedisTruth::of_one(cluster.nodes().iter().map(Redis::port).collect(), options.patience);
        Ok(Box::new(ClusterDeployment { cluster, truth, has_users: options.users }) as Box<dyn Servers>)
    })
}

/// A running Redis Cluster, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct ClusterDeployment {
    cluster: Cluster,
    truth: Arc<RedisTruth>,
    has_users: bool,
}

#[async_trait]
impl Servers for ClusterDeployment {
    fn authority(&self, way: &Connection) -> String {
        rights::user(self.has_users) + &way.hosts(&self.ports())
    }

    fn settings(&self, way: &Connection) -> String {
        way.address_map(&self.ports())
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::clone(&self.truth) as _
    }

    async fn ready(&mut self) -> Result<(), LabError> {
        self.cluster.wait_until_ready().await
    }

    fn redis(&self) -> &[Redis] {
        self.cluster.nodes()
    }

    async fn leading(&self, lock: &LockName) -> Result<Option<usize>, LabError> {
        self.cluster.primary(Keys::new(PREFIX, lock).lock()).await
    }

    async fn replicas(&self, of: usize) -> Result<Vec<usize>, LabError> {
        self.cluster.replicas(of).await
    }

    fn kill(&mut self, server: usize) {
        self.cluster.kill(server);
    }

    async fn restart(&mut self, server: usize) -> Result<(), LabError> {
        self.cluster.restart(server).await
    }

    /// They keep nothing on their disks but what they are in the cluster.
    async fn restart_empty(&mut self, server: usize) -> Result<(), LabError> {
        self.cluster.restart(server).await
    }

    async fn refuse_writes(&mut self, server: usize) -> Result<bool, LabError> {
        match self.cluster.replicas(server).await?.first() {
            Some(replica) => self.cluster.failover(*replica).await.map(|()| false),
            None => Err(LabError::run("the primary has no replica that could take its place")),
        }
    }
}
