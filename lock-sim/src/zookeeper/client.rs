//! The client library: one session's connection, what waits for it, and its watches. It does what `zookeeper-client` does.

use std::{collections::VecDeque, rc::Rc};

use futures::channel::oneshot;
use lock_zk::wire::{SessionState, WatchEvent};
use tokio::sync::watch;

use super::{
    fact::FactKind,
    message::{Answer, ClientMessage, Down, EnsembleEvent, News, Op, Refusal, Reply, SessionId},
    safeguard::has,
    state::{ClientLink, ClientSession, ClientWatch, OutstandingRequest, PendingOpen, Schedule},
    wire::{AnswerWaiter, OpenedSession, WatchHandle, WatchKind},
};
use crate::{MS, Pipe, Time};

/// How many tenths of its time-out a client waits before it takes its session for ended.
const GIVES_UP: Time = 14;

impl Schedule<'_> {
    /// A session is asked for, at one of these servers.
    pub(super) fn open(
        &mut self,
        host: usize,
        mut servers: Vec<usize>,
        timeout: Time,
        answer: oneshot::Sender<Result<OpenedSession, Refusal>>,
    ) {
        let now = self.local(host);
        let start = self.world.chance().place(servers.len());
        servers.rotate_left(start);
        let left = servers.clone();
        let client = ClientSession {
            host,
            servers,
            link: ClientLink::Down,
            attempt: 0,
            asked: now,
            received: now,
            sent: now,
            up: Pipe::default(),
            up_broken: false,
            session: 0,
            timeout,
            opening: Some(PendingOpen { left, answer }),
            seen: 0,
            told: 0,
            numbers: 0,
            outstanding: VecDeque::new(),
            backlog: VecDeque::new(),
            watches: Vec::new(),
            watch_numbers: 0,
            states: watch::Sender::new(SessionState::Connected),
            is_dropped: false,
            is_over: false,
        };
        self.clients.push(client);
        let client = self.clients.len() - 1;
        self.look_again(client);
        self.connect(client, 0);
    }

    /// The servers that a host is connected to.
    pub(super) fn connections(&self, host: usize) -> Vec<usize> {
        let linked = |client: &ClientSession| match client.link {
            ClientLink::Up { server, .. } if client.host == host && !client.is_over => Some(server),
            _ => None,
        };
        let mut servers: Vec<usize> = self.clients.iter().filter_map(linked).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Sends a request, or keeps it for the next connection.
    pub(super) fn ask(&mut self, client: usize, op: Op, waiter: AnswerWaiter) {
        let at = self.now();
        let this = &mut self.clients[client];
        if this.is_over {
            return reply(waiter, Err(Refusal::SessionEnded));
        }
        this.numbers += 1;
        if let Op::Delete(path) = &op {
            self.invariants.asks_to_delete(this.session, this.numbers, path, this.told);
        }
        let creates = match &op {
            Op::Create { path, made: super::message::Made::Sequential, .. } => Some(path.clone()),
            _ => None,
        };
        let watched = match &op {
            Op::Watch(path) | Op::WatchExistence(path) | Op::WatchChildren(path) => Some(path.clone()),
            _ => None,
        };
        let (is_ping, is_close) = (matches!(op, Op::Ping), matches!(op, Op::Close));
        let sent = OutstandingRequest { number: this.numbers, at, is_ping, creates, watched, is_close, waiter };
        if matches!(this.link, ClientLink::Up { .. }) {
            self.transmit(client, sent, op);
        } else {
            this.backlog.push_back((sent, op));
        }
    }

    fn transmit(&mut self, client: usize, sent: OutstandingRequest, op: Op) {
        let number = sent.number;
        let now = self.local(self.clients[client].host);
        self.clients[client].sent = now;
        self.clients[client].outstanding.push_back(sent);
        if let ClientLink::Up { conn, server } = self.clients[client].link {
            self.send(client, server, conn, ClientMessage::Request { number, op });
        }
    }

    fn send(&mut self, client: usize, server: usize, conn: u32, message: ClientMessage) {
        let (mut from, delay) = (self.now(), self.client_delay());
        let this = &mut self.clients[client];
        let host = &self.hosts[this.host];
        if host.mute {
            match host.sends_again_at {
                Some(at) => from = at,
                None => this.up_broken = true,
            }
        }
        if !this.up_broken {
            let at = this.up.arrival(from, delay);
            self.world.at(at, EnsembleEvent::Arrive { server, conn, message: Rc::new(message) });
        }
    }

    fn connect_soon(&mut self, client: usize) {
        self.clients[client].attempt += 1;
        let (attempt, pause) = (self.clients[client].attempt, MS + self.world.chance().below(20 * MS));
        self.world.after(pause, EnsembleEvent::Connect { client, attempt });
    }

    pub(super) fn connect(&mut self, client: usize, attempt: u32) {
        let this = &mut self.clients[client];
        if this.link != ClientLink::Down || this.attempt != attempt || this.is_over {
            return;
        }
        let (session, seen, timeout, host) = (this.session, this.seen, this.timeout, this.host);
        let server = match &mut this.opening {
            Some(opening) => match opening.left.pop() {
                Some(server) => server,
                // One round over the servers.
                None => return self.client_ends(client, Refusal::Unknown),
            },
            None => {
                let servers = self.clients[client].servers.len();
                let place = self.world.chance().place(servers);
                self.clients[client].servers[place]
            }
        };
        self.conns += 1;
        let (conn, now) = (self.conns, self.local(host));
        let this = &mut self.clients[client];
        (this.link, this.asked) = (ClientLink::Connecting { conn, server }, now);
        (this.up, this.up_broken) = (Pipe::default(), false);
        self.send(client, server, conn, ClientMessage::Connect { client, session, seen, timeout });
    }

    /// The connection is gone, and with it the answers.
    fn lose_connection(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.link = ClientLink::Down;
        let (host, is_opening) = (this.host, this.opening.is_some());
        if !is_opening {
            change_state(&this.states, SessionState::Disconnected);
        }
        let lost = std::mem::take(&mut this.outstanding);
        self.note(format_args!("host {host}"), format_args!("client {client} has lost its connection"));
        for sent in lost {
            if let Some(prefix) = sent.creates {
                let was_done = self.log.iter().any(|entry| entry.creates(&prefix));
                self.counts.add(if was_done { FactKind::NodeMade } else { FactKind::NodeNotMade } as usize);
            }
            reply(sent.waiter, Err(Refusal::Unknown));
        }
        self.connect_soon(client);
    }

    pub(super) fn hung_up(&mut self, client: usize, conn: u32) {
        let Some(this) = self.clients.get(client) else { return };
        match this.link {
            ClientLink::Connecting { conn: present, .. } | ClientLink::Up { conn: present, .. }
                if present == conn && !this.is_over =>
            {
                self.lose_connection(client);
            }
            _ => {}
        }
    }

    pub(super) fn deliver(&mut self, client: usize, conn: u32, message: &Down) {
        let Some(this) = self.clients.get(client) else { return };
        let (host, server) = match this.link {
            ClientLink::Connecting { conn: present, server } | ClientLink::Up { conn: present, server }
                if present == conn && !this.is_over =>
            {
                (this.host, server)
            }
            _ => return,
        };
        let now = self.local(host);
        self.clients[client].received = now;
        match message {
            Down::Connected { session, timeout } => self.connected(client, conn, server, *session, *timeout),
            Down::Expired => self.client_ends(client, Refusal::SessionEnded),
            Down::Reply { number, reply, zxid } => self.replied(client, *number, reply.clone(), *zxid),
            Down::News { news, zxid } => {
                let this = &mut self.clients[client];
                this.told = *zxid;
                // An answer comes behind all news of what its server had applied. News say that of earlier transactions only.
                if !has("seen-in-answers") {
                    this.seen = this.seen.max(*zxid);
                }
                self.hear(client, news);
                // The worst moment for a connection to break is between two pieces of news.
                let breaks = self.faults.breaks;
                if !self.is_calm() && self.world.chance().one_in(breaks) {
                    self.hung_up(client, conn);
                }
            }
        }
        self.check_deadlines_of(client);
    }

    fn connected(&mut self, client: usize, conn: u32, server: usize, session: SessionId, timeout: Time) {
        let this = &mut self.clients[client];
        this.link = ClientLink::Up { conn, server };
        let host = this.host;
        (this.session, this.timeout) = (session, timeout);
        let opening = this.opening.take();
        let states = this.states.subscribe();
        self.note(
            format_args!("host {host}"),
            format_args!(
                "client {client} is connected to server {server}, connection {conn}, session {session}, for {} ms",
                timeout / MS
            ),
        );
        if let Some(opening) = opening {
            if opening.answer.send(Ok(OpenedSession { client, session, timeout, states })).is_err() {
                self.drop_client(client);
            }
            self.is_unlucky(host, server);
            return;
        }
        self.set_watches(client);
        change_state(&self.clients[client].states, SessionState::Connected);
        for (sent, op) in std::mem::take(&mut self.clients[client].backlog) {
            self.transmit(client, sent, op);
        }
        if self.clients[client].is_dropped {
            self.close(client);
        }
    }

    /// Nobody has it any more: the session is ended behind everything that was asked for.
    pub(super) fn drop_client(&mut self, client: usize) {
        let this = &mut self.clients[client];
        if std::mem::replace(&mut this.is_dropped, true) || this.is_over {
            return;
        }
        if this.opening.is_some() {
            this.is_over = true;
        } else if matches!(this.link, ClientLink::Up { .. }) {
            self.close(client);
        }
    }

    fn close(&mut self, client: usize) {
        let this = &mut self.clients[client];
        this.numbers += 1;
        let sent = OutstandingRequest {
            number: this.numbers,
            at: 0,
            is_ping: false,
            creates: None,
            watched: None,
            is_close: true,
            waiter: AnswerWaiter::Nobody,
        };
        self.transmit(client, sent, Op::Close);
    }

    fn set_watches(&mut self, client: usize) {
        let this = &self.clients[client];
        let of = |kind: WatchKind| {
            let watched = this.watches.iter().filter(|watch| watch.kind == kind).map(|watch| watch.path.clone());
            let mut paths: Vec<String> = watched.collect();
            paths.sort_unstable();
            paths.dedup();
            paths
        };
        let (nodes, missing, children) = (of(WatchKind::Node), of(WatchKind::Missing), of(WatchKind::Children));
        if nodes.is_empty() && missing.is_empty() && children.is_empty() {
            return;
        }
        let op = Op::SetWatches { nodes, missing, children, since: this.seen };
        self.ask(client, op, AnswerWaiter::Nobody);
    }

    pub(super) fn unwatch(&mut self, client: usize, number: u64) {
        self.clients[client].watches.retain(|watch| watch.number != number);
    }

    fn hear(&mut self, client: usize, news: &News) {
        let (path, event) = match news {
            News::Created(path) => (path, WatchEvent::Created),
            News::Changed(path) => (path, WatchEvent::DataChanged),
            News::Deleted(path) => (path, WatchEvent::Deleted),
            News::Children(path) => (path, WatchEvent::ChildrenChanged),
        };
        let is_told = |watch: &ClientWatch| {
            watch.path == *path
                && match (watch.kind, event) {
                    (_, WatchEvent::Deleted) => true,
                    (WatchKind::Children, event) => event == WatchEvent::ChildrenChanged,
                    (_, event) => event != WatchEvent::ChildrenChanged,
                }
        };
        let host = self.clients[client].host;
        self.hosts[host].heard = Some(event);
        let this = &mut self.clients[client];
        let (heard, kept) = this.watches.drain(..).partition(is_told);
        this.watches = kept;
        let heard: Vec<ClientWatch> = heard;
        for watch in heard {
            let _ = watch.event.send(event);
        }
    }

    fn replied(&mut self, client: usize, number: u32, answer: Reply, zxid: u64) {
        let now = self.now();
        let this = &mut self.clients[client];
        if this.outstanding.front().is_none_or(|sent| sent.number != number) {
            return;
        }
        let Some(sent) = this.outstanding.pop_front() else { return };
        if sent.is_ping {
            return;
        }
        this.seen = this.seen.max(zxid);
        this.told = zxid;
        self.hosts[this.host].heard = None;
        if answer.as_ref().is_err_and(|refusal| *refusal == Refusal::SessionEnded) || sent.is_close {
            reply(sent.waiter, Err(Refusal::SessionEnded));
            return self.client_ends(client, Refusal::SessionEnded);
        }
        if now - sent.at > self.settings.tick {
            self.counts.add(FactKind::SlowAnswer as usize);
        }
        match (sent.waiter, sent.watched) {
            (AnswerWaiter::Watch(kind, waiter), Some(path)) => {
                let told = answer.map(|answer| {
                    let kind = if answer == Answer::Missing { WatchKind::Missing } else { kind };
                    let this = &mut self.clients[client];
                    this.watch_numbers += 1;
                    let (event, heard) = oneshot::channel();
                    let number = this.watch_numbers;
                    this.watches.push(ClientWatch { number, path, kind, event });
                    (answer, WatchHandle { client, number, event: heard })
                });
                // A watch of which nobody takes the news is dropped with them.
                let _ = waiter.send(told);
            }
            (waiter, _) => reply(waiter, answer),
        }
    }

    /// The session is over, by the servers' word or by the client's own clock; or none was opened.
    fn client_ends(&mut self, client: usize, why: Refusal) {
        let this = &mut self.clients[client];
        if std::mem::replace(&mut this.is_over, true) {
            return;
        }
        this.link = ClientLink::Down;
        let (host, session) = (this.host, this.session);
        let lost = std::mem::take(&mut this.outstanding);
        let backlog = std::mem::take(&mut this.backlog);
        let watches = std::mem::take(&mut this.watches);
        if let Some(opening) = this.opening.take() {
            let _ = opening.answer.send(Err(why));
        } else {
            self.note(format_args!("host {host}"), format_args!("takes session {session} for ended"));
            if self.invariants.alive.contains(&session) {
                self.counts.add(FactKind::SessionOutlives as usize);
            }
        }
        change_state(&self.clients[client].states, SessionState::Ended);
        for watch in watches {
            let _ = watch.event.send(WatchEvent::SessionEnded);
        }
        for sent in lost.into_iter().chain(backlog.into_iter().map(|(sent, _)| sent)) {
            reply(sent.waiter, Err(Refusal::SessionEnded));
        }
    }

    fn look_again(&mut self, client: usize) {
        let this = &self.clients[client];
        let at = self.hosts[this.host].clock.when(self.local(this.host) + this.timeout / 20);
        self.world.at(at, EnsembleEvent::Look { client });
    }

    /// The client looks at its limits.
    pub(super) fn look(&mut self, client: usize) {
        let this = &self.clients[client];
        if this.is_over {
            return;
        }
        let (now, timeout) = (self.local(this.host), this.timeout);
        let silent = now.saturating_sub(this.received);
        match this.link {
            ClientLink::Up { .. } if silent >= timeout / 5 * 2 => self.lose_connection(client),
            ClientLink::Up { .. } if now.saturating_sub(this.sent) >= timeout / 20 * 3 => {
                self.ask(client, Op::Ping, AnswerWaiter::Nobody);
            }
            ClientLink::Connecting { .. } if now.saturating_sub(this.asked) >= timeout / 5 * 2 => {
                self.lose_connection(client);
            }
            _ => {}
        }
        let this = &self.clients[client];
        let is_patient = this.opening.is_some() || matches!(this.link, ClientLink::Up { .. });
        if !is_patient && silent > timeout / 10 * GIVES_UP {
            return self.client_ends(client, Refusal::SessionEnded);
        }
        self.look_again(client);
    }

    /// The process of a host is gone: nothing of it does anything any more.
    pub(super) fn clients_die(&mut self, host: usize, is_told: bool) {
        for client in 0..self.clients.len() {
            let this = &mut self.clients[client];
            if this.host != host || std::mem::replace(&mut this.is_over, true) {
                continue;
            }
            let link = std::mem::replace(&mut this.link, ClientLink::Down);
            if let (ClientLink::Up { conn, server } | ClientLink::Connecting { conn, server }, true) = (link, is_told) {
                self.servers[server].conns.retain(|other| other.id != conn);
            }
        }
    }
}

fn change_state(states: &watch::Sender<SessionState>, to: SessionState) {
    states.send_if_modified(|state| {
        let is_new = *state != to && *state != SessionState::Ended;
        if is_new {
            *state = to;
        }
        is_new
    });
}

fn reply(waiter: AnswerWaiter, answer: Reply) {
    match waiter {
        AnswerWaiter::Nobody => {}
        AnswerWaiter::Plain(waiter) => {
            let _ = waiter.send(answer);
        }
        AnswerWaiter::Watch(_, waiter) => {
            if let Err(refusal) = answer {
                let _ = waiter.send(Err(refusal));
            }
        }
    }
}
