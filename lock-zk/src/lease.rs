//! A grant: the node that holds the lock, its validity, and how it is given back.

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{Error, Lease, LockName, Loss, Validity};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, WatchedEvent};

use crate::{
    session::{Active, Failure, Session},
    sweep::{Keeping, ONE_TRY, withdraw_node},
    wire::{Outcome, outcome},
};

/// A one-shot watch that was set, as the future of its event.
pub(crate) type Watch = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;

/// A holder whose hold ends sooner is not told that somebody deleted its node: that would be one more request in each
/// uncontended acquisition, for a hold that is over before anybody could act on the news.
const WATCH_AFTER: Duration = Duration::from_millis(20);

/// A granted exclusive lock.
#[derive(Debug)]
pub(crate) struct ZkLease {
    name: LockName,
    /// The path of the contender's node.
    node: String,
    token: u64,
    number: u64,
    validity: Validity,
    keeping: Keeping,
    /// Ends the wait before the own node is watched.
    released: CancellationToken,
    /// `None` once given back.
    active: Option<Active>,
}

impl ZkLease {
    /// Grants the lock to the owner of `node`, which is known to be first in line. `None` when the session has ended,
    /// or is not certain to live right now. A watch on the node is taken over only if the lock is granted.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub(crate) fn grant(
        keeping: &Keeping,
        name: &LockName,
        node: String,
        token: u64,
        watch: &mut Option<Watch>,
    ) -> Option<Self> {
        let (number, validity, lapsed) = keeping.session.admit()?;
        let released = CancellationToken::new();
        let watching =
            watch_own(Arc::clone(&keeping.session), node.clone(), validity.clone(), released.clone(), watch.take());
        tokio::spawn({
            let (keeping, node) = (keeping.clone(), node.clone());
            async move {
                tokio::select! {
                    () = watching => {}
                    // Lost is final, so this node stands for nobody any more; but its session keeps it, and with it
                    // everybody else from the lock, for as long as the program does not let go of its guard.
                    () = lapsed.cancelled() => drop(withdraw_node(&keeping, node)),
                }
            }
        });
        let active = Some(keeping.session.activate());
        Some(Self { name: name.clone(), node, token, number, validity, keeping: keeping.clone(), released, active })
    }

    /// Ends the validity and starts to remove the node; the answer tells how the one try went.
    fn give_back(&mut self) -> Option<oneshot::Receiver<Result<(), Error>>> {
        let active = self.active.take()?;
        let before = self.validity.loss();
        // Before the request is sent: a successor may hold the lock before the answer is here.
        self.validity.end(Loss::Released);
        self.released.cancel();
        self.keeping.session.dismiss(self.number);
        let (answer, answered) = oneshot::channel();
        let (keeping, node, name) = (self.keeping.clone(), self.node.clone(), self.name.clone());
        self.keeping.janitor.spawn(async move {
            let result = release(&keeping, &node, name, before).await;
            drop(active);
            let _ = answer.send(result);
        });
        Some(answered)
    }
}

#[async_trait]
impl Lease for ZkLease {
    fn token(&self) -> u64 {
        self.token
    }

    fn validity(&self) -> &Validity {
        &self.validity
    }

    async fn release(mut self: Box<Self>) -> Result<(), Error> {
        let Some(answered) = self.give_back() else { return Ok(()) };
        let session = &self.keeping.session;
        let no_answer = |reason: &str| Error::no_answer(session.config().url(), reason);
        tokio::select! {
            biased;
            answer = answered => answer.unwrap_or_else(|_| Err(no_answer("the connection was closed during a release"))),
            failure = session.failed(Duration::ZERO) => Err(match failure {
                Failure::Ended => Error::Lost { name: self.name.clone(), loss: Loss::SessionEnded },
                Failure::Outage => no_answer("disconnected during a release"),
            }),
            () = session.clock().sleep(ONE_TRY) => Err(no_answer("a release was not answered yet")),
        }
    }
}

impl Drop for ZkLease {
    /// For a grant that was never delivered: `lock-core` releases every lease that it got.
    fn drop(&mut self) {
        drop(self.give_back());
    }
}

/// Removes a holder's node. Where the outcome is unknown, the janitor goes on until the node is gone or its session has
/// ended; a node that was removed twice is gone.
async fn release(keeping: &Keeping, node: &str, name: LockName, before: Option<Loss>) -> Result<(), Error> {
    let session = &keeping.session;
    let lost = |loss| Error::Lost { name, loss: before.unwrap_or(loss) };
    let Err(error) = session.delete_marked(node).await else {
        return before.map_or(Ok(()), |_| Err(lost(Loss::Released)));
    };
    match outcome(&error) {
        Outcome::SessionEnded => Err(lost(Loss::SessionEnded)),
        Outcome::Refused if error == zookeeper_client::Error::NoNode => Err(lost(Loss::TakenAway)),
        Outcome::Refused | Outcome::Unknown => {
            withdraw_node(keeping, node.to_owned());
            Err(Error::unavailable(session.config().url(), "a release has no known outcome", error))
        }
    }
}

/// Ends the validity when somebody else deletes the holder's node.
async fn watch_own(
    session: Arc<Session>,
    node: String,
    validity: Validity,
    released: CancellationToken,
    mut watch: Option<Watch>,
) {
    if watch.is_none() && session.clock().timeout(WATCH_AFTER, released.cancelled()).await.is_some() {
        return;
    }
    while !released.is_cancelled() && !session.is_ended() {
        let event = match watch.take() {
            // Not ended at the release: the release itself fires the watch, and dropping it earlier costs a request.
            Some(watch) => watch.await.event_type,
            None => match session.watch(&node).await {
                Ok((_, watcher)) => {
                    watch = Some(Box::pin(watcher.changed()));
                    continue;
                }
                Err(zookeeper_client::Error::NoNode) => EventType::NodeDeleted,
                Err(error) if outcome(&error) == Outcome::Unknown => {
                    session.connected().await;
                    continue;
                }
                Err(_) => return,
            },
        };
        // A change is the own release, or a third party's write, after which to look again.
        if event == EventType::NodeDeleted {
            validity.end(Loss::TakenAway);
            return;
        }
    }
}
