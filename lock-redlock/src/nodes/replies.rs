//! The answers of the nodes to one question, in the order in which they come.

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

/// For how long an open vote waits for the rest once a majority has answered.
const PATIENCE: Duration = Duration::from_millis(30);

/// Why there is no answer of a node.
#[derive(Debug)]
pub(crate) enum NoReply {
    /// Nothing was sent to it.
    NotSent(String),
    /// The node's own failure.
    Failed(NodeError),
}

/// Down which connection, and when, a request was sent to a node.
#[derive(Debug)]
pub(crate) struct SentRequest {
    pub(crate) connection: Connection,
    /// Just before it was written: what validity is counted from.
    pub(crate) at: BootInstant,
}

/// A node's answer to one request.
pub(crate) type Reply<T> = Result<T, NoReply>;

/// The answers of the nodes that were asked.
pub(crate) struct Replies<T> {
    pending: FuturesUnordered<BoxFuture<'static, (usize, T)>>,
    /// The nodes that have not answered yet.
    open: Vec<bool>,
    dispatch: Arc<Dispatch>,
}

/// What is sent of one question.
#[derive(Debug)]
pub(crate) struct Dispatch {
    pub(crate) nodes: Box<[OnceLock<SentRequest>]>,
    is_over: AtomicBool,
}

impl Dispatch {
    pub(crate) fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| OnceLock::new()).collect(), is_over: AtomicBool::new(false) }
    }

    /// Notes that it is sent to `node` now, down this connection.
    ///
    /// # Errors
    /// [`NoReply::NotSent`] when nobody asks any more.
    pub(crate) fn begin(&self, node: usize, connection: Connection, at: BootInstant) -> Result<&SentRequest, NoReply> {
        if self.is_over.load(Ordering::Acquire) {
            return Err(NoReply::NotSent("nobody asks any more".to_owned()));
        }
        Ok(self.nodes[node].get_or_init(|| SentRequest { connection, at }))
    }
}

impl<T: Send + 'static> Replies<T> {
    pub(crate) const fn new(
        pending: FuturesUnordered<BoxFuture<'static, (usize, T)>>,
        open: Vec<bool>,
        dispatch: Arc<Dispatch>,
    ) -> Self {
        Self { pending, open, dispatch }
    }

    /// The next answer; `None` when no more is to be waited for: all have answered, or only nodes are left that have not
    /// answered of late and are not needed.
    pub(crate) async fn next(&mut self, quorum: &Quorum) -> Option<(usize, T)> {
        // Polling also sends: what is ready comes first, whoever it is from.
        if let Some(next) = self.pending.next().now_or_never() {
            return self.answered(next);
        }
        if !quorum.needs_the_silent() && self.open().all(|node| quorum.is_silent(node)) {
            return None;
        }
        let next = self.pending.next().await;
        self.answered(next)
    }

    /// The next answer, if it comes in a moment. Nodes that let the moment pass are not waited for any more, until they
    /// answer again.
    pub(crate) async fn next_soon(&mut self, quorum: &Quorum) -> Option<(usize, T)> {
        match quorum.clock().timeout(PATIENCE, self.next(quorum)).await {
            Some(next) => next,
            None => {
                self.open().for_each(|node| quorum.mark_late(node));
                None
            }
        }
    }

    /// Waits for `needed` answers, and a moment for the others. Nodes that have been failing are not waited for.
    pub(crate) async fn collect(&mut self, quorum: &Quorum, needed: usize) -> Vec<(usize, T)> {
        let mut answers = Vec::new();
        while self.open().any(|node| !quorum.is_silent(node)) {
            let next = match answers.len() < needed {
                true => self.next_of_any().await,
                false => self.next_soon(quorum).await,
            };
            let Some(answer) = next else { break };
            answers.push(answer);
        }
        answers
    }

    /// The next answer of any node, within its own limit.
    pub(crate) async fn next_of_any(&mut self) -> Option<(usize, T)> {
        let next = self.pending.next().await;
        self.answered(next)
    }

    /// Hands everything to the connections, in the order of this and any later dispatch, and keeps what is answered.
    pub(crate) fn send(&mut self) -> Vec<(usize, T)> {
        let mut answers = Vec::new();
        while let Some(Some(next)) = self.pending.next().now_or_never() {
            answers.extend(self.answered(Some(next)));
        }
        answers
    }

    /// The nodes that have not answered.
    pub(crate) fn open(&self) -> impl Iterator<Item = usize> {
        self.open.iter().enumerate().filter_map(|(node, open)| open.then_some(node))
    }

    pub(crate) fn is_open(&self, node: usize) -> bool {
        self.open[node]
    }

    /// How it was sent to `node`; `None` when it was not.
    pub(crate) fn sent(&self, node: usize) -> Option<&SentRequest> {
        self.dispatch.nodes[node].get()
    }

    /// Leaves it unsent where there is no connection yet: it would go out after whatever takes it back.
    pub(crate) fn cancel_unsent(&self) {
        self.dispatch.is_over.store(true, Ordering::Release);
    }

    fn answered(&mut self, next: Option<(usize, T)>) -> Option<(usize, T)> {
        let (node, answer) = next?;
        self.open[node] = false;
        Some((node, answer))
    }
}

impl NoReply {
    /// Whether the node may have done what it was asked for.
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
