//! Gives back in the background what a node has not confirmed.

use std::{sync::Arc, time::Duration};

use lock_core::{Backoff, safeguard};
use lock_redis::{node::ScriptCall, protocol::TOMBSTONE};

use crate::nodes::scripts::held;

use crate::nodes::{quorum::Quorum, undo_queue::PendingUndo};

/// How many calls go to a node in one burst. After a failed burst, a single call finds out whether the node works again.
const BURST: usize = 256;
/// The upper limit of the first pause after a failed burst.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The upper limit of all pauses: a call that joins the queue waits no longer than this for its first try.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

impl Quorum {
    /// Sends `call` to `node` until it is confirmed, or until what it gives back has ended by its `ttl`. That begins when the
    /// last request arrives that takes or extends it, for which it has as long as a tombstone is kept.
    pub(crate) fn undo_later(self: &Arc<Self>, node: usize, what: &'static str, call: ScriptCall, ttl: Duration) {
        // Safeguard: an undo goes on for as long as what it undoes may arrive (Redlock)
        let latest_arrival = if safeguard("undo-arrivals") { TOMBSTONE } else { Duration::ZERO };
        let until = self.clock().now().saturating_add(latest_arrival + ttl);
        if self.undo_queues[node].add(PendingUndo { what, call, until }) {
            self.cleanup().spawn(run(Arc::clone(self), node));
        }
    }
}

/// Works off the queue of `node`.
async fn run(quorum: Arc<Quorum>, node: usize) {
    let queue = &quorum.undo_queues[node];
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut most = BURST;
    loop {
        let burst = queue.take(most);
        if burst.is_empty() {
            return;
        }
        let calls: Vec<ScriptCall> = burst.iter().map(|undo| undo.call.clone()).collect();
        let answers = quorum.node(node).run(&calls).await;
        let mut failed = Vec::new();
        for (undo, answer) in burst.into_iter().zip(answers) {
            if let Err(error) = answer.and_then(|answer| held(&answer)) {
                tracing::debug!(what = undo.what, node = %quorum.address(node), %error, "not undone yet");
                failed.push(undo);
            }
        }
        if failed.is_empty() {
            backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            most = BURST;
            continue;
        }
        for undo in queue.put_back(failed, quorum.clock().now()) {
            tracing::debug!(what = undo.what, node = %quorum.address(node), "left to its ttl");
        }
        most = 1;
        quorum.clock().sleep(backoff.pause()).await;
    }
}
