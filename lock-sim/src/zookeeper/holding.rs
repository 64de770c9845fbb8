//! A grant: how it is guarded, renewed, passed on to a reader and given back, as in `lease.rs` of the backend and the files
//! beside it.

use lock_zk::protocol::queue::{ContenderKind as Kind, downgraded};

use super::{
    chore::Task,
    contender::{Hold, OwnWatch, Phase, What},
    fact::Seen,
    guard::Guard,
    message::{Answer, Op, Refusal, Reply},
    oracle::Place,
    world::World,
};
use crate::Time;

impl World<'_> {
    pub(super) fn grant(&mut self, client: usize, slot: usize, evidence: u64) -> bool {
        if !self.admits(client) {
            self.counts.add(Seen::NotAdmitted as usize);
            return false;
        }
        let (until, session) = (self.deadline(client), self.clients[client].session_id());
        let this = self.slot(client, slot);
        this.hold = Some(Hold { session, until, lost: false, evidence });
        this.phase = Phase::Holding;
        self.granted(Place { client, slot });
        let long = if self.chance.one_in(4) { self.settings.timeout } else { self.settings.tick / 2 };
        let hold = self.chance.mostly_short(long);
        self.arm(client, slot, hold);
        self.guard_node(client, slot);
        true
    }

    /// Guards the holder's node, by the watch that is set on it or by one of its own.
    pub(super) fn guard_node(&mut self, client: usize, slot: usize) {
        match self.slot(client, slot).own {
            OwnWatch::Set => {}
            OwnWatch::None => {
                let name = self.slot(client, slot).name.clone();
                self.ask_for(client, slot, Op::Watch(name), What::Guard);
            }
            OwnWatch::Changed | OwnWatch::Deleted => self.own_changed(client, slot),
        }
    }

    pub(super) fn own_changed(&mut self, client: usize, slot: usize) {
        let this = self.slot(client, slot);
        if this.own == OwnWatch::Deleted {
            self.taken_away(client, slot);
        } else {
            this.own = OwnWatch::None;
            self.guard_node(client, slot);
        }
    }

    pub(super) fn guarded(&mut self, client: usize, slot: usize, reply: &Reply) {
        let this = self.slot(client, slot);
        if this.phase != Phase::Holding {
            return;
        }
        match reply {
            Ok(Answer::Node { name, .. }) if *name == this.name => {
                this.own = OwnWatch::Set;
                let name = name.clone();
                self.watch(client, Some(name), slot, true);
            }
            Err(Refusal::NoNode) => self.taken_away(client, slot),
            Err(Refusal::Unknown) => self.guard_node(client, slot),
            _ => {}
        }
    }

    pub(super) fn taken_away(&mut self, client: usize, slot: usize) {
        if let Some(hold) = self.slot(client, slot).hold.as_mut().filter(|hold| !hold.lost) {
            hold.lost = true;
            self.counts.add(Seen::Revoked as usize);
            self.say_of(client, slot, format_args!("hears that its node was deleted"));
        }
    }

    /// The session's deadline has moved: so do those of its guards, but for those that have passed.
    pub(super) fn renew(&mut self, client: usize, now: Time, deadline: Time) {
        for slot in 0..self.clients[client].slots.len() {
            let this = &mut self.clients[client].slots[slot];
            let Some(hold) = this.hold.as_mut().filter(|hold| !hold.lost) else { continue };
            if now < hold.until {
                hold.until = hold.until.max(deadline);
                continue;
            }
            hold.lost = true;
            self.counts.add(Seen::Lapsed as usize);
            self.say_of(client, slot, format_args!("has lost its grant, which ran out"));
            let this = self.slot(client, slot);
            if this.phase == Phase::Holding && self.has(Guard::LapsedWithdraws) {
                let name = self.slot(client, slot).name.clone();
                self.chore(client, Task::Delete { name, marked: false });
            }
        }
    }

    /// The program is through.
    pub(super) fn release(&mut self, client: usize, slot: usize) {
        let present = self.clients[client].session_id();
        let this = self.slot(client, slot);
        let (name, exclusive) = (this.name.clone(), this.kind == Kind::Exclusive);
        let ended = this.hold.take().is_none_or(|hold| hold.session != present);
        self.say_of(client, slot, format_args!("releases"));
        if ended {
            return self.finish(client, slot);
        }
        self.slot(client, slot).phase = Phase::Releasing;
        let op = if exclusive { Op::Marked(name) } else { Op::Delete(name) };
        self.ask_for(client, slot, op, What::Release);
    }

    pub(super) fn released(&mut self, client: usize, slot: usize, reply: &Reply) {
        if matches!(reply, Err(Refusal::Unknown)) && self.has(Guard::RepeatedRemoval) {
            let name = self.slot(client, slot).name.clone();
            self.chore(client, Task::Delete { name, marked: false });
        }
        self.finish(client, slot);
    }

    pub(super) fn exchange(&mut self, client: usize, slot: usize) {
        let this = self.slot(client, slot);
        this.downgrades = false;
        let Some(reader) = downgraded(&this.name, this.token) else { return };
        let writer = this.name.clone();
        // From here on its program only reads.
        this.kind = Kind::Read { was: Some(this.token) };
        this.phase = Phase::Exchanging { reader: reader.clone() };
        this.own = OwnWatch::None;
        // The exchange deletes the guarded node.
        self.watch_no_more(client, &writer);
        self.counts.add(Seen::Downgraded as usize);
        self.say_of(client, slot, format_args!("goes on as the reader {reader}"));
        if self.has(Guard::OneExchange) {
            self.ask_for(client, slot, Op::Replace { writer, reader }, What::Exchange);
        } else {
            self.ask_for(client, slot, Op::Delete(writer), What::Empty);
            self.ask_for(client, slot, Op::CreatePlain { name: reader }, What::Exchange);
        }
    }

    pub(super) fn exchanged(&mut self, client: usize, slot: usize, reply: &Reply) {
        let repeated = self.has(Guard::RepeatedRemoval);
        let this = self.slot(client, slot);
        let Phase::Exchanging { reader } = this.phase.clone() else { return };
        let unique = this.unique.clone();
        match reply {
            Ok(_) => {
                let lost = this.hold.as_ref().is_none_or(|hold| hold.lost);
                (this.name, this.phase) = (reader.clone(), Phase::Holding);
                if lost {
                    self.chore(client, Task::Delete { name: reader, marked: false });
                }
                let hold = self.chance.mostly_short(self.settings.tick);
                self.arm(client, slot, hold);
                self.guard_node(client, slot);
            }
            Err(Refusal::Unknown) if repeated => {
                self.chore(client, Task::Find { unique });
                self.finish(client, slot);
            }
            Err(_) => self.finish(client, slot),
        }
    }
}
