//! Redlock: independent servers of Redis, of which a majority grants.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    LabError,
    deployment::{Connection, Decides, Description, GroundTruth, Servers, StartOptions, StartFuture, Trials},
    servers::{Redis, RedisNodes, RedisOptions, rights},
    truth::RedisTruth,
};

inventory::submit! {
    Description {
        trials: Trials::All,
        quick: &[
            "holder-stopped",
            "pauses",
            "server-frozen",
            "server-restarted-empty",
            "rolling-restart",
            "rolling-restart-quick",
            "holder-stopped-servers-frozen",
            "member-replaced",
            "member-replaced-minimal-quorum",
            "clients-disagree",
            "packets-dropped",
            "majority-frozen",
        ],
        column: Some("Redlock"),
        ..REDLOCK
    }
}

inventory::submit! {
    Description {
        key: "redlock5",
        title: "Redlock 5",
        servers: 5,
        decides: Decides::Quorum(5),
        start: |options| start(5, false, options),
        // Every case is tried out on three servers.
        trials: Trials::OfTheWay,
        is_in_clear: true,
        is_compared: true,
        strike: Some("one node of five killed"),
        quick: &[
            "holder-killed",
            "server-killed",
            "rolling-restart",
            "server-killed-another-frozen",
            "partition-holder-servers-restarted",
            "partition-holder",
            "reply-cut",
            "clock-jump",
            "clock-jump-minimal-quorum",
        ],
        ..REDLOCK
    }
}

inventory::submit! {
    Description {
        key: "redlock5-durable",
        title: "Redlock 5 durable",
        servers: 5,
        decides: Decides::Quorum(5),
        is_durable: true,
        has_quarantine: false,
        start: |options| start(5, true, options),
        quick: &["rolling-restart-quick"],
        ..REDLOCK
    }
}

const REDLOCK: Description = Description {
    scheme: "redlock",
    answer_limit: Some("node_timeout"),
    servers: 3,
    decides: Decides::Quorum(3),
    has_quarantine: true,
    is_struck: true,
    ..Description::new("redlock3", "Redlock 3", |options| start(3, false, options))
};

/// `is_durable`: each has a write on its disk before it answers, and the deployment was told that they forget nothing.
fn start(count: usize, is_durable: bool, options: StartOptions) -> StartFuture {
    Box::pin(async move {
        let kind = RedisOptions::default().with_durable(is_durable).with_own_clock(options.own_clocks).with_tls(options.tls);
        let max_ttl = options.longest_lease.map(|lease| format!("{}ms", lease.as_millis()));
        let mut settings = vec![("restart_quarantine", if is_durable { "off" } else { "on" })];
        settings.extend(max_ttl.as_deref().map(|ttl| ("max_ttl", ttl)));
        let nodes = RedisNodes::start_as(count, kind, &settings).await?;
        if options.users {
            rights::grant_all(nodes.nodes(), "Redlock").await?;
        }
        let truth = RedisTruth::of_majority(nodes.ports(), options.patience);
        Ok(Box::new(RedlockDeployment { nodes, truth, has_users: options.users }) as Box<dyn Servers>)
    })
}

/// The independent Redis nodes of a Redlock, as the [`Servers`] of a deployment.
#[derive(Debug)]
struct RedlockDeployment {
    nodes: RedisNodes,
    truth: Arc<RedisTruth>,
    has_users: bool,
}

#[async_trait]
impl Servers for RedlockDeployment {
    fn authority(&self, way: &Connection) -> String {
        rights::user(self.has_users) + &way.hosts(&self.ports())
    }

    fn ground_truth(&self) -> Arc<dyn GroundTruth> {
        Arc::clone(&self.truth) as _
    }

    fn redis(&self) -> &[Redis] {
        self.nodes.nodes()
    }

    fn kill(&mut self, server: usize) {
        self.nodes.nodes_mut()[server].kill();
    }

    async fn restart(&mut self, server: usize) -> Result<(), LabError> {
        self.nodes.nodes_mut()[server].restart().await
    }

    async fn restart_empty(&mut self, server: usize) -> Result<(), LabError> {
        self.nodes.nodes_mut()[server].restart_empty().await
    }

    async fn takes_part(&mut self, server: usize) -> Result<(), LabError> {
        self.nodes.wait_until_it_votes(server).await
    }

    async fn repair(&self) -> Result<(), LabError> {
        self.nodes.mark_again().await
    }

    async fn replace(&mut self, server: usize) -> Result<Redis, LabError> {
        let old = self.nodes.replace(server).await?;
        // Safeguard: a new member is looked at in the place of the old one (fault)
        self.truth.replaced(server, self.nodes.nodes()[server].port(), old.pid().is_some());
        Ok(old)
    }

    async fn refuse_writes(&mut self, server: usize) -> Result<bool, LabError> {
        self.redis()[server].replicate_nobody().await.map(|()| true)
    }
}
