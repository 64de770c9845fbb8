//! The faults: what they are called, what they strike, and what each arrangement promises under them.

mod promise;

use std::{fmt, str::FromStr};

pub use self::promise::Promise;
use super::arrangement::Arrangement;

/// One fault of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Fault {
    /// SIGKILL of the holder's process.
    HolderKilled,
    /// SIGSTOP of the holder's process beyond its lease, then SIGCONT.
    HolderStopped,
    /// The runtime threads of the holder's process blocked beyond its lease.
    HolderStarved,
    /// SIGKILL of the leader, the primary, or one server; started again only when it is over.
    ServerKilled,
    /// SIGKILL of the same, started again without its data.
    ServerRestartedEmpty,
    /// SIGKILL of the same, started again with its data.
    ServerRestartedDurable,
    /// SIGSTOP of the same, SIGCONT when it is over.
    ServerFrozen,
    /// SIGSTOP of as many servers as make a majority.
    MajorityFrozen,
    /// Everything takes longer, for everybody.
    Delay,
    /// Nothing passes between the holder and all servers.
    PartitionHolder,
    /// What the holder sends does not arrive; what the servers send does.
    HolderRequestsLost,
    /// What the servers send does not arrive at the holder; what it sends does.
    HolderRepliesLost,
    /// Connections break in place of one reply each, whose request was carried out.
    ReplyCut,
    /// The replicas cut off before the acquisition, then the primary killed and a replica promoted.
    FailoverBeforeReplication,
    /// One server's wall clock jumps ahead by more than a lease.
    ClockJump,
    /// The same on one of the nodes of a grant that only a bare majority gave.
    ClockJumpMinimalQuorum,
    /// Somebody else deletes what says on the servers that the lock is held.
    KeyDeleted,
    /// `SCRIPT FLUSH` on every server.
    ScriptFlush,
    /// The server refuses writes: it is a replica for a while.
    ReadOnly,
    /// Somebody takes the holder's session over by its id and password, and closes it.
    SessionTakenOver,
}

/// What a fault strikes, and so who carries it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Strikes {
    /// The holder's process: the one that runs the processes does.
    Holder,
    /// Servers or what they hold: the scene does.
    Servers,
    /// The connections: the scene does.
    Connections,
}

impl Fault {
    /// Every one, in the order of reports.
    pub const ALL: [Self; 20] = [
        Self::HolderKilled,
        Self::HolderStopped,
        Self::HolderStarved,
        Self::ServerKilled,
        Self::ServerRestartedEmpty,
        Self::ServerRestartedDurable,
        Self::ServerFrozen,
        Self::MajorityFrozen,
        Self::Delay,
        Self::PartitionHolder,
        Self::HolderRequestsLost,
        Self::HolderRepliesLost,
        Self::ReplyCut,
        Self::FailoverBeforeReplication,
        Self::ClockJump,
        Self::ClockJumpMinimalQuorum,
        Self::KeyDeleted,
        Self::ScriptFlush,
        Self::ReadOnly,
        Self::SessionTakenOver,
    ];

    /// Its short name on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::HolderKilled => "holder-killed",
            Self::HolderStopped => "holder-stopped",
            Self::HolderStarved => "holder-starved",
            Self::ServerKilled => "server-killed",
            Self::ServerRestartedEmpty => "server-restarted-empty",
            Self::ServerRestartedDurable => "server-restarted-durable",
            Self::ServerFrozen => "server-frozen",
            Self::MajorityFrozen => "majority-frozen",
            Self::Delay => "delay",
            Self::PartitionHolder => "partition-holder",
            Self::HolderRequestsLost => "holder-requests-lost",
            Self::HolderRepliesLost => "holder-replies-lost",
            Self::ReplyCut => "reply-cut",
            Self::FailoverBeforeReplication => "failover-before-replication",
            Self::ClockJump => "clock-jump",
            Self::ClockJumpMinimalQuorum => "clock-jump-minimal-quorum",
            Self::KeyDeleted => "key-deleted",
            Self::ScriptFlush => "script-flush",
            Self::ReadOnly => "read-only",
            Self::SessionTakenOver => "session-taken-over",
        }
    }

    /// Its name in reports.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::HolderKilled => "holder killed",
            Self::HolderStopped => "holder stopped past its lease",
            Self::HolderStarved => "holder's runtime starved",
            Self::ServerKilled => "server killed",
            Self::ServerRestartedEmpty => "server restarted without its data",
            Self::ServerRestartedDurable => "server restarted with its data",
            Self::ServerFrozen => "server frozen",
            Self::MajorityFrozen => "majority of servers frozen",
            Self::Delay => "delay",
            Self::PartitionHolder => "holder cut off",
            Self::HolderRequestsLost => "holder's requests held",
            Self::HolderRepliesLost => "replies to the holder held",
            Self::ReplyCut => "replies lost after the request was applied",
            Self::FailoverBeforeReplication => "failover before replication",
            Self::ClockJump => "wall clock of one server jumps",
            Self::ClockJumpMinimalQuorum => "wall clock of one server jumps, at a bare majority",
            Self::KeyDeleted => "key or node deleted by somebody else",
            Self::ScriptFlush => "scripts flushed",
            Self::ReadOnly => "server read-only",
            Self::SessionTakenOver => "session taken over",
        }
    }

    /// What is done, in one sentence for the report.
    #[must_use]
    pub const fn what(self) -> &'static str {
        match self {
            Self::HolderKilled => "The holder's process is killed with SIGKILL.",
            Self::HolderStopped => {
                "The holder's process is stopped with SIGSTOP until its lease is over and others held the lock, then goes on."
            }
            Self::HolderStarved => {
                "All threads of the program's own runtime in the holder's process are blocked until its lease is over. A \
                 session with ZooKeeper has a thread of its own, which goes on: there the lock is kept."
            }
            Self::ServerKilled => {
                "The ensemble's leader, the primary, or one server is killed with SIGKILL and started again when the fault \
                 is over."
            }
            Self::ServerRestartedEmpty => {
                "The ensemble's leader, the primary, or one server is killed with SIGKILL and comes back without its data."
            }
            Self::ServerRestartedDurable => {
                "The ensemble's leader or one server is killed with SIGKILL and comes back with its data."
            }
            Self::ServerFrozen => {
                "The ensemble's leader, the primary, or one server is stopped with SIGSTOP and goes on when the fault is \
                 over."
            }
            Self::MajorityFrozen => {
                "So many servers that the others are no majority are stopped with SIGSTOP and go on when the fault is over."
            }
            Self::Delay => "A proxy delays each request and each reply by 30 ms, for everybody.",
            Self::PartitionHolder => {
                "Nothing passes between the holder's process and any server; connections stay open, and what was sent \
                 arrives when the fault is over."
            }
            Self::HolderRequestsLost => {
                "What the holder's process sends arrives only when the fault is over; what the servers send arrives."
            }
            Self::HolderRepliesLost => {
                "What the servers send arrives at the holder's process only when the fault is over; what it sends arrives."
            }
            Self::ReplyCut => {
                "On each connection path one reply is swallowed and the connection broken: the request was carried out, and \
                 its client is not told."
            }
            Self::FailoverBeforeReplication => {
                "The replicas are stopped and their links cut before the acquisition; then the primary is killed, the \
                 replicas go on, and one of them is promoted."
            }
            Self::ClockJump => "The wall clock of the primary, or of one server, jumps 60 s ahead.",
            Self::ClockJumpMinimalQuorum => {
                "The holder is cut off from a minority of the nodes before it is granted the lock; then the wall clock of \
                 one of the others jumps 60 s ahead."
            }
            Self::KeyDeleted => "A third party deletes the holder's key on every server, or its node.",
            Self::ScriptFlush => "SCRIPT FLUSH on every server.",
            Self::ReadOnly => {
                "The server, or one node, becomes a replica and refuses writes until the fault is over; with Sentinel or \
                 Cluster another server is made the primary in order."
            }
            Self::SessionTakenOver => {
                "A third party connects with the id and the password of the holder's session, and closes it."
            }
        }
    }

    /// What it strikes.
    #[must_use]
    pub const fn strikes(self) -> Strikes {
        match self {
            Self::HolderKilled | Self::HolderStopped | Self::HolderStarved => Strikes::Holder,
            Self::Delay
            | Self::PartitionHolder
            | Self::HolderRequestsLost
            | Self::HolderRepliesLost
            | Self::ReplyCut => Strikes::Connections,
            _ => Strikes::Servers,
        }
    }

    /// Whether it is over by itself as soon as it has struck, so that there is nothing to wait for before it is healed.
    #[must_use]
    pub const fn is_momentary(self) -> bool {
        matches!(
            self,
            Self::HolderKilled
                | Self::ServerRestartedEmpty
                | Self::ServerRestartedDurable
                | Self::ReplyCut
                | Self::KeyDeleted
                | Self::ScriptFlush
                | Self::SessionTakenOver
        )
    }

    /// Whether it makes sense on that arrangement.
    #[must_use]
    pub fn applies_to(self, on: Arrangement) -> bool {
        self.why_not(on).is_none()
    }

    /// Why it makes no sense on that arrangement; `None` where it does.
    #[must_use]
    pub fn why_not(self, on: Arrangement) -> Option<&'static str> {
        match self {
            Self::ServerKilled if on.voters() == 1 && !on.replicates() && !on.is_durable() => {
                Some("the one server comes back without its data, which is the fault server-restarted-empty")
            }
            Self::ServerRestartedEmpty if on == Arrangement::Zk1 => {
                Some("a ZooKeeper that has lost everything is another one, whose transactions start anew")
            }
            Self::ServerRestartedEmpty if on == Arrangement::Redlock5Durable => {
                Some("this deployment was told that its nodes forget nothing (restart_quarantine=off)")
            }
            Self::ServerRestartedDurable if !on.is_durable() => Some("its servers keep everything in memory"),
            Self::MajorityFrozen if on.voters() == 1 => Some("no majority decides here"),
            Self::FailoverBeforeReplication if !on.replicates() => Some("nothing is replicated to a server in waiting"),
            Self::FailoverBeforeReplication if on == Arrangement::SentinelMinReplicas => {
                Some("a primary that hears of no replica grants nothing, so there is no grant to be lost")
            }
            Self::ClockJump if on.is_zookeeper() => Some("ZooKeeper counts sessions on the monotonic clock"),
            Self::ScriptFlush | Self::ReadOnly if on.is_zookeeper() => Some("ZooKeeper knows no such thing"),
            Self::ClockJumpMinimalQuorum if !on.is_redlock() => Some("no majority of clocks decides here"),
            Self::SessionTakenOver if !on.is_zookeeper() => Some("Redis has no sessions"),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.key())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.map(Self::key).join(", ");
        Self::ALL.into_iter().find(|one| one.key() == text).ok_or_else(|| format!("one of {known}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_and_arrangement_is_found_by_its_key_and_written_as_it() {
        for fault in Fault::ALL {
            assert_eq!(fault.key().parse(), Ok(fault));
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.key());
        }
        for arrangement in Arrangement::ALL {
            assert_eq!(arrangement.key().parse(), Ok(arrangement));
            assert_eq!(serde_json::to_value(arrangement).unwrap(), arrangement.key());
        }
        assert!("server-kiled".parse::<Fault>().unwrap_err().contains("server-killed"));
        assert!("redis6".parse::<Arrangement>().unwrap_err().contains("redlock5-durable"));
    }

    #[test]
    fn the_reliability_page_says_what_each_fault_does() {
        let page = include_str!("../../../docs/reliability.md");
        for fault in Fault::ALL {
            let row = format!("| `{fault}` | {} |\n", fault.what());
            assert!(page.contains(&row), "docs/reliability.md lacks: {row}");
        }
    }

    #[test]
    fn each_fault_applies_somewhere_and_each_arrangement_is_struck_by_a_dozen() {
        assert!(Fault::ALL.iter().all(|fault| Arrangement::ALL.iter().any(|on| fault.applies_to(*on))));
        for on in Arrangement::ALL {
            assert!(Fault::ALL.iter().filter(|fault| fault.applies_to(on)).count() >= 12, "{on}");
        }
    }
}
