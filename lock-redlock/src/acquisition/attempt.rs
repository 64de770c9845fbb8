//! An attempt to acquire: its claim on each node, and the queue entry of its waiter.

use std::sync::Arc;

use lock_redis::node::ScriptCall;

use crate::{
    nodes::{
        quorum::Quorum,
        replies::{Replies, Reply},
        scripts::{Claim, QueueChange, WaiterEntry},
    },
    protocol::{ballots::UndoKind, enrollments::PendingEnrollment},
    waiters::Waiter,
};

/// One attempt to acquire a lock: what it claims on each node, and for which waiter.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) claim: Claim,
    /// `None` for an attempt that does not wait.
    pub(crate) waiter: Option<Arc<Waiter>>,
}

impl Attempt {
    /// The waiter's entry in the queues, if it is sent now.
    pub(crate) fn entry(&self) -> Option<WaiterEntry> {
        self.waiter.as_ref().map(|waiter| waiter.entry(self.claim.ttl))
    }

    /// Gives back what the attempt has on `node`. The waiter leaves the queue unless it `stays`.
    pub(crate) fn undo(&self, node: usize, undoing: UndoKind, stays: bool) -> Option<ScriptCall> {
        let tombstone = match undoing {
            UndoKind::Nothing => return None,
            UndoKind::Plain => false,
            UndoKind::WithTombstone => true,
        };
        let entry = self.entry();
        let change = match &entry {
            None => QueueChange::None,
            Some(entry) if stays => QueueChange::Stay(entry),
            Some(entry) => self.leaving(node, entry),
        };
        Some(self.claim.undo(tombstone, change))
    }

    /// Takes the waiter out of the queue on `node`, and leaves everything else alone.
    pub(crate) fn leave_queue(&self, node: usize) -> Option<ScriptCall> {
        self.entry().map(|entry| self.claim.change_queue(self.leaving(node, &entry)))
    }

    /// A vote of an earlier round, or its undo, may arrive after the waiter has left, if its connection broke meanwhile. Nothing
    /// would remove such an entry before its time is over, so the node notes that the waiter is gone.
    fn leaving<'a>(&self, node: usize, entry: &'a WaiterEntry) -> QueueChange<'a> {
        if self.has_pending(node) {
            // Safeguard: a waiter that leaves says so where something of it may come yet (Redlock)
            return QueueChange::LeaveForGood(entry);
        }
        QueueChange::Leave(entry)
    }

    /// Whether the waiter is in the queue of `node`, or may come there yet.
    pub(crate) fn may_be_enrolled(&self, node: usize) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.enrollments.may_be_enrolled(node))
    }

    /// Whether a request that enrolls the waiter may still arrive at `node`.
    pub(crate) fn has_pending(&self, node: usize) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.enrollments.has_pending(node))
    }

    /// Goes with a request that enrolls the waiter on `node`.
    pub(crate) fn enrollment(&self, node: usize) -> Option<PendingEnrollment> {
        self.waiter.as_ref().map(|waiter| PendingEnrollment::new(&waiter.enrollments, node))
    }

    /// Waits until the waiter has left all queues. What has failed, and what fails, is left to the cleanup.
    pub(crate) async fn finish_leaving(
        &self,
        quorum: &Arc<Quorum>,
        replies: Vec<(usize, Reply<bool>)>,
        mut left: Replies<bool>,
    ) {
        let retry = |node, reply: Reply<bool>| {
            if let (Err(_), Some(call)) = (reply, self.leave_queue(node)) {
                quorum.undo_later(node, "leaving the queue", call, self.claim.ttl);
            }
        };
        for (node, reply) in replies {
            retry(node, reply);
        }
        while let Some((node, reply)) = left.next_of_any().await {
            retry(node, reply);
        }
    }
}
