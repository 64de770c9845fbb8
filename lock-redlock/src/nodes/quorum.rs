//! All nodes at once: what is sent to each of them.

use std::{
    mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, stream::FuturesUnordered};
use lock_core::{Cleanup, Clock, Context, Error};
use lock_redis::node::{Connection, Node, NodeError, ScriptCall, Value};

use crate::{
    config::{Config, address},
    nodes::{
        members::Members,
        replies::{Dispatch, NoReply, Replies, Reply},
        undo_queue::UndoQueue,
    },
    protocol::{deployment::Deployment, enrollments::PendingEnrollment, votes::majority},
};

/// The nodes of a deployment.
#[derive(Debug)]
pub(crate) struct Quorum {
    pub(crate) config: Config,
    /// The server at each place; another one once a member was replaced.
    nodes: Mutex<Vec<Node>>,
    /// How many servers have come to the place of another.
    replacements: AtomicU64,
    /// For each node, what is still to be given back there.
    pub(crate) undo_queues: Vec<UndoQueue>,
    /// For each node, whether a vote has waited for it in vain, and it has answered nothing since.
    late: Vec<AtomicBool>,
    /// For each node, whether a request is under way that finds out whether it works again.
    probes: Vec<SingleFlight>,
    /// Which member each node is.
    pub(crate) members: Members,
    /// What the nodes have in common, known once the client has connected.
    deployment: Mutex<Option<Arc<Deployment>>>,
    pub(crate) context: Context,
    /// In flight while a task finds out which members the servers are that are not known as any.
    pub(crate) identifying: SingleFlight,
}

/// How an answer is read.
pub(crate) type Read<T> = fn(&Value) -> Result<T, NodeError>;

/// What one node is asked.
pub(crate) struct NodeRequest {
    pub(crate) call: ScriptCall,
    /// Down which connection; the present one if that does not matter.
    pub(crate) connection: Option<Connection>,
    pub(crate) probe: Probe,
    /// Of a request that may put a waiter in line there.
    pub(crate) enrollment: Option<PendingEnrollment>,
}

/// Whose turn it is to find out whether a node works again.
pub(crate) enum Probe {
    /// Nobody's: it works.
    NotNeeded,
    /// This request's.
    Own(FlightGuard),
    /// Another request's.
    Elsewhere,
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

    /// The server at this place.
    pub(crate) fn node(&self, node: usize) -> Node {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[node].clone()
    }

    /// The servers at all enrollments.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up all connections; nothing connects any more.
    pub(crate) fn close(&self) {
        self.nodes().iter().for_each(Node::close);
    }

    /// Has another server at this place, to be reached as the one before it.
    pub(crate) fn replace_node(&self, node: usize, host: &str, port: u16) {
        let mut config = self.node(node).config().clone();
        (config.host, config.port) = (host.to_owned(), port);
        let server = Node::new(config, self.context.clone());
        let before = mem::replace(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[node], server);
        before.close();
        self.replacements.fetch_add(1, Ordering::Release);
        self.mark_answering(node);
    }

    /// How many servers have come to the place of another.
    pub(crate) fn replacements(&self) -> u64 {
        self.replacements.load(Ordering::Acquire)
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.len())
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

    /// The ttl of a lock that asks for none.
    pub(crate) fn ttl(&self) -> Duration {
        self.config.default_ttl(self.max_ttl())
    }

    pub(crate) const fn cleanup(&self) -> &Cleanup {
        self.context.cleanup()
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.context.clock()
    }

    /// How a node is called in messages.
    pub(crate) fn address(&self, node: usize) -> String {
        address(self.node(node).config())
    }

    /// Whether nothing is to be had from `node`: it does not answer, or is not known as a member.
    pub(crate) fn is_failing(&self, node: usize) -> bool {
        self.node(node).failing_since().is_some() || !self.members.is_member(node)
    }

    /// Whether nothing can be decided without a node that has been failing.
    pub(crate) fn needs_all(&self) -> bool {
        (0..self.len()).filter(|&node| !self.is_failing(node)).count() < self.majority()
    }

    /// Whether nobody waits for `node` who can do without it: it has been failing, or votes waited for it in vain. A node
    /// that stands still is known as failing only when a request to it has taken its whole limit, and until then each
    /// split vote would wait for it anew.
    pub(crate) fn is_silent(&self, node: usize) -> bool {
        self.is_failing(node) || self.late[node].load(Ordering::Relaxed)
    }

    /// Whether nothing can be decided without a node that is silent.
    pub(crate) fn needs_the_silent(&self) -> bool {
        (0..self.len()).filter(|&node| !self.is_silent(node)).count() < self.majority()
    }

    /// A vote has waited for `node` in vain.
    pub(crate) fn mark_late(&self, node: usize) {
        self.late[node].store(true, Ordering::Relaxed);
    }

    fn mark_answering(&self, node: usize) {
        self.late[node].store(false, Ordering::Relaxed);
    }

    /// Asks each node its one call, if it has one. Nothing is sent before the replies are waited for or sent on.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl Fn(usize) -> Option<NodeRequest>,
        read: Read<T>,
    ) -> Replies<Reply<T>> {
        self.replies(|node, dispatch| {
            let NodeRequest { call, connection, probe, enrollment } = call(node)?;
            let quorum = Arc::clone(self);
            Some(async move {
                let answer = quorum.ask_one(node, &dispatch, call, connection, probe).await;
                if let Some(enrollment) = enrollment {
                    enrollment.answered(answer.as_ref().err());
                }
                answer.and_then(|answer| read(&answer).map_err(NoReply::Failed))
            })
        })
    }

    async fn ask_one(
        &self,
        node: usize,
        dispatch: &Dispatch,
        call: ScriptCall,
        connection: Option<Connection>,
        probe: Probe,
    ) -> Reply<Value> {
        let _probe = match probe {
            Probe::Elsewhere => return Err(NoReply::NotSent("it has not answered of late".to_owned())),
            Probe::Own(probe) => Some(probe),
            Probe::NotNeeded => None,
        };
        let connection = match connection {
            Some(connection) => connection,
            None => self.reach(node).await?,
        };
        let sent = dispatch.begin(node, connection, self.clock().now())?;
        let answer = sent.connection.call(call).await;
        if answer.is_ok() {
            self.mark_answering(node);
        }
        answer.map_err(NoReply::Failed)
    }

    /// Asks each node its calls, if it has any, in one burst.
    pub(crate) fn ask_many(
        self: &Arc<Self>,
        calls: impl Fn(usize) -> Option<Vec<ScriptCall>>,
    ) -> Replies<Reply<Vec<Result<Value, NodeError>>>> {
        self.replies(|node, dispatch| {
            let calls = calls(node)?;
            let quorum = Arc::clone(self);
            Some(async move {
                let connection = quorum.reach(node).await?;
                let sent = dispatch.begin(node, connection, quorum.clock().now())?;
                let answers = sent.connection.run(&calls).await;
                if answers.iter().any(Result::is_ok) {
                    quorum.mark_answering(node);
                }
                Ok(answers)
            })
        })
    }

    /// Whether a request that somebody waits for is to go to `node`. One that has been failing is left out as long as
    /// the others make up a majority and another request is finding out already whether it works again: then nothing has
    /// to be cleared from it either.
    pub(crate) fn probe(&self, node: usize) -> Probe {
        if self.needs_all() || !self.is_failing(node) {
            return Probe::NotNeeded;
        }
        self.probes[node].try_begin().map_or(Probe::Elsewhere, Probe::Own)
    }

    /// A connection to `node`, within its time limit. Nothing was sent when there is none.
    async fn reach(&self, node: usize) -> Result<Connection, NoReply> {
        let limit = self.config.node_timeout;
        match self.clock().timeout(limit, self.node(node).connection()).await {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(error)) => Err(NoReply::NotSent(error.to_string())),
            None => Err(NoReply::NotSent(format!("no connection within {limit:?}"))),
        }
    }

    fn replies<T, F>(&self, ask: impl Fn(usize, Arc<Dispatch>) -> Option<F>) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let dispatch = Arc::new(Dispatch::new(self.len()));
        let mut open = vec![false; self.len()];
        let pending = FuturesUnordered::new();
        for (node, open) in open.iter_mut().enumerate() {
            if let Some(asked) = ask(node, Arc::clone(&dispatch)) {
                *open = true;
                pending.push(asked.map(move |answer| (node, answer)).boxed());
            }
        }
        Replies::new(pending, open, dispatch)
    }
}

impl From<ScriptCall> for NodeRequest {
    fn from(call: ScriptCall) -> Self {
        Self { call, connection: None, probe: Probe::NotNeeded, enrollment: None }
    }
}

/// Something that one does at a time.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(Arc<AtomicBool>);

/// The one that does it, until this is dropped.
#[derive(Debug)]
pub(crate) struct FlightGuard(Arc<AtomicBool>);

impl SingleFlight {
    /// `None` while another does it.
    pub(crate) fn try_begin(&self) -> Option<FlightGuard> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| FlightGuard(Arc::clone(&self.0)))
    }
}

impl Drop for FlightGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What a majority could not do, and why each node did not.
pub(crate) fn unavailable(quorum: &Quorum, what: &str, reasons: impl IntoIterator<Item = (usize, String)>) -> Error {
    let reasons: Vec<String> =
        reasons.into_iter().map(|(node, reason)| format!("{}: {reason}", quorum.address(node))).collect();
    Error::no_answer(
        quorum.config.url(),
        format!("no majority of the {} nodes {what} ({})", quorum.len(), reasons.join("; ")),
    )
}
