//! The Redis servers of a world.

use super::{
    lua::Removal,
    server::RedisServer,
    store::{Keys, Store},
};
use crate::{
    LocalClock, Time,
    world::{ConnectionId, Happening, ServerId, Stop, World},
};

/// All Redis servers of a schedule, by their places in the world.
#[derive(Debug, Default)]
pub struct Fleet {
    servers: Vec<HostedServer>,
}

/// A simulated Redis server with its clock, and with what it has saved for its next start.
#[derive(Debug)]
struct HostedServer {
    id: ServerId,
    server: RedisServer,
    /// The clock on the wall, in nanoseconds since 1970.
    clock: LocalClock,
    processes: u32,
    saved: Keys,
}

/// What a server has when it starts again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loses {
    /// It has written everything to its disk.
    Nothing,
    /// It has what it had when it [was saved](Fleet::save) last.
    Newest,
    /// The same, but of the keys that begin like this it has the newest.
    NewestBut(&'static str),
    /// It has no data.
    Everything,
}

impl Fleet {
    /// Another server, in the world and here.
    pub fn add<E>(&mut self, world: &mut World<E>, clock: LocalClock, without: Option<&'static Removal>) -> ServerId {
        let id = world.add_server();
        let mut server = RedisServer::new(run_id(id, 1));
        server.set_without(without);
        self.servers.push(HostedServer { id, server, clock, processes: 1, saved: Keys::default() });
        id
    }

    /// Lets the servers see to what has happened; gives back what is the machine's own.
    pub fn see_to<E>(&mut self, world: &mut World<E>, happening: Happening<E>) -> Option<E> {
        match happening {
            Happening::Own(event) => return Some(event),
            Happening::Called | Happening::Passed => {}
            Happening::Connected { server, connection } => self.server(server).connected(connection.number()),
            Happening::Ended { server, connection } => self.server(server).ended(connection.number()),
            Happening::Arrived { server, connection, bytes } => {
                let now = world.now();
                let outputs = self.at(server, now).received(connection.number(), &bytes);
                for (connection, bytes) in outputs {
                    if !bytes.is_empty() {
                        world.answer(ConnectionId::of(connection), bytes);
                    }
                }
            }
        }
        None
    }

    /// A server, with its clock at what it shows now.
    pub fn at(&mut self, server: ServerId, now: Time) -> &mut RedisServer {
        let it = &mut self.servers[server.place()];
        it.server.set_clock(it.clock.at(now) / 1_000);
        &mut it.server
    }

    /// What a server keeps now.
    pub fn store(&mut self, server: ServerId, now: Time) -> &Store {
        self.at(server, now).store()
    }

    /// Rises whenever something may have been changed on one of the servers.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.servers.iter().map(|it| it.server.store().changes()).sum()
    }

    /// The clock of a server.
    #[must_use]
    pub fn clock(&self, server: ServerId) -> LocalClock {
        self.servers[server.place()].clock
    }

    /// Puts the clock of a server forward, or back when `by` is negative.
    pub fn jump(&mut self, server: ServerId, now: Time, by: i64) {
        self.servers[server.place()].clock.jump(now, by);
    }

    /// Writes the data of a server to its disk.
    pub fn save(&mut self, server: ServerId) {
        let it = &mut self.servers[server.place()];
        it.saved = it.server.store().snapshot();
    }

    /// Stops a server.
    pub fn stop<E>(&mut self, world: &mut World<E>, server: ServerId, stop: Stop) {
        world.stop_server(server, stop);
    }

    /// Starts a server that was stopped, as another process. Nothing, if it runs.
    pub fn start<E>(&mut self, world: &mut World<E>, server: ServerId, loses: Loses) {
        if !world.is_stopped(server) {
            return;
        }
        let it = &mut self.servers[server.place()];
        it.processes += 1;
        let keys = match loses {
            Loses::Nothing => it.server.store().snapshot(),
            Loses::Newest => it.saved.clone(),
            Loses::NewestBut(prefix) => {
                let is_kept = |key: &[u8]| key.starts_with(prefix.as_bytes());
                let mut keys = it.saved.clone();
                keys.retain(|key, _| !is_kept(key));
                keys.extend(it.server.store().snapshot().into_iter().filter(|(key, _)| is_kept(key)));
                keys
            }
            Loses::Everything => Keys::default(),
        };
        it.server.restart(run_id(it.id, it.processes), keys);
        world.start_server(server);
    }

    /// Which process of a server runs, from 1 on.
    #[must_use]
    pub fn process(&self, server: ServerId) -> u32 {
        self.servers[server.place()].processes
    }

    fn server(&mut self, server: ServerId) -> &mut RedisServer {
        &mut self.servers[server.place()].server
    }
}

/// 40 hexadecimal digits, as a server has them.
fn run_id(server: ServerId, process: u32) -> String {
    format!("{:08x}{process:032x}", server.place() + 1)
}
