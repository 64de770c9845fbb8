//! One contender's way: into the queue, through it, to its grant and back. It does with the answers of the servers what
//! `contend.rs` and `contend/line.rs` of the backend do.

use std::num::NonZeroU32;

use lock_zk::queue::{Kind, Standing, downgraded, is_followed, is_news, made_by, marks, prefix, standing};

use super::{
    chore::Task,
    client::Waiter,
    fact::Seen,
    guard::Guard,
    message::{Answer, Event, Op, Refusal, Reply},
    oracle::Place,
    tree::{News, SessionId},
    view::View,
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
    timer: u32,
    stop: u32,
    pub(super) phase: Phase,
    pub(super) session: SessionId,
    pub(super) unique: String,
    pub(super) name: String,
    pub(super) token: u64,
    waits: bool,
    own: OwnWatch,
    heard: (String, i32),
    created: Option<Reply>,
    listed: Option<Reply>,
    synced: Option<Reply>,
    found: Vec<String>,
    watched: Option<Reply>,
    mine: Option<Reply>,
    ahead_news: Option<(News, u64)>,
    pub(super) hold: Option<Hold>,
    /// It goes on as a reader before it releases.
    downgrades: bool,
    entered_before: bool,
}

impl Slot {
    pub(super) const fn new() -> Self {
        Self {
            kind: Kind::Exclusive,
            attempt: 0,
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
    fn slot(&mut self, client: usize, slot: usize) -> &mut Slot {
        &mut self.clients[client].slots[slot]
    }

    fn say_of(&mut self, client: usize, slot: usize, what: std::fmt::Arguments<'_>) {
        self.trace.note(self.agenda.now(), format_args!("client {client}.{slot}"), what);
    }

    fn ask_for(&mut self, client: usize, slot: usize, op: Op, what: What) {
        let attempt = self.clients[client].slots[slot].attempt;
        self.ask(client, op, Waiter::Slot { slot, attempt, what });
    }

    fn arm(&mut self, client: usize, slot: usize, delay: Time) {
        self.timers += 1;
        let timer = self.timers;
        self.slot(client, slot).timer = timer;
        self.agenda.after(delay, Event::Timer { client, slot, timer });
    }

    /// A program wants the lock.
    fn begin(&mut self, client: usize, slot: usize) {
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
    fn start(&mut self, client: usize, slot: usize) {
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
    fn again(&mut self, client: usize, slot: usize) {
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

    fn enter(&mut self, client: usize, slot: usize) {
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

    fn entered(&mut self, client: usize, slot: usize, zxid: u64) {
        let this = self.slot(client, slot);
        let (created, listed) = (this.created.take(), this.listed.take());
        match created {
            Some(Ok(Answer::Node { name, czxid, .. })) => {
                (this.name, this.token, this.phase) = (name, czxid, Phase::Looking);
                let name = self.slot(client, slot).name.clone();
                self.say_of(client, slot, format_args!("is in the queue as {name}"));
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

    fn back_off(&mut self, client: usize, slot: usize) {
        self.slot(client, slot).phase = Phase::BackingOff;
        let pause = 2 * MS + self.chance.below(20 * MS);
        self.arm(client, slot, pause);
    }

    /// After a create without an answer: whether it was done.
    fn recover(&mut self, client: usize, slot: usize) {
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

    fn searched(&mut self, client: usize, slot: usize, reply: Reply) {
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

    fn not_found(&mut self, client: usize, slot: usize) {
        self.counts.add(Seen::NodeNotFound as usize);
        self.say_of(client, slot, format_args!("finds that its node was not made"));
        let id = self.clients[client].session_id();
        let this = self.slot(client, slot);
        (this.entered_before, this.session) = (false, id);
        self.back_off(client, slot);
    }

    fn check_next(&mut self, client: usize, slot: usize) {
        let Some(name) = self.slot(client, slot).found.pop() else { return self.not_found(client, slot) };
        self.slot(client, slot).phase = Phase::Checking;
        self.ask_for(client, slot, Op::Read(name), What::Owner);
    }

    fn checked(&mut self, client: usize, slot: usize, reply: Reply, zxid: u64) {
        let (present, own) = (self.clients[client].session_id(), self.has(Guard::OwnSession));
        match reply {
            Ok(Answer::Node { name, session, czxid, .. }) if session == present || !own => {
                self.counts.add(Seen::NodeFound as usize);
                self.say_of(client, slot, format_args!("finds its node {name}"));
                let this = self.slot(client, slot);
                (this.name, this.token, this.phase) = (name, czxid, Phase::Looking);
                match this.listed.take() {
                    Some(Ok(Answer::List(children))) => self.stand(client, slot, &children, zxid, false),
                    _ => self.look(client, slot),
                }
            }
            Ok(_) | Err(Refusal::NoNode) => self.check_next(client, slot),
            Err(Refusal::SessionEnded) => self.again(client, slot),
            Err(Refusal::Unknown) => self.recover(client, slot),
        }
    }

    fn look(&mut self, client: usize, slot: usize) {
        self.slot(client, slot).phase = Phase::Looking;
        self.ask_for(client, slot, Op::List, What::Look);
    }

    fn looked(&mut self, client: usize, slot: usize, reply: Reply, zxid: u64) {
        match reply {
            Ok(Answer::List(children)) => self.stand(client, slot, &children, zxid, true),
            Err(Refusal::NoNode | Refusal::SessionEnded) => self.again(client, slot),
            _ => self.look(client, slot),
        }
    }

    /// Where the own node stands, by the rules of the backend, less what was taken out of them.
    fn view<'a>(&self, client: usize, slot: usize, children: &'a [String]) -> View<'a> {
        let this = &self.clients[client].slots[slot];
        View::new(children, &this.name, this.kind, |guard| self.has(guard))
    }

    fn stand(&mut self, client: usize, slot: usize, children: &[String], zxid: u64, waited: bool) {
        let view = self.view(client, slot, children);
        let stands = match standing(view.names(), view.own()) {
            Standing::Behind(_) if !self.has(Guard::Predecessor) => Standing::Holds,
            Standing::Behind(ahead) => Standing::Behind(view.real(ahead)),
            other => other,
        };
        match stands {
            Standing::Gone => self.again(client, slot),
            Standing::Disagrees { .. } => {
                self.counts.add(Seen::Disagreed as usize);
                self.give_up(client, slot);
            }
            Standing::Holds => {
                if self.grant(client, slot, zxid) {
                    if waited {
                        self.counts.add(Seen::GrantedByLook as usize);
                    }
                    self.tell(client, slot, children);
                } else {
                    self.slot(client, slot).phase = Phase::Admission;
                    self.arm(client, slot, self.settings.tick / 4);
                }
            }
            Standing::Behind(_) | Standing::Gate if !self.slot(client, slot).waits => self.give_up(client, slot),
            Standing::Behind(ahead) => {
                let ahead = ahead.to_owned();
                self.set_watches_for(client, slot, ahead);
            }
            Standing::Gate => {
                self.slot(client, slot).phase = Phase::AtGate;
                self.ask_for(client, slot, Op::ListAndWatch, What::Gate);
            }
        }
    }

    fn tell(&mut self, client: usize, slot: usize, children: &[String]) {
        let this = self.slot(client, slot);
        let (name, permit) = (this.name.clone(), matches!(this.kind, Kind::Permit { .. }));
        if permit && is_followed(children, &name) && self.has(Guard::GateTells) {
            self.counts.add(Seen::GateTold as usize);
            self.chore(client, Task::Announce(name));
        }
    }

    fn set_watches_for(&mut self, client: usize, slot: usize, ahead: String) {
        self.counts.add(Seen::Waited as usize);
        self.say_of(client, slot, format_args!("waits for {ahead}"));
        let own = self.slot(client, slot).own == OwnWatch::None && self.has(Guard::OwnNodeWatch);
        let this = self.slot(client, slot);
        (this.watched, this.ahead_news) = (None, None);
        this.mine = (!own).then_some(Ok(Answer::Done));
        this.phase = Phase::SettingWatches { ahead: ahead.clone() };
        let name = this.name.clone();
        self.ask_for(client, slot, Op::Watch(ahead), What::Ahead);
        if own {
            self.ask_for(client, slot, Op::Watch(name), What::Own);
        }
    }

    /// One of the two watches was answered: they are looked at together.
    fn watching(&mut self, client: usize, slot: usize) {
        let present = self.clients[client].session_id();
        let this = &mut self.clients[client].slots[slot];
        let Phase::SettingWatches { ahead } = this.phase.clone() else { return };
        // Each is registered when its answer comes: what it has to tell comes after that.
        if let Some(Ok(Answer::Node { session, .. })) = &this.mine
            && *session == present
            && this.own == OwnWatch::None
        {
            this.own = OwnWatch::Set;
            let name = this.name.clone();
            self.watch(client, Some(name), slot, true);
        } else if let Some(Ok(Answer::Node { .. })) = &this.watched
            && this.mine.is_none()
        {
            self.watch(client, Some(ahead.clone()), slot, false);
        }
        let this = &mut self.clients[client].slots[slot];
        let (Some(watched), Some(mine)) = (this.watched.clone(), this.mine.clone()) else { return };
        match mine {
            Ok(Answer::Node { session, .. }) if session != present => return self.again(client, slot),
            Err(Refusal::NoNode) => return self.again(client, slot),
            Err(_) => return self.look(client, slot),
            Ok(_) => {}
        }
        let Ok(Answer::Node { version, .. }) = watched else { return self.look(client, slot) };
        let now = (ahead.clone(), version);
        let news = is_news(&now, &this.heard);
        this.heard = now;
        if news && self.has(Guard::GateVersions) {
            return self.look(client, slot);
        }
        self.slot(client, slot).phase = Phase::Waiting { ahead: ahead.clone() };
        let heard = self.slot(client, slot).ahead_news.take();
        if heard.is_none() {
            self.watch(client, Some(ahead), slot, false);
        }
        match self.slot(client, slot).own {
            OwnWatch::Deleted => self.again(client, slot),
            OwnWatch::Changed => {
                self.slot(client, slot).own = OwnWatch::None;
                self.look(client, slot);
            }
            OwnWatch::None | OwnWatch::Set => {
                if let Some((news, zxid)) = heard {
                    self.ahead_changed(client, slot, &news, zxid);
                }
            }
        }
    }

    fn at_gate(&mut self, client: usize, slot: usize, reply: Reply) {
        match reply {
            Ok(Answer::List(children)) => {
                let view = self.view(client, slot, &children);
                if standing(view.names(), view.own()) == Standing::Gate {
                    self.watch(client, None, slot, false);
                } else {
                    self.look(client, slot);
                }
            }
            Err(Refusal::NoNode) => self.again(client, slot),
            _ => self.look(client, slot),
        }
    }

    /// A watch has fired.
    pub(super) fn news(&mut self, client: usize, slot: usize, own: bool, news: &News, zxid: u64) {
        let this = &mut self.clients[client].slots[slot];
        if own {
            this.own = if matches!(news, News::Deleted(_)) { OwnWatch::Deleted } else { OwnWatch::Changed };
        }
        match this.phase {
            Phase::SettingWatches { .. } if !own => this.ahead_news = Some((news.clone(), zxid)),
            Phase::Waiting { .. } if own => {
                if this.own == OwnWatch::Deleted {
                    self.again(client, slot);
                } else {
                    this.own = OwnWatch::None;
                    self.look(client, slot);
                }
            }
            Phase::Waiting { .. } => self.ahead_changed(client, slot, news, zxid),
            Phase::AtGate if !own => self.look(client, slot),
            Phase::Holding if own => self.own_changed(client, slot),
            _ => {}
        }
    }

    fn ahead_changed(&mut self, client: usize, slot: usize, news: &News, zxid: u64) {
        let handed_on = match news {
            News::Changed(name) => marks(name) || !self.has(Guard::OnlyWritersMark),
            News::Deleted(_) => !self.has(Guard::LookAfterDeletion),
            News::Children => false,
        };
        let of_lock = !matches!(self.slot(client, slot).kind, Kind::Permit { .. });
        if handed_on && of_lock && self.grant(client, slot, zxid) {
            self.counts.add(Seen::HandedOn as usize);
        } else {
            self.look(client, slot);
        }
    }

    fn grant(&mut self, client: usize, slot: usize, evidence: u64) -> bool {
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
    fn guard_node(&mut self, client: usize, slot: usize) {
        match self.slot(client, slot).own {
            OwnWatch::Set => {}
            OwnWatch::None => {
                let name = self.slot(client, slot).name.clone();
                self.ask_for(client, slot, Op::Watch(name), What::Guard);
            }
            OwnWatch::Changed | OwnWatch::Deleted => self.own_changed(client, slot),
        }
    }

    fn own_changed(&mut self, client: usize, slot: usize) {
        let this = self.slot(client, slot);
        if this.own == OwnWatch::Deleted {
            self.taken_away(client, slot);
        } else {
            this.own = OwnWatch::None;
            self.guard_node(client, slot);
        }
    }

    fn guarded(&mut self, client: usize, slot: usize, reply: &Reply) {
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

    fn taken_away(&mut self, client: usize, slot: usize) {
        if let Some(hold) = self.slot(client, slot).hold.as_mut().filter(|hold| !hold.lost) {
            hold.lost = true;
            self.counts.add(Seen::TakenAway as usize);
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

    fn released(&mut self, client: usize, slot: usize, reply: &Reply) {
        if matches!(reply, Err(Refusal::Unknown)) && self.has(Guard::RepeatedRemoval) {
            let name = self.slot(client, slot).name.clone();
            self.chore(client, Task::Delete { name, marked: false });
        }
        self.finish(client, slot);
    }

    fn exchange(&mut self, client: usize, slot: usize) {
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

    fn exchanged(&mut self, client: usize, slot: usize, reply: &Reply) {
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

    /// The caller does not want it any more, or cannot have it.
    fn give_up(&mut self, client: usize, slot: usize) {
        self.counts.add(Seen::GaveUp as usize);
        self.say_of(client, slot, format_args!("gives up"));
        let marked = !self.has(Guard::OnlyHoldersMark);
        let this = self.slot(client, slot);
        let (name, unique, attempt) = (this.name.clone(), this.unique.clone(), this.attempt);
        let marked = marked && this.kind == Kind::Exclusive;
        match this.phase.clone() {
            Phase::Entering if this.created.is_none() => {
                let chore = self.chore(client, Task::Await { unique });
                let from = Waiter::Slot { slot, attempt, what: What::Create };
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

    fn finish(&mut self, client: usize, slot: usize) {
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

    fn draw_kind(&mut self) -> Kind {
        let (writers, readers, permits) = self.weather.mix;
        let drawn = self.chance.below(writers + readers + permits);
        if drawn < writers {
            Kind::Exclusive
        } else if drawn < writers + readers {
            Kind::Read { was: None }
        } else {
            let of = if self.chance.one_in(12) { 3 } else { 2 };
            NonZeroU32::new(of).map_or(Kind::Exclusive, |of| Kind::Permit { of })
        }
    }
}
