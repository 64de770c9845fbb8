//! The servers of the machine without its clients, for a comparison with a real server: nothing goes wrong, no session
//! ends by time, and all that somebody has asked for is done before anything else is asked.

use std::{fmt, rc::Rc};

use super::{
    message::{Answer, ClientMessage, Down, EnsembleEvent, Op, SessionId},
    state::Schedule,
    tree::{NodeTree, TreeChange},
};
use crate::{Trace, world::Happening};

/// Whoever has a connection, for the servers: they need not know a program.
const CLIENT: usize = usize::MAX;

/// Three servers that keep nothing yet.
pub struct Servers<'a> {
    schedule: Schedule<'a>,
    /// To which of them clients connect.
    server: usize,
}

impl<'a> Servers<'a> {
    /// The servers, with the randomness of that seed: in how long messages take, and in to which of them clients connect.
    #[must_use]
    pub fn new(seed: u64, trace: &'a mut Trace) -> Self {
        let mut schedule = Schedule::without_programs(seed, trace);
        let servers = schedule.servers.len();
        let server = schedule.world.chance().place(servers);
        for server in &mut schedule.servers {
            server.tree = NodeTree::new();
        }
        schedule.elect(0, &[0, 1, 2]);
        Self { schedule, server }
    }

    /// Connects, with that session or with a new one for 0, as a client that has seen that transaction; returns the number
    /// of the connection.
    pub fn connect(&mut self, session: SessionId, seen: u64) -> u32 {
        self.schedule.conns += 1;
        let conn = self.schedule.conns;
        let timeout = self.schedule.settings.timeout;
        self.say(conn, ClientMessage::Connect { client: CLIENT, session, seen, timeout });
        conn
    }

    /// Sends a request.
    pub fn ask(&mut self, conn: u32, number: u32, op: Op) {
        self.say(conn, ClientMessage::Request { number, op });
    }

    fn say(&mut self, conn: u32, message: ClientMessage) {
        self.schedule.world.after(0, EnsembleEvent::Arrive { server: self.server, conn, message: Rc::new(message) });
    }

    /// The client's end of a connection is closed.
    pub fn disconnect(&mut self, conn: u32) {
        self.schedule.servers[self.server].conns.retain(|other| other.id != conn);
    }

    /// Ends a session, as its client asks for it.
    pub fn close(&mut self, session: SessionId) {
        if let Some(tracked) = self.schedule.session(session) {
            tracked.closing = true;
        }
        self.schedule.append(vec![TreeChange::Close(session)], None, Ok(Answer::Done), 0, false);
    }

    /// Removes an empty container.
    pub fn reap(&mut self, path: &str) {
        self.schedule.append(vec![TreeChange::Delete { path: path.into() }], None, Ok(Answer::Done), 0, false);
    }

    /// Plays until all is quiet, and says what was said to whom: `None` to those who were hung up on.
    pub fn settle(&mut self) -> Vec<(u32, Option<Down>)> {
        let mut said = Vec::new();
        let until = self.schedule.now() + self.schedule.settings.tick * 2;
        self.schedule.world.at(until, EnsembleEvent::Stage);
        while let Some(happening) = self.schedule.world.next() {
            match happening {
                Happening::Own(EnsembleEvent::Deliver { conn, message, .. }) => {
                    said.push((conn, Some((*message).clone())));
                }
                Happening::Own(EnsembleEvent::HungUp { conn, .. }) => said.push((conn, None)),
                Happening::Own(
                    event @ (EnsembleEvent::Arrive { .. }
                    | EnsembleEvent::ToLeader { .. }
                    | EnsembleEvent::ToFollower { .. }
                    | EnsembleEvent::Apply { .. }
                    | EnsembleEvent::Commit { .. }),
                ) => self.schedule.happen(event),
                Happening::Own(EnsembleEvent::Stage) => break,
                // What time brings.
                _ => {}
            }
        }
        said
    }

    /// What is in a directory, when that is there.
    #[must_use]
    pub fn directory(&self, path: &str) -> Option<Vec<String>> {
        self.schedule.servers[self.server].tree.children(path)
    }

    /// The newest transaction.
    #[must_use]
    pub const fn zxid(&self) -> u64 {
        self.schedule.zxid
    }
}

impl fmt::Debug for Servers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Servers").field("server", &self.server).field("zxid", &self.zxid()).finish_non_exhaustive()
    }
}
