//! Redis, one server.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    LabError,
    deployment::{Connection, Description, GroundTruth, Lease, Servers, StartOptions, StartFuture, Trials},
    servers::{Redis, RedisOptions, rights},
    truth::RedisTruth,
};

inventory::submit! {
    Description {
        trials: Trials::All,
        is_compared: true,
        quick: &[
            "holder-killed",
            "holder-stopped",
            "holder-clock-ahead",
            "pauses",
            "server-restarted-empty",
            "packets-dropped",
            "clock-jump",
            "key-deleted",
        ],
        column: Some("Redis"),
        ..REDIS
    }
}

inventory::submit! {
    Description {
        key: "redis-durable",
        title: "Redis durable",
        is_durable: true,
        start: |options| start(true, options),
        quick: &["server-restarted-durable"],
        ..REDIS
    }
}

inventory::submit! {
    Description {
        key: "redis-plain",
        title: "Redis plain",
        settings: "strategy=plain",
        // Who waits is to hear of a release by its message.
        in_trials: "look_again=1m",
        lease: Some(Lease::TTL),
        is_struck: false,
        trials: Trials::All,
        is_in_clear: true,
        column: Some("Redis `strategy=plain`"),
        start: |options| start_with(false, true, options),
        ..REDIS
    }
}

/// One server in memory.
const REDIS: Description = Description {
    scheme: "redis",
    lease: Some(Lease { has_claims: true, ..Lease::TTL }),
    answer_limit: Some("response_timeout"),
    strike: Some("the server killed, and started again without its data"),
    is_struck: true,
    ..Description::new("redis", "Redis", |options| start(false, options))
};

fn start(is_durable: bool, options: StartOptions) -> StartFuture {
    start_with(is_durable, false, options)
}

/// `is_plain`: for the strategy `plain`.
fn start_with(is_durable: bool, is_plain: bool, options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let kind = RedisOptions::default().with_durable(is_durable).with_own_clock(options.own_clocks).with_tls(options.tls);
        let server = Redis::start_as_told(kind).await?;
        if options.users {
            rights::grant(&server, if is_plain { "Redis with strategy=plain" } else { "Redis" }).await?;
        }
        let truth = if is_plain { RedisTruth::of_one_plain } else { RedisTruth::of_one };
        let truth = truth(vec![server.port()], options.patience);
        Ok(Box::new(RedisDeployment { server, truth, has_users: options.users }) as Box<dyn Servers>)
    })
}

/// A single Redis server, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct RedisDeployment {
    server: Redis,
    truth: Arc<RedisTruth>,
    has_users: bool,
}

#[async_trait]
impl Servers for RedisDeployment {
    fn authority(&self, way: &Connection) -> String {
        rights::user(self.has_users) + &way.hosts(&self.ports())
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::clone(&self.truth) as _
    }

    fn redis(&self) -> &[Redis] {
        std::slice::from_ref(&self.server)
    }

    fn kill(&mut self, _server: usize) {
        self.server.kill();
    }

    async fn restart(&mut self, _server: usize) -> Result<(), LabError> {
        self.server.restart().await
    }

    async fn restart_empty(&mut self, _server: usize) -> Result<(), LabError> {
        self.server.restart_empty().await
    }

    async fn refuse_writes(&mut self, _server: usize) -> Result<bool, LabError> {
        self.server.replicate_nobody().await.map(|()| true)
    }
}
