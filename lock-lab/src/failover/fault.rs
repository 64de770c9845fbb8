//! The faults: what they are called, what is done step by step, and what each arrangement promises under them.
//!
//! A fault is a scenario: one constant in the file of its kind, and one line in the list below.

mod connections;
mod holder;
mod members;
mod pauses;
mod promise;
mod rolling;
pub(crate) mod scenario;
mod servers;
mod together;

use std::{fmt, str::FromStr};

use self::scenario::Scenario;
pub use self::{
    promise::Promise,
    scenario::{Act, Awaited, Disagreement, Disturbance, Place, ProcessAction, Step, Who},
};
use crate::deployment::Deployment;

/// Makes the enumeration of all faults from a list of their names and scenarios, in the order of reports.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $scenario:path,)*) => {
        /// One fault of a run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[non_exhaustive]
        pub enum Fault {
            $($(#[$doc])* $name,)*
        }

        impl Fault {
            /// Every one, in the order of reports.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];

            /// What it is.
            pub(crate) const fn scenario(self) -> &'static Scenario {
                match self {
                    $(Self::$name => const { &$scenario },)*
                }
            }
        }
    };
}

faults! {
    /// SIGKILL of the holder's process.
    HolderKilled = holder::KILLED,
    /// SIGSTOP of the holder's process beyond its lease, then SIGCONT.
    HolderStopped = holder::STOPPED,
    /// The runtime threads of the holder's process blocked beyond its lease.
    HolderStarved = holder::STARVED,
    /// SIGSTOP beyond its lease of a holder whose wall clock is ahead.
    HolderClockAhead = holder::CLOCK_AHEAD,
    /// SIGSTOP of whoever holds, again and again, under the load of the published test of etcd's locks.
    Pauses = pauses::PAUSES_EVERY_FIVE_SECONDS,
    /// SIGKILL of the leader, the primary, or one server; started again only when it is over.
    ServerKilled = servers::KILLED,
    /// SIGKILL of the same, started again without its data.
    ServerRestartedEmpty = servers::RESTARTED_EMPTY,
    /// SIGKILL of the same, started again with its data.
    ServerRestartedDurable = servers::RESTARTED_DURABLE,
    /// SIGSTOP of the same, SIGCONT when it is over.
    ServerFrozen = servers::FROZEN,
    /// SIGSTOP of as many servers as make a majority.
    MajorityFrozen = servers::MAJORITY_FROZEN,
    /// SIGKILL of every server in turn, each back in service before the next.
    RollingRestart = rolling::ORDERLY,
    /// The same without waiting.
    RollingRestartQuick = rolling::QUICK,
    /// A stopped holder and a frozen minority.
    HolderStoppedServersFrozen = together::STOPPED_AND_FROZEN,
    /// A stopped holder and a killed leader or server.
    HolderStoppedServerKilled = together::STOPPED_AND_KILLED,
    /// A holder that is cut off and a minority that restarts.
    PartitionHolderServersRestarted = together::CUT_OFF_AND_RESTARTED,
    /// One of five servers killed and another one frozen.
    ServerKilledAnotherFrozen = together::KILLED_AND_FROZEN,
    /// SIGKILL of one member, and another server in its place.
    MemberReplaced = members::REPLACED,
    /// Another server in the place of one of the members of a grant that only a bare majority gave.
    MemberReplacedMinimalQuorum = members::REPLACED_MINIMAL_QUORUM,
    /// Clients with another list of servers, or other limits.
    ClientsDisagree = members::DISAGREE,
    /// Everything takes longer, for everybody.
    Delay = connections::DELAY,
    /// Nothing passes between the holder and all servers.
    PartitionHolder = connections::PARTITION_HOLDER,
    /// What the holder sends does not arrive; what the servers send does.
    HolderRequestsLost = connections::HOLDER_REQUESTS_LOST,
    /// What the servers send does not arrive at the holder; what it sends does.
    HolderRepliesLost = connections::HOLDER_REPLIES_LOST,
    /// Connections break in place of one reply each, whose request was carried out.
    ReplyCut = connections::REPLY_CUT,
    /// Packets are dropped between the network namespaces of the holder and the servers; the kernels send them again.
    PacketsDropped = connections::PACKETS_DROPPED,
    /// The replicas cut off before the acquisition, then the primary killed and a replica promoted.
    FailoverBeforeReplication = servers::FAILOVER_BEFORE_REPLICATION,
    /// One server's wall clock jumps ahead by more than a lease.
    ClockJump = servers::CLOCK_JUMP,
    /// The same on one of the nodes of a grant that only a bare majority gave.
    ClockJumpMinimalQuorum = servers::CLOCK_JUMP_MINIMAL_QUORUM,
    /// Somebody else deletes what says on the servers that the lock is held.
    KeyDeleted = servers::KEY_DELETED,
    /// `SCRIPT FLUSH` on every server.
    ScriptFlush = servers::SCRIPT_FLUSH,
    /// The server refuses writes: it is a replica for a while.
    ReadOnly = servers::READ_ONLY,
    /// Somebody takes the holder's session over by its id and password, and closes it.
    SessionTakenOver = servers::SESSION_TAKEN_OVER,
}

impl Fault {
    /// Its short name on the command line.
    #[must_use]
    pub const fn key(self) -> &'static str {
        self.scenario().key
    }

    /// Its name in reports.
    #[must_use]
    pub const fn title(self) -> &'static str {
        self.scenario().title
    }

    /// What is done, in a sentence for the report.
    #[must_use]
    pub const fn what(self) -> &'static str {
        self.scenario().what
    }

    /// What is done on that arrangement, step by step.
    #[must_use]
    pub fn steps(self, on: Deployment) -> Vec<Step> {
        (self.scenario().steps)(on)
    }

    /// Whether it is over by itself as soon as it has struck, so that there is nothing to wait for before it is healed.
    #[must_use]
    pub const fn is_momentary(self) -> bool {
        self.scenario().is_momentary
    }

    /// Whether it makes sense on that arrangement.
    #[must_use]
    pub fn applies_to(self, on: Deployment) -> bool {
        self.why_not(on).is_none()
    }

    /// Why it makes no sense on that arrangement; `None` where it does.
    #[must_use]
    pub fn why_not(self, on: Deployment) -> Option<&'static str> {
        (self.scenario().why_not)(on)
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
    fn each_fault_is_found_by_its_key_and_written_as_it() {
        for fault in Fault::ALL {
            assert_eq!(fault.key().parse(), Ok(fault));
            assert_eq!(serde_json::to_value(fault).unwrap(), fault.key());
        }
        assert!("server-kiled".parse::<Fault>().unwrap_err().contains("server-killed"));
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
    fn each_fault_does_something_wherever_it_applies() {
        for fault in Fault::ALL {
            for on in Deployment::struck().into_iter().filter(|on| fault.applies_to(*on)) {
                let does = |step: &Step| !matches!(step, Step::Until(_) | Step::Rest(_));
                assert!(fault.steps(on).iter().any(does), "{fault} {on}");
            }
        }
    }

    #[test]
    fn a_rolling_restart_strikes_every_server_at_its_own_place() {
        for on in Deployment::struck().into_iter().filter(|on| Fault::RollingRestart.applies_to(*on)) {
            let steps = Fault::RollingRestart.steps(on);
            for server in 0..on.servers {
                assert!(steps.contains(&Step::Server(Act::Kill, Place::Number(server))), "{on}: {server}");
                assert!(steps.contains(&Step::Until(Awaited::TakesPart(server))), "{on}: {server}");
            }
        }
    }

    #[test]
    fn only_where_the_servers_have_members_one_is_replaced_and_clients_can_disagree() {
        for fault in [Fault::MemberReplaced, Fault::MemberReplacedMinimalQuorum, Fault::ClientsDisagree] {
            for on in Deployment::struck() {
                assert_eq!(fault.applies_to(on), on.is_quorum(), "{fault} {on}");
            }
        }
        let comes = |fault: &Fault| fault.steps(Deployment::named("redlock3").unwrap()).contains(&Step::Strangers);
        for fault in Fault::ALL {
            assert_eq!(comes(&fault), !fault.scenario().strangers.is_empty(), "{fault}");
        }
    }

    #[test]
    fn each_fault_applies_somewhere_and_each_arrangement_is_struck_by_a_dozen() {
        assert!(Fault::ALL.iter().all(|fault| Deployment::struck().iter().any(|on| fault.applies_to(*on))));
        for on in Deployment::struck() {
            assert!(Fault::ALL.iter().filter(|fault| fault.applies_to(on)).count() >= 12, "{on}");
        }
    }
}
