//! Guarding a holder's node while it is held: its owner hears when somebody deletes it, and it does not outlive the grant.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock_core::{Loss, Validity};
use tokio_util::sync::CancellationToken;
use zookeeper_client::{EventType, WatchedEvent};

use super::{Footing, Hold};
use crate::wire::{Outcome, outcome, token};

/// A one-shot watch that was set, as the future of its event.
pub(crate) type Watch = Pin<Box<dyn Future<Output = WatchedEvent> + Send>>;

/// A holder whose hold ends sooner is not told that somebody deleted its node: that would be one more request in each
/// uncontended acquisition, for a hold that is over before anybody could act on the news.
const WATCH_AFTER: Duration = Duration::from_millis(20);

/// The guarding of one node.
#[derive(Debug)]
pub(super) struct Guarding {
    /// Ends it, when cancelled: from then on nobody is told.
    pub(super) ended: CancellationToken,
    /// A watch is set, and has not fired.
    watched: Arc<AtomicBool>,
}

impl Guarding {
    /// Whether the node was there and the holder's own, by all that is known.
    pub(super) fn is_certain(&self) -> bool {
        self.watched.load(Ordering::Acquire)
    }
}

/// Starts to guard the node of `hold`, by a watch that was set on it already or by one of its own.
///
/// # Panics
/// Outside of a tokio runtime.
pub(super) fn guard(hold: &Hold, validity: &Validity, lapsed: &CancellationToken, watch: Option<Watch>) -> Guarding {
    let guarding = Guarding { ended: CancellationToken::new(), watched: Arc::new(AtomicBool::new(watch.is_some())) };
    let (hold, lapsed) = (hold.clone(), lapsed.clone());
    let watching = Watching {
        hold: hold.clone(),
        validity: validity.clone(),
        ended: guarding.ended.clone(),
        watched: Arc::clone(&guarding.watched),
    };
    let watched = Arc::clone(&guarding.watched);
    tokio::spawn(async move {
        tokio::select! {
            () = watching.run(watch) => {}
            // Lost is final, so this node stands for nobody any more; but its session keeps it, and with it
            // everybody else from the lock, for as long as the program does not let go of its guard.
            () = lapsed.cancelled() => {
                watched.store(false, Ordering::Release);
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
    watched: Arc<AtomicBool>,
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
        while !self.ended.is_cancelled() && !session.is_ended() {
            let event = match watch.take() {
                // Not ended at the release: the release itself fires the watch, and dropping it earlier costs a request.
                Some(watch) => {
                    let event = watch.await.event_type;
                    self.watched.store(false, Ordering::Release);
                    event
                }
                None => match session.watch(&self.hold.node).await {
                    Ok((stat, _)) if self.hold.footing == Footing::Sole && token(&stat) != self.hold.token => {
                        EventType::NodeDeleted
                    }
                    Ok((_, watcher)) => {
                        self.watched.store(true, Ordering::Release);
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
            // A change is the own release, or a third party's write, after which to look again. And once the guarding
            // has ended, a deletion is the own doing: the lease may go on by another node.
            if event == EventType::NodeDeleted && !self.ended.is_cancelled() {
                self.validity.end(Loss::TakenAway);
                return;
            }
        }
    }
}
