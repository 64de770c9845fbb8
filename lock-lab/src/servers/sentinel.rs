//! A primary, its replicas, and the Sentinels that put a replica in its place when it fails.

use std::{collections::BTreeMap, time::Duration};

use lock_core::Clock;

use super::{Redis, RedisOptions, ServerCertificate, redis::RedisKind, until::RetryLimit};
use crate::LabError;

/// How many Sentinels there are, and how many of them must agree that the primary is down.
const SENTINELS: usize = 3;
const QUORUM: usize = 2;
const REPLICAS: usize = 2;
/// In memory, replicated at once; a replica notices a dead primary soon.
const NODE: [&str; 10] = [
    "--save",
    "",
    "--appendonly",
    "no",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "1",
    "--repl-timeout",
    "5",
];
/// How long a forced failover may take before it is ordered again: more than `failover-timeout`, after which a Sentinel gives it
/// up.
const ORDER_LIMIT: Duration = Duration::from_secs(5);
/// How often Sentinels look and talk, in milliseconds. By themselves they take seconds, which is what a failover would
/// then mostly consist of. The last one is how long a Sentinel that stood still for two seconds only looks on (TILT mode); by
/// itself it is 30 s, which begin anew each time that the machine stands still.
const PERIODS: [&str; 10] =
    ["INFO-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200", "PING-PERIOD", "200", "TILT-PERIOD", "2000"];

/// How the primary of a [`Sentinel`] arrangement treats its replicas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SentinelOptions {
    /// Refuses writes while fewer replicas than this have been heard of within the last second
    /// (`min-replicas-to-write`, with `min-replicas-max-lag 1`). 0 switches it off.
    pub min_replicas_to_write: usize,
    /// Each data node has a wall clock of its own, for [`Redis::set_clock_ahead`].
    pub own_clocks: bool,
    /// What they show to clients and to each other, by TLS then.
    pub tls: Option<ServerCertificate>,
}

impl SentinelOptions {
    /// With another number of replicas that must be heard of.
    #[must_use]
    pub const fn with_min_replicas_to_write(mut self, replicas: usize) -> Self {
        self.min_replicas_to_write = replicas;
        self
    }

    /// With wall clocks of their own for the data nodes, or the machine's.
    #[must_use]
    pub const fn with_own_clocks(mut self, own_clocks: bool) -> Self {
        self.own_clocks = own_clocks;
        self
    }

    /// Serving clients and each other by TLS with that certificate, or without.
    #[must_use]
    pub const fn with_tls(mut self, tls: Option<ServerCertificate>) -> Self {
        self.tls = tls;
        self
    }
}

/// One primary, two replicas, three Sentinels. A dead primary is replaced about two seconds later.
#[derive(Debug)]
pub struct Sentinel {
    nodes: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinel {
    /// What the Sentinels call the primary.
    pub const NAME: &'static str = "lab";

    /// Starts them; they are back when each Sentinel knows both replicas and both others, and could fail over.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when redis or its Sentinel is not installed.
    pub async fn start() -> Result<Self, LabError> {
        Self::start_with(SentinelOptions::default()).await
    }

    /// As [`Sentinel::start`], with options.
    ///
    /// # Errors
    /// As those of [`Sentinel::start`].
    pub async fn start_with(options: SentinelOptions) -> Result<Self, LabError> {
        let least = options.min_replicas_to_write.to_string();
        let mut given = NODE.to_vec();
        given.extend(["--min-replicas-to-write", &least, "--min-replicas-max-lag", "1"]);
        let told = RedisOptions::default().with_tls(options.tls);
        let node = told.with_own_clock(options.own_clocks);
        let primary = Redis::start_as(RedisKind::Server, node, &given, &[]).await?;
        let port = primary.client_port().to_string();
        let mut nodes = vec![primary];
        for _ in 0..REPLICAS {
            nodes.push(Redis::start_as(RedisKind::Server, node, &given, &["--replicaof", "127.0.0.1", &port]).await?);
        }
        let mut sentinels = Vec::new();
        for _ in 0..SENTINELS {
            sentinels.push(Redis::start_as(RedisKind::Sentinel(&configuration(&port)), told, &[], &[]).await?);
        }
        let arrangement = Self { nodes, sentinels };
        for index in 0..SENTINELS {
            arrangement.hurry(index).await?;
        }
        arrangement.wait_until_ready().await?;
        Ok(arrangement)
    }

    /// Their URL for `Locks::connect`: the Sentinels and the name of the primary.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Self::NAME)
    }

    /// The data nodes; number 0 was the primary at the start.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The Sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// Kills data node `index` with SIGKILL. Does nothing when it is down.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    /// Kills data node `index` if it runs and starts it again, with nothing, as a replica of the present primary; as the
    /// primary when it was that and no other has taken its place.
    ///
    /// # Errors
    /// As those of [`Sentinel::start`].
    pub async fn restart(&mut self, index: usize) -> Result<(), LabError> {
        self.nodes[index].kill();
        let primary = self.primary().await.filter(|primary| *primary != index);
        let role = primary.map(|primary| self.nodes[primary].client_port().to_string());
        let role = role.map(|port| ["--replicaof".to_owned(), "127.0.0.1".to_owned(), port].to_vec());
        self.nodes[index].change(role.unwrap_or_default());
        self.nodes[index].restart().await
    }

    /// Kills Sentinel `index` with SIGKILL. Does nothing when it is down.
    pub fn kill_sentinel(&mut self, index: usize) {
        self.sentinels[index].kill();
    }

    /// Kills Sentinel `index` if it runs and starts it again with what it knew.
    ///
    /// # Errors
    /// As those of [`Sentinel::start`].
    pub async fn restart_sentinel(&mut self, index: usize) -> Result<(), LabError> {
        self.sentinels[index].restart().await?;
        self.hurry(index).await
    }

    /// Which data node a majority of the Sentinels calls the primary; it may be down. `None` while they do not agree.
    pub async fn primary(&self) -> Option<usize> {
        let mut votes = BTreeMap::new();
        for sentinel in &self.sentinels {
            let asked = sentinel.ask("SENTINEL GET-MASTER-ADDR-BY-NAME", &[Self::NAME]).await;
            if let Ok((_, port)) = asked.map(|address: (String, u16)| address) {
                *votes.entry(port).or_insert(0) += 1;
            }
        }
        let elected = votes.into_iter().find(|(_, votes)| *votes >= QUORUM).map(|(port, _)| port);
        elected.and_then(|port| self.nodes.iter().position(|node| node.client_port() == port))
    }

    /// Has a replica promoted without any failure and waits for it; returns the new primary. The old one becomes a
    /// replica and breaks its clients' connections.
    ///
    /// # Errors
    /// [`LabError::Control`] when the Sentinels refuse, [`LabError::NotStarted`] when nobody is promoted.
    pub async fn failover(&self) -> Result<usize, LabError> {
        let old = self.primary().await;
        let patience = RetryLimit::with("a forced failover");
        loop {
            // A failover that is under way, or a replica not yet seen, makes it refuse for a while.
            let reason = match self.sentinels[0].ask::<()>("SENTINEL FAILOVER", &[Self::NAME]).await {
                Err(refusal) => refusal.to_string(),
                // One that takes longer, as on a machine that stands still, is given up by the Sentinel and not begun again.
                Ok(()) => match Clock::boot().timeout(ORDER_LIMIT, self.promoted(old)).await {
                    Some(promoted) => return promoted,
                    None => "the Sentinels still name the old one".to_owned(),
                },
            };
            patience.again(reason).await?;
            if self.primary().await.is_some_and(|primary| Some(primary) != old) {
                return self.promoted(old).await;
            }
        }
    }

    /// Waits until the Sentinels call another node than `old` the primary, and it is one; returns it.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when that does not happen.
    pub async fn promoted(&self, old: Option<usize>) -> Result<usize, LabError> {
        let patience = RetryLimit::with("another primary");
        loop {
            let Some(primary) = self.primary().await.filter(|primary| Some(*primary) != old) else {
                patience.again("the Sentinels name none".into()).await?;
                continue;
            };
            match self.nodes[primary].role().await {
                Ok(role) if role == "master" => return Ok(primary),
                role => patience.again(format!("node {primary} has the role {role:?}")).await?,
            }
        }
    }

    /// Waits until there is one primary, all other data nodes follow it, and the Sentinels could fail over. All must run.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when that does not happen.
    pub async fn wait_until_ready(&self) -> Result<(), LabError> {
        let patience = RetryLimit::with("redis with Sentinels");
        while let Err(reason) = self.ready().await {
            patience.again(reason).await?;
        }
        Ok(())
    }

    async fn ready(&self) -> Result<(), String> {
        let primary = self.primary().await.ok_or("the Sentinels do not agree on a primary")?;
        for (index, node) in self.nodes.iter().enumerate() {
            let state = node.info("replication").await.map_err(|error| error.to_string())?;
            let field = |key: &str| state.get(key).cloned().unwrap_or_default();
            let follows = field("master_link_status") == "up"
                && field("master_sync_in_progress") == "0"
                && field("master_port") == self.nodes[primary].client_port().to_string();
            let online = (0..REPLICAS).all(|replica| field(&format!("slave{replica}")).contains("state=online"));
            if !(if index == primary { field("role") == "master" && online } else { follows }) {
                return Err(format!("node {index}: {state:?}"));
            }
        }
        for sentinel in &self.sentinels {
            knows_all(sentinel).await?;
        }
        Ok(())
    }

    async fn hurry(&self, index: usize) -> Result<(), LabError> {
        self.sentinels[index].ask("SENTINEL DEBUG", &PERIODS).await
    }
}

/// Whether this Sentinel knows both replicas and both others as up, and has a quorum for a failover.
async fn knows_all(sentinel: &Redis) -> Result<(), String> {
    let fail = |error: LabError| error.to_string();
    let state: BTreeMap<String, String> = sentinel.ask("SENTINEL MASTER", &[Sentinel::NAME]).await.map_err(fail)?;
    let field = |key: &str| state.get(key).map(String::as_str).unwrap_or_default();
    let others = (SENTINELS - 1).to_string();
    if field("num-slaves") != REPLICAS.to_string()
        || field("num-other-sentinels") != others
        || field("flags") != "master"
    {
        return Err(format!("{}: {state:?}", sentinel.label()));
    }
    let replicas: Vec<BTreeMap<String, String>> =
        sentinel.ask("SENTINEL REPLICAS", &[Sentinel::NAME]).await.map_err(fail)?;
    if let Some(replica) = replicas.iter().find(|replica| replica.get("flags").is_none_or(|flags| flags != "slave")) {
        return Err(format!("{}: {replica:?}", sentinel.label()));
    }
    let answer: String = sentinel.ask("SENTINEL CKQUORUM", &[Sentinel::NAME]).await.map_err(fail)?;
    if answer.starts_with("OK") { Ok(()) } else { Err(answer) }
}

fn configuration(primary: &str) -> String {
    let name = Sentinel::NAME;
    format!(
        "sentinel monitor {name} 127.0.0.1 {primary} {QUORUM}\nsentinel down-after-milliseconds {name} 500\n\
         sentinel failover-timeout {name} 2000\nsentinel parallel-syncs {name} {REPLICAS}\n"
    )
}
