//! A grant: the node that holds the lock, its validity, and how it is given back.

mod downgrade;
mod guarding;

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{Error, Lease, LockName, Loss, ReleaseOutcome, Request, Validity};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use zookeeper_client::Error as ClientError;

pub(crate) use self::guarding::Watch;
use self::guarding::{Certainty, Guarding, guard};
use crate::{
    herd, room,
    session::{Active, Failure, Session},
    sweep::{Keeping, withdraw_node, withdraw_sole},
    wire::{Outcome, Spot, outcome},
};

/// What kind of node a holder has, which decides how it gives it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Footing {
    /// In the queue, alone: its release is marked.
    Exclusive,
    /// In the queue, beside others.
    Shared,
    /// The one node that all contenders of the name want: other contenders' nodes are called the same.
    Sole,
}

/// A holder's node.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    pub(crate) keeping: Keeping,
    pub(crate) spot: Spot,
    /// The path of the node.
    pub(crate) node: String,
    /// The number of the fencing token.
    pub(crate) token: u64,
    pub(crate) footing: Footing,
}

impl Hold {
    /// Removes the node in the background.
    fn withdraw(&self) -> CancellationToken {
        match self.footing {
            Footing::Exclusive | Footing::Shared => withdraw_node(&self.keeping, self.node.clone()),
            Footing::Sole => withdraw_sole(&self.keeping, self.spot.clone()),
        }
    }

    /// Removes the node, once.
    async fn remove(&self, certainty: Certainty) -> Result<(), ClientError> {
        let session = &self.keeping.session;
        match self.footing {
            Footing::Exclusive => session.delete_marked(&self.node).await,
            Footing::Shared => session.delete_present(&self.node).await,
            Footing::Sole => herd::remove(session, &self.spot, certainty.answer().await).await,
        }
    }
}

/// A grant.
#[derive(Debug)]
pub(crate) struct ZkLease {
    name: LockName,
    payload: Arc<[u8]>,
    hold: Hold,
    number: u64,
    validity: Validity,
    /// Cancelled when the grant was lost although the session lived on.
    lapsed: CancellationToken,
    guarding: Guarding,
    /// `None` once given back.
    active: Option<Active>,
}

impl ZkLease {
    /// Grants what was asked for to the owner of `hold`, which is known to stand first. `None` when the session has ended,
    /// or is not certain to live right now. A watch on the node is taken over only if it is granted; `by` is
    /// the attempt's own.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn grant(hold: Hold, request: &Request, by: &Active, watch: &mut Option<Watch>) -> Option<Self> {
        let (number, validity, lapsed) = hold.keeping.session.admit()?;
        let guarding = guard(&hold, &validity, &lapsed, watch.take());
        // The node ahead is watched no more.
        let active = Some(by.beside(room::of_one(&hold.spot.directory)));
        let (name, payload) = (request.name.clone(), Arc::clone(&request.payload));
        Some(Self { name, payload, hold, number, validity, lapsed, guarding, active })
    }

    fn session(&self) -> &Arc<Session> {
        &self.hold.keeping.session
    }

    /// Ends the validity and the guarding; what is left is the node.
    fn end(&mut self) -> Option<Active> {
        let active = self.active.take()?;
        self.validity.end(Loss::Released);
        self.guarding.ended.cancel();
        self.session().dismiss(self.number);
        Some(active)
    }

    /// Ends the validity and starts to remove the node; the answer tells how the one try went.
    fn give_back(&mut self) -> Option<oneshot::Receiver<Result<ReleaseOutcome, Error>>> {
        let active = self.end()?;
        let (answer, answered) = oneshot::channel();
        let (hold, certainty) = (self.hold.clone(), self.guarding.certainty());
        self.hold.keeping.cleanup.spawn(async move {
            let result = release(&hold, certainty).await;
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
    async fn unanswered(&self, what: &str, limit: std::time::Duration) -> Error {
        let session = self.session();
        tokio::select! {
            failure = session.failed(std::time::Duration::ZERO) => match failure {
                Failure::Ended => Error::Lost { name: self.name.clone(), loss: Loss::SessionEnded },
                Failure::Outage => self.no_answer(&format!("disconnected during a {what}")),
            },
            () = session.clock().sleep(limit) => self.no_answer(&format!("a {what} was not answered yet")),
        }
    }
}

#[async_trait]
impl Lease for ZkLease {
    fn token(&self) -> u64 {
        self.hold.token
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
            error = self.unanswered("release", self.session().config().connect_timeout) => match error {
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
async fn release(hold: &Hold, certainty: Certainty) -> Result<ReleaseOutcome, Error> {
    let Err(error) = hold.remove(certainty).await else { return Ok(ReleaseOutcome::Released) };
    match outcome(&error) {
        Outcome::SessionEnded => Ok(ReleaseOutcome::Gone),
        Outcome::Refused if error == ClientError::NoNode => Ok(ReleaseOutcome::Gone),
        Outcome::Refused | Outcome::Throttled | Outcome::Unknown => {
            hold.withdraw();
            let url = hold.keeping.session.config().url();
            Err(Error::unavailable(url, "a release was not done, or is not known to be", error))
        }
    }
}
