//! One round of voting: an attempt on all nodes, and its undo.

mod outcome;
mod settling;
mod undo;

use std::{sync::Arc, time::Duration};

use lock_core::{BootInstant, safeguard, validity::deadline};
use lock_redis::{node::ScriptCall, scripts::held};

pub(crate) use self::{outcome::Lost, undo::Undo};
use crate::{
    ballots::{Known, Undoing, minimum_remainder},
    cleaning::Rest,
    holdings::Holdings,
    kind::Kind,
    lease::Held,
    member::stranger,
    panel::{Ask, Panel},
    places::Coming,
    quorum::{self, Verdict, Votes},
    replies::{Answer, Replies, Silence},
    scripts::{Ballot, Line, LockKeys, Place, Renumbered, Vote, ballot, renumbered, undo},
    slots::Seats,
    token::{Answer as Numbered, Straggler, straggler},
    waiting::Waiter,
};

/// What an attempt is about.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) kind: Kind,
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
    panel: Arc<Panel>,
    attempt: Attempt,
    votes: Votes,
    ballots: Vec<Option<Answer<Ballot>>>,
    replies: Replies<Answer<Ballot>>,
    /// Which members were asked.
    seats: Seats,
    late: bool,
}

/// What a won vote gives.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) token: u64,
    pub(crate) until: BootInstant,
    pub(crate) holdings: Holdings,
}

impl Attempt {
    fn place(&self) -> Option<Place> {
        self.waiter.as_ref().map(|waiter| waiter.place(self.ttl))
    }

    /// Gives back what it has on `node`, and goes out of the line unless it stays.
    pub(crate) fn undo(&self, node: usize, stay: bool, tombstone: bool) -> ScriptCall {
        let place = self.place();
        let line = match &place {
            None => Line::None,
            Some(place) if stay => Line::Stay(self.kind, place),
            Some(place) => self.leaving(node, place),
        };
        undo(&self.keys, &self.value, tombstone, line)
    }

    fn undo_as(&self, node: usize, stay: bool, undoing: Undoing) -> Option<ScriptCall> {
        match undoing {
            Undoing::Nothing => None,
            Undoing::Plain => Some(self.undo(node, stay, false)),
            Undoing::WithTombstone => Some(self.undo(node, stay, true)),
        }
    }

    /// Goes out of the line on `node` and leaves everything else alone.
    pub(crate) fn leave(&self, node: usize) -> Option<ScriptCall> {
        // No attempt has this value.
        self.place().map(|place| undo(&self.keys, "", false, self.leaving(node, &place)))
    }

    /// What lines it up and has not been answered may come after this, if its connection broke meanwhile: a vote of an
    /// earlier round, or its undo. Nothing would take such a place away before its end, so the node keeps a note.
    fn leaving<'a>(&self, node: usize, place: &'a Place) -> Line<'a> {
        if self.may_come(node) {
            return Line::LeaveForGood(self.kind, place);
        }
        Line::Leave(self.kind, place)
    }

    /// Whether it stands in line on `node`, or may yet.
    pub(crate) fn may_stand(&self, node: usize) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.places.may_stand(node))
    }

    /// Whether it may yet be put in line on `node`.
    pub(crate) fn may_come(&self, node: usize) -> bool {
        self.waiter.as_ref().is_some_and(|waiter| waiter.places.may_come(node))
    }

    /// To be kept with a request that lines it up on `node`.
    fn coming(&self, node: usize) -> Option<Coming> {
        self.waiter.as_ref().map(|waiter| Coming::new(waiter, node))
    }
}

impl Round {
    pub(crate) fn begin(panel: &Arc<Panel>, attempt: Attempt, proposal: u64) -> Self {
        let place = attempt.place();
        let vote = Vote {
            kind: attempt.kind,
            keys: &attempt.keys,
            value: &attempt.value,
            ttl: attempt.ttl,
            proposal,
            payload: &attempt.payload,
            place: place.as_ref(),
        };
        let seats = panel.slots.seats();
        let ask = |node| {
            let stamp = seats.stamp(node).ok()?;
            Some(Ask { probe: panel.turn(node), coming: attempt.coming(node), ..vote.call(stamp).into() })
        };
        let replies = panel.ask(ask, ballot);
        let mut round = Self {
            panel: Arc::clone(panel),
            votes: Votes::new(panel.len()),
            ballots: (0..panel.len()).map(|_| None).collect(),
            replies,
            attempt,
            seats: seats.clone(),
            late: false,
        };
        for node in 0..panel.len() {
            // Nobody's vote counts who is not known as a member.
            if let Err(why) = seats.stamp(node) {
                round.record(node, Err(Silence::NotSent(why.to_owned())));
            }
        }
        panel.identify();
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
                        self.votes.record(node, quorum::Vote::Unknown);
                    }
                }
            }
        }
    }

    /// The next answer; `None` when no more is to be waited for.
    async fn next(&mut self) -> Option<(usize, Answer<Ballot>)> {
        // Nodes that fail at once have not voted: a vote that hangs on all the others waits for them.
        let answered = self.ballots.iter().filter(|ballot| matches!(ballot, Some(Ok(_)))).count();
        if answered < self.panel.majority() {
            return self.replies.next(&self.panel).await;
        }
        // The vote is split, and a node that is slower than a majority is to turn the scale. To lose it is always safe.
        self.replies.next_soon(&self.panel).await
    }

    fn record(&mut self, node: usize, answer: Answer<Ballot>) {
        if let Ok(Ballot::Stranger(stamp)) = &answer {
            self.panel.slots.is_stranger(node, stranger(stamp));
            self.panel.identify();
        }
        let vote = match &answer {
            Ok(Ballot::Granted(_)) => quorum::Vote::Granted,
            Ok(_) => quorum::Vote::Refused,
            Err(_) => quorum::Vote::Unknown,
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
        let answers: Vec<Numbered> = self.granted().map(|(node, number)| Numbered { node, number }).collect();
        let settled = settling::settle_token(&self.panel, &self.attempt, answers).await?;
        let mut holdings = Holdings::new(self.seats.members());
        for Numbered { node, number } in settled.numbers {
            let sent_at = self.replies.sent(node)?.at;
            let sent_at = if safeguard("from-sending") { sent_at } else { self.panel.clock().now() };
            holdings.grant(node, number, deadline(sent_at, self.attempt.ttl));
        }
        for node in 0..self.panel.len() {
            if !self.known(node).may_be_on() {
                holdings.refuse(node);
            }
        }
        let until = holdings.valid_until()?;
        // All rounds took their time. What is left must do for the holder to renew it.
        let remaining = until.saturating_since(self.panel.clock().now());
        self.late = remaining < minimum_remainder(self.attempt.ttl) && safeguard("minimum-remainder");
        (!self.late).then_some(Won { token: settled.token, until, holdings })
    }

    fn granted(&self) -> impl Iterator<Item = (usize, u64)> {
        self.ballots.iter().enumerate().filter_map(|(node, ballot)| match ballot {
            Some(Ok(Ballot::Granted(number))) => Some((node, *number)),
            _ => None,
        })
    }

    fn known(&self, node: usize) -> Known<'_> {
        match &self.ballots[node] {
            Some(Ok(ballot)) => Known::Answered(ballot),
            Some(Err(silence)) if silence.is_unknown() => Known::Unknown,
            Some(Err(_)) => Known::NotSent,
            None if self.votes.as_slice()[node] == quorum::Vote::Unknown => Known::GivenUp,
            None => Known::Open,
        }
    }

    /// Gives back whatever this round has or may yet get on any node, and leaves the line. The requests are on their way
    /// when this returns; the rest goes on in the background, and what fails there is the cleanup's.
    #[must_use]
    pub(crate) fn undo(self) -> Undo {
        self.replies.send_no_more();
        let call = |node: usize| {
            let undoing = self.known(node).undoing(self.attempt.may_stand(node));
            self.attempt.undo_as(node, false, undoing).filter(|_| safeguard("undo"))
        };
        let calls = (0..self.panel.len()).map(call).collect();
        Undo::send(self, calls, true)
    }

    /// Gives back what this round has, so that it does not stand in the way of others while it pauses, and stays in
    /// line. A node that has not answered yet is waited for in the background: most often there will be nothing to undo.
    pub(crate) fn pass(self) {
        // The next round asks anew. This one's vote would come behind whatever is sent meanwhile, also behind the undo of
        // the whole attempt.
        self.replies.send_no_more();
        let call = |node: usize| self.attempt.undo_as(node, true, self.known(node).passing());
        let calls: Vec<_> = (0..self.panel.len()).map(call).collect();
        if self.replies.open().next().is_none() && calls.iter().all(Option::is_none) {
            return;
        }
        let panel = Arc::clone(&self.panel);
        let undo = Undo::send(self, calls, false);
        panel.cleanup().spawn(undo.finish());
    }

    /// Leaves it to the cleanup to undo this round on `node`. One that goes on waiting keeps its place in line: it may have
    /// been granted since.
    fn clean(&self, node: usize, leaves: bool) {
        let call = match leaves {
            true => self.attempt.undo(node, false, true),
            false => undo(&self.attempt.keys, &self.attempt.value, true, Line::None),
        };
        let until = self.panel.clock().now().saturating_add(self.attempt.ttl);
        self.panel.clean(node, Rest { what: "undo", call, until });
    }

    /// Goes on after a grant, in the background: nodes that grant late join the lease, and all forget that this one waits.
    pub(crate) async fn finish(mut self, held_lock: Arc<Held>) {
        let members: Vec<u32> = self.seats.members().collect();
        while let Some((node, answer)) = self.replies.next_of_all().await {
            match &answer {
                // Not of a server that was replaced meanwhile.
                _ if !held_lock.holdings(|holdings| holdings.is(node, members[node])) => {}
                Ok(Ballot::Granted(number)) => {
                    if let Some(sent) = self.replies.sent(node) {
                        let until = deadline(sent.at, self.attempt.ttl);
                        join(&held_lock, node, members[node], *number, until).await;
                    }
                }
                Err(silence) if silence.is_unknown() => {}
                _ => held_lock.holdings(|holdings| holdings.refuse(node)),
            }
            self.ballots[node] = Some(answer);
        }
        // A grant takes the place away, but what comes after it would bring it back.
        let stands = |node: usize| match &self.ballots[node] {
            Some(Ok(Ballot::Granted(_))) => self.attempt.may_come(node),
            _ => self.attempt.may_stand(node),
        };
        let leave = |node| if stands(node) { Some(self.attempt.leave(node)?.into()) } else { None };
        let left = self.panel.ask(leave, held);
        leave_line(&self.panel, &self.attempt, Vec::new(), left).await;
    }

    /// Whether a vote was won and came too late.
    pub(crate) const fn is_late(&self) -> bool {
        self.late
    }

    /// Whether nothing is left to be done after a grant: all nodes have given it, and none may yet put it in line.
    pub(crate) fn is_complete(&self) -> bool {
        self.granted().count() == self.panel.len() && !(0..self.panel.len()).any(|node| self.attempt.may_come(node))
    }
}

/// Waits until the line was left on all nodes, and leaves the rest to the cleanup, also where it is known already that it was
/// not left.
pub(crate) async fn leave_line(
    panel: &Arc<Panel>,
    attempt: &Attempt,
    mut answers: Vec<(usize, Answer<bool>)>,
    mut left: Replies<Answer<bool>>,
) {
    loop {
        for (node, answer) in answers.drain(..) {
            if let (Err(_), Some(call)) = (answer, attempt.leave(node)) {
                let until = panel.clock().now().saturating_add(attempt.ttl);
                panel.clean(node, Rest { what: "leaving the line", call, until });
            }
        }
        let Some(answer) = left.next_of_all().await else { return };
        answers.push(answer);
    }
}

/// A node that granted late, by this number, joins the lease; if possible with the token as its number, so that whoever
/// looks sees the same on a majority of the nodes, whichever of them are there.
async fn join(held_lock: &Held, node: usize, member: u32, number: u64, until: BootInstant) {
    let Held { panel, attempt, token, .. } = held_lock;
    let joined = match straggler(number, *token) {
        Straggler::Joins => number,
        Straggler::PassedBy if !safeguard("straggler") => number,
        Straggler::PassedBy => return held_lock.holdings(|holdings| holdings.pass_by(node)),
        Straggler::JoinsAs(token) => {
            let call = |stamp: &str| attempt.kind.renumber(&attempt.keys, &attempt.value, number, token, stamp);
            let seats = panel.slots.seats();
            let ask = |other| Some(call(seats.stamp(other).ok().filter(|_| other == node)?).into());
            let mut replies = panel.ask(ask, renumbered);
            match replies.next_of_all().await {
                Some((_, Ok(Renumbered::Done))) => token,
                Some((_, Ok(Renumbered::Passed(_)))) => number,
                // By which number it has the lease, if it does, the next renewal finds out.
                Some((_, Ok(Renumbered::Gone) | Err(_))) | None => return,
            }
        }
    };
    held_lock.holdings(|holdings| {
        if holdings.is(node, member) {
            holdings.grant_late(node, joined, until);
        }
    });
}
