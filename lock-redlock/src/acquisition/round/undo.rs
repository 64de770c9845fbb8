//! The undo of a round.

use std::{mem, sync::Arc};

use lock_redis::node::ScriptCall;

use crate::nodes::scripts::held;

use crate::{
    acquisition::round::Round,
    nodes::{
        replies::{Replies, Reply},
        requests::{NodeRequest, ask},
    },
    protocol::ballots::Ballot,
};

/// The undo of a round that won no grant, under way: the requests that take back what its nodes may have granted.
pub(crate) struct Undo {
    round: Round,
    calls: Vec<Option<ScriptCall>>,
    /// Whether the waiter leaves the queue, too.
    leaves: bool,
    undone: Replies<bool>,
    replies: Vec<(usize, Reply<bool>)>,
}

impl Undo {
    pub(super) fn send(round: Round, calls: Vec<Option<ScriptCall>>, leaves: bool) -> Self {
        // Down the connection of the vote, where nothing overtakes. A broken connection answers nothing any more, and its limit
        // would pass in vain: a vote that it still delivers finds the tombstone, which is asked for where a vote was not
        // answered.
        let connection = |node| {
            let connection = round.replies.sent(node).map(|sent| &sent.connection)?;
            (!connection.is_broken()).then(|| connection.clone())
        };
        let enrollment = |node: usize| if leaves { None } else { round.attempt.enrollment(node) };
        let request = |node: usize| {
            let call = calls[node].clone()?;
            Some(NodeRequest { connection: connection(node), enrollment: enrollment(node), ..call.into() })
        };
        let mut undone = ask(&round.quorum, request, held);
        let replies = undone.send();
        Self { round, calls, leaves, undone, replies }
    }

    /// Waits for the nodes that answered the vote, then leaves the rest to the background.
    pub(crate) async fn wait(mut self) {
        let quorum = Arc::clone(&self.round.quorum);
        let asked = |node: usize| self.calls[node].is_some() && matches!(self.round.ballots[node], Some(Ok(_)));
        let needed = (0..quorum.len()).filter(|node| asked(*node)).count().saturating_sub(self.replies.len());
        self.replies.extend(self.undone.collect(needed).await);
        quorum.cleanup().spawn(self.finish());
    }

    pub(crate) async fn finish(mut self) {
        while let Some((node, reply)) = self.undone.next_of_any().await {
            self.replies.push((node, reply));
        }
        for (node, reply) in mem::take(&mut self.replies) {
            if let Err(no_reply) = reply {
                let reason = no_reply.reason();
                tracing::debug!(node = %self.round.quorum.address(node), reason, "not undone yet");
                self.round.undo_later(node, self.leaves);
            }
        }
        // The votes are waited for, too: they show whether a node works, and whether it has granted.
        while let Some((node, ballot)) = self.round.replies.next_of_any().await {
            let granted = match ballot {
                Ok(ballot) => matches!(ballot, Ballot::Granted(_)),
                Err(no_reply) => no_reply.is_unknown(),
            };
            if granted && self.calls[node].is_none() {
                self.round.undo_later(node, self.leaves);
            }
        }
    }
}
