//! The undo of a round.

use std::sync::Arc;

use lock_redis::{node::ScriptCall, scripts::held};

use crate::{
    acquisition::round::Round,
    nodes::{
        quorum::NodeRequest,
        replies::{Replies, Reply},
    },
    protocol::ballots::Ballot,
};

/// An undo under way.
pub(crate) struct Undo {
    round: Round,
    calls: Vec<Option<ScriptCall>>,
    /// Whether the line is left, too.
    leaves: bool,
    undone: Replies<Reply<bool>>,
    answers: Vec<(usize, Reply<bool>)>,
}

impl Undo {
    pub(super) fn send(round: Round, calls: Vec<Option<ScriptCall>>, leaves: bool) -> Self {
        // Down the connection of its acquisition, where nothing overtakes. One that was given up answers nothing any more, and
        // its limit would pass in vain: what it may yet deliver finds the tombstone, which is asked for where the vote was not
        // answered.
        let connection = |node| {
            let connection = round.replies.sent(node).map(|sent| &sent.connection)?;
            (!connection.is_broken()).then(|| connection.clone())
        };
        let enrollment = |node: usize| if leaves { None } else { round.attempt.enrollment(node) };
        let ask = |node: usize| {
            let call = calls[node].clone()?;
            Some(NodeRequest { connection: connection(node), enrollment: enrollment(node), ..call.into() })
        };
        let mut undone = round.quorum.ask(ask, held);
        let answers = undone.send();
        Self { round, calls, leaves, undone, answers }
    }

    /// Waits for the nodes that answered the acquisition, then leaves the rest to the background.
    pub(crate) async fn wait(mut self) {
        let quorum = Arc::clone(&self.round.quorum);
        let asked = |node: usize| self.calls[node].is_some() && matches!(self.round.ballots[node], Some(Ok(_)));
        let needed = (0..quorum.len()).filter(|node| asked(*node)).count().saturating_sub(self.answers.len());
        self.answers.extend(self.undone.collect(&quorum, needed).await);
        quorum.cleanup().spawn(self.finish());
    }

    pub(crate) async fn finish(mut self) {
        while let Some((node, answer)) = self.undone.next_of_any().await {
            self.answers.push((node, answer));
        }
        for (node, answer) in std::mem::take(&mut self.answers) {
            self.judge(node, answer);
        }
        // The acquisition's own answers are waited for, too: they show whether a node works, and whether it granted.
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

    fn judge(&self, node: usize, answer: Reply<bool>) {
        if let (Err(no_reply), Some(_)) = (answer, &self.calls[node]) {
            let reason = no_reply.reason();
            tracing::debug!(node = %self.round.quorum.address(node), reason, "not undone yet");
            self.round.undo_later(node, self.leaves);
        }
    }
}
