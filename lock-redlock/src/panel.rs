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
    cleaning::Cleaning,
    config::{Config, address},
    deployment::Deployment,
    places::Coming,
    quorum::majority,
    replies::{Answer, Replies, Sending, Silence},
    slots::Slots,
};

/// The nodes of a deployment.
#[derive(Debug)]
pub(crate) struct Panel {
    pub(crate) config: Config,
    /// The server at each place; another one once a member was replaced.
    nodes: Mutex<Vec<Node>>,
    /// How many servers have come to the place of another.
    moves: AtomicU64,
    /// For each node, what is still to be given back there.
    pub(crate) cleaning: Vec<Cleaning>,
    /// For each node, whether a vote has waited for it in vain, and it has answered nothing since.
    late: Vec<AtomicBool>,
    /// For each node, whether a request is under way that finds out whether it works again.
    probes: Vec<Flag>,
    /// Which member each node is.
    pub(crate) slots: Slots,
    /// What the nodes have in common, known once the client has connected.
    deployment: Mutex<Option<Arc<Deployment>>>,
    pub(crate) context: Context,
    /// Raised while somebody finds out which members the servers are that are not known as any.
    pub(crate) identifying: Flag,
}

/// How an answer is read.
pub(crate) type Read<T> = fn(&Value) -> Result<T, NodeError>;

/// What one node is asked.
pub(crate) struct Ask {
    pub(crate) call: ScriptCall,
    /// Down which connection; the present one if that does not matter.
    pub(crate) connection: Option<Connection>,
    pub(crate) probe: Turn,
    /// Of a request that may put a waiter in line there.
    pub(crate) coming: Option<Coming>,
}

/// Whose turn it is to find out whether a node works again.
pub(crate) enum Turn {
    /// Nobody's: it works.
    None,
    /// This request's.
    Own(Raised),
    /// Another request's.
    Other,
}

impl Panel {
    pub(crate) fn new(config: Config, context: Context) -> Self {
        let node = |node| Node::new(node, context.clone());
        let nodes: Vec<Node> = config.limited_nodes().map(node).collect();
        Self {
            cleaning: nodes.iter().map(|_| Cleaning::default()).collect(),
            late: nodes.iter().map(|_| AtomicBool::new(false)).collect(),
            probes: nodes.iter().map(|_| Flag::default()).collect(),
            slots: Slots::new(nodes.len()),
            deployment: Mutex::default(),
            identifying: Flag::default(),
            context,
            nodes: Mutex::new(nodes),
            moves: AtomicU64::new(0),
            config,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.cleaning.len()
    }

    /// The server at this place.
    pub(crate) fn node(&self, node: usize) -> Node {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[node].clone()
    }

    /// The servers at all places.
    pub(crate) fn nodes(&self) -> Vec<Node> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives up all connections; nothing connects any more.
    pub(crate) fn close(&self) {
        self.nodes().iter().for_each(Node::close);
    }

    /// Has another server at this place, to be reached as the one before it.
    pub(crate) fn put(&self, node: usize, host: &str, port: u16) {
        let mut config = self.node(node).config().clone();
        (config.host, config.port) = (host.to_owned(), port);
        let server = Node::new(config, self.context.clone());
        let before = mem::replace(&mut self.nodes.lock().unwrap_or_else(PoisonError::into_inner)[node], server);
        before.close();
        self.moves.fetch_add(1, Ordering::Release);
        self.has_answered(node);
    }

    /// How many servers have come to the place of another.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    pub(crate) fn majority(&self) -> usize {
        majority(self.len())
    }

    pub(crate) fn deployment(&self) -> Option<Arc<Deployment>> {
        self.deployment.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn belongs_to(&self, deployment: Arc<Deployment>) {
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
        self.node(node).failing_since().is_some() || !self.slots.is_member(node)
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
    pub(crate) fn is_late(&self, node: usize) {
        self.late[node].store(true, Ordering::Relaxed);
    }

    fn has_answered(&self, node: usize) {
        self.late[node].store(false, Ordering::Relaxed);
    }

    /// Asks each node its one call, if it has one. Nothing is sent before the replies are waited for or sent on.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        call: impl Fn(usize) -> Option<Ask>,
        read: Read<T>,
    ) -> Replies<Answer<T>> {
        self.replies(|node, sending| {
            let Ask { call, connection, probe, coming } = call(node)?;
            let panel = Arc::clone(self);
            Some(async move {
                let answer = panel.ask_one(node, &sending, call, connection, probe).await;
                if let Some(coming) = coming {
                    coming.answered(answer.as_ref().err());
                }
                answer.and_then(|answer| read(&answer).map_err(Silence::Failed))
            })
        })
    }

    async fn ask_one(
        &self,
        node: usize,
        sending: &Sending,
        call: ScriptCall,
        connection: Option<Connection>,
        probe: Turn,
    ) -> Answer<Value> {
        let _probe = match probe {
            Turn::Other => return Err(Silence::NotSent("it has not answered of late".to_owned())),
            Turn::Own(probe) => Some(probe),
            Turn::None => None,
        };
        let connection = match connection {
            Some(connection) => connection,
            None => self.reach(node).await?,
        };
        let sent = sending.begin(node, connection, self.clock().now())?;
        let answer = sent.connection.call(call).await;
        if answer.is_ok() {
            self.has_answered(node);
        }
        answer.map_err(Silence::Failed)
    }

    /// Asks each node its calls, if it has any, in one burst.
    pub(crate) fn ask_many(
        self: &Arc<Self>,
        calls: impl Fn(usize) -> Option<Vec<ScriptCall>>,
    ) -> Replies<Answer<Vec<Result<Value, NodeError>>>> {
        self.replies(|node, sending| {
            let calls = calls(node)?;
            let panel = Arc::clone(self);
            Some(async move {
                let connection = panel.reach(node).await?;
                let sent = sending.begin(node, connection, panel.clock().now())?;
                let answers = sent.connection.run(&calls).await;
                if answers.iter().any(Result::is_ok) {
                    panel.has_answered(node);
                }
                Ok(answers)
            })
        })
    }

    /// Whether a request that somebody waits for is to go to `node`. One that has been failing is left out as long as
    /// the others make up a majority and another request is finding out already whether it works again: then nothing has
    /// to be cleared from it either.
    pub(crate) fn turn(&self, node: usize) -> Turn {
        if self.needs_all() || !self.is_failing(node) {
            return Turn::None;
        }
        self.probes[node].begin().map_or(Turn::Other, Turn::Own)
    }

    /// A connection to `node`, within its time limit. Nothing was sent when there is none.
    async fn reach(&self, node: usize) -> Result<Connection, Silence> {
        let limit = self.config.node_timeout;
        match self.clock().timeout(limit, self.node(node).connection()).await {
            Some(Ok(connection)) => Ok(connection),
            Some(Err(error)) => Err(Silence::NotSent(error.to_string())),
            None => Err(Silence::NotSent(format!("no connection within {limit:?}"))),
        }
    }

    fn replies<T, F>(&self, ask: impl Fn(usize, Arc<Sending>) -> Option<F>) -> Replies<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let sending = Arc::new(Sending::new(self.len()));
        let mut open = vec![false; self.len()];
        let pending = FuturesUnordered::new();
        for (node, open) in open.iter_mut().enumerate() {
            if let Some(asked) = ask(node, Arc::clone(&sending)) {
                *open = true;
                pending.push(asked.map(move |answer| (node, answer)).boxed());
            }
        }
        Replies::new(pending, open, sending)
    }
}

impl From<ScriptCall> for Ask {
    fn from(call: ScriptCall) -> Self {
        Self { call, connection: None, probe: Turn::None, coming: None }
    }
}

/// Something that one does at a time.
#[derive(Debug, Default)]
pub(crate) struct Flag(Arc<AtomicBool>);

/// The one that does it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Raised(Arc<AtomicBool>);

impl Flag {
    /// `None` while another does it.
    pub(crate) fn begin(&self) -> Option<Raised> {
        (!self.0.swap(true, Ordering::AcqRel)).then(|| Raised(Arc::clone(&self.0)))
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// What a majority could not do, and why each node did not.
pub(crate) fn unavailable(panel: &Panel, what: &str, reasons: impl IntoIterator<Item = (usize, String)>) -> Error {
    let reasons: Vec<String> =
        reasons.into_iter().map(|(node, reason)| format!("{}: {reason}", panel.address(node))).collect();
    Error::no_answer(
        panel.config.url(),
        format!("no majority of the {} nodes {what} ({})", panel.len(), reasons.join("; ")),
    )
}
