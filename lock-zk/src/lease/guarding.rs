//! Guarding a holder's node while it is held: its owner hears when somebody deletes it, and it does not outlive the grant.

use std::{pin::Pin, time::Duration};

use lock_core::{Loss, Validity};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, WatchedEvent};

use super::{Footing, Hold};
use crate::wire::{outcome, patience, token};

/// A one-shot watch that was set, as the future of its event.
pub(crate) type Watch = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;

/// A holder whose hold ends sooner is not told that somebody deleted its node: that would be one more request in each
/// uncontended acquisition, for a hold that is over before anybody could act on the news.
const WATCH_AFTER: Duration = Duration::from_millis(20);

/// What a watch says of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// No watch was answered yet.
    NotYet,
    /// There, and the holder's own: a watch is set, and has not fired.
    There,
    /// Nothing: the watch has fired.
    NoMore,
}

/// The guarding of one node.
#[derive(Debug)]
pub(super) struct Guarding {
    /// Ends it, when cancelled: from then on nobody is told.
    pub(super) ended: CancellationToken,
    watched: watch::Receiver<Watched>,
}

impl Guarding {
    /// Where the certainty about the node comes from.
    pub(super) fn certainty(&self) -> Certainty {
        Certainty(self.watched.clone())
    }
}

/// Whether a node is there and the holder's own.
pub(super) struct Certainty(watch::Receiver<Watched>);

impl Certainty {
    /// Whether it is, by all that is known. Waits for the answer to a watch that is under way: it comes before the answer to
    /// a look that would be sent now, and saves that.
    pub(super) async fn answer(mut self) -> bool {
        let known = self.0.wait_for(|watched| *watched != Watched::NotYet).await;
        known.is_ok_and(|watched| *watched == Watched::There)
    }
}

/// Starts to guard the node of `hold`, by a watch that was set on it already or by one of its own.
///
/// # Panics
/// Outside of a tokio runtime.
pub(super) fn guard(hold: &Hold, validity: &Validity, lapsed: &CancellationToken, watch: Option<Watch>) -> Guarding {
    let (watched, receiver) = watch::channel(if watch.is_some() { Watched::There } else { Watched::NotYet });
    let guarding = Guarding { ended: CancellationToken::new(), watched: receiver };
    let (hold, lapsed) = (hold.clone(), lapsed.clone());
    let watching = Watching {
        hold: hold.clone(),
        validity: validity.clone(),
        ended: guarding.ended.clone(),
        watched: watched.clone(),
    };
    tokio::spawn(async move {
        tokio::select! {
            () = watching.run(watch) => {}
            // Lost is final, so this node stands for nobody any more; but its session keeps it, and with it
            // everybody else from the lock, for as long as the program does not let go of its guard.
            () = lapsed.cancelled() => {
                watched.send_replace(Watched::NoMore);
                hold.withdraw();
            }
        }
    });
    guarding
}

struct Watching {
    hold: Hold,
    validity: Validity,
    ended: CancellationToken,
    watched: watch::Sender<Watched>,
}

impl Watching {
    /// Ends the validity when somebody else deletes the holder's node.
    async fn run(self, mut watch: Option<Watch>) {
        let session = &self.hold.keeping.session;
        // The node of the strategy `herd` is deleted by a name that others use, too: its release is sure of it only by a
        // watch.
        let at_once = watch.is_some() || self.hold.footing == Footing::Sole;
        if !at_once && session.clock().timeout(WATCH_AFTER, self.ended.cancelled()).await.is_some() {
            return;
        }
        let mut backoff = patience();
        // Once at least, also for a release that comes at once: it waits for that one answer.
        loop {
            let event = match watch.take() {
                // Not ended at the release: the release itself fires the watch, and dropping it earlier costs a request.
                Some(watch) => {
                    let event = watch.await.event_type;
                    self.watched.send_replace(Watched::NoMore);
                    event
                }
                None => match session.watch(&self.hold.node).await {
                    Ok((stat, _)) if self.hold.footing == Footing::Sole && token(&stat) != self.hold.token => {
                        EventType::NodeDeleted
                    }
                    Ok((_, watcher)) => {
                        self.watched.send_replace(Watched::There);
                        watch = Some(Box::pin(watcher.changed()));
                        continue;
                    }
                    Err(zookeeper_client::Error::NoNode) => EventType::NodeDeleted,
                    Err(error) if outcome(&error).may_pass() => {
                        if self.is_over() {
                            return;
                        }
                        session.connected().await;
                        session.clock().sleep(backoff.pause()).await;
                        continue;
                    }
                    Err(_) => return,
                },
            };
            // A change is the own release, or a third party's write, after which to look again. And once the guarding
            // has ended, a deletion is the own doing: the lease may go on by another node.
            if event == EventType::NodeDeleted && !self.ended.is_cancelled() {
                self.validity.end(Loss::Revoked);
            }
            if event == EventType::NodeDeleted || self.is_over() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ended.is_cancelled() || self.hold.keeping.session.is_ended()
    }
}
