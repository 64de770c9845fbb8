//! What hosts, servers, connections and tasks are known by.

use std::{future::Future, pin::Pin};

/// The number of a host, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub(super) u8);

impl HostId {
    /// Its place among all hosts.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// The number of a server, from 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerId(pub(super) u8);

impl ServerId {
    /// The server at this place.
    #[must_use]
    pub fn at(place: usize) -> Self {
        Self(u8::try_from(place).unwrap_or(u8::MAX))
    }

    /// Its place among all servers.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// The number of a connection, from 0 on in the order in which they were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub(super) u32);

impl ConnectionId {
    /// The connection with this number.
    #[must_use]
    pub const fn of(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Its place among all connections.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// The future of a simulated task, which runs on this thread only.
pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// The id of a simulated task: its place in the table of tasks, and how many tasks had that place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TaskId {
    pub(super) place: u32,
    pub(super) generation: u32,
}

impl TaskId {
    /// For the fingerprint of a schedule.
    pub(super) const fn number(self) -> u64 {
        (self.generation as u64) << 32 | self.place as u64
    }
}
