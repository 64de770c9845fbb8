//! One round of voting: a vote on all nodes, its token, and its undo.

mod settle;
mod undo;

use std::sync::Arc;

use crate::nodes::scripts::held;
use lock_core::{BootInstant, Error, safeguard, validity::deadline};
use tokio_util::sync::CancellationToken;

use self::undo::Undo;
use crate::{
    acquisition::attempt::Attempt,
    lease::shared::SharedLease,
    members::servers::stranger,
    nodes::{
        quorum::Quorum,
        replies::{NoReply, Replies, Reply},
        requests::{NodeRequest, ask, probe},
        roster::Roster,
        scripts::{QueueChange, ballot, renumbered},
    },
    protocol::{
        ballots::{Ballot, UndoKind, VoteLost, VoteState, minimum_remainder, vote_lost},
        quorum_lease::QuorumLease,
        token::{NodeNumber, Renumbered, Straggler, straggler},
        votes::{Verdict, Vote, Votes},
    },
};

/// How a round ended.
#[derive(Debug)]
pub(crate) enum RoundResult {
    Won(Grant),
    Lost(VoteLost),
    /// The acquisition was told to stop.
    Stopped,
}

/// A grant: a vote that a majority of the nodes gave, with its token and with the lease that each node keeps.
#[derive(Debug)]
pub(crate) struct Grant {
    pub(crate) token: u64,
    pub(crate) until: BootInstant,
    pub(crate) lease: QuorumLease,
}

/// One round of an attempt: all nodes are asked for their vote, and their answers are counted.
pub(crate) struct Round {
    quorum: Arc<Quorum>,
    attempt: Attempt,
    votes: Votes,
    ballots: Vec<Option<Reply<Ballot>>>,
    replies: Replies<Ballot>,
    /// The members that were asked.
    roster: Roster,
}

impl Round {
    pub(crate) fn begin(quorum: &Arc<Quorum>, attempt: Attempt, proposal: u64) -> Self {
        let entry = attempt.entry();
        let roster = quorum.members.roster();
        let vote = attempt.claim.vote(proposal, entry.as_ref());
        let request = |node| {
            let call = vote.to(roster.stamp(node).ok()?);
            Some(NodeRequest { probe: probe(quorum, node), enrollment: attempt.enrollment(node), ..call.into() })
        };
        let replies = ask(quorum, request, ballot);
        let mut round = Self {
            quorum: Arc::clone(quorum),
            votes: Votes::new(quorum.len()),
            ballots: (0..quorum.len()).map(|_| None).collect(),
            replies,
            attempt,
            roster: roster.clone(),
        };
        for node in 0..quorum.len() {
            // A server that is not known as a member has no vote.
            if let Err(why) = roster.stamp(node) {
                round.record(node, Err(NoReply::NotSent(why.to_owned())));
            }
        }
        quorum.identify();
        round
    }

    /// Votes, and settles the token of a won vote. A round that is not won is to be undone.
    pub(crate) async fn run(&mut self, stop: &CancellationToken) -> RoundResult {
        tokio::select! {
            biased;
            result = self.vote() => result,
            () = stop.cancelled() => RoundResult::Stopped,
        }
    }

    async fn vote(&mut self) -> RoundResult {
        if self.decide().await != Verdict::Granted {
            let nodes: Vec<VoteState<'_>> = (0..self.quorum.len()).map(|node| self.state(node)).collect();
            return RoundResult::Lost(vote_lost(self.attempt.claim.kind, &nodes));
        }
        self.settle().await.map_or_else(RoundResult::Lost, RoundResult::Won)
    }

    /// Waits for as many answers as the decision takes, and not for more.
    async fn decide(&mut self) -> Verdict {
        loop {
            match self.votes.verdict() {
                // Safeguard: catalogue: a majority decides (Redlock)
                Verdict::Undecided => {}
                decided => return decided,
            }
            match self.next().await {
                Some((node, reply)) => self.record(node, reply),
                None => {
                    for node in self.replies.open() {
                        self.votes.record(node, Vote::Unknown);
                    }
                }
            }
        }
    }

    /// The next reply; `None` when no more is to be waited for.
    async fn next(&mut self) -> Option<(usize, Reply<Ballot>)> {
        // Nodes that fail at once have not voted: a vote that hangs on all other nodes waits for them.
        if self.answered() < self.quorum.majority() {
            return self.replies.next().await;
        }
        // The vote is split, and a node that is slower than a majority is to decide it. To lose a vote is always safe.
        self.replies.next_soon().await
    }

    /// How many nodes have answered.
    pub(crate) fn answered(&self) -> usize {
        self.ballots.iter().filter(|ballot| matches!(ballot, Some(Ok(_)))).count()
    }

    fn record(&mut self, node: usize, reply: Reply<Ballot>) {
        if let Ok(Ballot::Stranger(stamp)) = &reply {
            self.quorum.members.set_unknown(node, stranger(stamp));
            self.quorum.identify();
        }
        let vote = match &reply {
            Ok(Ballot::Granted(_)) => Vote::Granted,
            Ok(_) => Vote::Refused,
            Err(_) => Vote::Unknown,
        };
        self.votes.record(node, vote);
        self.ballots[node] = Some(reply);
    }

    /// Settles the token of a won vote, by further rounds where the nodes did not agree, and checks that enough of the lease
    /// is left.
    async fn settle(&mut self) -> Result<Grant, VoteLost> {
        let numbers: Vec<NodeNumber> = self.granted().collect();
        let settled = settle::settle_token(&self.quorum, &self.attempt.claim, numbers).await;
        let (token, numbers) = settled.ok_or(VoteLost::Contested)?;
        let mut lease = QuorumLease::new(self.roster.members());
        let ttl = self.attempt.claim.ttl;
        for NodeNumber { node, number } in numbers {
            let sent = self.replies.sent(node).ok_or(VoteLost::Contested)?;
            let sent_at = if safeguard("from-sending") { sent.at } else { self.quorum.clock().now() };
            lease.grant(node, number, deadline(sent_at, ttl));
        }
        for node in (0..self.quorum.len()).filter(|node| !self.state(*node).may_be_on()) {
            lease.refuse(node);
        }
        let until = lease.valid_until().ok_or(VoteLost::Contested)?;
        // The rounds took their time. What is left must do for the holder to renew the lease.
        let is_late = until.saturating_since(self.quorum.clock().now()) < minimum_remainder(ttl);
        // Safeguard: a grant has a minimum of time left (Redlock)
        if is_late && safeguard("minimum-remainder") {
            return Err(VoteLost::Late);
        }
        Ok(Grant { token, until, lease })
    }

    fn granted(&self) -> impl Iterator<Item = NodeNumber> {
        self.ballots.iter().enumerate().filter_map(|(node, ballot)| match ballot {
            Some(Ok(Ballot::Granted(number))) => Some(NodeNumber { node, number: *number }),
            _ => None,
        })
    }

    fn state(&self, node: usize) -> VoteState<'_> {
        match &self.ballots[node] {
            Some(Ok(ballot)) => VoteState::Answered(ballot),
            Some(Err(no_reply)) if no_reply.is_unknown() => VoteState::Unknown,
            Some(Err(_)) => VoteState::NotSent,
            None if self.votes.as_slice()[node] == Vote::Unknown => VoteState::GivenUp,
            None => VoteState::Open,
        }
    }

    /// The error of an acquisition that ends with a vote without a majority, or with a late one.
    pub(crate) fn unavailable(&self, is_late: bool) -> Error {
        if is_late {
            let least = minimum_remainder(self.attempt.claim.ttl);
            return self.quorum.unavailable(&format!("answers in time to leave {least:?} of the ttl"), []);
        }
        let silent = (0..self.quorum.len()).filter(|node| self.state(*node).is_silent());
        self.quorum.unavailable("votes", silent.map(|node| (node, self.reason(node))))
    }

    /// Why `node` votes neither way.
    fn reason(&self, node: usize) -> String {
        match &self.ballots[node] {
            Some(Err(no_reply)) => no_reply.reason(),
            Some(Ok(Ballot::Quarantined(left))) => {
                format!(
                    "in quarantine for {left:?}: it was restarted or marked in that time and may have forgotten votes"
                )
            }
            Some(Ok(Ballot::Stranger(stamp))) => stranger(stamp),
            Some(Ok(_)) | None => "it has not answered of late".to_owned(),
        }
    }

    /// Gives back whatever this round has or may yet get on any node, and leaves the queue. The requests are on their way
    /// when this returns; what fails in the background is left to the cleanup.
    #[must_use]
    pub(crate) fn undo(self) -> Undo {
        self.replies.cancel_unsent();
        let call = |node: usize| {
            let undoing = self.state(node).undoing(self.attempt.may_be_enrolled(node));
            self.attempt.undo(node, undoing, false).filter(|_| safeguard("undo"))
        };
        let calls = (0..self.quorum.len()).map(call).collect();
        Undo::send(self, calls, true)
    }

    /// Gives back what this round has, so that it does not stand in the way of other attempts during a pause, and stays in
    /// the queue. A node that has not answered yet is waited for in the background: most often there is nothing to undo.
    pub(crate) fn yield_votes(self) {
        // The next round asks anew. A vote of this round would arrive behind whatever is sent meanwhile, also behind the undo of
        // the whole attempt.
        self.replies.cancel_unsent();
        let call = |node: usize| self.attempt.undo(node, self.state(node).undoing_to_yield(), true);
        let calls: Vec<_> = (0..self.quorum.len()).map(call).collect();
        if self.replies.open().next().is_none() && calls.iter().all(Option::is_none) {
            return;
        }
        let quorum = Arc::clone(&self.quorum);
        quorum.cleanup().spawn(Undo::send(self, calls, false).finish());
    }

    /// Leaves the undo of this round on `node` to the cleanup. A waiter that goes on keeps its entry in the queue: a later
    /// round may have been granted since.
    fn undo_later(&self, node: usize, leaves: bool) {
        let Attempt { claim, .. } = &self.attempt;
        let call = match leaves {
            true => self.attempt.undo(node, UndoKind::WithTombstone, false),
            false => Some(claim.undo(true, QueueChange::None)),
        };
        if let Some(call) = call {
            self.quorum.undo_later(node, "undo", call, claim.ttl);
        }
    }

    /// Whether nothing is left to be done after a grant: all nodes have granted, and no request may enroll the waiter again.
    pub(crate) fn is_complete(&self) -> bool {
        self.granted().count() == self.quorum.len()
            && !(0..self.quorum.len()).any(|node| self.attempt.has_pending(node))
    }

    /// Goes on after a grant: nodes that grant late join the lease, and the waiter leaves all queues.
    pub(crate) async fn finish(mut self, shared: Arc<SharedLease>) {
        let members: Vec<u32> = self.roster.members().collect();
        while let Some((node, reply)) = self.replies.next_of_any().await {
            match &reply {
                // The answer of a server that was replaced meanwhile does not count.
                _ if !shared.quorum_lease(|lease| lease.is(node, members[node])) => {}
                Ok(Ballot::Granted(number)) => {
                    if let Some(sent) = self.replies.sent(node) {
                        let until = deadline(sent.at, shared.ttl());
                        join(&shared, NodeNumber { node, number: *number }, members[node], until).await;
                    }
                }
                Err(no_reply) if no_reply.is_unknown() => {}
                _ => shared.quorum_lease(|lease| lease.refuse(node)),
            }
            self.ballots[node] = Some(reply);
        }
        // A grant removes the waiter's entry, but a request that arrives after it would bring the entry back.
        let is_enrolled = |node: usize| match &self.ballots[node] {
            Some(Ok(Ballot::Granted(_))) => self.attempt.has_pending(node),
            // Safeguard: a waiter that was granted leaves the line of a node that did not answer (Redlock)
            _ => self.attempt.may_be_enrolled(node),
        };
        let leave = |node| if is_enrolled(node) { self.attempt.leave_queue(node) } else { None };
        let left = ask(&self.quorum, leave, held);
        self.attempt.finish_leaving(&self.quorum, Vec::new(), left).await;
    }
}

/// Joins a node that granted late to the lease, if possible with the token as its number, so that whoever inspects the lock
/// sees the same token on a majority of the nodes, whichever of them answer.
async fn join(shared: &SharedLease, granted: NodeNumber, member: u32, until: BootInstant) {
    let NodeNumber { node, number } = granted;
    let quorum = &shared.quorum;
    let joined = match straggler(number, shared.token) {
        Straggler::Joins => number,
        Straggler::PassedBy if !safeguard("straggler") => number,
        Straggler::PassedBy => return shared.quorum_lease(|lease| lease.skip(node)),
        Straggler::JoinsAs(token) => {
            let roster = quorum.members.roster();
            let call = |other| {
                let stamp = roster.stamp(other).ok().filter(|_| other == node)?;
                Some(shared.claim.renumber(number, token, stamp))
            };
            match ask(quorum, call, renumbered).next_of_any().await {
                Some((_, Ok(Renumbered::Done))) => token,
                Some((_, Ok(Renumbered::Passed(_)))) => number,
                // The next renewal finds out by which number the node has the lease, if it does.
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
