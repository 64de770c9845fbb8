//! The nodes of a deployment, and what this client knows of each of them.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use lock_core::{Cleanup, Clock, Context, Error};
use lock_redis::node::Node;

use crate::{
    config::{Config, address},
    nodes::{roster::Members, single_flight::SingleFlight, undo_queue::UndoQueue},
    protocol::{deployment::Deployment, votes::majority},
};

/// The nodes of a deployment as one connection has them: their servers, which members these are, and what is still to be undone.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) config: Config,
    /// The server at each place; an operator may put another server there.
    nodes: Mutex<Vec<Node>>,
    /// How many servers were put in the place of others.
    replacements: AtomicU64,
    /// For each node, what is still to be given back there.
    pub(crate) undo_queues: Vec<UndoQueue>,
    /// For each node, whether a vote has waited for it in vain and it has not answered since.
    late: Vec<AtomicBool>,
    /// For each node, the request that finds out whether the node works again.
    pub(crate) probes: Vec<SingleFlight>,
    /// Which member of the deployment each node is.
    pub(crate) members: Members,
    /// The record of the deployment; `None` until the client has connected.
    deployment: Mutex<Option<Arc<Deployment>>>,
    pub(crate) context: Context,
    /// The task that finds out which members the unknown servers are.
    pub(crate) identifying: SingleFlight,
}

impl Quorum {
    pub(crate) fn new(config: Config, context: Context) -> Self {
        let node = |node| Node::new(node, context.clone());
        let nodes: Vec<Node> = config.limited_nodes().map(node).collect();
        Self {
            undo_queues: nodes.iter().map(|_| UndoQueue::default()).collect(),
            late: nodes.iter().map(|_| AtomicBool::new(false)).collect(),
            probes: nodes.iter().map(|_| SingleFlight::default()).collect(),
            members: Members::new(nodes.len()),
            deployment: Mutex::default(),
            identifying: SingleFlight::default(),
            context,
            nodes: Mutex::new(nodes),
            replacements: AtomicU64::new(0),
            config,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.undo_queues.len()
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.len())
    }

    /// The server at this place.
    pub(crate) fn node(&self, node: usize) -> Node {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[node].clone()
    }

    /// The servers at all places.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The address of a node, for messages.
    pub(crate) fn address(&self, node: usize) -> String {
        address(self.node(node).config())
    }

    /// Gives up all connections; nothing connects any more.
    pub(crate) fn close(&self) {
        self.nodes().iter().for_each(Node::close);
    }

    /// Puts another server at this place, to be reached with the same settings.
    pub(crate) fn replace_node(&self, node: usize, host: &str, port: u16) {
        let mut config = self.node(node).config().clone();
        (config.host, config.port) = (host.to_owned(), port);
        let server = Node::new(config, self.context.clone());
        let before = mem::replace(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[node], server);
        before.close();
        self.replacements.fetch_add(1, Ordering::Release);
        self.set_late(node, false);
    }

    /// How many servers were put in the place of others.
    pub(crate) fn replacements(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    pub(crate) fn deployment(&self) -> Option<Arc<Deployment>> {
        self.deployment.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_deployment(&self, deployment: Arc<Deployment>) {
        *self.deployment.lock().unwrap_or_else(PoisonError::into_inner) = Some(deployment);
    }

    /// The longest ttl of the deployment.
    pub(crate) fn max_ttl(&self) -> Duration {
        self.deployment().map_or(Config::MAX_TTL, |deployment| deployment.max_ttl)
    }

    /// The ttl of a request that names none.
    pub(crate) fn ttl(&self) -> Duration {
        self.config.default_ttl(self.max_ttl())
    }

    pub(crate) const fn cleanup(&self) -> &Cleanup {
        self.context.cleanup()
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.context.clock()
    }

    /// Whether `node` does not answer, or is not known as a member.
    pub(crate) fn is_failing(&self, node: usize) -> bool {
        self.node(node).failing_since().is_some() || !self.members.is_member(node)
    }

    /// Whether nothing can be decided without a failing node.
    pub(crate) fn needs_the_failing(&self) -> bool {
        self.are_needed(|node| self.is_failing(node))
    }

    /// Whether `node` is failing, or votes have waited for it in vain. A node that stands still counts as failing only when a
    /// request to it has taken its whole limit, and until then each split vote would wait for it anew.
    pub(crate) fn is_silent(&self, node: usize) -> bool {
        self.is_failing(node) || self.late[node].load(Ordering::Relaxed)
    }

    /// Whether nothing can be decided without a silent node.
    pub(crate) fn needs_the_silent(&self) -> bool {
        self.are_needed(|node| self.is_silent(node))
    }

    fn are_needed(&self, is_among: impl Fn(usize) -> bool) -> bool {
        (0..self.len()).filter(|&node| !is_among(node)).count() < self.majority()
    }

    /// Shows to the program's metrics how many nodes answer and how many are silent.
    pub(crate) fn show(&self) {
        self.context.show_quorum(|| {
            let silent = (0..self.len()).filter(|&node| self.is_silent(node)).count();
            (self.len() - silent, silent)
        });
    }

    /// Notes that a vote has waited for `node` in vain, or that `node` has answered.
    pub(crate) fn set_late(&self, node: usize, is_late: bool) {
        self.late[node].store(is_late, Ordering::Relaxed);
    }

    /// The error of a request that found no majority, with the reason of each node.
    pub(crate) fn unavailable(&self, what: &str, reasons: impl IntoIterator<Item = (usize, String)>) -> Error {
        self.no_majority(&format!("{} nodes {what}", self.len()), reasons)
    }

    /// As [`Quorum::unavailable`], where `of_whom` also says of whom there is no majority.
    pub(crate) fn no_majority(&self, of_whom: &str, reasons: impl IntoIterator<Item = (usize, String)>) -> Error {
        let reason = |(node, reason): (usize, String)| format!("{}: {reason}", self.address(node));
        let reasons: Vec<String> = reasons.into_iter().map(reason).collect();
        let reason = format!("no majority of the {of_whom} ({})", reasons.join("; "));
        if self.are_needed(|node| self.node(node).is_refusing()) {
            return Error::refused(self.config.url(), reason, None);
        }
        Error::no_answer(self.config.url(), reason)
    }
}
