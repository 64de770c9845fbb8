//! What is to be expected of a run: what each arrangement promises under each fault, as the checker takes it.

use std::time::Duration;

use crate::{
    failover::{
        arrangement::Arrangement,
        check::{Chance, Expected, Quorum},
        fault::Fault,
        matrix::Pair,
    },
    servers::ZooKeeper,
};

/// What a backend promises beyond the lease for the hand-over from a dead holder.
const CRASH_SLACK: Duration = Duration::from_millis(250);

/// What is to be expected of this pair with such a lease, where a holder has to be on so many servers.
pub(super) fn expected(pair: Pair, lease: Duration, quorum: Quorum) -> Expected {
    let Pair { on, fault } = pair;
    let may_break = if fault.expects(on).is_safe() { Chance::Never } else { Chance::Possible };
    let certain_if = |certain| if certain { Chance::Certain } else { Chance::Possible };
    // Two servers that know nothing of each other both have a holder: if that does not show, the fault did not happen.
    let two_primaries = fault == Fault::FailoverBeforeReplication && may_break == Chance::Possible;
    let crash_bound = (fault == Fault::HolderKilled).then(|| crash_bound(on, lease));
    Expected {
        overlaps: if two_primaries { Chance::Certain } else { may_break },
        overstated: may_break,
        // A holder that is stopped looks at its lock, is stopped, and writes when it goes on.
        stale: certain_if(two_primaries || fault == Fault::HolderStopped),
        losses: certain_if(ends_the_lease(pair)),
        quorum: Some(quorum),
        crash_bound,
        gap_bound: crash_bound,
        ..Expected::default()
    }
}

/// Whether a holder must have lost the lock when this fault is over.
fn ends_the_lease(Pair { on, fault }: Pair) -> bool {
    match fault {
        Fault::HolderStopped | Fault::PartitionHolder => true,
        // A session with ZooKeeper has a thread of its own, which renews it although the program stands still.
        Fault::HolderStarved => !on.is_zookeeper(),
        _ => false,
    }
}

/// By when the next holder has the lock at the latest after a holder with this lease was killed.
fn crash_bound(on: Arrangement, lease: Duration) -> Duration {
    let ticks = if on.is_zookeeper() { ZooKeeper::TICK * 2 } else { Duration::ZERO };
    lease + ticks + CRASH_SLACK
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(1);

    fn all() -> impl Iterator<Item = Pair> {
        let pairs = |on| Fault::ALL.into_iter().map(move |fault| Pair { on, fault });
        Arrangement::ALL.into_iter().flat_map(pairs).filter(|pair| pair.fault.applies_to(pair.on))
    }

    #[test]
    fn zookeeper_and_redlock_never_have_two_holders_nor_overstate_validity_while_a_majority_lives() {
        for pair in all().filter(|pair| pair.on.is_zookeeper() || pair.on.is_redlock()) {
            let expected = expected(pair, LEASE, Quorum::ONE);
            if pair.fault.stays_within_a_minority(pair.on) {
                assert_eq!((expected.overlaps, expected.overstated), (Chance::Never, Chance::Never), "{pair:?}");
            }
        }
    }

    #[test]
    fn an_asynchronous_failover_must_show_two_holders_and_what_the_fence_is_for() {
        for on in [Arrangement::Sentinel, Arrangement::Cluster] {
            let expected = expected(Pair { on, fault: Fault::FailoverBeforeReplication }, LEASE, Quorum::ONE);
            assert_eq!((expected.overlaps, expected.stale), (Chance::Certain, Chance::Certain), "{on}");
        }
    }

    #[test]
    fn nothing_that_must_show_is_promised_against() {
        for pair in all().filter(|pair| expected(*pair, LEASE, Quorum::ONE).overlaps == Chance::Certain) {
            assert!(!pair.fault.expects(pair.on).is_safe(), "{pair:?}");
        }
    }
}
