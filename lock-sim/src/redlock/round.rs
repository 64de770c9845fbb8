//! A round of voting, from its first request to its undo, and the lease that it may become.

use lock_core::{BootInstant, Validity, validity::Observed};
use lock_redlock::{
    protocol::ballots::Ballot,
    protocol::ballots::{UndoKind as Undoing, VoteState as Known},
    protocol::quorum_lease::{DowngradeConfirmed as Downgraded, QuorumLease as Holdings, RenewRequest as Renewal},
    protocol::token::Renumbered,
    protocol::token::{NodeNumber as Answer, Numbering},
    protocol::votes::Votes,
};

use super::{
    node::{Call, Line, Said, Value},
    world::{Stage, World},
};
use crate::Time;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Voting,
    Settling,
    Held,
    Over,
}

/// One attempt on all nodes.
pub(super) struct Round {
    pub(super) client: usize,
    pub(super) value: Value,
    pub(super) reads: bool,
    /// The generation of the members that are asked for their votes.
    pub(super) generation: usize,
    /// In true time.
    pub(super) began: Time,
    pub(super) phase: Phase,
    /// When each node was asked for its vote, and answered, by the client's clock.
    pub(super) sent: [BootInstant; 5],
    pub(super) received: [BootInstant; 5],
    /// What each answered; whether it may have granted where there will be no answer.
    pub(super) ballots: [Option<Result<Ballot, bool>>; 5],
    pub(super) votes: Votes,
    /// What is asked, and which nodes have not answered it.
    pub(super) asked: Vec<(Stage, u8)>,
    pub(super) answers: Vec<Answer>,
    pub(super) token: u64,
    pub(super) confirmations: Votes,
    pub(super) numbering: Option<Numbering>,
    pub(super) proposed: u64,
    pub(super) proposals: u8,
    pub(super) settling_since: Time,
    pub(super) lease: Option<Lease>,
    /// On which nodes an undo was sent.
    pub(super) undone: [bool; 5],
    undos: u16,
    /// Until when an undo that nobody confirms is sent again.
    pub(super) undo_until: Time,
}

/// What the guard and the renewal share.
pub(super) struct Lease {
    pub(super) validity: Validity,
    pub(super) holdings: Holdings,
    pub(super) grant: usize,
    pub(super) bursts: Vec<Burst>,
    pub(super) is_released: bool,
    /// Nodes that joined during renewals: by which number, and until when.
    pub(super) joined: Vec<(usize, u64, BootInstant)>,
    pub(super) downgrade: Option<Downgrading>,
}

/// One renewal on all nodes.
pub(super) struct Burst {
    pub(super) number: u16,
    pub(super) observed: Observed,
    pub(super) plan: Vec<Renewal>,
    pub(super) sent: BootInstant,
    /// The same in true time.
    pub(super) at: Time,
    pub(super) extended: usize,
    /// The generation of the members that were asked.
    pub(super) generation: usize,
}

/// A downgrade under way.
pub(super) struct Downgrading {
    pub(super) observed: Observed,
    pub(super) sent: BootInstant,
    /// The same in true time.
    pub(super) at: Time,
    pub(super) votes: Votes,
    /// Which nodes counted for the writer.
    pub(super) counted: Vec<bool>,
    pub(super) confirmed: Vec<Downgraded>,
    pub(super) is_done: bool,
}

impl Round {
    pub(super) fn new(client: usize, value: Value, reads: bool, nodes: usize, began: Time) -> Self {
        let never = BootInstant::from_nanos(0);
        Self {
            client,
            value,
            reads,
            generation: 0,
            began,
            phase: Phase::Voting,
            sent: [never; 5],
            received: [never; 5],
            ballots: [const { None }; 5],
            votes: Votes::new(nodes),
            asked: Vec::with_capacity(4),
            answers: Vec::new(),
            token: 0,
            confirmations: Votes::new(nodes),
            numbering: None,
            proposed: 0,
            proposals: 0,
            settling_since: 0,
            lease: None,
            undone: [false; 5],
            undos: 0,
            undo_until: 0,
        }
    }

    pub(super) const fn known(&self, node: usize) -> Known<'_> {
        match &self.ballots[node] {
            Some(Ok(ballot)) => Known::Answered(ballot),
            Some(Err(true)) => Known::Unknown,
            Some(Err(false)) => Known::NotSent,
            None => Known::Open,
        }
    }

    pub(super) fn next_undo(&mut self) -> Stage {
        self.undos += 1;
        Stage::Undo(self.undos)
    }

    /// Notes that `node` has answered; false when nobody waits for it any more.
    fn is_awaited(&mut self, node: usize, stage: Stage) -> bool {
        let bit = 1 << node;
        let Some(asked) = self.asked.iter_mut().find(|asked| asked.0 == stage && asked.1 & bit != 0) else {
            return false;
        };
        asked.1 &= !bit;
        true
    }

    pub(super) fn is_open(&self, stage: Stage) -> bool {
        self.asked.iter().any(|asked| asked.0 == stage && asked.1 != 0)
    }
}

impl World<'_> {
    pub(super) fn answered(&mut self, index: usize, node: usize, stage: Stage, said: Option<Said>) {
        if !self.rounds[index].is_awaited(node, stage) {
            return;
        }
        self.heard(index, node, stage, said.ok_or(false));
    }

    /// The time of a question is over.
    pub(super) fn limit(&mut self, index: usize, stage: Stage) {
        for node in 0..self.weather.nodes {
            if self.rounds[index].is_awaited(node, stage) {
                self.heard(index, node, stage, Err(true));
            }
        }
        self.rounds[index].asked.retain(|asked| asked.0 != stage);
        self.question_closed(index, stage);
    }

    /// What a node said, or whether it may have done what it was asked for although it does not answer.
    fn heard(&mut self, index: usize, node: usize, stage: Stage, said: Result<Said, bool>) {
        match stage {
            Stage::Vote => match said {
                Ok(Said::Ballot(ballot)) => self.voted(index, node, Ok(ballot)),
                Ok(_) => {}
                Err(unknown) => self.voted(index, node, Err(unknown)),
            },
            Stage::Settle(_) => self.settled(index, node, stage, said.ok().as_ref()),
            Stage::Join => {
                let done = match said {
                    Ok(Said::Done(done)) => done.then_some(true),
                    Ok(Said::Renumbered(Renumbered::Done)) => Some(true),
                    Ok(Said::Renumbered(Renumbered::Passed(_))) => Some(false),
                    _ => None,
                };
                if let Some(renumbered) = done {
                    self.joined_late(index, node, renumbered);
                }
            }
            Stage::Renewal(number) => self.renewed(index, node, number, said.ok()),
            Stage::Downgrade => self.downgraded(index, node, said.ok().as_ref()),
            Stage::Undo(_) => self.undone(index, node, said.is_ok()),
        }
    }

    pub(super) fn undo_as(&mut self, index: usize, undoing: &[Undoing; 5], line: Line) {
        if !self.rules.undo {
            return;
        }
        self.keep_undoing(index);
        let round = &mut self.rounds[index];
        let value = round.value;
        for (undone, undoing) in round.undone.iter_mut().zip(undoing) {
            *undone |= *undoing != Undoing::Nothing;
        }
        let stage = round.next_undo();
        self.ask_all(index, stage, |node| match undoing[node] {
            Undoing::Nothing => None,
            how => Some(Call::Undo { value, tombstone: how == Undoing::WithTombstone, line }),
        });
    }

    /// Undoes it on some nodes, whatever was sent before: with a tombstone.
    pub(super) fn undo_on(&mut self, index: usize, nodes: impl Fn(usize) -> bool, line: Line) {
        if !self.rules.undo {
            return;
        }
        self.keep_undoing(index);
        let round = &mut self.rounds[index];
        let value = round.value;
        let stage = round.next_undo();
        let limit = self.weather.limit << round.undos.min(6);
        self.ask_within(index, stage, limit, |node| nodes(node).then_some(Call::Undo { value, tombstone: true, line }));
    }

    fn keep_undoing(&mut self, index: usize) {
        let until = self.now() + self.weather.ttl() + self.weather.limit;
        let round = &mut self.rounds[index];
        if round.undo_until == 0 {
            round.undo_until = until;
        }
    }

    /// An undo that was not confirmed is sent again, until there is nothing left to undo: then what is there is left to its
    /// ttl.
    fn undone(&mut self, index: usize, node: usize, is_confirmed: bool) {
        if is_confirmed {
            return;
        }
        if self.now() < self.rounds[index].undo_until {
            return self.undo_on(index, |other| other == node, Line::None);
        }
        let generation = self.clients[self.rounds[index].client].generation;
        let server = self.members.server(generation, node);
        self.servers[server].has_failed = true;
    }
}
