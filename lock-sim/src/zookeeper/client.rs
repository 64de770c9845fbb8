//! One program: its connection, its session and its heartbeat.

use std::{collections::VecDeque, time::Duration};

use lock_core::{BootInstant, validity};
use lock_zk::protocol::heartbeat::{Heartbeat, Request, counted_tick};

use super::{
    chore::Chore,
    contender::{Slot, What},
    fact::Seen,
    guard::Guard,
    message::{Down, Event, Op, Refusal, Reply, Up},
    tree::{News, SessionId},
    world::World,
};
use crate::{LocalClock, MS, Pipe, Time};

#[derive(Debug)]
pub(super) struct Client {
    pub(super) clock: LocalClock,
    /// It does nothing until then, and goes on with what it knew.
    pub(super) paused_until: Time,
    /// The servers do not hear it.
    pub(super) mute: bool,
    /// It does not hear the servers.
    pub(super) deaf: bool,
    pub(super) link: Link,
    attempt: u32,
    /// When it asked for the connection, and when it last heard from a server, by its clock.
    asked: Time,
    received: Time,
    up: Pipe,
    up_broken: bool,
    pub(super) session: Option<Session>,
    seen: u64,
    numbers: u32,
    outstanding: VecDeque<Sent>,
    /// What waits for a connection.
    backlog: VecDeque<(Sent, Op)>,
    watches: Vec<Watch>,
    pub(super) slots: Vec<Slot>,
    pub(super) chores: Vec<Chore>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    Down,
    Connecting { conn: u32, server: usize },
    Up { conn: u32, server: usize },
}

/// A session, as its client has it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: SessionId,
    heartbeat: Heartbeat,
    /// Where the heartbeat's own arithmetic is taken out.
    bare: BootInstant,
    /// What the guards were told last.
    published: BootInstant,
    beating: bool,
    last_beat: Time,
}

/// Who waits for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiter {
    Nobody,
    Beat,
    Slot { slot: usize, attempt: u32, step: u32, what: What },
    Chore { chore: u32, what: What },
}

#[derive(Debug)]
struct Sent {
    number: u32,
    sent: Time,
    request: Request,
    waiter: Waiter,
}

/// What a client waits to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Watch {
    /// The node; `None` for the directory's children.
    node: Option<String>,
    slot: usize,
    attempt: u32,
    own: bool,
}

/// What an answer to it proves.
const fn kind(op: &Op) -> Request {
    match op {
        Op::Sync => Request::Sync,
        op if op.is_write() => Request::Write,
        _ => Request::Touch,
    }
}

impl Client {
    pub(super) fn new(clock: LocalClock, slots: Vec<Slot>) -> Self {
        Self {
            clock,
            paused_until: 0,
            mute: false,
            deaf: false,
            link: Link::Down,
            attempt: 0,
            asked: 0,
            received: 0,
            up: Pipe::default(),
            up_broken: false,
            session: None,
            seen: 0,
            numbers: 0,
            outstanding: VecDeque::new(),
            backlog: VecDeque::new(),
            watches: Vec::new(),
            slots,
            chores: Vec::new(),
        }
    }

    pub(super) fn session_id(&self) -> SessionId {
        self.session.as_ref().map_or(0, |session| session.id)
    }
}

impl World<'_> {
    pub(super) fn local(&self, client: usize) -> Time {
        self.clients[client].clock.at(self.now())
    }

    /// Until when the session of a client is certain to live, as it believes, by its clock.
    pub(super) fn deadline(&self, client: usize) -> Time {
        let Some(session) = &self.clients[client].session else { return 0 };
        let deadline = if self.has(Guard::TickBefore) {
            session.heartbeat.deadline()
        } else {
            session.bare.max(session.heartbeat.deadline())
        };
        let margin = if self.has(Guard::Margin) { 0 } else { self.settings.timeout / 100 + 2 * MS };
        deadline.as_nanos() + margin
    }

    /// Whether a grant may begin.
    pub(super) fn admits(&self, client: usize) -> bool {
        let now = BootInstant::from_nanos(self.local(client));
        !self.has(Guard::RunningSession)
            || self.clients[client].session.as_ref().is_some_and(|session| session.heartbeat.admits(now))
    }

    /// Sends a request, or keeps it for the next connection.
    pub(super) fn ask(&mut self, client: usize, op: Op, waiter: Waiter) {
        let sent = self.local(client);
        let this = &mut self.clients[client];
        this.numbers += 1;
        let sent = Sent { number: this.numbers, sent, request: kind(&op), waiter };
        if matches!(this.link, Link::Up { .. }) {
            self.transmit(client, sent, op);
        } else {
            this.backlog.push_back((sent, op));
        }
    }

    fn transmit(&mut self, client: usize, sent: Sent, op: Op) {
        let number = sent.number;
        self.clients[client].outstanding.push_back(sent);
        if let Link::Up { conn, server } = self.clients[client].link {
            self.send(client, server, conn, Up::Request { number, op });
        }
    }

    fn send(&mut self, client: usize, server: usize, conn: u32, message: Up) {
        let (now, delay) = (self.now(), self.client_delay());
        let this = &mut self.clients[client];
        this.up_broken |= this.mute;
        if !this.up_broken {
            let at = this.up.arrival(now, delay);
            self.agenda.at(at, Event::Arrive { server, conn, message });
        }
    }

    pub(super) fn connect_soon(&mut self, client: usize) {
        self.clients[client].attempt += 1;
        let (attempt, pause) = (self.clients[client].attempt, MS + self.chance.below(20 * MS));
        self.agenda.after(pause, Event::Connect { client, attempt });
    }

    pub(super) fn connect(&mut self, client: usize, attempt: u32) {
        let this = &self.clients[client];
        if this.link != Link::Down || this.attempt != attempt {
            return;
        }
        let (session, seen) = (this.session_id(), this.seen);
        self.conns += 1;
        let (conn, server, now) = (self.conns, self.chance.place(self.servers.len()), self.local(client));
        let this = &mut self.clients[client];
        (this.link, this.asked) = (Link::Connecting { conn, server }, now);
        (this.up, this.up_broken) = (Pipe::default(), false);
        self.send(client, server, conn, Up::Connect { client, session, seen });
    }

    /// The connection is gone, and with it the answers.
    pub(super) fn lose_connection(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.link = Link::Down;
        let lost = std::mem::take(&mut this.outstanding);
        self.note(format_args!("client {client}"), format_args!("has lost its connection"));
        for sent in lost {
            self.route(client, sent.waiter, Err(Refusal::Unknown), 0);
        }
        self.connect_soon(client);
    }

    pub(super) fn hung_up(&mut self, client: usize, conn: u32) {
        match self.clients[client].link {
            Link::Connecting { conn: present, .. } | Link::Up { conn: present, .. } if present == conn => {
                self.lose_connection(client);
            }
            _ => {}
        }
    }

    pub(super) fn deliver(&mut self, client: usize, conn: u32, message: Down) {
        let server = match self.clients[client].link {
            Link::Connecting { conn: present, server } | Link::Up { conn: present, server } if present == conn => {
                server
            }
            _ => return,
        };
        let now = self.local(client);
        self.clients[client].received = now;
        match message {
            Down::Connected { session } => self.connected(client, conn, server, session),
            Down::Expired => self.session_ended(client),
            Down::Reply { number, reply, zxid } => self.replied(client, number, reply, zxid),
            Down::News { news, zxid } => {
                // An answer comes behind all news of what its server had applied. News say that of earlier transactions only.
                if !self.has(Guard::SeenInAnswers) {
                    self.clients[client].seen = self.clients[client].seen.max(zxid);
                }
                self.hear(client, &news, zxid);
            }
        }
    }

    fn connected(&mut self, client: usize, conn: u32, server: usize, session: SessionId) {
        self.clients[client].link = Link::Up { conn, server };
        self.note(format_args!("client {client}"), format_args!("is connected to server {server}, session {session}"));
        if self.clients[client].session.is_none() {
            self.session_opened(client, session);
        }
        self.set_watches(client);
        for (sent, op) in std::mem::take(&mut self.clients[client].backlog) {
            self.transmit(client, sent, op);
        }
    }

    fn session_opened(&mut self, client: usize, id: SessionId) {
        let now = self.local(client);
        let this = &mut self.clients[client];
        let (timeout, tick) = (Duration::from_nanos(self.settings.timeout), Duration::from_nanos(self.settings.tick));
        let heartbeat = Heartbeat::new(timeout, tick, BootInstant::from_nanos(this.asked));
        let (bare, published) = (heartbeat.deadline(), heartbeat.deadline());
        this.session = Some(Session { id, heartbeat, bare, published, beating: false, last_beat: now });
        self.check_deadline(client);
        self.is_unlucky(client);
        for slot in 0..self.clients[client].slots.len() {
            self.session_is_there(client, slot);
        }
    }

    fn set_watches(&mut self, client: usize) {
        let this = &mut self.clients[client];
        let slots = &this.slots;
        this.watches.retain(|watch| slots[watch.slot].attempt == watch.attempt);
        if this.watches.is_empty() {
            return;
        }
        let mut nodes: Vec<String> = this.watches.iter().filter_map(|watch| watch.node.clone()).collect();
        nodes.dedup();
        let children = this.watches.iter().any(|watch| watch.node.is_none());
        let (since, number) = (this.seen, this.numbers + 1);
        this.numbers = number;
        let sent = Sent { number, sent: 0, request: Request::Touch, waiter: Waiter::Nobody };
        self.transmit(client, sent, Op::SetWatches { nodes, children, since });
    }

    /// Waits for news of a node, or of the directory.
    pub(super) fn watch(&mut self, client: usize, node: Option<String>, slot: usize, own: bool) {
        let attempt = self.clients[client].slots[slot].attempt;
        let watch = Watch { node, slot, attempt, own };
        if !self.clients[client].watches.contains(&watch) {
            self.clients[client].watches.push(watch);
        }
    }

    /// The own node is no longer watched.
    pub(super) fn watch_no_more(&mut self, client: usize, own: &str) {
        self.clients[client].watches.retain(|watch| !watch.own || watch.node.as_deref() != Some(own));
    }

    fn hear(&mut self, client: usize, news: &News, zxid: u64) {
        let about = match news {
            News::Children => None,
            News::Changed(name) | News::Deleted(name) => Some(name),
        };
        let this = &mut self.clients[client];
        let (heard, kept) = this.watches.drain(..).partition(|watch| watch.node.as_ref() == about);
        this.watches = kept;
        let heard: Vec<Watch> = heard;
        for watch in heard {
            if self.clients[client].slots[watch.slot].attempt == watch.attempt {
                self.news(client, watch.slot, watch.own, news, zxid);
            }
        }
    }

    fn replied(&mut self, client: usize, number: u32, reply: Reply, zxid: u64) {
        let this = &mut self.clients[client];
        this.seen = this.seen.max(zxid);
        if this.outstanding.front().is_none_or(|sent| sent.number != number) {
            return;
        }
        let Some(sent) = this.outstanding.pop_front() else { return };
        if reply.as_ref().is_err_and(|refusal| *refusal == Refusal::SessionEnded) {
            return self.session_ended(client);
        }
        if sent.waiter != Waiter::Nobody {
            self.answered(client, &sent, reply.is_ok());
        }
        self.route(client, sent.waiter, reply, zxid);
    }

    /// Counts an answer for the heartbeat, and tells the guards.
    fn answered(&mut self, client: usize, sent: &Sent, done: bool) {
        let now = self.local(client);
        let honest = self.has(Guard::AnsweredBefore);
        let timeout = Duration::from_nanos(self.settings.timeout);
        let tick = counted_tick(timeout, Duration::from_nanos(self.settings.tick));
        let Some(session) = &mut self.clients[client].session else { return };
        let at = BootInstant::from_nanos(sent.sent);
        let received = if honest { BootInstant::from_nanos(now) } else { at };
        // Refused, but heard.
        let request = if done { sent.request } else { Request::Touch };
        if BootInstant::from_nanos(now).saturating_since(at) > tick {
            self.counts.add(Seen::SlowAnswer as usize);
        }
        session.heartbeat.answered(request, at, received);
        if request == Request::Write {
            session.bare = session.bare.max(validity::deadline(at, timeout));
        }
        self.check_deadline(client);
        let deadline = self.deadline(client);
        let Some(session) = &mut self.clients[client].session else { return };
        if deadline >= session.published.as_nanos() + self.settings.timeout / 32 {
            session.published = BootInstant::from_nanos(deadline);
            self.renew(client, now, deadline);
        }
    }

    fn route(&mut self, client: usize, waiter: Waiter, reply: Reply, zxid: u64) {
        match waiter {
            Waiter::Nobody => {}
            Waiter::Beat => {
                if let Some(session) = &mut self.clients[client].session {
                    session.beating = false;
                }
            }
            Waiter::Slot { slot, attempt, step, what } => {
                let contender = &self.clients[client].slots[slot];
                if contender.attempt == attempt && contender.step == step {
                    self.contender_hears(client, slot, what, reply, zxid);
                }
            }
            Waiter::Chore { chore, what } => self.chore_hears(client, chore, what, reply),
        }
    }

    /// Somebody else takes over what was asked by a contender that has given up. Returns whether the answer is still to come.
    pub(super) fn hand_over(&mut self, client: usize, from: Waiter, to: Waiter) -> bool {
        let this = &mut self.clients[client];
        let waiting = this.outstanding.iter_mut().chain(this.backlog.iter_mut().map(|(sent, _)| sent));
        let mut found = false;
        for sent in waiting.filter(|sent| sent.waiter == from) {
            (sent.waiter, found) = (to, true);
        }
        found
    }

    /// The session is over, by the servers' word or by the client's own clock.
    pub(super) fn session_ended(&mut self, client: usize) {
        let this = &mut self.clients[client];
        if let Some(session) = this.session.take() {
            self.note(format_args!("client {client}"), format_args!("takes session {} for ended", session.id));
        }
        let this = &mut self.clients[client];
        (this.link, this.seen) = (Link::Down, 0);
        this.outstanding.clear();
        this.backlog.clear();
        this.watches.clear();
        this.chores.clear();
        for slot in 0..self.clients[client].slots.len() {
            self.session_is_gone(client, slot);
        }
        self.connect_soon(client);
    }

    /// The client's heartbeat, and its limits.
    pub(super) fn beat(&mut self, client: usize) {
        let timeout = self.settings.timeout;
        let tick = self.settings.tick.max(timeout / 6);
        let period = (timeout / 6).min(tick / 2);
        let now = self.local(client);
        let next = self.clients[client].clock.when(now + period);
        self.agenda.at(next, Event::Beat { client });
        let this = &self.clients[client];
        let silent = now.saturating_sub(this.received);
        match this.link {
            Link::Up { .. } if silent > timeout / 3 * 2 => return self.lose_connection(client),
            Link::Connecting { .. } if now - this.asked > timeout / 3 => self.lose_connection(client),
            _ => {}
        }
        let this = &self.clients[client];
        let active = this.slots.iter().any(Slot::is_active);
        let Some(session) = &this.session else { return };
        if !matches!(this.link, Link::Up { .. }) {
            if silent > timeout {
                self.session_ended(client);
            }
            return;
        }
        if session.beating || (!active && now - session.last_beat < timeout / 6) {
            return;
        }
        if let Some(session) = &mut self.clients[client].session {
            (session.beating, session.last_beat) = (true, now);
        }
        self.ask(client, if active { Op::Beat } else { Op::Sync }, Waiter::Beat);
    }
}
