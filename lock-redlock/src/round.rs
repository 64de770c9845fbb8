//! One round of voting: an attempt on all nodes, and its undo.

use std::{collections::HashMap, sync::Arc, time::Duration};

use lock_core::{BootInstant, Error, validity::deadline};
use lock_redis::{node::ScriptCall, scripts::held};

use crate::{
    holdings::Holdings,
    lease::Held,
    panel::{Answer, Ask, PATIENCE, Panel, Replies, unavailable},
    quorum::{Verdict, Vote, Votes, smallest},
    scripts::{Ballot, Line, LockKeys, acquire, ballot, undo, write_back},
    token::{Answer as Numbered, settle},
    waiting::Waiter,
};

/// For how long one that won no node waits for the others to come to an end among themselves.
const TURN: Duration = Duration::from_millis(100);

/// What an attempt is about.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
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
    late: bool,
}

/// What a lost vote means.
#[derive(Debug)]
pub(crate) enum Lost {
    /// Others have it or are about to. For one that waits, another round is worth it after this time at the latest.
    Behind(Duration),
    /// The vote was split, and nobody may have won it: another round at once may.
    Contested,
    /// So few nodes vote at all that nobody can have a majority.
    Outage(Error),
    /// The vote was won, and the answers took so long that too little of the ttl was left.
    Late(Error),
}

/// What a won vote gives.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) token: u64,
    pub(crate) until: BootInstant,
    pub(crate) holdings: Holdings,
}

impl Round {
    pub(crate) fn begin(panel: &Arc<Panel>, attempt: Attempt, proposal: u64) -> Self {
        let config = &panel.config;
        let quarantine = config.restart_quarantine.then_some(config.max_ttl);
        let place = attempt.waiter.as_ref().map(|waiter| &waiter.place);
        let Attempt { keys, value, ttl, payload, .. } = &attempt;
        let ask = |node| {
            let call = acquire(keys, value, *ttl, proposal, payload, place, quarantine);
            Some(Ask { probe: panel.turn(node), ..call.into() })
        };
        let replies = panel.ask(ask, ballot);
        Self {
            panel: Arc::clone(panel),
            votes: Votes::new(panel.len()),
            ballots: panel.nodes.iter().map(|_| None).collect(),
            replies,
            attempt,
            late: false,
        }
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
                        self.votes.record(node, Vote::Unknown);
                    }
                }
            }
        }
    }

    /// The next answer; `None` when no more is to be waited for.
    async fn next(&mut self) -> Option<(usize, Answer<Ballot>)> {
        let answered = self.panel.len() - self.replies.open().count();
        let next = self.replies.next(&self.panel);
        if answered < self.panel.majority() {
            return next.await;
        }
        // The vote is split, and a node that is slower than a majority is to turn the scale. To lose it is always safe.
        self.panel.clock().timeout(PATIENCE, next).await.flatten()
    }

    fn record(&mut self, node: usize, answer: Answer<Ballot>) {
        let vote = match &answer {
            Ok(Ballot::Granted(_)) => Vote::Granted,
            Ok(_) => Vote::Refused,
            Err(_) => Vote::Unknown,
        };
        self.votes.record(node, vote);
        self.ballots[node] = Some(answer);
    }

    /// Settles the token of a won vote, by a second round where the nodes did not agree, and checks that enough of the
    /// lease is left. `None` when it is no grant after all.
    ///
    /// # Cancel safety
    /// May be dropped; the round is to be undone then.
    pub(crate) async fn settle(&mut self) -> Option<Won> {
        let answers: Vec<Numbered> = self.granted().map(|(node, number)| Numbered { node, number }).collect();
        let settlement = settle(&answers, self.panel.len())?;
        if !settlement.behind.is_empty()
            && !self.is_written_back(&settlement.exact, &settlement.behind, settlement.token).await
        {
            return None;
        }
        let mut holdings = Holdings::new(self.panel.len());
        for Numbered { node, number } in answers {
            let sent_at = self.replies.sent(node)?.at;
            holdings.grant(node, number, deadline(sent_at, self.attempt.ttl));
        }
        for node in 0..self.panel.len() {
            if !self.may_be_on(node) {
                holdings.refuse(node);
            }
        }
        let until = holdings.valid_until()?;
        // Both rounds took their time. What is left must do for the holder to renew it.
        let remaining = until.saturating_since(self.panel.clock().now());
        self.late = remaining < minimum_remainder(self.attempt.ttl);
        (!self.late).then_some(Won { token: settlement.token, until, holdings })
    }

    async fn is_written_back(&mut self, exact: &[usize], behind: &[Numbered], token: u64) -> bool {
        let mut votes = Votes::new(self.panel.len());
        for node in exact {
            votes.record(*node, Vote::Granted);
        }
        let number = |node: usize| behind.iter().find(|answer| answer.node == node).map(|answer| answer.number);
        let (keys, value) = (&self.attempt.keys, &self.attempt.value);
        let mut replies = self.panel.ask(|node| Some(write_back(keys, value, number(node)?, token).into()), held);
        // Only nodes that granted can confirm: elsewhere no holding of ours keeps others away.
        for node in (0..self.panel.len()).filter(|node| !replies.is_open(*node)) {
            votes.record(node, Vote::Refused);
        }
        loop {
            match votes.verdict() {
                Verdict::Undecided => {}
                decided => return decided == Verdict::Granted,
            }
            let Some((node, answer)) = replies.next(&self.panel).await else { return false };
            votes.record(node, if matches!(answer, Ok(true)) { Vote::Granted } else { Vote::Unknown });
        }
    }

    fn granted(&self) -> impl Iterator<Item = (usize, u64)> {
        self.ballots.iter().enumerate().filter_map(|(node, ballot)| match ballot {
            Some(Ok(Ballot::Granted(number))) => Some((node, *number)),
            _ => None,
        })
    }

    /// Whether `node` may have granted, or may yet.
    fn may_be_on(&self, node: usize) -> bool {
        match &self.ballots[node] {
            Some(Ok(Ballot::Granted(_))) => true,
            Some(Ok(_)) => false,
            Some(Err(silence)) => silence.is_unknown(),
            None => true,
        }
    }

    /// What a lost vote means.
    pub(crate) fn lost(&self) -> Lost {
        let silent: Vec<(usize, String)> =
            (0..self.panel.len()).filter_map(|node| Some((node, self.silent(node)?))).collect();
        if self.panel.len() - silent.len() < self.panel.majority() {
            return Lost::Outage(unavailable(&self.panel, "votes", silent));
        }
        let mut holders: HashMap<&[u8], usize> = HashMap::new();
        let mut free_in = Vec::new();
        for ballot in self.ballots.iter().flatten().flatten() {
            if let Ballot::Held { remaining, holder } = ballot {
                *holders.entry(holder).or_default() += 1;
                free_in.push(remaining.unwrap_or(Duration::MAX));
            }
        }
        let granted = self.granted().count();
        free_in.extend((0..granted).map(|_| Duration::ZERO));
        let majority = self.panel.majority();
        match smallest(free_in, majority) {
            Some(free_in) if holders.values().any(|count| *count >= majority) => Lost::Behind(free_in),
            // Whoever has some of the nodes tries again at once; one that has none only stands in the way. It is in line.
            _ if granted == 0 => Lost::Behind(TURN),
            _ => Lost::Contested,
        }
    }

    /// Why `node` votes neither way.
    fn silent(&self, node: usize) -> Option<String> {
        match &self.ballots[node] {
            Some(Err(silence)) => Some(silence.reason()),
            Some(Ok(Ballot::Quarantined(left))) => Some(format!(
                "in quarantine for {left:?}, after a restart or because it was never marked as a member (init)"
            )),
            None if self.votes.as_slice()[node] == Vote::Unknown => Some("it has not answered of late".to_owned()),
            Some(Ok(_)) | None => None,
        }
    }

    /// Gives back whatever this round has or may yet get on any node, and leaves the line. The requests are on their way
    /// when this returns; the rest goes on in the background, and what fails there is the janitor's.
    #[must_use]
    pub(crate) fn undo(self) -> Undo {
        let call = |node: usize| match &self.ballots[node] {
            Some(Ok(Ballot::Granted(_))) => Some(self.undo_call(false, false)),
            // It may have lined up there.
            Some(Ok(_)) => self.attempt.waiter.as_ref().map(|_| self.undo_call(false, false)),
            // Should it have lined up there in an earlier round, it is passed over once it does not listen any more.
            Some(Err(silence)) if !silence.is_unknown() => None,
            Some(Err(_)) | None => Some(self.undo_call(false, true)),
        };
        let calls = (0..self.panel.len()).map(call).collect();
        Undo::send(self, calls)
    }

    /// Gives back what this round has, so that it does not stand in the way of others while it pauses, and stays in
    /// line. A node that has not answered yet is waited for in the background: most often there will be nothing to undo.
    pub(crate) fn pass(self) {
        let call = |node: usize| match &self.ballots[node] {
            Some(Ok(Ballot::Granted(_))) => Some(self.undo_call(true, false)),
            Some(Err(silence)) if silence.is_unknown() => Some(self.undo_call(true, true)),
            Some(_) | None => None,
        };
        let calls: Vec<_> = (0..self.panel.len()).map(call).collect();
        if self.replies.open().next().is_none() && calls.iter().all(Option::is_none) {
            return;
        }
        let panel = Arc::clone(&self.panel);
        let undo = Undo::send(self, calls);
        panel.janitor.spawn(undo.finish());
    }

    /// Leaves it to the janitor to undo this round on `node`. The line is not touched any more: the waiter may have been
    /// granted since, or its number used again.
    fn clean(&self, node: usize) {
        let call = undo(&self.attempt.keys, &self.attempt.value, true, Line::None);
        self.panel.clean("undo", node, call, self.attempt.ttl);
    }

    fn undo_call(&self, stay: bool, tombstone: bool) -> ScriptCall {
        let line = match &self.attempt.waiter {
            None => Line::None,
            Some(waiter) if stay => Line::Stay(&waiter.place),
            Some(waiter) => Line::Leave(&waiter.place),
        };
        undo(&self.attempt.keys, &self.attempt.value, tombstone, line)
    }

    /// Goes on after a grant, in the background: nodes that grant late join the lease, those that refused forget that
    /// this one waits.
    pub(crate) async fn finish(mut self, held_lock: Arc<Held>) {
        while let Some((node, answer)) = self.replies.next_of_all().await {
            match (&answer, self.replies.sent(node)) {
                (Ok(Ballot::Granted(number)), Some(sent)) => {
                    let until = deadline(sent.at, self.attempt.ttl);
                    held_lock.holdings(|holdings| holdings.join(node, *number, until));
                }
                (Err(silence), _) if silence.is_unknown() => {}
                _ => held_lock.holdings(|holdings| holdings.refuse(node)),
            }
            self.ballots[node] = Some(answer);
        }
        let Some(waiter) = &self.attempt.waiter else { return };
        let (keys, value, ballots) = (&self.attempt.keys, &self.attempt.value, &self.ballots);
        let lined_up = |node: usize| matches!(ballots[node], Some(Ok(Ballot::Held { .. } | Ballot::Reserved(_))));
        let leave = |node| lined_up(node).then(|| undo(keys, value, false, Line::Leave(&waiter.place)).into());
        let mut left = self.panel.ask(leave, held);
        while left.next_of_all().await.is_some() {}
    }

    /// Whether a vote was won and came too late.
    pub(crate) const fn is_late(&self) -> bool {
        self.late
    }

    pub(crate) fn is_unanimous(&self) -> bool {
        self.granted().count() == self.panel.len()
    }
}

/// The least of a ttl that must be left of a lease to be reported as a grant: the time between two renewals.
pub(crate) fn minimum_remainder(ttl: Duration) -> Duration {
    ttl / 3
}

/// An undo under way.
pub(crate) struct Undo {
    round: Round,
    calls: Vec<Option<ScriptCall>>,
    undone: Replies<Answer<bool>>,
    answers: Vec<(usize, Answer<bool>)>,
}

impl Undo {
    fn send(round: Round, calls: Vec<Option<ScriptCall>>) -> Self {
        // Down the connection of its acquisition, where nothing overtakes.
        let connection = |node| round.replies.sent(node).map(|sent| sent.connection.clone());
        let ask = |node: usize| Some(Ask { connection: connection(node), ..calls[node].clone()?.into() });
        let mut undone = round.panel.ask(ask, held);
        let answers = undone.send();
        Self { round, calls, undone, answers }
    }

    /// Waits for the nodes that answered the acquisition, then leaves the rest to the background.
    pub(crate) async fn wait(mut self) {
        let panel = Arc::clone(&self.round.panel);
        let asked = |node: usize| self.calls[node].is_some() && matches!(self.round.ballots[node], Some(Ok(_)));
        let needed = (0..panel.len()).filter(|node| asked(*node)).count().saturating_sub(self.answers.len());
        self.answers.extend(self.undone.settle_down(&panel, needed).await);
        panel.janitor.spawn(self.finish());
    }

    async fn finish(mut self) {
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
                self.round.clean(node);
            }
        }
    }

    fn judge(&self, node: usize, answer: Answer<bool>) {
        if let (Err(silence), Some(_)) = (answer, &self.calls[node]) {
            let reason = silence.reason();
            tracing::debug!(node = %self.round.panel.address(node), reason, "not undone yet");
            self.round.clean(node);
        }
    }
}
