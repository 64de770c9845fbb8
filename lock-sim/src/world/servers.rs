//! Servers, as far as the network knows them.

use std::collections::VecDeque;

use super::{
    ConnectionId, Happening, ServerId, Stop, Way, World, WorldEvent,
    shared::{ConnectionState, shared},
};

/// The state of a simulated server as the network has it: whether it listens, and what waits while it is paused.
#[derive(Debug)]
pub(super) struct ServerState<E> {
    pub(super) serving: Reachability,
    /// What it has to see to when it goes on; `None` while it runs.
    pub(super) set_aside: Option<VecDeque<Happening<E>>>,
}

/// Whether a simulated server accepts connections, refuses them, or answers nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reachability {
    Up,
    /// The machine is there, and says that nobody listens.
    Refusing,
    /// Nothing answers.
    Silent,
}

impl<E> World<E> {
    /// Another server, which listens at once.
    pub fn add_server(&mut self) -> ServerId {
        let server = ServerId(u8::try_from(self.servers.len()).unwrap_or(u8::MAX));
        self.servers.push(ServerState { serving: Reachability::Up, set_aside: None });
        let ways = self.gates.len() * self.servers.len();
        self.blocked.resize(ways, [false; 2]);
        server
    }

    /// Lets a server stand still. Its kernel goes on: it takes connections and what is sent on them.
    pub fn pause_server(&mut self, server: ServerId) {
        self.servers[server.place()].set_aside.get_or_insert_default();
    }

    /// Lets it go on.
    pub fn resume_server(&mut self, server: ServerId) {
        if let Some(set_aside) = self.servers[server.place()].set_aside.take() {
            self.happened.extend(set_aside);
        }
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_serving(&self, server: ServerId) -> bool {
        let it = &self.servers[server.place()];
        it.serving == Reachability::Up && it.set_aside.is_none()
    }

    /// Whether it was stopped, and has not been started since.
    #[must_use]
    pub fn is_stopped(&self, server: ServerId) -> bool {
        self.servers[server.place()].serving != Reachability::Up
    }

    /// Ends a server and its connections. It hears of none of them any more.
    pub fn stop_server(&mut self, server: ServerId, stop: Stop) {
        let it = &mut self.servers[server.place()];
        it.set_aside = None;
        it.serving = if stop == Stop::Process { Reachability::Refusing } else { Reachability::Silent };
        self.happened.retain(|happening| happening.server() != Some(server));
        for place in 0..self.lines.len() {
            let line = &mut self.lines[place];
            if line.server != server || !std::mem::take(&mut line.is_served) {
                continue;
            }
            let connection = ConnectionId(u32::try_from(place).unwrap_or(u32::MAX));
            match stop {
                Stop::Process => self.say_over(connection, Way::Down, true),
                Stop::Machine => self.lines[place].down.chunks.clear(),
            }
        }
    }

    /// Starts a server that was stopped.
    pub fn start_server(&mut self, server: ServerId) {
        self.servers[server.place()].serving = Reachability::Up;
        self.try_again(|line| line.server == server);
    }

    /// Sends what a server has to say on a connection. Nothing, if it is over.
    pub fn answer(&mut self, connection: ConnectionId, bytes: Vec<u8>) {
        if self.lines[connection.place()].is_served {
            self.send(connection, Way::Down, bytes);
        }
    }

    /// Closes a connection from the side of the server.
    pub fn hang_up(&mut self, connection: ConnectionId) {
        if std::mem::take(&mut self.lines[connection.place()].is_served) {
            self.say_over(connection, Way::Down, false);
        }
    }

    /// Breaks a connection that nobody has ended: both sides learn of it, each when it is told. What is on its way to the
    /// server may arrive before.
    pub fn reset(&mut self, connection: ConnectionId) {
        let line = &mut self.lines[connection.place()];
        if line.is_ended {
            return;
        }
        line.is_ended = true;
        self.say_over(connection, Way::Up, true);
        self.say_over(connection, Way::Down, true);
    }

    /// The connections that both sides have.
    #[must_use]
    pub fn connections(&self) -> Vec<ConnectionId> {
        let all = (0..).map(ConnectionId).zip(&self.lines);
        all.filter(|(_, line)| line.is_served && !line.is_ended).map(|(connection, _)| connection).collect()
    }

    /// From where a connection comes, and where it goes.
    #[must_use]
    pub fn ends_of(&self, connection: ConnectionId) -> (super::HostId, ServerId) {
        let line = &self.lines[connection.place()];
        (line.host, line.server)
    }

    /// Tells the machine, or the server that stands still when it goes on.
    pub(super) fn tell_server(&mut self, happening: Happening<E>) {
        let set_aside = happening.server().and_then(|server| self.servers[server.place()].set_aside.as_mut());
        match set_aside {
            Some(set_aside) => set_aside.push_back(happening),
            None => self.happened.push_back(happening),
        }
    }

    /// The server learns that a connection is over. One that stands still may have read what came before that, or not.
    pub(super) fn server_learns_the_end(&mut self, connection: ConnectionId) {
        let line = &mut self.lines[connection.place()];
        if !std::mem::take(&mut line.is_served) {
            return;
        }
        let server = line.server;
        let forgets = self.chance.one_in(2);
        if let Some(set_aside) = self.servers[server.place()].set_aside.as_mut().filter(|_| forgets) {
            let is_unread = |happening: &Happening<E>| matches!(happening, Happening::Arrived { connection: its, .. } if *its == connection);
            set_aside.retain(|happening| !is_unread(happening));
        }
        self.tell_server(Happening::Ended { server, connection });
    }

    /// Carries on what was asked of a server that nothing reached.
    pub(super) fn try_again(&mut self, of: impl Fn(&super::NetworkConnection) -> bool) {
        let now = self.now();
        for place in 0..self.lines.len() {
            if !of(&self.lines[place]) {
                continue;
            }
            let connection = ConnectionId(u32::try_from(place).unwrap_or(u32::MAX));
            for way in [Way::Up, Way::Down] {
                let Some(since) = self.lines[place].pipe(way).stalled.take() else { continue };
                // The pauses between a kernel's tries grow with the time that these take.
                let pause = self.chance.below((now - since).clamp(crate::MS, 10 * crate::SECOND));
                let is_opening =
                    way == Way::Up && shared(|shared| shared.ends[place].state == ConnectionState::Opening);
                if is_opening {
                    self.agenda.after(pause, WorldEvent::Syn(connection));
                } else {
                    self.agenda.after(pause, WorldEvent::Arrive(connection, way, u32::MAX));
                }
            }
        }
    }
}

impl<E> Happening<E> {
    /// Whom it concerns, if it is a server.
    #[must_use]
    pub const fn server(&self) -> Option<ServerId> {
        match self {
            Self::Connected { server, .. } | Self::Arrived { server, .. } | Self::Ended { server, .. } => Some(*server),
            Self::Own(_) | Self::Called | Self::Passed => None,
        }
    }
}
