//! What each arrangement promises under each fault.

use super::Fault;
use crate::failover::arrangement::Arrangement;

/// Whether two may hold one lock at once, each by its own validity, while a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Promise {
    /// Never; nor does anybody's validity outlast what the servers keep.
    Safe,
    /// It may happen, for this reason. The fencing token holds all the same, within the bound of the clocks.
    MayBreak(&'static str),
}

impl Promise {
    /// Whether it excludes two holders at once.
    #[must_use]
    pub const fn is_safe(self) -> bool {
        matches!(self, Self::Safe)
    }

    /// Why it may break.
    #[must_use]
    pub const fn reason(self) -> Option<&'static str> {
        match self {
            Self::Safe => None,
            Self::MayBreak(reason) => Some(reason),
        }
    }
}

const ASYNCHRONOUS: Promise =
    Promise::MayBreak("replication is asynchronous: the promoted replica may not know of the lock");
const NARROWED: Promise = Promise::MayBreak(
    "a replica knew of the lock, but replicated expiry is absolute: one whose clock is ahead, or another one that is \
     promoted, may grant early",
);
const FORGOTTEN: Promise = Promise::MayBreak("the server forgot the lock and grants it to the next one");
const WALL_CLOCK: Promise = Promise::MayBreak("expiry follows the server's wall clock");
const MINIMAL: Promise =
    Promise::MayBreak("expiry follows each node's wall clock, and no node beyond the majority knew of the lock");
const DELETED: Promise =
    Promise::MayBreak("nothing on the servers says any more that the lock is held, and the holder hears of it later");

impl Fault {
    /// What is promised of that arrangement while this fault lasts.
    #[must_use]
    pub const fn expects(self, on: Arrangement) -> Promise {
        match self {
            Self::KeyDeleted | Self::SessionTakenOver => DELETED,
            Self::ClockJumpMinimalQuorum => MINIMAL,
            // One node's wall clock is a minority's, as long as all nodes knew of the lock.
            Self::ClockJump if !on.is_redlock() => WALL_CLOCK,
            Self::ServerRestartedEmpty
                if on.replicates() || matches!(on, Arrangement::Redis | Arrangement::RedisFifo) =>
            {
                FORGOTTEN
            }
            // Its disk is what makes this one durable, and here it is gone.
            Self::ServerRestartedEmpty if matches!(on, Arrangement::RedisDurable) => FORGOTTEN,
            // A cluster's failover in order waits until the replica has everything.
            Self::ReadOnly if matches!(on, Arrangement::Cluster) => Promise::Safe,
            Self::ServerKilled | Self::ServerFrozen | Self::FailoverBeforeReplication | Self::ReadOnly
                if on.replicates() =>
            {
                if matches!(on, Arrangement::SentinelMinReplicas) {
                    NARROWED
                } else {
                    ASYNCHRONOUS
                }
            }
            _ => Promise::Safe,
        }
    }

    /// Whether at most a minority of the servers whose votes count fails: then Redlock and ZooKeeper promise progress,
    /// too. A single server that fails is no minority; faults of the holder and of its connections fail no server.
    #[must_use]
    pub const fn stays_within_a_minority(self, on: Arrangement) -> bool {
        match self {
            Self::MajorityFrozen | Self::KeyDeleted | Self::SessionTakenOver | Self::ClockJumpMinimalQuorum => false,
            Self::ServerKilled
            | Self::ServerRestartedEmpty
            | Self::ServerRestartedDurable
            | Self::ServerFrozen
            | Self::FailoverBeforeReplication
            | Self::ClockJump
            | Self::ReadOnly => on.voters() > 1,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zookeeper_and_redlock_are_safe_whenever_at_most_a_minority_fails() {
        let quorums = Arrangement::ALL.into_iter().filter(|on| on.is_zookeeper() || on.is_redlock());
        for on in quorums {
            for fault in Fault::ALL.into_iter().filter(|fault| fault.applies_to(on)) {
                assert!(fault.expects(on).is_safe() || !fault.stays_within_a_minority(on), "{fault} on {on}");
            }
        }
    }

    #[test]
    fn asynchronous_replication_is_not_called_safe() {
        for on in Arrangement::ALL.into_iter().filter(|on| on.replicates()) {
            let failovers = [Fault::ServerKilled, Fault::ServerFrozen, Fault::FailoverBeforeReplication];
            for fault in failovers.into_iter().filter(|fault| fault.applies_to(on)) {
                assert!(fault.expects(on).reason().is_some(), "{fault} on {on}");
            }
        }
    }
}
