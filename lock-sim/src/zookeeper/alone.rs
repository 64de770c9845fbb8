//! The servers of the machine without its clients, for a comparison with a real server: nothing goes wrong, no session
//! ends by time, and all that somebody has asked for is done before anything else is asked.

use std::fmt;

use super::{
    message::{Answer, Down, Event, Op, Up},
    tree::{Effect, SessionId, Tree},
    world::World,
};
use crate::Trace;

/// Whoever has a connection, for the servers: they know a program of the machine.
const CLIENT: usize = 0;

/// Three servers without a directory.
pub struct Servers<'a> {
    world: World<'a>,
    /// To which of them clients connect.
    server: usize,
}

impl<'a> Servers<'a> {
    /// The servers, with the randomness of that seed: in how long messages take, and in to which of them clients connect.
    #[must_use]
    pub fn new(seed: u64, trace: &'a mut Trace) -> Self {
        let mut world = World::new(seed, None, trace);
        let server = world.chance.place(world.servers.len());
        for server in &mut world.servers {
            server.tree = Tree { directory: false, counter: 0, children: Vec::new(), pzxid: 0 };
        }
        world.elect(0, &[0, 1, 2]);
        Self { world, server }
    }

    /// Connects, with that session or with a new one for 0, as a client that has seen that transaction; returns the number
    /// of the connection.
    pub fn connect(&mut self, session: SessionId, seen: u64) -> u32 {
        self.world.conns += 1;
        let conn = self.world.conns;
        self.say(conn, Up::Connect { client: CLIENT, session, seen });
        conn
    }

    /// Sends a request.
    pub fn ask(&mut self, conn: u32, number: u32, op: Op) {
        self.say(conn, Up::Request { number, op });
    }

    fn say(&mut self, conn: u32, message: Up) {
        self.world.agenda.after(0, Event::Arrive { server: self.server, conn, message });
    }

    /// The client's end of a connection is closed.
    pub fn disconnect(&mut self, conn: u32) {
        self.world.servers[self.server].conns.retain(|other| other.id != conn);
    }

    /// Ends a session, as its client asks for it.
    pub fn close(&mut self, session: SessionId) {
        if let Some(tracked) = self.world.session(session) {
            tracked.closing = true;
        }
        self.world.append(Effect::Close(session), None, Ok(Answer::Done), 0, false);
    }

    /// Removes the directory, which is there and empty.
    pub fn reap(&mut self) {
        self.world.append(Effect::Reap, None, Ok(Answer::Done), 0, false);
    }

    /// Plays until all is quiet, and says what was said to whom: `None` to those who were hung up on.
    pub fn settle(&mut self) -> Vec<(u32, Option<Down>)> {
        let mut said = Vec::new();
        while let Some(event) = self.world.agenda.next_event() {
            match event {
                Event::Deliver { conn, message, .. } => said.push((conn, Some(message))),
                Event::HungUp { conn, .. } => said.push((conn, None)),
                event @ (Event::Arrive { .. }
                | Event::ToLeader { .. }
                | Event::ToFollower { .. }
                | Event::Apply { .. }
                | Event::Commit { .. }) => self.world.happen(event),
                // What time brings.
                _ => {}
            }
        }
        said
    }

    /// What is in the directory, when that is there.
    #[must_use]
    pub fn directory(&self) -> Option<Vec<String>> {
        let tree = &self.world.servers[self.server].tree;
        tree.directory.then(|| tree.names())
    }

    /// The newest transaction.
    #[must_use]
    pub const fn zxid(&self) -> u64 {
        self.world.zxid
    }
}

impl fmt::Debug for Servers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("server", &self.server).field("zxid", &self.zxid()).finish_non_exhaustive()
    }
}
