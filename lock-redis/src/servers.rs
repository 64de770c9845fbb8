//! Where the locks are: on one server, on whichever of several is the primary, or spread over a cluster.

use std::sync::Arc;

use lock_core::{BootInstant, Context};

use crate::{
    Config,
    cluster::Cluster,
    config::Deployment,
    node::{
        Node, NodeConfig, NodeError, PoolPurpose, PooledConnection, ScriptCall, Value,
        sentinel::{SentinelListener, Sentinels},
    },
};

/// How often a request is sent on from one server to another before that is taken for an outage.
pub(crate) const HOPS: usize = 4;

/// The servers of one connection: a single node, or the shards of a cluster. Clones share them.
#[derive(Clone)]
pub(crate) enum Servers {
    /// One node has all locks.
    One { node: Node, listening: Option<Arc<SentinelListener>> },
    /// Each lock is on the node of its slot.
    Many(Cluster),
}

/// The answer to one script call, when the call was sent, and whether replicas have acknowledged what it wrote.
#[derive(Debug, Clone)]
pub(crate) struct AnsweredCall {
    /// When the burst was sent: the server counts from later on.
    pub(crate) at: BootInstant,
    pub(crate) answer: Result<Value, NodeError>,
    /// Whether as many replicas have what it wrote as have to.
    pub(crate) acknowledged: Result<(), NodeError>,
}

/// Whether a call waits until as many replicas as `min_replicas` says have what it wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It waits, because a validity relies on it: a grant, a renewal.
    Replicated,
    /// It does not, because nothing relies on it: a release, a look.
    PrimaryOnly,
}

impl Servers {
    /// Connects to the servers of `config`.
    pub(crate) async fn connect(config: &Config, context: &Context) -> Result<Self, NodeError> {
        let (at, addresses) = (config.node.clone(), config.address_map.clone());
        let servers = match &config.deployment {
            Deployment::Standalone => Self::One { node: Node::new(at, context.clone()), listening: None },
            Deployment::Sentinel(sentinel) => {
                let sentinels = sentinel.sentinels.iter().map(|one| config.sentinel_at(sentinel, one)).collect();
                let sentinels = Sentinels::new(sentinel.service.clone(), sentinels, addresses, context.clone());
                let node = Node::following(at, context.clone(), Arc::new(sentinels.clone()));
                let listening = Arc::new(sentinels.tell(&node));
                Self::One { node, listening: Some(listening) }
            }
            Deployment::Cluster(nodes) => {
                Self::Many(Cluster::connect(at, nodes.clone(), addresses, context.clone()).await?)
            }
        };
        if let Self::One { node, .. } = &servers {
            node.connection().await?;
        }
        Ok(servers)
    }

    /// What holds for each server.
    pub(crate) fn config(&self) -> &NodeConfig {
        match self {
            Self::One { node, .. } => node.config(),
            Self::Many(cluster) => cluster.config(),
        }
    }

    /// The node that has this key now.
    pub(crate) fn node_of(&self, key: &str) -> Node {
        match self {
            Self::One { node, .. } => node.clone(),
            Self::Many(cluster) => cluster.node_of(key),
        }
    }

    /// The nodes that have all keys between them, as the servers say now.
    pub(crate) async fn all(&self) -> Result<Vec<Node>, NodeError> {
        match self {
            Self::One { node, .. } => Ok(vec![node.clone()]),
            Self::Many(cluster) => cluster.all().await,
        }
    }

    /// Where to send a call on to after `error` at `from`, if the servers say that it belongs somewhere else. It certainly
    /// did not run, so it may be sent again.
    pub(crate) async fn redirected(&self, call: &mut ScriptCall, error: &NodeError, from: &Node) -> Option<Node> {
        let (Self::Many(cluster), Some(redirect)) = (self, error.redirect()) else { return None };
        let node = cluster.redirected(&redirect, call.first_key(), from).await?;
        call.set_asking(redirect.is_for_once());
        Some(node)
    }

    /// Runs one call on the node that has its keys.
    pub(crate) async fn call(&self, call: ScriptCall) -> Result<Value, NodeError> {
        let node = self.node_of(call.first_key());
        let answer = node.call(call.clone()).await;
        if answer.is_ok() {
            return answer;
        }
        let sent = AnsweredCall { at: node.clock().now(), answer, acknowledged: Ok(()) };
        Box::pin(self.follow(call, sent, node, Durability::PrimaryOnly)).await.answer
    }

    /// Runs one call on the node that has its keys, and on as many of its replicas as have to have it.
    pub(crate) async fn call_replicated(&self, call: ScriptCall) -> AnsweredCall {
        let node = self.node_of(call.first_key());
        let sent = send_one(&node, call.clone(), Durability::Replicated).await;
        self.follow(call, sent, node, Durability::Replicated).await
    }

    /// Sends a call on for as long as servers say that it belongs somewhere else. It counts from its first sending.
    async fn follow(
        &self,
        mut call: ScriptCall,
        mut sent: AnsweredCall,
        mut node: Node,
        durability: Durability,
    ) -> AnsweredCall {
        for _ in 0..HOPS {
            let Err(error) = &sent.answer else { break };
            let Some(next) = self.redirected(&mut call, error, &node).await else { break };
            sent = AnsweredCall { at: sent.at, ..send_one(&next, call.clone(), durability).await };
            node = next;
        }
        sent
    }

    /// Runs calls, in one burst for each node, and gives each its answer.
    pub(crate) async fn run(&self, calls: &[ScriptCall], durability: Durability) -> Vec<AnsweredCall> {
        let bursts = self.bursts(calls).into_iter().map(|(node, places)| async move {
            let burst: Vec<_> = places.iter().map(|&place| calls[place].clone()).collect();
            let sent = send(&node, &burst, durability).await;
            let followed =
                burst.into_iter().zip(sent).map(|(call, sent)| self.follow(call, sent, node.clone(), durability));
            (places, futures::future::join_all(followed).await)
        });
        let mut all: Vec<Option<AnsweredCall>> = vec![None; calls.len()];
        for (places, sent) in futures::future::join_all(bursts).await {
            for (place, sent) in places.into_iter().zip(sent) {
                all[place] = Some(sent);
            }
        }
        all.into_iter().flatten().collect()
    }

    /// Which calls go to which node.
    fn bursts(&self, calls: &[ScriptCall]) -> Vec<(Node, Vec<usize>)> {
        let mut bursts: Vec<(Node, Vec<usize>)> = Vec::new();
        for (place, call) in calls.iter().enumerate() {
            let node = self.node_of(call.first_key());
            match bursts.iter_mut().find(|(known, _)| known.is(&node)) {
                Some((_, places)) => places.push(place),
                None => bursts.push((node, vec![place])),
            }
        }
        bursts
    }

    /// Closes all connections. Nothing connects any more.
    pub(crate) fn close(&self) {
        match self {
            Self::One { node, listening } => {
                if let Some(listening) = listening {
                    listening.stop();
                }
                node.close();
            }
            Self::Many(cluster) => cluster.close(),
        }
    }
}

async fn send_one(node: &Node, call: ScriptCall, durability: Durability) -> AnsweredCall {
    let nothing = || AnsweredCall { at: node.clock().now(), answer: Err(NodeError::closed()), acknowledged: Ok(()) };
    send(node, &[call], durability).await.pop().unwrap_or_else(nothing)
}

async fn send(node: &Node, burst: &[ScriptCall], durability: Durability) -> Vec<AnsweredCall> {
    let pooled = match durability {
        Durability::Replicated => node.pooled(PoolPurpose::Renewing).await,
        Durability::PrimaryOnly => node.connection().await.map(PooledConnection::from),
    };
    // Before the sending: the server counts from later on, so the holder gives up first.
    let at = node.clock().now();
    let (answers, acknowledged) = match pooled {
        Ok(pooled) => pooled.run(burst).await,
        Err(error) => (vec![Err(error); burst.len()], Ok(())),
    };
    answers.into_iter().map(|answer| AnsweredCall { at, answer, acknowledged: acknowledged.clone() }).collect()
}
