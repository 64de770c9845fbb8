//! What clients and servers say to each other, and what happens.

use super::tree::{News, SessionId};

/// A client's request.
#[derive(Debug, Clone)]
pub(super) enum Op {
    /// Creates a sequential node.
    Create {
        prefix: String,
    },
    /// Creates a node of that very name.
    CreatePlain {
        name: String,
    },
    Delete(String),
    Marked(String),
    Write(String),
    Replace {
        writer: String,
        reader: String,
    },
    MakeDirectory,
    /// Writes to the session's own node.
    Beat,
    Sync,
    List,
    ListAndWatch,
    Watch(String),
    Read(String),
    /// Sets the watches of a lost connection anew.
    SetWatches {
        nodes: Vec<String>,
        children: bool,
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
pub(super) enum Refusal {
    NoNode,
    /// The connection is gone, or the session is another server's: it may have been done or not.
    Unknown,
    SessionEnded,
}

/// What a request is answered.
#[derive(Debug, Clone)]
pub(super) enum Answer {
    Done,
    Node { name: String, session: SessionId, czxid: u64, version: i32 },
    List(Vec<String>),
}

pub(super) type Reply = Result<Answer, Refusal>;

/// From a client to its server.
#[derive(Debug, Clone)]
pub(super) enum Up {
    Connect { client: usize, session: SessionId, seen: u64 },
    Request { number: u32, op: Op },
}

/// From a server to its client. `zxid` is the newest transaction that the server had applied.
#[derive(Debug, Clone)]
pub(super) enum Down {
    Connected { session: SessionId },
    Expired,
    Reply { number: u32, reply: Reply, zxid: u64 },
    News { news: News, zxid: u64 },
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
