//! What each arrangement promises under each fault.

use super::Fault;
use crate::deployment::{Decides, Deployment};

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
pub(super) const FORGOTTEN: Promise = Promise::MayBreak("the server forgot the lock and grants it to the next one");
pub(super) const WALL_CLOCK: Promise = Promise::MayBreak("expiry follows the server's wall clock");
pub(super) const MINIMAL: Promise =
    Promise::MayBreak("expiry follows each node's wall clock, and no node beyond the majority knew of the lock");
pub(super) const DELETED: Promise =
    Promise::MayBreak("nothing on the servers says any more that the lock is held, and the holder hears of it later");

/// Of faults that fail no server, or only such as keep what they have.
pub(super) fn promised_everywhere(_: Deployment) -> Promise {
    Promise::Safe
}

/// Of faults after which another server takes the place of a failed one, where servers replicate.
pub(super) fn of_failed_servers(on: Deployment) -> Promise {
    match on.decides {
        Decides::Primary { waits_for_replicas: true, .. } => NARROWED,
        Decides::Primary { .. } => ASYNCHRONOUS,
        _ => Promise::Safe,
    }
}

impl Fault {
    /// What is promised of that arrangement while this fault lasts.
    #[must_use]
    pub fn expects(self, on: Deployment) -> Promise {
        (self.scenario().promise)(on)
    }

    /// Whether at most a minority of the servers whose votes count fails at a time: then Redlock and ZooKeeper promise
    /// progress, too. A single server that fails is no minority; faults of the holder and of its connections fail no
    /// server.
    #[must_use]
    pub fn stays_within_a_minority(self, on: Deployment) -> bool {
        (self.scenario().within_a_minority)(on)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minority_that_fails_is_safe_but_for_a_stopped_leader_of_etcd() {
        let quorums = Deployment::struck().into_iter().filter(|on| on.is_ensemble() || on.is_quorum());
        for on in quorums {
            for fault in Fault::ALL.into_iter().filter(|fault| fault.applies_to(on)) {
                let is_excepted = on.stopped_leader.is_some() && fault == Fault::ServerFrozen;
                let is_safe = fault.expects(on).is_safe();
                assert!(is_safe != is_excepted || !fault.stays_within_a_minority(on), "{fault} on {on}");
            }
        }
    }

    #[test]
    fn asynchronous_replication_is_not_called_safe() {
        for on in Deployment::struck().into_iter().filter(|on| on.replicates()) {
            let failovers =
                [Fault::ServerKilled, Fault::ServerFrozen, Fault::FailoverBeforeReplication, Fault::RollingRestart];
            for fault in failovers.into_iter().filter(|fault| fault.applies_to(on)) {
                assert!(fault.expects(on).reason().is_some(), "{fault} on {on}");
            }
        }
    }

    #[test]
    fn two_faults_at_once_are_played_only_where_a_majority_bears_them() {
        let together = [
            Fault::HolderStoppedServersFrozen,
            Fault::HolderStoppedServerKilled,
            Fault::PartitionHolderServersRestarted,
            Fault::ServerKilledAnotherFrozen,
        ];
        for fault in together {
            for on in Deployment::struck().into_iter().filter(|on| fault.applies_to(*on)) {
                assert!(
                    on.voters() > 1 && fault.stays_within_a_minority(on) && fault.expects(on).is_safe(),
                    "{fault} {on}"
                );
            }
        }
    }

    #[test]
    fn a_change_of_members_and_clients_that_disagree_make_no_second_holder() {
        for fault in [Fault::MemberReplaced, Fault::MemberReplacedMinimalQuorum, Fault::ClientsDisagree] {
            for on in Deployment::struck().into_iter().filter(|on| fault.applies_to(*on)) {
                assert!(fault.expects(on).is_safe() && fault.stays_within_a_minority(on), "{fault} {on}");
            }
        }
    }

    #[test]
    fn quarantines_and_disks_keep_a_lock_from_a_second_holder_when_every_server_restarts() {
        for on in Deployment::struck().into_iter().filter(|on| on.voters() > 1) {
            assert!(Fault::RollingRestart.expects(on).is_safe() && Fault::RollingRestart.stays_within_a_minority(on));
            assert!(Fault::RollingRestartQuick.expects(on).is_safe());
        }
    }
}
