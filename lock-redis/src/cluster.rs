//! A Redis cluster: each lock lives in one slot, and each slot on one primary, which may change.
//!
//! A [`Node`] stands for a *shard*, a primary with its replicas. When one of the replicas takes over, the node finds it by
//! asking the other servers; only when a slot moves to another shard do its locks have another node.

pub(crate) mod slots;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{
    StreamExt,
    stream::{self, BoxStream, FuturesUnordered},
};
use lock_core::{BootInstant, Context};
use redis::Value;

use self::slots::SlotLayout;
use crate::node::{
    Address, AddressMap, FailureKind, Node, NodeConfig, NodeError, PrimaryDiscovery, Redirect, accepted, ask_once,
};

/// How many servers beside those of a shard are asked which of these is the primary.
const WITNESSES: usize = 3;

/// A connection to all shards of a Redis Cluster. Clones share it.
#[derive(Clone)]
pub(crate) struct Cluster {
    shared: Arc<ClusterState>,
}

/// The state that the clones of a [`Cluster`] and its background tasks share.
struct ClusterState {
    /// What holds for each server, beside its address.
    config: NodeConfig,
    /// Those that were given.
    seeds: Vec<Address>,
    addresses: AddressMap,
    context: Context,
    state: Mutex<Topology>,
    /// Held while asking who has what: when that succeeded the last time.
    asking: tokio::sync::Mutex<Option<BootInstant>>,
    /// Somebody is about to ask.
    is_asking: AtomicBool,
}

/// Which shard of a cluster has which slot, and the [`Node`] of each shard.
#[derive(Default)]
struct Topology {
    layout: SlotLayout,
    nodes: HashMap<u64, Node>,
    closed: bool,
}

/// Finds the primary of one shard by asking servers of its cluster.
struct ShardDiscovery {
    shared: Weak<ClusterState>,
    shard: u64,
    addresses: AddressMap,
}

impl Cluster {
    /// Asks the servers at `seeds` who has what, and connects to all primaries.
    pub(crate) async fn connect(
        config: NodeConfig,
        seeds: Vec<Address>,
        addresses: AddressMap,
        context: Context,
    ) -> Result<Self, NodeError> {
        let shared = ClusterState {
            config,
            seeds,
            addresses,
            context,
            state: Mutex::default(),
            asking: tokio::sync::Mutex::default(),
            is_asking: AtomicBool::new(false),
        };
        let cluster = Self { shared: Arc::new(shared) };
        // So that the first acquisition is one round trip, too. A shard that is out hinders those of the others not.
        let nodes = cluster.all().await?;
        for connected in futures::future::join_all(nodes.iter().map(Node::connection)).await {
            // A server that deletes locks does, once it is asked for one of them.
            if let Err(error) = connected
                && error.kind() == FailureKind::Evicting
            {
                return Err(error);
            }
        }
        Ok(cluster)
    }

    /// What holds for each server.
    pub(crate) fn config(&self) -> &NodeConfig {
        &self.shared.config
    }

    /// The nodes of all shards, as the servers say now.
    pub(crate) async fn all(&self) -> Result<Vec<Node>, NodeError> {
        self.shared.refresh().await?;
        Ok(self.shared.open(|state| state.nodes.values().cloned().collect()))
    }

    /// The node of the shard that has the slot of this key.
    pub(crate) fn node_of(&self, key: &str) -> Node {
        let slot = slots::slot_of(key);
        let (owner, any) = self.shared.open(|state| {
            let owner = state.layout.owner(slot).and_then(|shard| state.nodes.get(&shard)).cloned();
            let any = || state.layout.keys().find_map(|shard| state.nodes.get(&shard)).cloned();
            (owner.clone(), owner.is_none().then(any).flatten())
        });
        owner.or(any).unwrap_or_else(|| {
            // Nobody has the slot, as far as is known: any server says who has it by now, or why nobody does.
            self.shared.look_again();
            Node::new(self.shared.config.clone(), self.shared.context.clone())
        })
    }

    /// Where to go from a server that has sent us away, if anywhere.
    pub(crate) async fn redirected(&self, redirect: &Redirect, key: &str, from: &Node) -> Option<Node> {
        let known = match redirect {
            Redirect::Moved { slot, to } => {
                let moved = to.as_ref().and_then(|to| self.shared.moved(*slot, to));
                // Where one slot has moved, others may have.
                self.shared.look_again();
                moved
            }
            Redirect::Ask { to } => self.shared.node_at(to),
        };
        let to = match known {
            Some(node) => node,
            None => {
                self.shared.refresh().await.ok()?;
                match redirect {
                    Redirect::Moved { .. } => self.node_of(key),
                    Redirect::Ask { to } => self.shared.node_at(to)?,
                }
            }
        };
        if to.is(from) {
            // The same shard: it has another primary, which is found by connecting anew.
            to.look_again();
        }
        Some(to)
    }

    /// Closes the nodes of all shards.
    pub(crate) fn close(&self) {
        let nodes = self.shared.open(|state| {
            state.closed = true;
            std::mem::take(&mut state.nodes)
        });
        nodes.values().for_each(Node::close);
    }
}

impl ClusterState {
    fn open<T>(&self, work: impl FnOnce(&mut Topology) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn moved(&self, slot: u16, to: &Address) -> Option<Node> {
        self.open(|state| state.layout.moved(slot, to).and_then(|shard| state.nodes.get(&shard)).cloned())
    }

    fn node_at(&self, address: &Address) -> Option<Node> {
        self.open(|state| state.layout.shard_at(address).and_then(|shard| state.nodes.get(&shard)).cloned())
    }

    /// Asks who has what, unless somebody has since this was called. Every server may be asked; the first answer counts.
    async fn refresh(self: &Arc<Self>) -> Result<(), NodeError> {
        let since = self.context.clock().now();
        let mut asked = self.asking.lock().await;
        if asked.is_some_and(|at| at >= since) {
            return Ok(());
        }
        let mut answers: FuturesUnordered<_> =
            self.witnesses(&[], usize::MAX).into_iter().map(|address| Arc::clone(self).ask(address)).collect();
        let mut failure = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(()) => {
                    *asked = Some(self.context.clock().now());
                    return Ok(());
                }
                // What waiting does not help is the better one to report: it is a mistake in the settings.
                Err(error) if failure.is_none() || !error.is_temporary() => failure = Some(error),
                Err(_) => {}
            }
        }
        Err(failure.unwrap_or_else(NodeError::no_primary))
    }

    /// Asks who has what in the background, once however many want to know.
    fn look_again(self: &Arc<Self>) {
        if self.is_asking.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = Arc::clone(self);
        self.context.spawn(async move {
            if let Err(error) = shared.refresh().await {
                tracing::debug!(%error, "nobody says who has which slot");
            }
            shared.is_asking.store(false, Ordering::Release);
        });
    }

    /// Those of `first`, and some others, in no particular order.
    fn witnesses(&self, first: &[Address], others: usize) -> Vec<Address> {
        let known = self.open(|state| state.layout.addresses().cloned().collect::<Vec<_>>());
        let mut rest: Vec<_> =
            known.into_iter().chain(self.seeds.iter().cloned()).filter(|at| !first.contains(at)).collect();
        rest.sort_unstable();
        rest.dedup();
        fastrand::shuffle(&mut rest);
        rest.truncate(others);
        [first, &rest].concat()
    }

    /// Asks one server who has what, and learns from that.
    async fn ask(self: Arc<Self>, address: Address) -> Result<(), NodeError> {
        let questions = [("INFO", "CLUSTER"), ("SLOTS", "CLUSTER")].map(|(what, command)| {
            let mut question = redis::cmd(command);
            question.arg(what);
            question
        });
        let (limit, at) = (self.config.connect_timeout, self.addresses.reached(&address));
        let asking = ask_once(&self.config, at, &questions);
        let late = || NodeError::connect_timed_out(limit, &*self.config.network);
        let answered = self.context.clock().answer_timeout(limit, asking).await.ok_or_else(late)?;
        let answers = answered.and_then(|answers| answers.into_iter().map(accepted).collect::<Result<Vec<_>, _>>());
        let answers = answers.map_err(NodeError::not_connected)?;
        let [Value::BulkString(info), slots] = answers.as_slice() else {
            return Err(NodeError::nonsense(&Value::Array(answers)).not_applied());
        };
        // One that is cut off from the others says so, and what it knows of them may be out of date.
        // Safeguard: a server that is cut off from its cluster is not believed (Redis)
        if !String::from_utf8_lossy(info).contains("cluster_state:ok") {
            return Err(NodeError::cluster_is_down(&address));
        }
        let ranges = slots::ranges(slots, &address).ok_or_else(|| NodeError::nonsense(slots).not_applied())?;
        self.learn(&ranges);
        Ok(())
    }

    fn learn(self: &Arc<Self>, ranges: &[slots::SlotRange]) {
        let dropped: Vec<Node> = self.open(|state| {
            if state.closed {
                return Vec::new();
            }
            state.layout = state.layout.learn(ranges);
            for shard in state.layout.keys() {
                state.nodes.entry(shard).or_insert_with(|| self.node(shard));
            }
            let layout = &state.layout;
            let gone = state.nodes.extract_if(|shard, _| layout.members(*shard).is_empty());
            gone.map(|(_, node)| node).collect()
        });
        // Those who still use one of these are sent on by its server.
        drop(dropped);
    }

    fn node(self: &Arc<Self>, shard: u64) -> Node {
        let guide = ShardDiscovery { shared: Arc::downgrade(self), shard, addresses: self.addresses.clone() };
        Node::following(self.config.clone(), self.context.clone(), Arc::new(guide))
    }
}

impl PrimaryDiscovery for ShardDiscovery {
    fn candidates(&self) -> BoxStream<'static, Result<Address, NodeError>> {
        let Some(shared) = self.shared.upgrade() else { return stream::empty().boxed() };
        let shard = self.shard;
        let members = shared.open(|state| {
            let members = state.layout.members(shard).iter();
            members.map(|member| member.address.clone()).collect::<Vec<_>>()
        });
        let witnesses = shared.witnesses(&members, WITNESSES).into_iter();
        let ask = |witness: Address| {
            let shared = Arc::clone(&shared);
            async move {
                Arc::clone(&shared).ask(witness).await?;
                let primary = shared.open(|state| state.layout.primary(shard).cloned());
                primary.ok_or_else(NodeError::no_primary)
            }
        };
        witnesses.map(ask).collect::<FuturesUnordered<_>>().boxed()
    }

    /// A primary that was replaced knows that it was as soon as it hears of the others, and until then says that it is cut off.
    fn is_in_order(&self) -> bool {
        false
    }

    fn addresses(&self) -> &AddressMap {
        &self.addresses
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("seeds", &self.shared.seeds).finish_non_exhaustive()
    }
}
