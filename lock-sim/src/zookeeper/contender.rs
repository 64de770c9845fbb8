//! One contender's way: into the queue, through it, to its grant and back. It does with the answers of the servers what
//! `contend.rs` and `contend/line.rs` of the backend do.

use std::num::NonZeroU32;

use lock_zk::protocol::queue::{ContenderKind as Kind, is_out_of_numbers, made_by, prefix};

use super::{
    chore::Task,
    client::Waiter,
    fact::Seen,
    guard::Guard,
    message::{Answer, Event, Op, Refusal, Reply},
    tree::{News, SessionId},
    world::World,
};
use crate::{MS, Time};

/// What an answer is the answer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Create,
    List,
    Directory,
    Sync,
    Search,
    Owner,
    Look,
    Ahead,
    Own,
    Gate,
    Guard,
    Release,
    Exchange,
    Empty,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    /// Until its client has a session.
    NeedsSession,
    Entering,
    MakingDirectory,
    BackingOff,
    Recovering,
    Checking,
    Looking,
    /// First, and waits to be certain of its session.
    Admission,
    SettingWatches {
        ahead: String,
    },
    Waiting {
        ahead: String,
    },
    AtGate,
    Holding,
    Exchanging {
        reader: String,
    },
    Releasing,
}

/// The watch on the own node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnWatch {
    None,
    Set,
    Changed,
    Deleted,
}

/// A grant, as its holder sees it.
#[derive(Debug, Clone)]
pub(super) struct Hold {
    pub(super) session: SessionId,
    /// Until when it is valid, by the client's clock.
    pub(super) until: Time,
    pub(super) lost: bool,
    /// The newest transaction that its client's server had applied when it said what led to the grant.
    pub(super) evidence: u64,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) kind: Kind,
    pub(super) attempt: u32,
    /// Counts what it asks for: answers to what it asked before are of no interest.
    pub(super) step: u32,
    pub(super) timer: u32,
    pub(super) stop: u32,
    pub(super) phase: Phase,
    pub(super) session: SessionId,
    pub(super) unique: String,
    pub(super) name: String,
    pub(super) token: u64,
    pub(super) waits: bool,
    pub(super) own: OwnWatch,
    pub(super) heard: (String, i32),
    pub(super) created: Option<Reply>,
    pub(super) listed: Option<Reply>,
    pub(super) synced: Option<Reply>,
    pub(super) found: Vec<String>,
    pub(super) watched: Option<Reply>,
    pub(super) mine: Option<Reply>,
    pub(super) ahead_news: Option<(News, u64)>,
    pub(super) hold: Option<Hold>,
    /// It goes on as a reader before it releases.
    pub(super) downgrades: bool,
    pub(super) entered_before: bool,
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            kind: Kind::Exclusive,
            attempt: 0,
            step: 0,
            timer: 0,
            stop: 0,
            phase: Phase::Idle,
            session: 0,
            unique: String::new(),
            name: String::new(),
            token: 0,
            waits: true,
            own: OwnWatch::None,
            heard: (String::new(), 0),
            created: None,
            listed: None,
            synced: None,
            found: Vec::new(),
            watched: None,
            mine: None,
            ahead_news: None,
            hold: None,
            downgrades: false,
            entered_before: false,
        }
    }

    pub(super) fn is_active(&self) -> bool {
        self.phase != Phase::Idle
    }
}

impl World<'_> {
    pub(super) fn slot(&mut self, client: usize, slot: usize) -> &mut Slot {
        &mut self.clients[client].slots[slot]
    }

    pub(super) fn say_of(&mut self, client: usize, slot: usize, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.agenda.now(), format_args!("client {client}.{slot}"), what);
    }

    pub(super) fn ask_for(&mut self, client: usize, slot: usize, op: Op, what: What) {
        let this = self.slot(client, slot);
        // These are the second one of two that are sent together.
        if !matches!(what, What::List | What::Search | What::Own) {
            this.step += 1;
        }
        let (attempt, step) = (this.attempt, this.step);
        self.ask(client, op, Waiter::Slot { slot, attempt, step, what });
    }

    pub(super) fn arm(&mut self, client: usize, slot: usize, delay: Time) {
        self.timers += 1;
        let timer = self.timers;
        self.slot(client, slot).timer = timer;
        self.agenda.after(delay, Event::Timer { client, slot, timer });
    }

    /// A program wants the lock.
    pub(super) fn begin(&mut self, client: usize, slot: usize) {
        let kind = self.draw_kind();
        let (waits, stops) = (!self.chance.one_in(8), self.chance.one_in(5));
        let limit = self.chance.below(self.settings.timeout * 2);
        let downgrades = kind == Kind::Exclusive && self.chance.one_in(3);
        self.timers += 1;
        let stop = self.timers;
        let this = self.slot(client, slot);
        (this.kind, this.waits, this.stop, this.downgrades) = (kind, waits, stop, downgrades);
        if stops {
            self.agenda.after(limit, Event::Timer { client, slot, timer: stop });
        }
        self.start(client, slot);
    }

    /// Starts an attempt under a new unique id.
    pub(super) fn start(&mut self, client: usize, slot: usize) {
        self.uniques += 1;
        let unique = format!("u{:x}", self.uniques);
        let this = self.slot(client, slot);
        this.attempt += 1;
        this.unique = unique;
        this.name.clear();
        (this.own, this.heard) = (OwnWatch::None, (String::new(), 0));
        this.entered_before = false;
        this.phase = Phase::NeedsSession;
        self.session_is_there(client, slot);
    }

    /// Its place is gone for sure, or ended with its session: from the beginning.
    pub(super) fn again(&mut self, client: usize, slot: usize) {
        self.say_of(client, slot, format_args!("starts over"));
        self.start(client, slot);
    }

    pub(super) fn session_is_there(&mut self, client: usize, slot: usize) {
        let id = self.clients[client].session_id();
        if id == 0 || self.slot(client, slot).phase != Phase::NeedsSession {
            return;
        }
        if self.slot(client, slot).entered_before {
            // Only without the safeguard: an attempt that outlives its session looks for its node.
            return self.recover(client, slot);
        }
        self.slot(client, slot).session = id;
        self.enter(client, slot);
    }

    /// The session has ended, and all that was asked in it.
    pub(super) fn session_is_gone(&mut self, client: usize, slot: usize) {
        let outlives = !self.has(Guard::OwnSession);
        let this = self.slot(client, slot);
        match this.phase {
            Phase::Idle | Phase::NeedsSession => {}
            Phase::Holding => {
                if let Some(hold) = &mut this.hold {
                    hold.lost = true;
                }
            }
            Phase::Exchanging { .. } | Phase::Releasing => self.finish(client, slot),
            _ if outlives => {
                this.attempt += 1;
                (this.phase, this.entered_before) = (Phase::NeedsSession, true);
            }
            _ => self.again(client, slot),
        }
    }

    pub(super) fn enter(&mut self, client: usize, slot: usize) {
        let this = self.slot(client, slot);
        let prefix = prefix(&this.unique, this.session.into(), this.kind);
        (this.created, this.listed, this.phase) = (None, None, Phase::Entering);
        self.ask_for(client, slot, Op::Create { prefix }, What::Create);
        self.ask_for(client, slot, Op::List, What::List);
    }

    /// An answer for a contender that is still at it.
    pub(super) fn contender_hears(&mut self, client: usize, slot: usize, what: What, reply: Reply, zxid: u64) {
        let this = &mut self.clients[client].slots[slot];
        match what {
            What::Create => this.created = Some(reply),
            What::List => {
                this.listed = Some(reply);
                if this.phase == Phase::Entering {
                    self.entered(client, slot, zxid);
                }
            }
            What::Directory => self.enter(client, slot),
            What::Sync => this.synced = Some(reply),
            What::Search => self.searched(client, slot, reply),
            What::Owner => self.checked(client, slot, reply, zxid),
            What::Look => self.looked(client, slot, reply, zxid),
            What::Ahead => {
                this.watched = Some(reply);
                self.watching(client, slot);
            }
            What::Own => {
                this.mine = Some(reply);
                self.watching(client, slot);
            }
            What::Gate => self.at_gate(client, slot, reply),
            What::Guard => self.guarded(client, slot, &reply),
            What::Release => self.released(client, slot, &reply),
            What::Exchange => self.exchanged(client, slot, &reply),
            What::Empty => {}
        }
    }

    pub(super) fn entered(&mut self, client: usize, slot: usize, zxid: u64) {
        let this = self.slot(client, slot);
        let (created, listed) = (this.created.take(), this.listed.take());
        match created {
            Some(Ok(Answer::Node { name, czxid, .. })) => {
                (this.name, this.token, this.phase) = (name, czxid, Phase::Looking);
                let name = self.slot(client, slot).name.clone();
                self.say_of(client, slot, format_args!("is in the queue as {name}"));
                if self.is_refused_by_its_number(client, slot) {
                    return;
                }
                match listed {
                    Some(Ok(Answer::List(children))) => self.stand(client, slot, &children, zxid, false),
                    _ => self.look(client, slot),
                }
            }
            Some(Err(Refusal::NoNode)) => {
                this.phase = Phase::MakingDirectory;
                self.ask_for(client, slot, Op::MakeDirectory, What::Directory);
            }
            Some(Err(Refusal::SessionEnded)) => self.again(client, slot),
            _ if self.has(Guard::UniqueId) => self.recover(client, slot),
            _ => self.back_off(client, slot),
        }
    }

    /// Whether its number orders nothing; then it withdraws.
    fn is_refused_by_its_number(&mut self, client: usize, slot: usize) -> bool {
        let refused = is_out_of_numbers(&self.slot(client, slot).name) && self.has(Guard::CounterEnd);
        if refused {
            self.give_up(client, slot);
        }
        refused
    }

    pub(super) fn back_off(&mut self, client: usize, slot: usize) {
        self.slot(client, slot).phase = Phase::BackingOff;
        let pause = 2 * MS + self.chance.below(20 * MS);
        self.arm(client, slot, pause);
    }

    /// After a create without an answer: whether it was done.
    pub(super) fn recover(&mut self, client: usize, slot: usize) {
        self.slot(client, slot).phase = Phase::Recovering;
        self.slot(client, slot).synced = None;
        let barrier = self.barrier();
        self.ask_for(client, slot, barrier, What::Sync);
        self.ask_for(client, slot, Op::List, What::Search);
    }

    /// What is sent before a search, so that everything that this session asked for before is in the list.
    pub(super) fn barrier(&self) -> Op {
        if self.has(Guard::WriteBeforeSearch) { Op::Beat } else { Op::Sync }
    }

    pub(super) fn searched(&mut self, client: usize, slot: usize, reply: Reply) {
        let synced = matches!(self.slot(client, slot).synced, Some(Ok(_)));
        match reply {
            Ok(Answer::List(children)) if synced => {
                let this = self.slot(client, slot);
                this.found =
                    made_by(&children, &this.unique, this.session.into()).into_iter().map(str::to_owned).collect();
                this.found.reverse();
                this.listed = Some(Ok(Answer::List(children)));
                self.check_next(client, slot);
            }
            Err(Refusal::NoNode) if synced => self.not_found(client, slot),
            Err(Refusal::SessionEnded) => self.again(client, slot),
            _ => self.recover(client, slot),
        }
    }

    pub(super) fn not_found(&mut self, client: usize, slot: usize) {
        self.counts.add(Seen::NodeNotFound as usize);
        self.say_of(client, slot, format_args!("finds that its node was not made"));
        let id = self.clients[client].session_id();
        let this = self.slot(client, slot);
        (this.entered_before, this.session) = (false, id);
        self.back_off(client, slot);
    }

    pub(super) fn check_next(&mut self, client: usize, slot: usize) {
        let Some(name) = self.slot(client, slot).found.pop() else { return self.not_found(client, slot) };
        self.slot(client, slot).phase = Phase::Checking;
        self.ask_for(client, slot, Op::Read(name), What::Owner);
    }

    pub(super) fn checked(&mut self, client: usize, slot: usize, reply: Reply, zxid: u64) {
        let (present, own) = (self.clients[client].session_id(), self.has(Guard::OwnSession));
        match reply {
            Ok(Answer::Node { name, session, czxid, .. }) if session == present || !own => {
                self.counts.add(Seen::NodeFound as usize);
                self.say_of(client, slot, format_args!("finds its node {name}"));
                let this = self.slot(client, slot);
                (this.name, this.token, this.phase) = (name, czxid, Phase::Looking);
                if self.is_refused_by_its_number(client, slot) {
                    return;
                }
                match self.slot(client, slot).listed.take() {
                    Some(Ok(Answer::List(children))) => self.stand(client, slot, &children, zxid, false),
                    _ => self.look(client, slot),
                }
            }
            Ok(_) | Err(Refusal::NoNode) => self.check_next(client, slot),
            Err(Refusal::SessionEnded) => self.again(client, slot),
            Err(Refusal::Unknown | Refusal::NodeExists) => self.recover(client, slot),
        }
    }

    pub(super) fn look(&mut self, client: usize, slot: usize) {
        self.slot(client, slot).phase = Phase::Looking;
        self.ask_for(client, slot, Op::List, What::Look);
    }

    pub(super) fn looked(&mut self, client: usize, slot: usize, reply: Reply, zxid: u64) {
        match reply {
            Ok(Answer::List(children)) => self.stand(client, slot, &children, zxid, true),
            Err(Refusal::NoNode | Refusal::SessionEnded) => self.again(client, slot),
            _ => self.look(client, slot),
        }
    }

    /// The caller does not want it any more, or cannot have it.
    pub(super) fn give_up(&mut self, client: usize, slot: usize) {
        self.counts.add(Seen::GaveUp as usize);
        self.say_of(client, slot, format_args!("gives up"));
        let marked = !self.has(Guard::OnlyHoldersMark);
        let this = self.slot(client, slot);
        let (name, unique, (attempt, step)) = (this.name.clone(), this.unique.clone(), (this.attempt, this.step));
        let marked = marked && this.kind == Kind::Exclusive;
        match this.phase.clone() {
            Phase::Entering if this.created.is_none() => {
                let chore = self.chore(client, Task::Await { unique });
                let from = Waiter::Slot { slot, attempt, step, what: What::Create };
                self.hand_over(client, from, Waiter::Chore { chore, what: What::Create });
            }
            Phase::Entering => match this.created.clone() {
                Some(Ok(Answer::Node { name, .. })) => {
                    self.chore(client, Task::Delete { name, marked });
                }
                Some(Err(Refusal::Unknown)) if self.has(Guard::UniqueId) => {
                    self.chore(client, Task::Find { unique });
                }
                _ => {}
            },
            Phase::Recovering | Phase::Checking => {
                self.chore(client, Task::Find { unique });
            }
            Phase::Idle | Phase::NeedsSession | Phase::MakingDirectory | Phase::BackingOff => {}
            _ => {
                self.chore(client, Task::Delete { name, marked });
            }
        }
        self.finish(client, slot);
    }

    pub(super) fn finish(&mut self, client: usize, slot: usize) {
        let this = self.slot(client, slot);
        this.attempt += 1;
        (this.phase, this.hold) = (Phase::Idle, None);
        this.stop = 0;
        let pause = self.chance.mostly_short(self.settings.tick * 2);
        self.arm(client, slot, pause);
    }

    pub(super) fn timer(&mut self, client: usize, slot: usize, timer: u32) {
        let (calm, ending) = (self.is_calm(), self.is_ending());
        let this = self.slot(client, slot);
        if this.timer == timer {
            match this.phase {
                Phase::Idle if !calm => self.begin(client, slot),
                Phase::BackingOff => self.enter(client, slot),
                Phase::Admission => self.look(client, slot),
                // When all is to become quiet, holders keep what they have.
                Phase::Holding if !calm || ending => {
                    let valid = self.slot(client, slot).hold.as_ref().is_some_and(|hold| !hold.lost);
                    if self.slot(client, slot).downgrades && valid {
                        self.exchange(client, slot);
                    } else {
                        self.release(client, slot);
                    }
                }
                _ => {}
            }
        } else if this.stop == timer && !calm {
            match this.phase {
                Phase::Holding | Phase::Exchanging { .. } | Phase::Releasing | Phase::Idle => {}
                _ => self.give_up(client, slot),
            }
        }
    }

    pub(super) fn draw_kind(&mut self) -> Kind {
        let (writers, readers, permits) = self.weather.mix;
        let drawn = self.chance.below(writers + readers + permits);
        if drawn < writers {
            Kind::Exclusive
        } else if drawn < writers + readers {
            Kind::Read { was: None }
        } else {
            let (most, odd, other) = self.weather.permits;
            let of = if self.chance.one_in(odd) { other } else { most };
            NonZeroU32::new(of).map_or(Kind::Exclusive, |of| Kind::Permit { of })
        }
    }
}
