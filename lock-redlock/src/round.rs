//! One round of voting: an attempt on all nodes, and its undo.

use std::{collections::HashMap, sync::Arc, time::Duration};

use lock_core::{BootInstant, Error, validity::deadline};
use lock_redis::{node::ScriptCall, scripts::held};

use crate::{
    holdings::Holdings,
    lease::Held,
    panel::{Answer, Ask, Panel, Replies, unavailable},
    quorum::{Verdict, Vote, Votes, smallest},
    scripts::{Ballot, Line, LockKeys, acquire, ballot, undo, write_back},
    token::{Answer as Numbered, settle},
    waiting::Waiter,
};

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
    /// One holder has a majority, and will be gone after this time unless it renews.
    Held(Duration),
    /// Nobody has a majority, as far as could be seen; another round may.
    Contested,
    /// So few nodes vote at all that nobody can have a majority.
    Outage(Error),
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
            if let Some((node, answer)) = self.replies.next(&self.panel).await {
                self.record(node, answer);
            } else {
                for node in self.replies.open() {
                    self.votes.record(node, Vote::Unknown);
                }
            }
        }
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
            match ballot {
                Ballot::Held { remaining, holder } => {
                    *holders.entry(holder).or_default() += 1;
                    free_in.push(remaining.unwrap_or(Duration::MAX));
                }
                Ballot::Granted(_) => free_in.push(Duration::ZERO),
                Ballot::Reserved(_) | Ballot::Undone | Ballot::Quarantined(_) => {}
            }
        }
        let majority = self.panel.majority();
        match smallest(free_in, majority) {
            Some(free_in) if holders.values().any(|count| *count >= majority) => Lost::Held(free_in),
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

    /// Gives back whatever this round has or may yet get on any node, and stays in line or leaves it. The requests are
    /// on their way when this returns; the rest goes on in the background, and what fails there is the janitor's.
    #[must_use]
    pub(crate) fn undo(self, stay: bool) -> Undo {
        let Self { panel, attempt, ballots, replies, .. } = &self;
        let line = match &attempt.waiter {
            None => Line::None,
            Some(waiter) if stay => Line::Stay(&waiter.place),
            Some(waiter) => Line::Leave(&waiter.place),
        };
        let call = |node: usize| {
            let answered = match &ballots[node] {
                Some(Ok(Ballot::Granted(_))) => true,
                // It lined up there and stays, or there is nothing to be undone at all.
                Some(Ok(_)) if !matches!(line, Line::Leave(_)) => return None,
                Some(Ok(_)) => true,
                // Should it have lined up there in an earlier round, it is passed over once it does not listen any more.
                Some(Err(silence)) if !silence.is_unknown() => return None,
                Some(Err(_)) | None => false,
            };
            Some(undo(&attempt.keys, &attempt.value, !answered, line))
        };
        let calls: Vec<_> = (0..panel.len()).map(call).collect();
        // Down the connection of its acquisition, where nothing overtakes.
        let connection = |node| replies.sent(node).map(|sent| sent.connection.clone());
        let ask = |node: usize| Some(Ask { connection: connection(node), ..calls[node].clone()?.into() });
        let mut undone = panel.ask(ask, held);
        let answers = undone.send();
        Undo { calls, undone, answers, round: self }
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
    calls: Vec<Option<ScriptCall>>,
    undone: Replies<Answer<bool>>,
    answers: Vec<(usize, Answer<bool>)>,
    round: Round,
}

impl Undo {
    /// Leaves the rest to the background.
    pub(crate) fn detach(self) {
        let panel = Arc::clone(&self.round.panel);
        panel.janitor.spawn(self.finish());
    }

    /// Waits for the nodes that have been answering, then leaves the rest to the background.
    pub(crate) async fn wait(mut self) {
        while let Some((node, answer)) = self.undone.next(&self.round.panel).await {
            self.answers.push((node, answer));
        }
        self.detach();
    }

    async fn finish(mut self) {
        while let Some((node, answer)) = self.undone.next_of_all().await {
            self.answers.push((node, answer));
        }
        let Round { panel, attempt, replies, .. } = &mut self.round;
        for (node, answer) in self.answers {
            if let (Err(silence), Some(call)) = (answer, &self.calls[node]) {
                tracing::debug!(node = %panel.address(node), reason = %silence.reason(), "not undone yet");
                panel.clean("undo", node, call.clone(), attempt.ttl);
            }
        }
        // The acquisition's own answers are waited for, too: they show whether a node works.
        while replies.next_of_all().await.is_some() {}
    }
}
