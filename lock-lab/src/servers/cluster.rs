//! A Redis cluster: three primaries, each with a replica.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::try_join_all;
use lock_core::Clock;

use super::{Redis, RedisOptions, SILENCE, ServerCertificate, redis::RedisKind, until::RetryLimit};
use crate::LabError;

/// Primaries, and as many replicas: node `n + PRIMARIES` starts as the replica of node `n`.
const PRIMARIES: usize = 3;
const SLOTS: u16 = 16_384;
/// How long an ordered failover, or a meeting, may take before it is ordered again.
const ORDER_LIMIT: Duration = Duration::from_secs(1);
/// Between two looks whether nodes know each other.
const PAUSE: Duration = Duration::from_millis(5);
/// In memory, replicated at once. A replica is promoted however long it has not heard of its primary: a fault may last.
const NODE: [&str; 14] = [
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
    "--cluster-node-timeout",
    "1000",
    "--cluster-replica-validity-factor",
    "0",
];

/// Three primaries and three replicas that share the slots. A dead primary is replaced about two seconds later.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
    ids: Vec<String>,
}

/// How a [`Cluster`] is started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// Each node has a wall clock of its own, for [`Redis::set_clock_ahead`].
    pub own_clocks: bool,
    /// What they show to clients and to each other, by TLS then.
    pub tls: Option<ServerCertificate>,
    /// They take each other for dead only after ten seconds of silence: where nothing is to fail over, on a machine that may stand still.
    pub bears_silence: bool,
}

impl ClusterOptions {
    /// Bearing ten seconds of silence of each other, or the one second of a cluster that soon fails over.
    #[must_use]
    pub const fn with_bears_silence(mut self, bears_silence: bool) -> Self {
        self.bears_silence = bears_silence;
        self
    }

    /// With wall clocks of their own for the nodes, or the machine's.
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

/// One node of a Redis Cluster, as a line of `CLUSTER NODES` describes it.
#[derive(Debug)]
struct ClusterNode {
    port: u16,
    flags: String,
    linked: bool,
    slots: Vec<(u16, u16)>,
}

impl Cluster {
    /// Starts them; they are back when each node sees all others and the cluster serves all slots.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when redis is not installed.
    pub async fn start() -> Result<Self, LabError> {
        Self::start_with(ClusterOptions::default()).await
    }

    /// As [`Cluster::start`], with options.
    ///
    /// # Errors
    /// As those of [`Cluster::start`].
    pub async fn start_with(options: ClusterOptions) -> Result<Self, LabError> {
        let mut nodes = Vec::new();
        let mut ids = Vec::new();
        let told = RedisOptions::default().with_own_clock(options.own_clocks).with_tls(options.tls);
        for _ in 0..PRIMARIES * 2 {
            let node = Redis::start_as(RedisKind::Member, told, &NODE, &[]).await?;
            ids.push(node.ask("CLUSTER MYID", &[]).await?);
            nodes.push(node);
        }
        let cluster = Self { nodes, ids };
        cluster.form().await?;
        cluster.wait_until_ready().await?;
        if options.bears_silence {
            for node in &cluster.nodes {
                () = node.ask("CONFIG SET", &["cluster-node-timeout", &SILENCE.to_string()]).await?;
            }
        }
        Ok(cluster)
    }

    /// Their URL for `Locks::connect`: all nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(|one| format!("127.0.0.1:{}", one.port())).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// All nodes; at the start numbers 0, 1, 2 are primaries and 3, 4, 5 their replicas.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// [`LabError::Control`] when no node answers.
    pub async fn slot(&self, key: &str) -> Result<u16, LabError> {
        self.any("CLUSTER KEYSLOT", &[key]).await
    }

    /// The primary of a slot, as most nodes that answer see it; it may be down. `None` when nobody has the slot.
    pub async fn owner(&self, slot: u16) -> Option<usize> {
        let mut votes: BTreeMap<usize, usize> = BTreeMap::new();
        for node in &self.nodes {
            for member in members(node).await.unwrap_or_default() {
                if member.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
                    && let Some(index) = self.nodes.iter().position(|node| node.port() == member.port)
                {
                    *votes.entry(index).or_default() += 1;
                }
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(index, _)| index)
    }

    /// The primary of a key's slot, as [`Cluster::owner`].
    ///
    /// # Errors
    /// [`LabError::Control`] when no node answers.
    pub async fn primary(&self, key: &str) -> Result<Option<usize>, LabError> {
        Ok(self.owner(self.slot(key).await?).await)
    }

    /// The nodes that replicate node `primary`.
    ///
    /// # Errors
    /// [`LabError::Control`] when no node answers.
    pub async fn replicas(&self, primary: usize) -> Result<Vec<usize>, LabError> {
        let lines: Vec<String> = self.any("CLUSTER REPLICAS", &[&self.ids[primary]]).await?;
        let index = |line: &String| self.ids.iter().position(|id| line.starts_with(id.as_str()));
        Ok(lines.iter().filter_map(index).collect())
    }

    /// Kills node `index` with SIGKILL. Does nothing when it is down.
    pub fn kill(&mut self, index: usize) {
        self.nodes[index].kill();
    }

    /// Kills node `index` if it runs and starts it again: the same member of the cluster, without its keys.
    ///
    /// # Errors
    /// As those of [`Cluster::start`].
    pub async fn restart(&mut self, index: usize) -> Result<(), LabError> {
        self.nodes[index].restart().await
    }

    /// Has replica `replica` take its primary's place without any failure and without losing a write, and waits until
    /// the cluster serves again.
    ///
    /// # Errors
    /// [`LabError::Control`] when it refuses, [`LabError::NotStarted`] when it is not promoted.
    pub async fn failover(&self, replica: usize) -> Result<(), LabError> {
        let patience = RetryLimit::with("a forced failover");
        loop {
            let reason = match self.nodes[replica].ask::<()>("CLUSTER FAILOVER", &[]).await {
                Err(refusal) => refusal.to_string(),
                // The others give no vote soon after their last one for the same slots; then it has to be ordered again.
                Ok(()) => match Clock::boot().timeout(ORDER_LIMIT, self.promoted(replica)).await {
                    Some(promoted) => return promoted,
                    None => format!("node {replica} is still a replica"),
                },
            };
            patience.again(reason).await?;
            // One that took its time makes the next order one to a primary, which refuses it.
            if self.nodes[replica].role().await.is_ok_and(|role| role == "master") {
                return Ok(());
            }
        }
    }

    /// Waits until node `index` is a primary to itself.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when that does not happen.
    pub async fn promoted(&self, index: usize) -> Result<(), LabError> {
        let patience = RetryLimit::with("another primary");
        loop {
            match self.nodes[index].role().await {
                Ok(role) if role == "master" => return Ok(()),
                role => patience.again(format!("node {index} has the role {role:?}")).await?,
            }
        }
    }

    /// Opens a slot for its migration: its primary asks those whose keys it no longer has to go to node `to`. A script
    /// over keys of which only some have moved gets `TRYAGAIN`.
    ///
    /// # Errors
    /// [`LabError::Control`] when a node refuses.
    pub async fn begin_migration(&self, slot: u16, to: usize) -> Result<(), LabError> {
        let from = self.slot_owner(slot).await?;
        let number = slot.to_string();
        () = self.nodes[to].ask("CLUSTER SETSLOT", &[&number, "IMPORTING", &self.ids[from]]).await?;
        self.nodes[from].ask("CLUSTER SETSLOT", &[&number, "MIGRATING", &self.ids[to]]).await
    }

    /// Moves these keys of an open slot; those that are not there are passed over.
    ///
    /// # Errors
    /// [`LabError::Control`] when a node refuses.
    pub async fn migrate_keys(&self, slot: u16, to: usize, keys: &[&str]) -> Result<(), LabError> {
        if keys.is_empty() {
            return Ok(());
        }
        let from = self.slot_owner(slot).await?;
        let port = self.nodes[to].port().to_string();
        let mut arguments = vec!["127.0.0.1", &port, "", "0", "5000", "KEYS"];
        arguments.extend(keys);
        self.nodes[from].ask("MIGRATE", &arguments).await
    }

    /// Moves what is left of an open slot and gives it to node `to`.
    ///
    /// # Errors
    /// [`LabError::Control`] when a node refuses.
    pub async fn finish_migration(&self, slot: u16, to: usize) -> Result<(), LabError> {
        let from = self.slot_owner(slot).await?;
        let number = slot.to_string();
        loop {
            let keys: Vec<String> = self.nodes[from].ask("CLUSTER GETKEYSINSLOT", &[&number, "100"]).await?;
            if keys.is_empty() {
                break;
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.migrate_keys(slot, to, &keys).await?;
        }
        // The new owner first: were it the old one, nobody would have the slot in between.
        () = self.nodes[to].ask("CLUSTER SETSLOT", &[&number, "NODE", &self.ids[to]]).await?;
        self.nodes[from].ask("CLUSTER SETSLOT", &[&number, "NODE", &self.ids[to]]).await
    }

    /// Waits until every node sees all others as up and knows which of them are replicas, all slots are served, and each primary
    /// has a replica that follows. All must run.
    ///
    /// # Errors
    /// [`LabError::NotStarted`] when that does not happen.
    pub async fn wait_until_ready(&self) -> Result<(), LabError> {
        let patience = RetryLimit::with("a redis cluster");
        while let Err(reason) = self.ready().await {
            patience.again(reason).await?;
        }
        Ok(())
    }

    async fn ready(&self) -> Result<(), String> {
        let fail = |error: LabError| error.to_string();
        let mut primaries = BTreeSet::new();
        for node in &self.nodes {
            let state: String = node.ask("CLUSTER INFO", &[]).await.map_err(fail)?;
            if !state.contains("cluster_state:ok") || !state.contains("cluster_slots_ok:16384") {
                return Err(format!("{}: {state}", node.label()));
            }
            let seen = members(node).await.map_err(fail)?;
            let up = |member: &ClusterNode| {
                member.linked && !member.flags.contains("fail") && !member.flags.contains("handshake")
            };
            // A replica counts as a primary without slots for whoever has not heard yet what it is.
            let has_place = |member: &ClusterNode| !member.slots.is_empty() || member.flags.contains("slave");
            if seen.len() != self.nodes.len() || !seen.iter().all(|member| up(member) && has_place(member)) {
                return Err(format!("{}: {seen:?}", node.label()));
            }
            let leads = |member: &&ClusterNode| member.flags.contains("master") && !member.slots.is_empty();
            primaries.insert(seen.iter().filter(leads).map(|member| member.port).collect::<BTreeSet<u16>>());
        }
        if primaries.len() != 1 || primaries.first().is_none_or(|ports| ports.len() != PRIMARIES) {
            return Err(format!("the primaries, as the nodes see them: {primaries:?}"));
        }
        let ports = primaries.pop_first().unwrap_or_default();
        for node in &self.nodes {
            let state = node.info("replication").await.map_err(fail)?;
            let field = |key: &str| state.get(key).map(String::as_str).unwrap_or_default();
            let leads = field("role") == "master" && field("slave0").contains("state=online");
            let follows = field("role") == "slave" && field("master_link_status") == "up";
            if !(if ports.contains(&node.port()) { leads } else { follows }) {
                return Err(format!("{}: {state:?}", node.label()));
            }
        }
        Ok(())
    }

    /// Makes one cluster of nodes that know nothing of each other.
    async fn form(&self) -> Result<(), LabError> {
        let share = SLOTS / u16::try_from(PRIMARIES).unwrap_or(1);
        let mut first = 0;
        for (index, node) in self.nodes.iter().enumerate() {
            // Different from the start, or the nodes would spend time on settling who gives way.
            () = node.ask("CLUSTER SET-CONFIG-EPOCH", &[&(index + 1).to_string()]).await?;
            if index < PRIMARIES {
                let last = if index + 1 == PRIMARIES { SLOTS - 1 } else { first + share - 1 };
                () = node.ask("CLUSTER ADDSLOTSRANGE", &[&first.to_string(), &last.to_string()]).await?;
                first = last + 1;
            }
        }
        try_join_all(self.nodes[1..].iter().map(|other| self.introduce(other))).await?;
        for index in 0..PRIMARIES {
            let replica = &self.nodes[index + PRIMARIES];
            let patience = RetryLimit::with("a redis cluster");
            // Refused until the two have heard of each other, which they do by the first node.
            while let Err(refusal) = replica.ask::<()>("CLUSTER REPLICATE", &[&self.ids[index]]).await {
                patience.again(refusal.to_string()).await?;
            }
        }
        Ok(())
    }

    /// Has the first node and another one know each other. A meeting that takes longer than `cluster-node-timeout`, as on a
    /// machine that stands still, is forgotten by the nodes, and has to be ordered again.
    async fn introduce(&self, other: &Redis) -> Result<(), LabError> {
        let (first, patience) = (&self.nodes[0], RetryLimit::with("a redis cluster"));
        let (port, bus) = (other.client_port().to_string(), other.bus().to_string());
        loop {
            () = first.ask("CLUSTER MEET", &["127.0.0.1", &port, &bus]).await?;
            let know_each_other = async {
                while !(knows(first, other).await && knows(other, first).await) {
                    Clock::boot().sleep(PAUSE).await;
                }
            };
            if Clock::boot().timeout(ORDER_LIMIT, know_each_other).await.is_some() {
                return Ok(());
            }
            patience.again(format!("{} and {} do not know each other", first.label(), other.label())).await?;
        }
    }

    async fn slot_owner(&self, slot: u16) -> Result<usize, LabError> {
        let nobody = || LabError::control("the cluster", "CLUSTER NODES", &format!("nobody has slot {slot}"));
        self.owner(slot).await.ok_or_else(nobody)
    }

    /// Asks the nodes in turn until one answers.
    async fn any<T: redis::FromRedisValue>(&self, command: &'static str, arguments: &[&str]) -> Result<T, LabError> {
        let mut last = LabError::control("the cluster", command, "there is no node");
        for node in &self.nodes {
            match node.ask(command, arguments).await {
                Ok(answer) => return Ok(answer),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Whether a node takes another one for a member of its cluster.
async fn knows(node: &Redis, other: &Redis) -> bool {
    let is_it = |member: &ClusterNode| member.port == other.port() && !member.flags.contains("handshake");
    members(node).await.is_ok_and(|members| members.iter().any(is_it))
}

async fn members(node: &Redis) -> Result<Vec<ClusterNode>, LabError> {
    let text: String = node.ask("CLUSTER NODES", &[]).await?;
    Ok(text.lines().filter_map(member).collect())
}

/// `<id> <host:port@bus> <flags> <primary> <ping> <pong> <epoch> <link> <slot> …`
fn member(line: &str) -> Option<ClusterNode> {
    let mut words = line.split(' ').skip(1);
    let address = words.next()?;
    let port = address.split('@').next()?.rsplit(':').next()?.parse().ok()?;
    let flags = words.next()?.to_owned();
    let linked = words.nth(4)? == "connected";
    let range = |word: &str| {
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    // A slot that is being migrated stands in brackets besides, with the same number: that is no number here.
    Some(ClusterNode { port, flags, linked, slots: words.filter_map(range).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_cluster_nodes_is_read() {
        let line = "07c3 127.0.0.1:30001@31001 myself,master - 0 1426238316232 2 connected 0-5 7 [9->-07c4]";
        let read = member(line).unwrap();
        assert_eq!((read.port, read.linked, read.slots), (30001, true, vec![(0, 5), (7, 7)]));
        assert!(read.flags.contains("master"));
    }
}
