//! The nodes' replies to one request, in the order of their arrival.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use lock_core::BootInstant;
use lock_redis::node::{Connection, NodeError};

use crate::nodes::quorum::Quorum;

/// For how long an open vote waits for the other nodes once a majority has answered.
const PATIENCE: Duration = Duration::from_millis(30);

/// Why a node has not answered.
#[derive(Debug)]
pub(crate) enum NoReply {
    /// Nothing was sent to the node.
    NotSent(String),
    /// The request failed on the way or on the node.
    Failed(NodeError),
}

/// A node's answer to one request.
pub(crate) type Reply<T> = Result<T, NoReply>;

/// A request as it was sent to one node.
#[derive(Debug)]
pub(crate) struct SentRequest {
    pub(crate) connection: Connection,
    /// Just before the request was written: validity is counted from here.
    pub(crate) at: BootInstant,
}

/// Whether and when a request was sent to each node.
#[derive(Debug)]
pub(crate) struct Dispatch {
    nodes: Box<[OnceLock<SentRequest>]>,
    is_over: AtomicBool,
}

/// The replies of the nodes that were asked. Polling them also sends the requests.
pub(crate) struct Replies<T> {
    quorum: Arc<Quorum>,
    pending: FuturesUnordered<BoxFuture<'static, (usize, Reply<T>)>>,
    /// The nodes that have not answered yet.
    open: Vec<bool>,
    dispatch: Arc<Dispatch>,
}

impl NoReply {
    /// Whether the node may have carried out the request.
    pub(crate) const fn is_unknown(&self) -> bool {
        match self {
            Self::NotSent(_) => false,
            Self::Failed(error) => error.is_unknown(),
        }
    }

    pub(crate) fn reason(&self) -> String {
        match self {
            Self::NotSent(reason) => reason.clone(),
            Self::Failed(error) => error.to_string(),
        }
    }
}

impl Dispatch {
    fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| OnceLock::new()).collect(), is_over: AtomicBool::new(false) }
    }

    /// Notes that the request goes to `node` now, down this connection.
    ///
    /// # Errors
    /// [`NoReply::NotSent`] after [`Replies::cancel_unsent`].
    pub(crate) fn begin(&self, node: usize, connection: Connection, at: BootInstant) -> Result<&SentRequest, NoReply> {
        // Safeguard: a vote is not sent any more when its round is over (Redlock)
        if self.is_over.load(Ordering::Acquire) {
            return Err(NoReply::NotSent("nobody asks any more".to_owned()));
        }
        Ok(self.nodes[node].get_or_init(|| SentRequest { connection, at }))
    }
}

impl<T: Send + 'static> Replies<T> {
    /// The replies to what `ask` returns for each node; `None` for a node that is not asked.
    pub(crate) fn new<F>(quorum: &Arc<Quorum>, ask: impl Fn(usize, Arc<Dispatch>) -> Option<F>) -> Self
    where
        F: Future<Output = Reply<T>> + Send + 'static,
    {
        let dispatch = Arc::new(Dispatch::new(quorum.len()));
        let mut open = vec![false; quorum.len()];
        let pending = FuturesUnordered::new();
        for (node, open) in open.iter_mut().enumerate() {
            if let Some(asked) = ask(node, Arc::clone(&dispatch)) {
                *open = true;
                pending.push(asked.map(move |reply| (node, reply)).boxed());
            }
        }
        Self { quorum: Arc::clone(quorum), pending, open, dispatch }
    }

    /// The next reply; `None` when all nodes have answered, or only silent nodes are left that no decision needs.
    pub(crate) async fn next(&mut self) -> Option<(usize, Reply<T>)> {
        // Polling also sends, and a reply that is here comes first, whichever node it is from.
        if let Some(next) = self.pending.next().now_or_never() {
            return self.close(next);
        }
        if !self.quorum.needs_the_silent() && self.open().all(|node| self.quorum.is_silent(node)) {
            return None;
        }
        self.next_of_any().await
    }

    /// The next reply, if it comes within [`PATIENCE`]. The nodes that let it pass count as late until they answer.
    pub(crate) async fn next_soon(&mut self) -> Option<(usize, Reply<T>)> {
        let clock = self.quorum.clock();
        match clock.timeout(PATIENCE, self.next()).await {
            Some(next) => next,
            None => {
                self.open().for_each(|node| self.quorum.set_late(node, true));
                None
            }
        }
    }

    /// The next reply of any node, within the node's own limit.
    pub(crate) async fn next_of_any(&mut self) -> Option<(usize, Reply<T>)> {
        let next = self.pending.next().await;
        self.close(next)
    }

    /// The replies of `needed` nodes, and those of other nodes that come soon. Silent nodes are not waited for.
    pub(crate) async fn collect(&mut self, needed: usize) -> Vec<(usize, Reply<T>)> {
        let mut replies = Vec::new();
        while self.open().any(|node| !self.quorum.is_silent(node)) {
            let next = match replies.len() < needed {
                true => self.next_of_any().await,
                false => self.next_soon().await,
            };
            let Some(reply) = next else { break };
            replies.push(reply);
        }
        replies
    }

    /// The answers of all nodes, and why the other nodes have not answered.
    pub(crate) async fn all(mut self) -> (Vec<(usize, T)>, Vec<(usize, String)>) {
        let (mut answers, mut failed) = (Vec::new(), Vec::new());
        while let Some((node, reply)) = self.next_of_any().await {
            match reply {
                Ok(answer) => answers.push((node, answer)),
                Err(no_reply) => failed.push((node, no_reply.reason())),
            }
        }
        (answers, failed)
    }

    /// Hands the requests to the connections, ahead of whatever is sent later, and returns the replies that are here.
    pub(crate) fn send(&mut self) -> Vec<(usize, Reply<T>)> {
        let mut replies = Vec::new();
        while let Some(Some(next)) = self.pending.next().now_or_never() {
            replies.extend(self.close(Some(next)));
        }
        replies
    }

    /// The nodes that have not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> {
        self.open.iter().enumerate().filter_map(|(node, open)| open.then_some(node))
    }

    pub(crate) fn is_open(&self, node: usize) -> bool {
        self.open[node]
    }

    /// How the request was sent to `node`; `None` when it was not.
    pub(crate) fn sent(&self, node: usize) -> Option<&SentRequest> {
        self.dispatch.nodes[node].get()
    }

    /// Drops the requests that still wait for a connection: each would go out after whatever takes it back.
    pub(crate) fn cancel_unsent(&self) {
        self.dispatch.is_over.store(true, Ordering::Release);
    }

    fn close(&mut self, next: Option<(usize, Reply<T>)>) -> Option<(usize, Reply<T>)> {
        let (node, reply) = next?;
        self.open[node] = false;
        Some((node, reply))
    }
}
