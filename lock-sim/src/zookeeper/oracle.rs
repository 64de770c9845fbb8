//! What must hold, checked from outside: by what the ensemble has committed, by true time, and by none of the rules that
//! the contenders go by.

use std::collections::BTreeSet;

use lock_zk::protocol::queue::ContenderKind as Kind;

use super::{
    contender::Phase,
    ensemble::Entry,
    tree::{Child, Effect, SessionId},
    world::World,
};
use crate::{Time, Violation};

/// A contender, by its client and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) client: usize,
    pub(super) slot: usize,
}

#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// The sessions that are open, as committed.
    pub(super) alive: BTreeSet<SessionId>,
    /// When each session was ended.
    closed: Vec<(SessionId, Time)>,
    /// Nodes that somebody else deleted, with the transaction.
    removed: Vec<(String, u64)>,
    /// The highest token of a writer, and of anybody after the lock.
    writers: u64,
    all: u64,
    /// How many transactions have changed anything.
    pub(super) changes: u64,
    pub(super) violation: Option<Violation>,
}

impl World<'_> {
    pub(super) fn violate(&mut self, invariant: &'static str, text: String) {
        let at = self.now();
        self.trace.note(at, "VIOLATION", format_args!("{invariant}: {text}"));
        self.oracle.violation.get_or_insert(Violation { invariant, text, at });
    }

    /// A transaction is committed.
    pub(super) fn note_commit(&mut self, entry: &Entry) {
        if entry.opens != 0 {
            self.oracle.alive.insert(entry.opens);
        }
        if !matches!(entry.effect, Effect::Nothing) {
            self.oracle.changes += 1;
            self.trace.note(self.agenda.now(), "ensemble", format_args!("{:x}: {:?}", entry.zxid, entry.effect));
        }
        match &entry.effect {
            Effect::Delete(name) if entry.foreign => self.oracle.removed.push((name.clone(), entry.zxid)),
            Effect::Close(session) => {
                self.oracle.alive.remove(session);
                self.oracle.closed.push((*session, self.agenda.now()));
                for client in 0..self.clients.len() {
                    if self.clients[client].session_id() == *session {
                        self.check_deadline(client);
                    }
                }
            }
            _ => {}
        }
    }

    /// T: a client never believes in its session for longer than the servers keep it.
    pub(super) fn check_deadline(&mut self, client: usize) {
        let id = self.clients[client].session_id();
        let Some((_, closed)) = self.oracle.closed.iter().find(|(session, _)| *session == id).copied() else { return };
        let until = self.clients[client].clock.when(self.deadline(client));
        if until > closed {
            let beyond = until - closed;
            self.violate(
                "T",
                format!("client {client} counts on session {id} until {beyond} ns after the leader has ended it"),
            );
        }
    }

    /// Somebody has deleted the holder's node after what it was granted by, so that nobody could have told it.
    fn is_robbed(&self, place: Place) -> bool {
        let slot = &self.clients[place.client].slots[place.slot];
        let Some(hold) = &slot.hold else { return false };
        let stands_by = |name: &String| match &slot.phase {
            Phase::Exchanging { reader } => name == reader || *name == slot.name,
            _ => *name == slot.name,
        };
        self.oracle.removed.iter().any(|(name, zxid)| stands_by(name) && *zxid > hold.evidence)
    }

    fn places(&self) -> impl Iterator<Item = Place> + use<> {
        let slots: Vec<usize> = self.clients.iter().map(|client| client.slots.len()).collect();
        slots.into_iter().enumerate().flat_map(|(client, slots)| (0..slots).map(move |slot| Place { client, slot }))
    }

    /// Whether a holder may act now, as it believes.
    fn is_valid(&self, place: Place) -> bool {
        let client = &self.clients[place.client];
        let hold = client.slots[place.slot].hold.as_ref();
        hold.is_some_and(|hold| !hold.lost && client.clock.at(self.now()) < hold.until)
    }

    /// M and F, at a grant.
    pub(super) fn granted(&mut self, place: Place) {
        self.grants += 1;
        let (kind, token) = {
            let slot = &self.clients[place.client].slots[place.slot];
            (slot.kind, slot.token)
        };
        self.trace.note(
            self.agenda.now(),
            format_args!("client {}.{}", place.client, place.slot),
            format_args!("HOLDS {kind}, token {token}"),
        );
        if !self.is_valid(place) {
            return self.violate("L", format!("{place:?} is granted what has ended already"));
        }
        if self.is_robbed(place) {
            return;
        }
        let others: Vec<Place> =
            self.places().filter(|other| *other != place && self.is_valid(*other) && !self.is_robbed(*other)).collect();
        self.check_exclusion(place, kind, &others);
        self.check_token(place, kind, token);
    }

    fn check_exclusion(&mut self, place: Place, kind: Kind, others: &[Place]) {
        let kind_of = |other: &Place| self.clients[other.client].slots[other.slot].kind;
        if let Kind::Permit { of } = kind {
            let permits = others.iter().filter_map(|other| match kind_of(other) {
                Kind::Permit { of } => Some(of.get()),
                _ => None,
            });
            let (holders, least) = permits.fold((1, of.get()), |(holders, least), of| (holders + 1, least.min(of)));
            if holders > least {
                self.violate("M", format!("{place:?} is the {holders}th holder of {least} permits"));
            }
            return;
        }
        let in_the_way = others.iter().find(|other| match kind_of(other) {
            Kind::Exclusive => true,
            Kind::Read { .. } => kind == Kind::Exclusive,
            Kind::Permit { .. } => false,
        });
        if let Some(other) = in_the_way.copied() {
            let theirs = kind_of(&other);
            self.violate("M", format!("{place:?} holds ({kind}) while {other:?} may act ({theirs})"));
        }
    }

    fn check_token(&mut self, place: Place, kind: Kind, token: u64) {
        let highest = match kind {
            Kind::Exclusive => self.oracle.all,
            Kind::Read { .. } => self.oracle.writers,
            Kind::Permit { .. } => return,
        };
        if token <= highest {
            self.violate("F", format!("{place:?} has token {token} after {highest}"));
        }
        self.oracle.all = self.oracle.all.max(token);
        if kind == Kind::Exclusive {
            self.oracle.writers = self.oracle.writers.max(token);
        }
    }

    /// Why all is not quiet, or not as it should be when it is: the invariant, and what is wrong.
    pub(super) fn unrest(&self) -> Option<(&'static str, String)> {
        let Some(leader) = &self.leader else { return Some(("P", "there is no leader".to_owned())) };
        let children = &self.servers[leader.server].tree.children;
        if let Some(place) = self.places().find(|place| !self.clients[place.client].chores.is_empty()) {
            return Some((
                "O",
                format!("client {} is not through with {:?}", place.client, self.clients[place.client].chores),
            ));
        }
        for child in children {
            let owner = self.places().find(|place| {
                let slot = &self.clients[place.client].slots[place.slot];
                slot.is_active() && slot.name == child.name && slot.session == child.session
            });
            let used = owner.filter(|owner| {
                let hold = self.clients[owner.client].slots[owner.slot].hold.as_ref();
                hold.is_none_or(|hold| !hold.lost)
            });
            if used.is_none() {
                return Some(("O", format!("the node {} is left behind by {owner:?}", child.name)));
            }
        }
        self.places().find_map(|place| self.is_uneasy(place, children))
    }

    fn is_uneasy(&self, place: Place, children: &[Child]) -> Option<(&'static str, String)> {
        let slot = &self.clients[place.client].slots[place.slot];
        let own = children.iter().find(|child| child.name == slot.name);
        match (&slot.phase, own) {
            (Phase::Idle, _) => None,
            (Phase::Holding, own) => {
                let lost = slot.hold.as_ref().is_none_or(|hold| hold.lost);
                (own.is_none() && !lost).then(|| ("L", format!("{place:?} holds by a node that is gone")))
            }
            (Phase::Waiting { .. } | Phase::AtGate, Some(own)) => {
                let could = Self::could_hold(slot.kind, own, children);
                could.then(|| ("P", format!("{place:?} sleeps although it could hold ({:?})", slot.phase)))
            }
            (phase, _) => Some(("P", format!("{place:?} comes to no end ({phase:?})"))),
        }
    }

    fn could_hold(kind: Kind, own: &Child, children: &[Child]) -> bool {
        let letter = |child: &Child| child.name.split('-').nth(2).unwrap_or_default().to_owned();
        let mut ahead = children.iter().filter(|child| child.arrival < own.arrival).map(letter);
        match kind {
            Kind::Exclusive => !ahead.any(|letter| !letter.starts_with('p')),
            Kind::Read { .. } => !ahead.any(|letter| letter == "x"),
            Kind::Permit { of } => {
                let permits: Vec<String> = ahead.filter(|letter| letter.starts_with('p')).collect();
                permits.len() < of.get() as usize && permits.iter().all(|letter| *letter == kind.to_string())
            }
        }
    }

    /// Whether somebody waits.
    pub(super) fn somebody_waits(&self) -> bool {
        let waits = |place: Place| {
            matches!(self.clients[place.client].slots[place.slot].phase, Phase::Waiting { .. } | Phase::AtGate)
        };
        self.places().any(waits)
    }

    /// Whether no contender is there any more, and nothing of any.
    pub(super) fn is_over(&self) -> bool {
        self.unrest().is_none() && self.places().all(|place| !self.clients[place.client].slots[place.slot].is_active())
    }
}
