//! What clients and servers say to each other, and what happens.

use std::rc::Rc;

use crate::Time;

/// A session; 0 is none.
pub type SessionId = u32;

/// How a node is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// To stay.
    Persistent,
    /// To be removed when its last child has gone.
    Container,
    /// To end with its session.
    Ephemeral,
    /// To end with its session, with a number behind its name.
    Sequential,
}

/// A client's request.
#[derive(Debug, Clone)]
pub enum Op {
    /// Creates a node.
    Create {
        /// Its path, but for the digits.
        path: String,
        /// Its data.
        data: Vec<u8>,
        /// How.
        made: Made,
    },
    /// Deletes a node.
    Delete(String),
    /// Writes to a node.
    Write(String, Vec<u8>),
    /// Writes to a node and deletes it, in one transaction.
    Marked(String, Vec<u8>),
    /// Creates an ephemeral node and deletes another, in one transaction.
    Replace {
        /// What is created.
        created: String,
        /// Its data.
        data: Vec<u8>,
        /// What is deleted.
        deleted: String,
    },
    /// Lets the server catch up with its leader.
    Sync,
    /// Lists a node's children.
    List(String),
    /// Lists a node's children and watches them, once.
    WatchChildren(String),
    /// Reads a node.
    Read(String),
    /// Reads a node and watches it, once.
    Watch(String),
    /// Watches for a node that may be there or not, once.
    WatchExistence(String),
    /// Sets the watches of a lost connection anew.
    SetWatches {
        /// The nodes that were watched and were there.
        nodes: Vec<String>,
        /// The nodes that were watched and were not there.
        missing: Vec<String>,
        /// The nodes whose children were watched.
        children: Vec<String>,
        /// The newest transaction that the client knows of.
        since: u64,
    },
    /// Shows that the client is there.
    Ping,
    /// Ends the session.
    Close,
}

impl Op {
    pub(super) const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::Delete(_)
                | Self::Marked(..)
                | Self::Write(..)
                | Self::Replace { .. }
                | Self::Close
        )
    }
}

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A node or the one above it is not there.
    NoNode,
    /// A node of that name is there already.
    NodeExists,
    /// The node has children.
    NotEmpty,
    /// The node above it is one without children.
    NoChildren,
    /// The connection is gone, or the session is another server's: it may have been done or not.
    Unknown,
    /// The session is over.
    SessionEnded,
}

/// A node as a client is told of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// With which session it ends.
    pub session: SessionId,
    /// The transaction that created it.
    pub czxid: u64,
    /// How often its data were written.
    pub version: i32,
    /// How many children it has.
    pub num_children: i32,
}

/// What a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// A node that was created.
    Created(String, Stat),
    /// A node that is there.
    Node(Vec<u8>, Stat),
    /// It is not there, and is watched for.
    Missing,
    /// Which children a node has.
    List(Vec<String>),
}

/// What is said to a request.
pub type Reply = Result<Answer, Refusal>;

/// A message from a simulated client to its server.
#[derive(Debug, Clone)]
pub(super) enum ClientMessage {
    Connect { client: usize, session: SessionId, seen: u64, timeout: Time },
    Request { number: u32, op: Op },
}

/// What a watch may hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// A node was created.
    Created(String),
    /// A node was written to.
    Changed(String),
    /// A node was deleted.
    Deleted(String),
    /// Which children a node has was changed.
    Children(String),
}

/// From a server to its client. `zxid` is the newest transaction that the server had applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Down {
    /// The connection is open.
    Connected {
        /// With this session.
        session: SessionId,
        /// And with this time-out.
        timeout: Time,
    },
    /// The session is over.
    Expired,
    /// The answer to a request.
    Reply {
        /// The request's.
        number: u32,
        /// What is answered.
        reply: Reply,
        /// The newest transaction that the server had applied.
        zxid: u64,
    },
    /// A watch fires.
    News {
        /// What has happened.
        news: News,
        /// The newest transaction that the server had applied.
        zxid: u64,
    },
}

/// A message from a simulated follower to its leader.
#[derive(Debug, Clone)]
pub(super) enum FollowerMessage {
    Write {
        conn: u32,
        number: u32,
        session: SessionId,
        op: Op,
    },
    Sync {
        conn: u32,
        number: u32,
    },
    Open {
        conn: u32,
        timeout: Time,
    },
    Revalidate {
        conn: u32,
        session: SessionId,
        timeout: Time,
    },
    /// The answer to a ping, with the sessions that were active, and their time-outs by this server.
    Active(Vec<(SessionId, Time)>),
}

/// A message from the simulated leader to a follower.
#[derive(Debug, Clone, Copy)]
pub(super) enum LeaderMessage {
    /// Everything below that place of the log is committed.
    Commit {
        upto: usize,
    },
    Synced {
        conn: u32,
        number: u32,
        upto: usize,
    },
    Revalidated {
        conn: u32,
        session: SessionId,
        alive: bool,
    },
    Ping,
}

/// An event on the agenda of the simulated ensemble: an arriving message, a timer or a fault.
#[derive(Debug, Clone)]
pub(super) enum EnsembleEvent {
    Arrive {
        server: usize,
        conn: u32,
        message: Rc<ClientMessage>,
    },
    Deliver {
        client: usize,
        conn: u32,
        message: Rc<Down>,
    },
    /// A client learns that its connection is closed.
    HungUp {
        client: usize,
        conn: u32,
    },
    ToLeader {
        from: usize,
        link: u32,
        message: FollowerMessage,
    },
    ToFollower {
        server: usize,
        link: u32,
        message: LeaderMessage,
    },
    /// A follower works through what was committed.
    Apply {
        server: usize,
        link: u32,
        upto: usize,
    },
    /// A majority has that much of the log.
    Commit {
        epoch: u32,
        upto: usize,
    },
    /// The leader looks whether the session's time-out has passed.
    Expire {
        epoch: u32,
        session: SessionId,
    },
    LeaderTick {
        epoch: u32,
    },
    /// A server looks whether it still has a leader, or followers.
    Check {
        server: usize,
    },
    /// The leader looks for empty containers.
    Reap,
    /// A client looks at its limits.
    Look {
        client: usize,
    },
    /// A client tries to connect.
    Connect {
        client: usize,
        attempt: u32,
    },
    Fault,
    /// What the schedule aims at goes wrong.
    Strike,
    CrashLeader,
    CutClients {
        server: usize,
    },
    /// A server is no longer heard by the others.
    Cut {
        server: usize,
    },
    /// A cut-off server is heard again, or a server that was down starts.
    Heal {
        server: usize,
    },
    HealHost {
        host: usize,
    },
    ResumeHost {
        host: usize,
    },
    /// The next part of the schedule.
    Stage,
}
