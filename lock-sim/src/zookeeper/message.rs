//! What clients and servers say to each other, and what happens.

use super::tree::{News, SessionId};

/// A client's request.
#[derive(Debug, Clone)]
pub enum Op {
    /// Creates a sequential node.
    Create {
        /// Its name but for the digits.
        prefix: String,
    },
    /// Creates a node of that very name.
    CreatePlain {
        /// Its name.
        name: String,
    },
    /// Deletes a node.
    Delete(String),
    /// Writes to a node and deletes it, in one transaction.
    Marked(String),
    /// Writes to a node.
    Write(String),
    /// Creates a node and deletes another, in one transaction.
    Replace {
        /// What is deleted.
        writer: String,
        /// What is created.
        reader: String,
    },
    /// Makes the directory; that it is there is as good.
    MakeDirectory,
    /// Writes to the session's own node.
    Beat,
    /// Lets the server catch up with its leader.
    Sync,
    /// Lists the directory.
    List,
    /// Lists the directory and watches it, once.
    ListAndWatch,
    /// Reads a node and watches it, once.
    Watch(String),
    /// Reads a node.
    Read(String),
    /// Sets the watches of a lost connection anew.
    SetWatches {
        /// The nodes that were watched.
        nodes: Vec<String>,
        /// Whether the directory was.
        children: bool,
        /// The newest transaction that the client knows of.
        since: u64,
    },
}

impl Op {
    pub(super) const fn is_write(&self) -> bool {
        matches!(
            self,
            Self::Create { .. }
                | Self::CreatePlain { .. }
                | Self::Delete(_)
                | Self::Marked(_)
                | Self::Write(_)
                | Self::Replace { .. }
                | Self::MakeDirectory
                | Self::Beat
        )
    }
}

/// Why a request was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// A node or the directory is not there.
    NoNode,
    /// A node of that name is there already.
    NodeExists,
    /// The connection is gone, or the session is another server's: it may have been done or not.
    Unknown,
    /// The session is over.
    SessionEnded,
}

/// What a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It was done.
    Done,
    /// A node that was created or read.
    Node {
        /// Its name.
        name: String,
        /// With which session it ends.
        session: SessionId,
        /// The transaction that created it.
        czxid: u64,
        /// How often its data were written.
        version: i32,
    },
    /// What is in the directory.
    List(Vec<String>),
}

/// What is said to a request.
pub type Reply = Result<Answer, Refusal>;

/// From a client to its server.
#[derive(Debug, Clone)]
pub(super) enum Up {
    Connect { client: usize, session: SessionId, seen: u64 },
    Request { number: u32, op: Op },
}

/// From a server to its client. `zxid` is the newest transaction that the server had applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Down {
    /// The connection is open, with this session.
    Connected {
        /// Its session.
        session: SessionId,
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

/// From a follower to its leader.
#[derive(Debug, Clone)]
pub(super) enum Forward {
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
    },
    Revalidate {
        conn: u32,
        session: SessionId,
    },
    /// The answer to a ping, with the sessions that were active.
    Active(u128),
}

/// From a leader to a follower.
#[derive(Debug, Clone, Copy)]
pub(super) enum Follow {
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

/// What happens.
#[derive(Debug, Clone)]
pub(super) enum Event {
    Arrive {
        server: usize,
        conn: u32,
        message: Up,
    },
    Deliver {
        client: usize,
        conn: u32,
        message: Down,
    },
    /// A client learns that its connection is closed.
    HungUp {
        client: usize,
        conn: u32,
    },
    ToLeader {
        from: usize,
        link: u32,
        message: Forward,
    },
    ToFollower {
        server: usize,
        link: u32,
        message: Follow,
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
    /// The leader looks for an empty directory.
    Reap,
    /// A client's heartbeat and its limits.
    Beat {
        client: usize,
    },
    /// A client tries to connect.
    Connect {
        client: usize,
        attempt: u32,
    },
    /// A contender's timer.
    Timer {
        client: usize,
        slot: usize,
        timer: u32,
    },
    Chore {
        client: usize,
        chore: u32,
    },
    Weather,
    /// A server is no longer heard by the others.
    Cut {
        server: usize,
    },
    /// A cut-off server or client is heard again, or a server that was down starts.
    Heal {
        server: usize,
    },
    HealClient {
        client: usize,
    },
    /// The next part of the schedule.
    Stage,
}
