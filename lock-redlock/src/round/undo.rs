//! The undo of a round.

use std::sync::Arc;

use lock_redis::{node::ScriptCall, scripts::held};

use crate::{
    panel::Ask,
    replies::{Answer, Replies},
    round::Round,
    scripts::Ballot,
};

/// An undo under way.
pub(crate) struct Undo {
    round: Round,
    calls: Vec<Option<ScriptCall>>,
    /// Whether the line is left, too.
    leaves: bool,
    undone: Replies<Answer<bool>>,
    answers: Vec<(usize, Answer<bool>)>,
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
        let coming = |node: usize| if leaves { None } else { round.attempt.coming(node) };
        let ask = |node: usize| {
            let call = calls[node].clone()?;
            Some(Ask { connection: connection(node), coming: coming(node), ..call.into() })
        };
        let mut undone = round.panel.ask(ask, held);
        let answers = undone.send();
        Self { round, calls, leaves, undone, answers }
    }

    /// Waits for the nodes that answered the acquisition, then leaves the rest to the background.
    pub(crate) async fn wait(mut self) {
        let panel = Arc::clone(&self.round.panel);
        let asked = |node: usize| self.calls[node].is_some() && matches!(self.round.ballots[node], Some(Ok(_)));
        let needed = (0..panel.len()).filter(|node| asked(*node)).count().saturating_sub(self.answers.len());
        self.answers.extend(self.undone.settle_down(&panel, needed).await);
        panel.cleanup().spawn(self.finish());
    }

    pub(crate) async fn finish(mut self) {
        while let Some((node, answer)) = self.undone.next_of_all().await {
            self.answers.push((node, answer));
        }
        for (node, answer) in std::mem::take(&mut self.answers) {
            self.judge(node, answer);
        }
        // The acquisition's own answers are waited for, too: they show whether a node works, and whether it granted.
        while let Some((node, ballot)) = self.round.replies.next_of_all().await {
            let granted = match ballot {
                Ok(ballot) => matches!(ballot, Ballot::Granted(_)),
                Err(silence) => silence.is_unknown(),
            };
            if granted && self.calls[node].is_none() {
                self.round.clean(node, self.leaves);
            }
        }
    }

    fn judge(&self, node: usize, answer: Answer<bool>) {
        if let (Err(silence), Some(_)) = (answer, &self.calls[node]) {
            let reason = silence.reason();
            tracing::debug!(node = %self.round.panel.address(node), reason, "not undone yet");
            self.round.clean(node, self.leaves);
        }
    }
}
