//! Redis: a primary with two replicas, and three Sentinels, which clients ask for it.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::LockName;

use crate::{
    LabError,
    deployment::{Connection, Decides, Description, GroundTruth, Lease, Servers, StartOptions, StartFuture, Trials},
    servers::{Redis, SILENCE, Sentinel, SentinelOptions, rights},
    truth::RedisTruth,
};

inventory::submit! {
    Description {
        trials: Trials::OfTheWay,
        quick: &["pauses", "failover-before-replication", "server-killed"],
        column: Some("Redis with Sentinels"),
        ..SENTINEL
    }
}

inventory::submit! {
    Description {
        key: "sentinel-min-replicas",
        title: "Redis Sentinel, min_replicas=1",
        settings: "min_replicas=1",
        decides: Decides::Primary { waits_for_replicas: true, hands_over: false },
        start: |options| start(1, options),
        quick: &["server-frozen"],
        ..SENTINEL
    }
}

const SENTINEL: Description = Description {
    scheme: "redis+sentinel",
    in_trials: "",
    lease: Some(Lease { has_claims: true, ..Lease::TTL }),
    answer_limit: Some("response_timeout"),
    servers: 3,
    decides: Decides::Primary { waits_for_replicas: false, hands_over: false },
    is_struck: true,
    ..Description::new("sentinel", "Redis Sentinel", |options| start(0, options))
};

/// `least`: how many replicas a primary has to hear of to take writes.
fn start(least: usize, options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let kind = SentinelOptions::default().with_own_clocks(options.own_clocks).with_tls(options.tls).with_min_replicas_to_write(least);
        let servers = Sentinel::start_with(kind).await?;
        if options.bears_silence {
            for sentinel in servers.sentinels() {
                let limit = [Sentinel::NAME, "down-after-milliseconds", &SILENCE.to_string()];
                () = sentinel.ask("SENTINEL SET", &limit).await?;
            }
        }
        if options.users {
            rights::grant_all(servers.nodes(), "Redis").await?;
            rights::grant_all(servers.sentinels(), "Redis with Sentinel").await?;
        }
        let truth = RedisTruth::of_one(servers.nodes().iter().map(Redis::port).collect(), options.patience);
        Ok(Box::new(SentinelDeployment { servers, truth, has_users: options.users }) as Box<dyn Servers>)
    })
}

/// Redis servers under the watch of Sentinels, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct SentinelDeployment {
    servers: Sentinel,
    truth: Arc<RedisTruth>,
    has_users: bool,
}

#[async_trait]
impl Servers for SentinelDeployment {
    fn guides(&self) -> Vec<u16> {
        self.servers.sentinels().iter().map(Redis::client_port).collect()
    }

    fn authority(&self, way: &Connection) -> String {
        format!("{}{}/{}", rights::user(self.has_users), way.hosts(&self.guides()), Sentinel::NAME)
    }

    fn settings(&self, way: &Connection) -> String {
        let ways = way.address_map(&[self.ports(), self.guides()].concat());
        match (self.has_users, ways.is_empty()) {
            (false, _) => ways,
            (true, true) => rights::WATCHER.to_owned(),
            (true, false) => format!("{}&{ways}", rights::WATCHER),
        }
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::clone(&self.truth) as _
    }

    async fn ready(&mut self) -> Result<(), LabError> {
        self.servers.wait_until_ready().await
    }

    fn redis(&self) -> &[Redis] {
        self.servers.nodes()
    }

    async fn leading(&self, _lock: &LockName) -> Result<Option<usize>, LabError> {
        Ok(self.servers.primary().await)
    }

    async fn replicas(&self, of: usize) -> Result<Vec<usize>, LabError> {
        Ok((0..self.redis().len()).filter(|node| *node != of).collect())
    }

    fn kill(&mut self, server: usize) {
        self.servers.kill(server);
    }

    async fn restart(&mut self, server: usize) -> Result<(), LabError> {
        self.servers.restart(server).await
    }

    /// They keep nothing on their disks.
    async fn restart_empty(&mut self, server: usize) -> Result<(), LabError> {
        self.servers.restart(server).await
    }

    async fn refuse_writes(&mut self, _server: usize) -> Result<bool, LabError> {
        self.servers.failover().await.map(|_| false)
    }
}
