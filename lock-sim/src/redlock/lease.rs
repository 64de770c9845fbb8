//! A held lock: its renewal, nodes that join it, its way from writer to reader, and its release.

use lock_core::{BootInstant, Loss};
use lock_redlock::{
    protocol::ballots::Ballot,
    protocol::ballots::UndoKind as Undoing,
    protocol::quorum_lease::{
        DowngradeConfirmed as Downgraded, LeaseState as Standing, QuorumLease as Holdings, RenewAnswer as Renewed,
        RenewRequest as Renewal,
    },
    protocol::token::{Straggler, straggler},
    protocol::votes::{Verdict, Vote as Voice, Votes, majority},
};

use super::{
    node::{Call, Line, Said},
    round::{Burst, Downgrading, Phase},
    world::{Alarm, Stage, World, fact},
};
use crate::{MS, Time};

impl World<'_> {
    pub(super) fn renew(&mut self, index: usize) {
        let client = self.rounds[index].client;
        let (sent, now) = (self.local(client), self.now());
        let round = &mut self.rounds[index];
        let (value, reads, token) = (round.value, round.reads, round.token);
        let generation = self.clients[client].generation;
        let Some(lease) = round.lease.as_mut().filter(|lease| !lease.is_released) else { return };
        if lease.downgrade.as_ref().is_some_and(|downgrade| !downgrade.is_done) {
            return self.alarm(index, 10 * MS, Alarm::Renew);
        }
        let Some(observed) = lease.validity.observe() else {
            self.counts.add(fact::LEASE_LOST);
            return self.release(index);
        };
        if !self.rules.joined_proven {
            for (node, number, until) in std::mem::take(&mut lease.joined) {
                lease.holdings.grant(node, number, until);
            }
        }
        self.move_lease(index);
        let Some(lease) = &mut self.rounds[index].lease else { return };
        let plan = lease.holdings.renew(deadline_of(sent, self.rules.margin, self.weather.ttl));
        let number = u16::try_from(lease.bursts.len()).unwrap_or(u16::MAX);
        lease.bursts.push(Burst { number, observed, plan: plan.clone(), sent, at: now, extended: 0, generation });
        let ttl = self.weather.ttl_ms();
        let limit = self.weather.limit.min(self.weather.ttl() / 6);
        let asked = self.ask_within(index, Stage::Renewal(number), limit, |node| {
            Some(match plan[node] {
                Renewal::Extend(number) => Call::Extend { reads, value, ttl, number },
                Renewal::Rejoin => Call::Rejoin { reads, value, ttl, token },
            })
        });
        self.look_around(client);
        if asked == 0 {
            self.question_closed(index, Stage::Renewal(number));
        }
    }

    /// A lease goes on with the members of the generation that its client knows by now.
    fn move_lease(&mut self, index: usize) {
        let generation = self.clients[self.rounds[index].client].generation;
        let Some(lease) = &mut self.rounds[index].lease else { return };
        let mut numbers = (0..).zip(self.members.numbers(generation));
        if numbers.all(|(node, number)| lease.holdings.is(node, number)) {
            return;
        }
        self.counts.add(fact::MOVED);
        if self.rules.replaced_frozen {
            lease.holdings.move_to(self.members.numbers(generation));
        }
    }

    /// Whether what the server at this place says counts for the lease, being the one of that generation.
    fn is_counted(&self, index: usize, node: usize, generation: usize) -> bool {
        let number = self.members.number(generation, node);
        self.rounds[index].lease.as_ref().is_some_and(|lease| lease.holdings.is(node, number))
    }

    /// A node's answer to a renewal.
    pub(super) fn renewed(&mut self, index: usize, node: usize, number: u16, said: Option<Said>) {
        let nodes = self.weather.nodes;
        let (joined_later, joined_proven) = (self.rules.joined_later, self.rules.joined_proven);
        let round = &self.rounds[index];
        let Some(burst) =
            round.lease.as_ref().and_then(|lease| lease.bursts.iter().find(|burst| burst.number == number))
        else {
            return;
        };
        let (plan, observed, until) = (burst.plan[node], burst.observed, self.deadline(burst.sent));
        // Of a server that was replaced meanwhile it is of no account.
        if !self.is_counted(index, node, burst.generation) {
            return;
        }
        let answer = match (plan, said) {
            (Renewal::Extend(_), Some(Said::Done(true))) => Renewed::Extended,
            (Renewal::Extend(_), Some(Said::Done(false))) => Renewed::Denied,
            (Renewal::Rejoin, Some(Said::Ballot(Ballot::Granted(number)))) => Renewed::Joined(number),
            _ => Renewed::Nothing,
        };
        let Some(lease) = &mut self.rounds[index].lease else { return };
        if let Some(burst) = lease.bursts.iter_mut().find(|burst| burst.number == number) {
            burst.extended += usize::from(answer == Renewed::Extended);
            if burst.extended == majority(nodes) && answer == Renewed::Extended {
                self.counts.add(fact::RENEWED);
            }
        }
        if let Renewed::Joined(number) = answer {
            self.counts.add(fact::REJOINED);
            if !joined_later && !lease.holdings.is_handed_over() {
                lease.holdings.grant(node, number, until);
            }
            if !joined_proven {
                lease.joined.push((node, number, until));
            }
        }
        match lease.holdings.renewed(node, plan, answer, until) {
            None => {}
            Some(Standing::Kept(kept)) => {
                let until = if self.rules.majority_deadline { kept } else { kept.max(until) };
                if lease.validity.advance(observed, until) {
                    self.extended(index);
                    self.check_for_gaps(index, kept);
                }
            }
            Some(Standing::Lost) => self.end(index, Loss::Revoked),
        }
    }

    /// A lease goes on, by requests of which the first that it takes is worth `kept`, only if nobody else held before that
    /// was sent.
    fn check_for_gaps(&mut self, index: usize, kept: BootInstant) {
        let round = &self.rounds[index];
        let Some(lease) = round.lease.as_ref().filter(|lease| !lease.is_released) else { return };
        let worth = |burst: &&Burst| deadline_of(burst.sent, self.rules.margin, self.weather.ttl) == kept;
        let Some(at) = lease.bursts.iter().find(worth).map(|burst| burst.at) else { return };
        let (client, grant) = (round.client, lease.grant);
        self.check_in_between(client, grant, at);
    }

    fn check_in_between(&mut self, client: usize, grant: usize, sent: Time) {
        if let Some(other) = self.grants.in_between(grant, sent) {
            let text =
                format!("client {client} goes on although client {} held in between, by {}", other.client, other.token);
            self.violate("L", text);
        }
    }

    /// When all have answered, or their time is over: when to renew next.
    pub(super) fn question_closed(&mut self, index: usize, stage: Stage) {
        match stage {
            Stage::Renewal(number) => {
                let Some(lease) = &self.rounds[index].lease else { return };
                let Some(burst) = lease.bursts.iter().find(|burst| burst.number == number) else { return };
                let is_renewed = burst.extended >= majority(self.weather.nodes);
                let every = self.weather.ttl() / 3;
                let limit = self.weather.limit.min(self.weather.ttl() / 6);
                let pause = if is_renewed { every - limit } else { (every / 6).max(10 * MS) };
                self.alarm(index, pause, Alarm::Renew);
            }
            Stage::Downgrade => self.downgrade_decided(index),
            Stage::Undo(_) => self.release_answered(index),
            Stage::Vote | Stage::Settle(_) | Stage::Join => {}
        }
    }

    /// A lease may go on for longer than before.
    fn extended(&mut self, index: usize) {
        let client = self.rounds[index].client;
        let Some(lease) = &self.rounds[index].lease else { return };
        let Some(until) = lease.validity.valid_until() else { return };
        let end = self.clients[client].clock.when(until.as_nanos());
        let grant = lease.grant;
        if self.grants.renewed(grant, end) {
            self.check_grant(index, end);
        }
    }

    fn end(&mut self, index: usize, loss: Loss) {
        if let Some(lease) = &self.rounds[index].lease {
            lease.validity.end(loss);
            self.grants.ended(lease.grant);
        }
    }

    /// A node has granted when the vote was won already.
    pub(super) fn join_late(&mut self, index: usize, node: usize, number: u64) {
        if !self.is_counted(index, node, self.rounds[index].generation) {
            return;
        }
        self.counts.add(fact::LATE_JOIN);
        let round = &self.rounds[index];
        let (reads, value, token) = (round.reads, round.value, round.token);
        match straggler(number, token) {
            Straggler::Joins => return self.joined_late(index, node, true),
            Straggler::PassedBy if self.rules.straggler => {
                self.counts.add(fact::PASSED_BY);
                if let Some(lease) = &mut self.rounds[index].lease {
                    lease.holdings.skip(node);
                }
                return;
            }
            Straggler::PassedBy | Straggler::JoinsAs(_) => {}
        }
        self.ask_all(index, Stage::Join, |other| {
            (other == node).then_some(Call::Renumber { reads, value, number, token })
        });
    }

    pub(super) fn joined_late(&mut self, index: usize, node: usize, is_renumbered: bool) {
        let round = &self.rounds[index];
        let until = self.deadline(round.sent[node]);
        let Some(Ok(Ballot::Granted(number))) = round.ballots[node] else { return };
        let number = if is_renumbered { round.token } else { number };
        let is_counted = self.is_counted(index, node, round.generation);
        if let Some(lease) = self.rounds[index].lease.as_mut().filter(|_| is_counted) {
            lease.holdings.grant_late(node, number, until);
        }
    }

    pub(super) fn refused_late(&mut self, index: usize, node: usize) {
        let is_counted = self.is_counted(index, node, self.rounds[index].generation);
        if let Some(lease) = self.rounds[index].lease.as_mut().filter(|_| is_counted) {
            lease.holdings.refuse(node);
        }
    }

    pub(super) fn downgrade(&mut self, index: usize) {
        let (nodes, client) = (self.weather.nodes, self.rounds[index].client);
        let (sent, now) = (self.local(client), self.now());
        let round = &self.rounds[index];
        let (value, token) = (round.value, round.token);
        let Some(lease) = round.lease.as_ref().filter(|lease| !lease.is_released) else { return };
        let Some(observed) = lease.validity.observe() else { return self.release(index) };
        self.move_lease(index);
        let unknown = self.clients[client].strangers;
        let Some(lease) = &mut self.rounds[index].lease else { return };
        // Whoever asks for it has given its right to write back with that.
        self.grants.became_reader(lease.grant);
        let plan = lease.holdings.hand_over();
        let mut votes = Votes::new(nodes);
        let counted: Vec<bool> =
            (0..nodes).map(|node| lease.holdings.counts(node) && unknown & (1 << node) == 0).collect();
        for node in (0..nodes).filter(|node| !counted[*node]) {
            votes.record(node, Voice::Refused);
        }
        let confirmed = Vec::new();
        lease.downgrade = Some(Downgrading { observed, sent, at: now, votes, counted, confirmed, is_done: false });
        let ttl = self.weather.ttl_ms();
        self.ask_all(index, Stage::Downgrade, |node| match plan[node] {
            Renewal::Extend(number) => Some(Call::Downgrade { value, ttl, number, token }),
            Renewal::Rejoin => None,
        });
        self.downgrade_decided(index);
    }

    /// A node's answer to a downgrade.
    pub(super) fn downgraded(&mut self, index: usize, node: usize, said: Option<&Said>) {
        let round = &mut self.rounds[index];
        let token = round.token;
        let Some(lease) = &mut round.lease else { return };
        let Some(downgrade) = &mut lease.downgrade else { return };
        let until = deadline_of(downgrade.sent, self.rules.margin, self.weather.ttl);
        let confirmed = Downgraded { node, counts: downgrade.counted[node], until };
        if downgrade.is_done {
            if said == Some(&Said::Done(true)) && !lease.is_released {
                lease.holdings.downgraded(confirmed, token);
            }
            return;
        }
        let voice = match said {
            Some(Said::Done(true)) => Voice::Granted,
            // Another server has answered.
            Some(Said::Ballot(_)) => Voice::Unknown,
            Some(_) => Voice::Refused,
            None => Voice::Unknown,
        };
        downgrade.votes.record(node, voice);
        if voice == Voice::Granted {
            downgrade.confirmed.push(confirmed);
        }
        self.downgrade_decided(index);
    }

    fn downgrade_decided(&mut self, index: usize) {
        let round = &mut self.rounds[index];
        let token = round.token;
        let Some(lease) = round.lease.as_mut().filter(|lease| !lease.is_released) else { return };
        let Some(downgrade) = lease.downgrade.as_mut().filter(|downgrade| !downgrade.is_done) else { return };
        match downgrade.votes.verdict() {
            Verdict::Undecided => {}
            Verdict::Impossible => {
                self.end(index, Loss::Revoked);
                self.release(index);
            }
            Verdict::Granted => {
                downgrade.is_done = true;
                let (observed, at) = (downgrade.observed, downgrade.at);
                let grant = lease.grant;
                lease.holdings = Holdings::of_a_downgrade(&lease.holdings, &downgrade.confirmed, token);
                lease.joined.clear();
                // What is still answered about the writer does not count.
                for burst in &mut lease.bursts {
                    burst.number = u16::MAX;
                }
                let held = lease.holdings.valid_until().is_some_and(|until| lease.validity.advance(observed, until));
                round.reads = true;
                if !held {
                    self.end(index, Loss::Revoked);
                    return self.release(index);
                }
                self.counts.add(fact::DOWNGRADED);
                let client = self.rounds[index].client;
                self.note(&format!("client {client}"), |_| "reads from now on".to_owned());
                self.check_in_between(client, grant, at);
                self.extended(index);
                self.alarm(index, self.weather.ttl() / 3, Alarm::Renew);
            }
        }
    }

    pub(super) fn release(&mut self, index: usize) {
        let client = self.rounds[index].client;
        if self.rounds[index].lease.as_ref().is_none_or(|lease| lease.is_released) {
            return;
        }
        self.move_lease(index);
        let Some(lease) = &mut self.rounds[index].lease else { return };
        lease.is_released = true;
        let holdings = &lease.holdings;
        let undoing: [Undoing; 5] = std::array::from_fn(|node| match node {
            node if node >= self.weather.nodes || !holdings.may_be_on(node) => Undoing::Nothing,
            node if holdings.may_arrive_at(node) => Undoing::WithTombstone,
            _ => Undoing::Plain,
        });
        // Before the request is sent: a successor may hold the lock before the answer is here.
        if self.rules.end_before_release {
            self.end(index, Loss::Released);
        }
        self.note(&format!("client {client}"), |_| "gives it back".to_owned());
        self.rounds[index].phase = Phase::Over;
        self.undo_as(index, &undoing, Line::None);
        self.leave(client);
    }

    /// Where validity does not end before a release is sent, it ends with the answers.
    fn release_answered(&mut self, index: usize) {
        if self.rounds[index].lease.as_ref().is_some_and(|lease| lease.is_released) {
            self.end(index, Loss::Released);
        }
    }
}

fn deadline_of(sent: BootInstant, margin: bool, ttl: std::time::Duration) -> BootInstant {
    if margin { lock_core::validity::deadline(sent, ttl) } else { sent.saturating_add(ttl) }
}
