//! A grant: the node that holds the lock, its validity, and how it is given back.

mod downgrade;
mod node_watch;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{Error, Lease, LockName, Loss, ReleaseOutcome, Request, Validity};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use self::node_watch::{NodePresence, NodeWatch, watch_node};
use crate::{
    node_path::NodePath,
    protocol::{queue, watch_budget::one_watch},
    session::{ActiveSession, Admission, Session, SessionFailure},
    wire::{Outcome, RequestError, Watch},
    withdraw::{remove_sole, withdraw_node, withdraw_sole},
};

/// The kind of a holder's node, which decides how the node is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeKind {
    /// In the queue, alone: its release is marked where the layout has that.
    Exclusive,
    /// In the queue, beside others.
    Shared,
    /// The one node that all contenders of the name want: other contenders' nodes are called the same.
    Sole,
}

/// The node of a holder on the servers, with its session and its fencing token.
#[derive(Debug, Clone)]
pub(crate) struct HeldNode {
    pub(crate) session: Arc<Session>,
    pub(crate) path: NodePath,
    /// The path with the server's digits.
    pub(crate) node: String,
    /// The number of the fencing token.
    pub(crate) token: u64,
    pub(crate) kind: NodeKind,
}

impl HeldNode {
    /// Removes the node in the background.
    fn withdraw(&self) -> CancellationToken {
        match self.kind {
            NodeKind::Exclusive | NodeKind::Shared => withdraw_node(&self.session, self.node.clone()),
            NodeKind::Sole => withdraw_sole(&self.session, self.path.clone()),
        }
    }

    fn marks(&self) -> bool {
        self.node.rsplit('/').next().is_some_and(queue::marks)
    }

    /// Removes the node, once.
    async fn remove(&self, presence: NodePresence) -> Result<(), RequestError> {
        let session = &self.session;
        match self.kind {
            NodeKind::Exclusive if self.marks() => session.delete_marked(&self.node).await,
            NodeKind::Exclusive | NodeKind::Shared => session.delete_present(&self.node).await,
            NodeKind::Sole => remove_sole(session, &self.path, presence.certainty().await).await,
        }
    }
}

/// The lease of a lock held on ZooKeeper.
#[derive(Debug)]
pub(crate) struct ZkLease {
    name: LockName,
    payload: Arc<[u8]>,
    held: HeldNode,
    number: u64,
    validity: Validity,
    /// Cancelled when the grant was lost although the session lived on.
    lapsed: CancellationToken,
    watch: NodeWatch,
    /// `None` once given back.
    active: Option<ActiveSession>,
}

impl ZkLease {
    /// Grants what was asked for to the owner of `held`, which is known to stand first. `None` when the session has ended,
    /// or is not certain to live right now. A watch on the node is taken over only if it is granted; `by` is
    /// the attempt's own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn grant(
        held: HeldNode,
        request: &Request,
        by: &ActiveSession,
        watch: &mut Option<Watch>,
    ) -> Option<Self> {
        let Admission { number, validity, lapsed } = held.session.admit()?;
        let watch = watch_node(&held, &validity, &lapsed, watch.take());
        // The node ahead is watched no more.
        let active = Some(by.beside(one_watch(&held.path.directory)));
        let (name, payload) = (request.name.clone(), Arc::clone(&request.payload));
        Some(Self { name, payload, held, number, validity, lapsed, watch, active })
    }

    fn session(&self) -> &Arc<Session> {
        &self.held.session
    }

    /// Ends the validity and the watch; what is left is the node.
    fn end(&mut self) -> Option<ActiveSession> {
        let active = self.active.take()?;
        self.validity.end(Loss::Released);
        self.watch.ended.cancel();
        self.session().dismiss(self.number);
        Some(active)
    }

    /// Ends the validity and starts to remove the node; the answer tells how the one try went.
    fn give_back(&mut self) -> Option<oneshot::Receiver<Result<ReleaseOutcome, Error>>> {
        let active = self.end()?;
        let (answer, answered) = oneshot::channel();
        let (held, presence) = (self.held.clone(), self.watch.presence());
        self.session().context().cleanup().spawn(async move {
            let result = release(&held, presence).await;
            drop(active);
            let _ = answer.send(result);
        });
        Some(answered)
    }

    fn no_answer(&self, reason: &str) -> Error {
        Error::no_answer(self.session().config().url(), reason)
    }

    /// Resolves with an error when there is no hope for an answer any more, or none has come within `limit`, for something
    /// that was sent.
    async fn unanswered(&self, what: &str, limit: Duration) -> Error {
        let session = self.session();
        match session.clock().answer_timeout(limit, session.failed(Duration::ZERO)).await {
            Some(SessionFailure::Ended) => Error::Lost { name: self.name.clone(), loss: Loss::SessionEnded },
            Some(SessionFailure::Outage) => self.no_answer(&format!("disconnected during a {what}")),
            None => self.no_answer(&format!("a {what} was not answered yet")),
        }
    }
}

#[async_trait]
impl Lease for ZkLease {
    fn token(&self) -> u64 {
        self.held.token
    }

    fn validity(&self) -> &Validity {
        &self.validity
    }

    async fn release(mut self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Some(answered) = self.give_back() else { return Ok(ReleaseOutcome::Gone) };
        tokio::select! {
            biased;
            answer = answered => {
                answer.unwrap_or_else(|_| Err(self.no_answer("the connection was closed during a release")))
            }
            error = self.unanswered("release", self.session().config().response_timeout) => match error {
                // Its nodes have gone with it.
                Error::Lost { .. } => Ok(ReleaseOutcome::Gone),
                other => Err(other),
            },
        }
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        self.go_on_as_reader().await
    }
}

impl Drop for ZkLease {
    /// For a grant that was never delivered: `lock-core` releases every lease that it got.
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

/// Removes a holder's node. Where the outcome is unknown, the cleanup goes on until the node is gone or its session has
/// ended; a node that was removed twice is gone.
async fn release(held: &HeldNode, presence: NodePresence) -> Result<ReleaseOutcome, Error> {
    let Err(error) = held.remove(presence).await else { return Ok(ReleaseOutcome::Released) };
    match error.outcome() {
        Outcome::SessionEnded => Ok(ReleaseOutcome::Gone),
        Outcome::Refused if matches!(error, RequestError::NoNode) => Ok(ReleaseOutcome::Gone),
        Outcome::Refused | Outcome::Throttled | Outcome::Unknown => {
            // Safeguard: catalogue: a release without an answer is repeated (ZooKeeper)
            held.withdraw();
            let url = held.session.config().url();
            Err(Error::unavailable(url, "a release was not done, or is not known to be", error))
        }
    }
}
