//! The watch on a holder's node: its owner hears when somebody deletes the node, and the node does not outlive the grant.

use std::time::Duration;

use lock_core::{Loss, Validity, safeguard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{HeldNode, NodeKind};
use crate::{
    session::retry_backoff,
    wire::{RequestError, Watch, WatchEvent},
};

/// A holder whose hold ends sooner is not told that somebody deleted its node: that would be one more request in each
/// uncontended acquisition, for a hold that is over before anybody could act on the news.
const WATCH_AFTER: Duration = Duration::from_millis(20);

/// What the watch on a holder's node says about the node: not answered yet, present, or no longer certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WatchStatus {
    /// No watch was answered yet.
    NotYet,
    /// The node is there, and the holder's own: a watch is set, and has not fired.
    Present,
    /// Nothing: the watch has fired.
    NoMore,
}

/// Handle to the task that watches the node of a holder for its deletion.
#[derive(Debug)]
pub(super) struct NodeWatch {
    /// Ends the watch, when cancelled: from then on nobody is told.
    pub(super) ended: CancellationToken,
    watched: watch::Receiver<WatchStatus>,
}

impl NodeWatch {
    /// Where the certainty about the node comes from.
    pub(super) fn presence(&self) -> NodePresence {
        NodePresence(self.watched.clone())
    }
}

/// Tells a release whether the watch still proves that the holder's node exists.
pub(super) struct NodePresence(watch::Receiver<WatchStatus>);

impl NodePresence {
    /// Whether the node is certainly there, by all that is known. Waits for the answer to a watch that is under way: that
    /// comes before the answer to a look that would be sent now, and saves the look.
    pub(super) async fn certainty(mut self) -> bool {
        let known = self.0.wait_for(|watched| *watched != WatchStatus::NotYet).await;
        known.is_ok_and(|watched| *watched == WatchStatus::Present)
    }
}

/// Watches the node of `held`, by a watch that was set on it already or by one of its own.
pub(super) fn watch_node(
    held: &HeldNode,
    validity: &Validity,
    lapsed: &CancellationToken,
    watch: Option<Watch>,
) -> NodeWatch {
    let (watched, receiver) = watch::channel(if watch.is_some() { WatchStatus::Present } else { WatchStatus::NotYet });
    let node_watch = NodeWatch { ended: CancellationToken::new(), watched: receiver };
    let (held, lapsed) = (held.clone(), lapsed.clone());
    let watching = NodeWatchTask {
        held: held.clone(),
        validity: validity.clone(),
        ended: node_watch.ended.clone(),
        watched: watched.clone(),
    };
    let context = held.session.context().clone();
    drop(context.spawn(async move {
        tokio::select! {
            biased;
            () = watching.run(watch) => {}
            // Lost is final, so this node stands for nobody any more; but its session keeps it, and with it
            // everybody else from the lock, for as long as the program does not let go of its guard.
            () = lapsed.cancelled() => {
                watched.send_replace(WatchStatus::NoMore);
                if safeguard("lapsed-withdraws") {
                    held.withdraw();
                }
            }
        }
    }));
    node_watch
}

/// The task that watches a holder's node, and ends the validity when somebody else deletes it.
struct NodeWatchTask {
    held: HeldNode,
    validity: Validity,
    ended: CancellationToken,
    watched: watch::Sender<WatchStatus>,
}

impl NodeWatchTask {
    /// Ends the validity when somebody else deletes the holder's node.
    async fn run(self, mut watch: Option<Watch>) {
        let session = &self.held.session;
        // The node of the strategy `herd` is deleted by a name that others use, too: its release is sure of it only by a
        // watch.
        let at_once = watch.is_some() || self.held.kind == NodeKind::Sole;
        if !at_once && session.clock().timeout(WATCH_AFTER, self.ended.cancelled()).await.is_some() {
            return;
        }
        let mut backoff = retry_backoff();
        // Once at least, also for a release that comes at once: it waits for that one answer.
        loop {
            let event = match watch.take() {
                // Not ended at the release: the release itself fires the watch, and dropping it earlier costs a request.
                Some(watch) => {
                    let event = watch.await;
                    self.watched.send_replace(WatchStatus::NoMore);
                    event
                }
                None => match session.watch(&self.held.node).await {
                    Ok((stat, _)) if self.held.kind == NodeKind::Sole && stat.token() != self.held.token => {
                        WatchEvent::Deleted
                    }
                    Ok((_, set)) => {
                        self.watched.send_replace(WatchStatus::Present);
                        watch = Some(set);
                        continue;
                    }
                    Err(RequestError::NoNode) => WatchEvent::Deleted,
                    Err(error) if error.outcome().may_pass() => {
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
            // A change is the own release, or a third party's write, after which to look again. And once the watch
            // has ended, a deletion is the own doing: the lease may go on by another node.
            // Safeguard: the end of the writer's node in a downgrade is no loss (ZooKeeper)
            if event == WatchEvent::Deleted && !self.ended.is_cancelled() {
                self.validity.end(Loss::Revoked);
            }
            if event == WatchEvent::Deleted || self.is_over() {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.ended.is_cancelled() || self.held.session.is_ended()
    }
}
