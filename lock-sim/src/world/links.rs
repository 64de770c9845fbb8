//! How chunks travel.

use super::{
    ConnectionId, Happening, HostId, ServerId, Stop, Way, World, WorldEvent,
    network::{Chunk, DETAINED, Detention, NetworkConnection},
    servers::Reachability,
    shared::{ClientEnd, ConnectionState, shared},
};
use crate::Time;

impl<E> World<E> {
    /// Blocks one way between a host and a server, or opens it again.
    pub fn block(&mut self, host: HostId, server: ServerId, way: Way, is_blocked: bool) {
        let place = self.way_place(host, server);
        let was_blocked = std::mem::replace(&mut self.blocked[place][way as usize], is_blocked);
        if !was_blocked || is_blocked {
            return;
        }
        self.try_again(|line| line.host == host && line.server == server);
        if way == Way::Down {
            // What had arrived is acknowledged now.
            for line in self.lines.iter_mut().filter(|line| line.host == host && line.server == server) {
                line.acknowledged();
            }
        }
    }

    /// How chunks travel from now on.
    pub fn set_wires(&mut self, change: impl FnOnce(&mut super::Wires)) {
        change(&mut self.wires);
    }

    fn way_place(&self, host: HostId, server: ServerId) -> usize {
        server.place() * self.gates.len() + host.place()
    }

    fn is_blocked(&self, line: &NetworkConnection, way: Way) -> bool {
        self.blocked[self.way_place(line.host, line.server)][way as usize]
    }

    pub(super) fn dial(&mut self, connection: ConnectionId) {
        let (host, server) = shared(|shared| {
            let end = &shared.ends[connection.place()];
            (end.host, end.server)
        });
        self.lines.push(NetworkConnection::new(host, server));
        let delay = self.wires.delay(&mut self.chance);
        self.agenda.after(delay, WorldEvent::Syn(connection));
    }

    /// The first packet comes to the server, if it does. Nothing is lost of a handshake that is not tried again.
    pub(super) fn syn(&mut self, connection: ConnectionId) {
        let now = self.now();
        let line = &self.lines[connection.place()];
        let server = line.server;
        let serving = self.servers[server.place()].serving;
        let is_lost =
            self.is_blocked(line, Way::Up) || self.is_blocked(line, Way::Down) || serving == Reachability::Silent;
        if line.is_ended {
            return;
        }
        if is_lost {
            self.lines[connection.place()].up.stalled = Some(now);
            return;
        }
        let delay = self.wires.delay(&mut self.chance);
        let is_accepted = serving == Reachability::Up;
        self.agenda.after(delay, WorldEvent::Opened(connection, is_accepted));
        if is_accepted {
            self.lines[connection.place()].is_served = true;
            self.tell_server(Happening::Connected { server, connection });
        }
    }

    /// Puts bytes on their way.
    pub(super) fn send(&mut self, connection: ConnectionId, way: Way, bytes: Vec<u8>) {
        let now = self.now();
        let mut delay = self.wires.delay(&mut self.chance);
        let is_resent = self.chance.per_mille(self.wires.lost_per_mille);
        if is_resent {
            delay += self.chance.below(self.wires.resent_within);
        }
        if way == Way::Up && self.lines[connection.place()].is_ended {
            return;
        }
        let mut breaks = self.wires.broken_per_mille;
        if way == Way::Up && self.is_detained(connection, &bytes) {
            delay = DETAINED;
            breaks = if self.detention.is_some_and(|detention| detention.breaks) { 1_000 } else { 0 };
        }
        let pipe = self.lines[connection.place()].pipe(way);
        let number = pipe.sent;
        pipe.sent += 1;
        pipe.chunks.push_back(Chunk { bytes, number, sent_at: now, is_resent });
        if pipe.stalled.is_none() {
            pipe.last = pipe.last.max(now + delay);
            let at = pipe.last;
            self.agenda.at(at, WorldEvent::Arrive(connection, way, number));
        }
        if way == Way::Up {
            if delay > self.wires.most && breaks > 0 && self.chance.per_mille(breaks) {
                let soon = self.chance.below(self.wires.most);
                self.agenda.after(soon, WorldEvent::BreakOff(connection));
            }
            let line = &mut self.lines[connection.place()];
            line.unacknowledged.get_or_insert(now);
            if let Some(limit) = self.wires.unacknowledged.filter(|_| !line.is_watched) {
                line.is_watched = true;
                self.agenda.at(now + limit, WorldEvent::Unacknowledged(connection));
            }
        }
    }

    /// Holds the next request that is meant up on its way from a host to a server, until somebody lets it go.
    pub fn detain(&mut self, host: HostId, server: ServerId, is_meant: fn(&[u8]) -> bool, breaks: bool) {
        self.detention = Some(Detention { host, server, is_meant, breaks, caught: None });
    }

    /// Whether a request is held up.
    #[must_use]
    pub fn is_detaining(&self) -> bool {
        self.detention.is_some_and(|detention| detention.caught.is_some())
    }

    /// Whether a request is to be held up that has not come yet.
    #[must_use]
    pub fn is_waiting_to_detain(&self) -> bool {
        self.detention.is_some_and(|detention| detention.caught.is_none())
    }

    /// Lets the request that is held up, and what came behind it, arrive within this time.
    pub fn let_go(&mut self, within: Time) {
        if let Some(connection) = self.detention.take().and_then(|detention| detention.caught) {
            let delay = self.chance.below(within);
            self.lines[connection.place()].up.last = self.now() + delay;
            self.agenda.after(delay, WorldEvent::Arrive(connection, Way::Up, u32::MAX));
        }
    }

    fn is_detained(&mut self, connection: ConnectionId, bytes: &[u8]) -> bool {
        let line = &self.lines[connection.place()];
        let Some(detention) = &mut self.detention else { return false };
        let is_meant = detention.caught.is_none()
            && (detention.host, detention.server) == (line.host, line.server)
            && (detention.is_meant)(bytes);
        if is_meant {
            detention.caught = Some(connection);
        }
        is_meant
    }

    /// What was sent up to that number arrives, if its way is open.
    pub(super) fn arrive(&mut self, connection: ConnectionId, way: Way, number: u32) {
        let now = self.now();
        let line = &self.lines[connection.place()];
        let server = line.server;
        let serving = self.servers[server.place()].serving;
        let is_lost = self.is_blocked(line, way) || (way == Way::Up && serving == Reachability::Silent);
        let line = &mut self.lines[connection.place()];
        let (is_served, is_ended) = (line.is_served, line.is_ended);
        let pipe = line.pipe(way);
        if pipe.chunks.is_empty() || pipe.stalled.is_some() {
            return;
        }
        if is_lost {
            if way == Way::Up && is_ended && self.wires.ends_at_once {
                // It is lost on its way, and nobody has it to send it again.
                pipe.chunks.clear();
            } else {
                pipe.stalled = Some(now);
            }
            return;
        }
        let mut arrived = Vec::new();
        while pipe.chunks.front().is_some_and(|chunk| chunk.number <= number) {
            arrived.extend(pipe.chunks.pop_front());
        }
        for chunk in arrived {
            self.sum_up(chunk.bytes.len() as u64 ^ u64::from(connection.0) << 32);
            match way {
                Way::Up if is_served => {
                    self.tell_server(Happening::Arrived { server, connection, bytes: chunk.bytes });
                }
                // Nobody has this connection there: its machine says so.
                Way::Up => self.say_over(connection, Way::Down, true),
                Way::Down => {
                    let is_taken = self.tell_client(connection, |end| {
                        if end.state == ConnectionState::Open {
                            end.inbox.extend(&chunk.bytes);
                        }
                        matches!(end.state, ConnectionState::Open | ConnectionState::Opening)
                    });
                    if !is_taken {
                        self.say_over(connection, Way::Up, true);
                    }
                }
            }
        }
        let line = &self.lines[connection.place()];
        if way == Way::Up && !self.is_blocked(line, Way::Down) {
            self.lines[connection.place()].acknowledged();
        }
    }

    /// Tells the side to which this way leads that the connection is over, behind all that is on its way already.
    pub(super) fn say_over(&mut self, connection: ConnectionId, way: Way, is_reset: bool) {
        let at = self.now() + self.wires.delay(&mut self.chance);
        let pipe = self.lines[connection.place()].pipe(way);
        let at = at.max(pipe.last);
        self.agenda.at(at, WorldEvent::Over(connection, way, is_reset));
    }

    pub(super) fn is_over(&mut self, connection: ConnectionId, way: Way, is_reset: bool) {
        if self.is_blocked(&self.lines[connection.place()], way) {
            // A reset is sent once. Whoever is not told finds out by itself.
            return;
        }
        match way {
            Way::Up => self.server_learns_the_end(connection),
            Way::Down => {
                let state = if is_reset { ConnectionState::Reset } else { ConnectionState::Closed };
                self.client_learns_the_end(connection, state);
            }
        }
    }

    fn client_learns_the_end(&mut self, connection: ConnectionId, state: ConnectionState) {
        let line = &mut self.lines[connection.place()];
        line.is_ended = true;
        line.up.chunks.clear();
        line.unacknowledged = None;
        self.tell_client(connection, |end| {
            if !end.is_over() {
                end.state = state;
            }
        });
    }

    /// Its program has ended a connection or dropped it: the kernel forgets what it would have to send (again).
    pub(super) fn client_ends(&mut self, connection: ConnectionId) {
        let ends_at_once = self.wires.ends_at_once;
        let line = &mut self.lines[connection.place()];
        if std::mem::replace(&mut line.is_ended, true) {
            return;
        }
        if ends_at_once {
            line.forget_unsent();
            self.say_over(connection, Way::Up, true);
        }
    }

    /// A client hears that a connection is over, and the server does not: what is on its way there arrives, perhaps behind
    /// what the client sends on the next one.
    pub fn break_off(&mut self, connection: ConnectionId) {
        self.client_ends(connection);
        self.tell_client(connection, |end| {
            if !end.is_over() {
                end.state = ConnectionState::Reset;
            }
        });
    }

    pub(super) fn host_is_gone(&mut self, connection: ConnectionId, stop: Stop) {
        let was_open = shared(|shared| {
            let end = &mut shared.ends[connection.place()];
            let was_open = !end.is_over();
            end.state = ConnectionState::Ended;
            was_open
        });
        if !was_open {
            return;
        }
        match stop {
            Stop::Process => self.client_ends(connection),
            Stop::Machine => {
                let line = &mut self.lines[connection.place()];
                line.is_ended = true;
                line.forget_unsent();
            }
        }
    }

    /// The kernel of a client looks whether what it has sent was acknowledged.
    pub(super) fn unacknowledged(&mut self, connection: ConnectionId) {
        let now = self.now();
        let line = &mut self.lines[connection.place()];
        line.is_watched = false;
        let (Some(limit), Some(since)) = (self.wires.unacknowledged, line.unacknowledged) else { return };
        if since + limit > now {
            line.is_watched = true;
            self.agenda.at(since + limit, WorldEvent::Unacknowledged(connection));
            return;
        }
        self.client_learns_the_end(connection, ConnectionState::TimedOut);
        self.say_over(connection, Way::Up, true);
    }

    /// Changes what a client sees of a connection, and wakes it.
    pub(super) fn tell_client<T>(&mut self, connection: ConnectionId, change: impl FnOnce(&mut ClientEnd) -> T) -> T {
        let (told, waker) = shared(|shared| {
            let end = &mut shared.ends[connection.place()];
            (change(end), end.waker.take())
        });
        if let Some(waker) = waker {
            waker.wake();
        }
        told
    }
}

impl NetworkConnection {
    /// What is left of what the client has sent is what its kernel waits for an acknowledgement of.
    fn acknowledged(&mut self) {
        self.unacknowledged = self.up.chunks.front().map(|chunk| chunk.sent_at);
    }

    /// What is in the kernel is never sent; what is on its way arrives.
    fn forget_unsent(&mut self) {
        if self.up.stalled.take().is_some() {
            self.up.chunks.clear();
        }
        if let Some(first) = self.up.chunks.iter().position(|chunk| chunk.is_resent) {
            // What comes after it was not delivered either.
            self.up.chunks.truncate(first);
        }
        self.unacknowledged = None;
    }
}
