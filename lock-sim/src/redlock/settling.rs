//! From a won vote to a grant: its token, and whether enough is left of it.

use std::time::Duration;

use lock_core::{BootInstant, Validity, validity};
use lock_redlock::{
    protocol::ballots::Ballot,
    protocol::ballots::{VoteLost as Defeat, minimum_remainder},
    protocol::quorum_lease::QuorumLease as Holdings,
    protocol::token::Renumbered,
    protocol::token::{NodeNumber as Answer, Numbering, settle},
    protocol::votes::{Verdict, Vote as Voice, largest, majority},
};

use super::{
    grants::New,
    node::{Call, Said},
    round::{Lease, Phase},
    weather::Kind,
    world::{Alarm, Stage, World, fact},
};
use crate::{MS, clock};

/// How often a reader proposes a number before it begins anew, as in lock-redlock.
const PROPOSALS: u8 = 10;

impl World<'_> {
    pub(super) fn settle(&mut self, index: usize) {
        let nodes = self.weather.nodes;
        let now = self.now();
        let unknown = self.clients[self.rounds[index].client].strangers;
        let round = &mut self.rounds[index];
        round.phase = Phase::Settling;
        round.settling_since = now;
        let granted = |node: usize| match &round.ballots[node] {
            Some(Ok(Ballot::Granted(number))) => Some(Answer { node, number: *number }),
            _ => None,
        };
        round.answers = (0..nodes).filter_map(granted).collect();
        if round.reads {
            round.numbering = Some(Numbering::new(round.answers.clone(), nodes));
            return self.number(index);
        }
        let Some(settlement) = settle(&round.answers, nodes) else { return };
        round.token = settlement.token;
        if settlement.behind.is_empty() || !self.rules.write_back || !self.rules.majority {
            return self.win(index);
        }
        self.counts.add(fact::WRITTEN_BACK);
        for node in 0..nodes {
            if settlement.exact.contains(&node) {
                round.confirmations.record(node, Voice::Granted);
            } else if unknown & (1 << node) != 0 || !settlement.behind.iter().any(|answer| answer.node == node) {
                // Only nodes that granted can confirm.
                round.confirmations.record(node, Voice::Refused);
            }
        }
        let (value, token) = (round.value, settlement.token);
        self.ask_all(index, Stage::Settle(0), |node| {
            let number = settlement.behind.iter().find(|answer| answer.node == node)?.number;
            Some(Call::Renumber { reads: false, value, number, token })
        });
        if self.rounds[index].confirmations.verdict() == Verdict::Impossible {
            self.lost(index, Some(Defeat::Contested));
        }
    }

    /// An answer to a write-back, or to a reader's proposal.
    pub(super) fn settled(&mut self, index: usize, node: usize, stage: Stage, said: Option<&Said>) {
        let round = &mut self.rounds[index];
        if round.phase != Phase::Settling {
            return;
        }
        if !round.reads {
            let confirmed = said == Some(&Said::Done(true));
            round.confirmations.record(node, if confirmed { Voice::Granted } else { Voice::Unknown });
            let token = round.token;
            for answer in round.answers.iter_mut().filter(|answer| confirmed && answer.node == node) {
                answer.number = token;
            }
            return match round.confirmations.verdict() {
                Verdict::Granted => self.win(index),
                Verdict::Impossible => self.lost(index, Some(Defeat::Contested)),
                Verdict::Undecided => {}
            };
        }
        let (proposed, proposals) = (round.proposed, round.proposals);
        let Some(numbering) = round.numbering.as_mut().filter(|_| stage == Stage::Settle(proposals)) else { return };
        match said {
            Some(Said::Renumbered(Renumbered::Done)) => numbering.given(node, proposed),
            Some(Said::Renumbered(Renumbered::Passed(counter))) => numbering.passed(*counter),
            _ => numbering.gone(node),
        }
        if numbering.agreed().is_some() || !round.is_open(stage) {
            self.number(index);
        }
    }

    /// A reader's token, or its next proposal.
    fn number(&mut self, index: usize) {
        let now = self.now();
        let round = &mut self.rounds[index];
        let Some(numbering) = &round.numbering else { return };
        if let Some(token) = numbering.agreed() {
            round.token = token;
            for answer in &mut round.answers {
                let known = numbering.numbers().iter().find(|known| known.node == answer.node);
                answer.number = known.map_or(answer.number, |known| known.number);
            }
            return self.win(index);
        }
        if !numbering.is_possible() || round.proposals == PROPOSALS {
            return self.lost(index, Some(Defeat::Contested));
        }
        let lead = match round.proposals {
            0 => 0,
            n => (now - round.settling_since) / 1_000 + (self.chance.below(200) << (n - 1)),
        };
        let proposal = numbering.proposal(lead);
        let behind = numbering.behind(proposal);
        round.proposed = proposal;
        round.proposals += 1;
        let (value, stage) = (round.value, Stage::Settle(round.proposals));
        self.counts.add(fact::RENUMBERED);
        let asked = self.ask_all(index, stage, |node| {
            let number = behind.iter().find(|answer| answer.node == node)?.number;
            Some(Call::Renumber { reads: true, value, number, token: proposal })
        });
        if asked == 0 {
            self.lost(index, Some(Defeat::Contested));
        }
    }

    /// What a request that was sent then is worth.
    pub(super) fn deadline(&self, sent: BootInstant) -> BootInstant {
        let ttl = self.weather.ttl;
        if self.rules.margin { validity::deadline(sent, ttl) } else { sent.saturating_add(ttl) }
    }

    /// Until when a lease is valid.
    pub(super) fn valid_until(
        &self,
        holdings: &Holdings,
        deadlines: impl Iterator<Item = BootInstant>,
    ) -> Option<BootInstant> {
        match (self.rules.majority, self.rules.majority_deadline) {
            (true, true) => holdings.valid_until(),
            (false, _) => largest(deadlines, majority(self.weather.nodes) - 1),
            (true, false) => deadlines.max(),
        }
    }

    fn win(&mut self, index: usize) {
        let nodes = self.weather.nodes;
        let round = &self.rounds[index];
        let (client, reads, token) = (round.client, round.reads, round.token);
        let mut holdings = Holdings::new(self.members.numbers(round.generation));
        let mut deadlines = [None; 5];
        for answer in &round.answers {
            let counted = if self.rules.from_sending { round.sent } else { round.received };
            let until = self.deadline(counted[answer.node]);
            holdings.grant(answer.node, answer.number, until);
            deadlines[answer.node] = Some(until);
        }
        for node in (0..nodes).filter(|node| !round.known(*node).may_be_on()) {
            holdings.refuse(node);
        }
        let now = self.local(client);
        let Some(until) = self.valid_until(&holdings, deadlines.into_iter().flatten()) else { return };
        let least = minimum_remainder(self.weather.ttl);
        let remaining = until.saturating_since(now);
        if remaining < least {
            self.counts.add(fact::TOO_LATE);
            if self.rules.minimum_remainder {
                return self.lost(index, Some(Defeat::Outage));
            }
        }
        // A grant that has ended already, or ends before it can be renewed, is none.
        if remaining == Duration::ZERO {
            return self.violate("T", "a grant was reported that had ended already".to_owned());
        }
        let until_true = self.clients[client].clock.when(until.as_nanos());
        let at = self.now();
        // Of two that may hold at the same time only one that had begun when the other was complete is promised more.
        let after = if self.weather.may_come_apart() { self.rounds[index].began } else { at };
        let began = self.rounds[index].began;
        let (grant, wrong) = self.grants.add(New { client, reads, token, began }, until_true, at, after);
        self.clients[client].seen = self.clients[client].seen.max(token);
        self.note(&format!("client {client}"), |_| {
            format!("{} with token {token}", if reads { "reads" } else { "holds" })
        });
        if let Some(wrong) = wrong {
            return self.violate("F", wrong);
        }
        self.count_grant(reads);
        let lease = Lease {
            validity: Validity::new(clock::shown(), until),
            holdings,
            grant,
            bursts: Vec::with_capacity(4),
            is_released: false,
            joined: Vec::new(),
            downgrade: None,
        };
        let round = &mut self.rounds[index];
        (round.phase, round.lease) = (Phase::Held, Some(lease));
        self.check_grant(index, until_true);
        self.plan_the_hold(index);
        self.join_those_that_granted_meanwhile(index);
    }

    /// Nodes that granted while the token was settled are as late as those that do so from now on.
    fn join_those_that_granted_meanwhile(&mut self, index: usize) {
        for node in 0..self.weather.nodes {
            let round = &self.rounds[index];
            if let Some(Ok(Ballot::Granted(number))) = round.ballots[node]
                && !round.answers.iter().any(|answer| answer.node == node)
            {
                self.join_late(index, node, number);
            }
        }
    }

    fn plan_the_hold(&mut self, index: usize) {
        let ttl = self.weather.ttl();
        self.alarm(index, ttl / 3, Alarm::Renew);
        let hold = match self.weather.kind {
            Kind::Crowd => self.chance.between(40 * MS, 90 * MS),
            Kind::Resent if self.chance.one_in(2) => self.chance.below(20 * MS),
            _ if self.chance.one_in(3) => self.chance.below(2 * ttl),
            _ => self.chance.below(ttl / 3),
        };
        let hold = hold.max(self.weather.least_hold);
        if !self.rounds[index].reads && self.weather.readers > 0 && self.chance.one_in(3) {
            let at = self.chance.below(hold);
            self.alarm(index, at, Alarm::Downgrade);
        }
        self.alarm(index, hold, Alarm::Release);
    }

    /// What must be true of a grant when it is reported or extended: that nobody else holds, and that a majority keeps it.
    pub(super) fn check_grant(&mut self, index: usize, until: crate::Time) {
        let now = self.now();
        let round = &self.rounds[index];
        let (value, Some(lease)) = (round.value, &round.lease) else { return };
        if let Some((grant, other)) = self.grants.conflicting(lease.grant, now) {
            if self.weather.may_come_apart() {
                return self.counts.add(fact::APART);
            }
            let (one, two) = (grant.client, other.client);
            let (tokens, reads) = ((grant.token, other.token), (grant.reads, other.reads));
            let text =
                format!("clients {one} and {two} hold at the same time, by the tokens {tokens:?} (reading: {reads:?})");
            return self.violate("M", text);
        }
        if self.weather.may_come_apart() {
            return;
        }
        let checks = self.rules.checks;
        let end = |server: &super::world::Server, ms: u64| server.clock.when(ms.saturating_add(1).saturating_mul(MS));
        let keeps = |server: &super::world::Server| {
            let keeps = server.node.keeps(value).is_some_and(|ms| end(server, ms) >= until);
            let silent = server.node.is_silent_until(server.boot).filter(|_| checks.quarantine);
            keeps || silent.is_some_and(|ms| ms == u64::MAX || end(server, ms) >= until)
        };
        // Of no generation may a majority grant to somebody else before that. A server may yet be told of a later one, so it
        // may grant in all from that on of which it knows. Whoever becomes a member later is silent for long enough.
        let grants = |generation: usize| {
            let may_grant = |server: &usize| {
                let server = &self.servers[*server];
                server.told <= generation && !keeps(server)
            };
            self.members.servers(generation).filter(may_grant).count() >= majority(self.weather.nodes)
        };
        if (0..=self.members.last()).any(grants) {
            self.violate(
                "T",
                format!("client {} takes its grant for valid for longer than a majority keeps it", round.client),
            );
        }
    }
}
