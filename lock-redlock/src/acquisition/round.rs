//! One round of voting: an attempt on all nodes, and its undo.

mod outcome;
mod settle;
mod undo;

use std::{sync::Arc, time::Duration};

use lock_core::{BootInstant, validity::deadline};
use lock_redis::{node::ScriptCall, scripts::held};

pub(crate) use self::{outcome::Lost, undo::Undo};
use crate::{
    lease::SharedLease,
    members::identify::stranger,
    nodes::{
        members::Roster,
        quorum::{NodeRequest, Quorum},
        replies::{NoReply, Replies, Reply},
        scripts::{LockKeys, QueueChange, Vote, WaiterEntry, ballot, renumbered, undo},
        undo_queue::PendingUndo,
    },
    protocol::ballots::Ballot,
    protocol::token::Renumbered,
    protocol::{
        ballots::{UndoKind, VoteState, minimum_remainder},
        enrollments::PendingEnrollment,
        kind::LockKind,
        quorum_lease::QuorumLease,
        token::{NodeNumber, Straggler, straggler},
        votes::{self, Verdict, Votes},
    },
    waiters::Waiter,
};

/// What an attempt is about.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) kind: LockKind,
    pub(crate) keys: LockKeys,
    /// What tells it from all others, this one's earlier rounds included.
    pub(crate) value: String,
    pub(crate) ttl: Duration,
    pub(crate) payload: Arc<[u8]>,
    /// `None` for one that does not wait.
    pub(crate) waiter: Option<Arc<Waiter>>,
}

/// An attempt on all nodes.
pub(crate) struct Round {
    quorum: Arc<Quorum>,
    attempt: Attempt,
    votes: Votes,
    ballots: Vec<Option<Reply<Ballot>>>,
    replies: Replies<Reply<Ballot>>,
    /// Which members were asked.
    roster: Roster,
    late: bool,
}

/// What a won vote gives.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) token: u64,
    pub(crate) until: BootInstant,
    pub(crate) lease: QuorumLease,
}

impl Attempt {
    fn entry(&self) -> Option<WaiterEntry> {
        self.waiter.as_ref().map(|waiter| waiter.entry(self.ttl))
    }

    /// Gives back what it has on `node`, and goes out of the line unless it stays.
    pub(crate) fn undo(&self, node: usize, stay: bool, tombstone: bool) -> ScriptCall {
        let entry = self.entry();
        let line = match &entry {
            None => QueueChange::None,
            Some(entry) if stay => QueueChange::Stay(self.kind, entry),
            Some(entry) => self.leaving(node, entry),
        };
        undo(&self.keys, &self.value, tombstone, line)
    }

    fn undo_as(&self, node: usize, stay: bool, undoing: UndoKind) -> Option<ScriptCall> {
        match undoing {
            UndoKind::Nothing => None,
            UndoKind::Plain => Some(self.undo(node, stay, false)),
            UndoKind::WithTombstone => Some(self.undo(node, stay, true)),
        }
    }

    /// Goes out of the line on `node` and leaves everything else alone.
    pub(crate) fn leave(&self, node: usize) -> Option<ScriptCall> {
        // No attempt has this value.
        self.entry().map(|entry| undo(&self.keys, "", false, self.leaving(node, &entry)))
    }

    /// What lines it up and has not been answered may come after this, if its connection broke meanwhile: a vote of an
    /// earlier round, or its undo. Nothing would take such a entry away before its end, so the node keeps a note.
    fn leaving<'a>(&self, node: usize, entry: &'a WaiterEntry) -> QueueChange<'a> {
        if self.has_pending(node) {
            return QueueChange::LeaveForGood(self.kind, entry);
        }
        QueueChange::Leave(self.kind, entry)
    }

    /// Whether it stands in line on `node`, or may yet.
    pub(crate) fn may_be_enrolled(&self, node: usize) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.enrollments.may_be_enrolled(node))
    }

    /// Whether it may yet be put in line on `node`.
    pub(crate) fn has_pending(&self, node: usize) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.enrollments.has_pending(node))
    }

    /// To be kept with a request that lines it up on `node`.
    fn enrollment(&self, node: usize) -> Option<PendingEnrollment> {
        self.waiter.as_ref().map(|waiter| PendingEnrollment::new(waiter, node))
    }
}

impl Round {
    pub(crate) fn begin(quorum: &Arc<Quorum>, attempt: Attempt, proposal: u64) -> Self {
        let entry = attempt.entry();
        let vote = Vote {
            kind: attempt.kind,
            keys: &attempt.keys,
            value: &attempt.value,
            ttl: attempt.ttl,
            proposal,
            payload: &attempt.payload,
            entry: entry.as_ref(),
        };
        let roster = quorum.members.roster();
        let ask = |node| {
            let stamp = roster.stamp(node).ok()?;
            Some(NodeRequest {
                probe: quorum.probe(node),
                enrollment: attempt.enrollment(node),
                ..vote.call(stamp).into()
            })
        };
        let replies = quorum.ask(ask, ballot);
        let mut round = Self {
            quorum: Arc::clone(quorum),
            votes: Votes::new(quorum.len()),
            ballots: (0..quorum.len()).map(|_| None).collect(),
            replies,
            attempt,
            roster: roster.clone(),
            late: false,
        };
        for node in 0..quorum.len() {
            // Nobody's vote counts who is not known as a member.
            if let Err(why) = roster.stamp(node) {
                round.record(node, Err(NoReply::NotSent(why.to_owned())));
            }
        }
        quorum.identify();
        round
    }

    /// Waits for as many answers as the decision takes, and not for more.
    ///
    /// # Cancel safety
    /// May be dropped and called again.
    pub(crate) async fn decide(&mut self) -> Verdict {
        loop {
            match self.votes.verdict() {
                Verdict::Undecided => {}
                decided => return decided,
            }
            match self.next().await {
                Some((node, answer)) => self.record(node, answer),
                None => {
                    for node in self.replies.open() {
                        self.votes.record(node, votes::Vote::Unknown);
                    }
                }
            }
        }
    }

    /// The next answer; `None` when no more is to be waited for.
    async fn next(&mut self) -> Option<(usize, Reply<Ballot>)> {
        // Nodes that fail at once have not voted: a vote that hangs on all the others waits for them.
        let answered = self.ballots.iter().filter(|ballot| matches!(ballot, Some(Ok(_)))).count();
        if answered < self.quorum.majority() {
            return self.replies.next(&self.quorum).await;
        }
        // The vote is split, and a node that is slower than a majority is to turn the scale. To lose it is always safe.
        self.replies.next_soon(&self.quorum).await
    }

    fn record(&mut self, node: usize, answer: Reply<Ballot>) {
        if let Ok(Ballot::Stranger(stamp)) = &answer {
            self.quorum.members.set_unknown(node, stranger(stamp));
            self.quorum.identify();
        }
        let vote = match &answer {
            Ok(Ballot::Granted(_)) => votes::Vote::Granted,
            Ok(_) => votes::Vote::Refused,
            Err(_) => votes::Vote::Unknown,
        };
        self.votes.record(node, vote);
        self.ballots[node] = Some(answer);
    }

    /// Settles the token of a won vote, by further rounds where the nodes did not agree, and checks that enough of the
    /// lease is left. `None` when it is no grant after all.
    ///
    /// # Cancel safety
    /// May be dropped; the round is to be undone then.
    pub(crate) async fn settle(&mut self) -> Option<Won> {
        let answers: Vec<NodeNumber> = self.granted().map(|(node, number)| NodeNumber { node, number }).collect();
        let settled = settle::settle_token(&self.quorum, &self.attempt, answers).await?;
        let mut lease = QuorumLease::new(self.roster.members());
        for NodeNumber { node, number } in settled.numbers {
            let sent_at = self.replies.sent(node)?.at;
            lease.grant(node, number, deadline(sent_at, self.attempt.ttl));
        }
        for node in 0..self.quorum.len() {
            if !self.known(node).may_be_on() {
                lease.refuse(node);
            }
        }
        let until = lease.valid_until()?;
        // All rounds took their time. What is left must do for the holder to renew it.
        let remaining = until.saturating_since(self.quorum.clock().now());
        self.late = remaining < minimum_remainder(self.attempt.ttl);
        (!self.late).then_some(Won { token: settled.token, until, lease })
    }

    fn granted(&self) -> impl Iterator<Item = (usize, u64)> {
        self.ballots.iter().enumerate().filter_map(|(node, ballot)| match ballot {
            Some(Ok(Ballot::Granted(number))) => Some((node, *number)),
            _ => None,
        })
    }

    fn known(&self, node: usize) -> VoteState<'_> {
        match &self.ballots[node] {
            Some(Ok(ballot)) => VoteState::Answered(ballot),
            Some(Err(no_reply)) if no_reply.is_unknown() => VoteState::Unknown,
            Some(Err(_)) => VoteState::NotSent,
            None if self.votes.as_slice()[node] == votes::Vote::Unknown => VoteState::GivenUp,
            None => VoteState::Open,
        }
    }

    /// Gives back whatever this round has or may yet get on any node, and leaves the line. The requests are on their way
    /// when this returns; the rest goes on in the background, and what fails there is the cleanup's.
    #[must_use]
    pub(crate) fn undo(self) -> Undo {
        self.replies.cancel_unsent();
        let call = |node: usize| {
            let undoing = self.known(node).undoing(self.attempt.may_be_enrolled(node));
            self.attempt.undo_as(node, false, undoing)
        };
        let calls = (0..self.quorum.len()).map(call).collect();
        Undo::send(self, calls, true)
    }

    /// Gives back what this round has, so that it does not stand in the way of others while it pauses, and stays in
    /// line. A node that has not answered yet is waited for in the background: most often there will be nothing to undo.
    pub(crate) fn yield_votes(self) {
        // The next round asks anew. This one's vote would come behind whatever is sent meanwhile, also behind the undo of
        // the whole attempt.
        self.replies.cancel_unsent();
        let call = |node: usize| self.attempt.undo_as(node, true, self.known(node).undoing_to_yield());
        let calls: Vec<_> = (0..self.quorum.len()).map(call).collect();
        if self.replies.open().next().is_none() && calls.iter().all(Option::is_none) {
            return;
        }
        let quorum = Arc::clone(&self.quorum);
        let undo = Undo::send(self, calls, false);
        quorum.cleanup().spawn(undo.finish());
    }

    /// Leaves it to the cleanup to undo this round on `node`. One that goes on waiting keeps its entry in line: it may have
    /// been granted since.
    fn undo_later(&self, node: usize, leaves: bool) {
        let call = match leaves {
            true => self.attempt.undo(node, false, true),
            false => undo(&self.attempt.keys, &self.attempt.value, true, QueueChange::None),
        };
        let until = self.quorum.clock().now().saturating_add(self.attempt.ttl);
        self.quorum.undo_later(node, PendingUndo { what: "undo", call, until });
    }

    /// Goes on after a grant, in the background: nodes that grant late join the lease, and all forget that this one waits.
    pub(crate) async fn finish(mut self, shared: Arc<SharedLease>) {
        let members: Vec<u32> = self.roster.members().collect();
        while let Some((node, answer)) = self.replies.next_of_any().await {
            match &answer {
                // Not of a server that was replaced meanwhile.
                _ if !shared.quorum_lease(|lease| lease.is(node, members[node])) => {}
                Ok(Ballot::Granted(number)) => {
                    if let Some(sent) = self.replies.sent(node) {
                        let until = deadline(sent.at, self.attempt.ttl);
                        join(&shared, node, members[node], *number, until).await;
                    }
                }
                Err(no_reply) if no_reply.is_unknown() => {}
                _ => shared.quorum_lease(|lease| lease.refuse(node)),
            }
            self.ballots[node] = Some(answer);
        }
        // A grant takes the entry away, but what comes after it would bring it back.
        let stands = |node: usize| match &self.ballots[node] {
            Some(Ok(Ballot::Granted(_))) => self.attempt.has_pending(node),
            _ => self.attempt.may_be_enrolled(node),
        };
        let leave = |node| if stands(node) { Some(self.attempt.leave(node)?.into()) } else { None };
        let left = self.quorum.ask(leave, held);
        leave_line(&self.quorum, &self.attempt, Vec::new(), left).await;
    }

    /// Whether a vote was won and came too late.
    pub(crate) const fn is_late(&self) -> bool {
        self.late
    }

    /// Whether nothing is left to be done after a grant: all nodes have given it, and none may yet put it in line.
    pub(crate) fn is_complete(&self) -> bool {
        self.granted().count() == self.quorum.len()
            && !(0..self.quorum.len()).any(|node| self.attempt.has_pending(node))
    }
}

/// Waits until the line was left on all nodes, and leaves the rest to the cleanup, also where it is known already that it was
/// not left.
pub(crate) async fn leave_line(
    quorum: &Arc<Quorum>,
    attempt: &Attempt,
    mut answers: Vec<(usize, Reply<bool>)>,
    mut left: Replies<Reply<bool>>,
) {
    loop {
        for (node, answer) in answers.drain(..) {
            if let (Err(_), Some(call)) = (answer, attempt.leave(node)) {
                let until = quorum.clock().now().saturating_add(attempt.ttl);
                quorum.undo_later(node, PendingUndo { what: "leaving the line", call, until });
            }
        }
        let Some(answer) = left.next_of_any().await else { return };
        answers.push(answer);
    }
}

/// A node that granted late, by this number, joins the lease; if possible with the token as its number, so that whoever
/// looks sees the same on a majority of the nodes, whichever of them are there.
async fn join(shared: &SharedLease, node: usize, member: u32, number: u64, until: BootInstant) {
    let SharedLease { quorum, attempt, token, .. } = shared;
    let joined = match straggler(number, *token) {
        Straggler::Joins => number,
        Straggler::PassedBy => return shared.quorum_lease(|lease| lease.skip(node)),
        Straggler::JoinsAs(token) => {
            let call = |stamp: &str| attempt.kind.renumber(&attempt.keys, &attempt.value, number, token, stamp);
            let roster = quorum.members.roster();
            let ask = |other| Some(call(roster.stamp(other).ok().filter(|_| other == node)?).into());
            let mut replies = quorum.ask(ask, renumbered);
            match replies.next_of_any().await {
                Some((_, Ok(Renumbered::Done))) => token,
                Some((_, Ok(Renumbered::Passed(_)))) => number,
                // By which number it has the lease, if it does, the next renewal finds out.
                Some((_, Ok(Renumbered::Gone) | Err(_))) | None => return,
            }
        }
    };
    shared.quorum_lease(|lease| {
        if lease.is(node, member) {
            lease.grant_late(node, joined, until);
        }
    });
}
