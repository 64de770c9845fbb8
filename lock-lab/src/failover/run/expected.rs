//! What is to be expected of a run: what each arrangement promises under each fault, as the checker takes it.

use std::time::Duration;

use crate::{
    deployment::SUCCESSION_SLACK,
    failover::{
        check::{Chance, Expected, Quorum},
        matrix::Pair,
    },
};

/// What is to be expected of this pair with such a lease, where a holder has to be on so many servers.
pub(super) fn expected(pair: Pair, lease: Duration, quorum: Quorum) -> Expected {
    let Pair { on, fault } = pair;
    let scenario = fault.scenario();
    let shows = (scenario.shows)(on);
    let may_break = if fault.expects(on).is_safe() { Chance::Never } else { Chance::Possible };
    let certain_if = |certain| if certain { Chance::Certain } else { Chance::Possible };
    let crash_bound = shows.crash_bound.then(|| on.succession(lease));
    Expected {
        traffic: scenario.load.traffic,
        // Safeguard: two holders must show where replication was cut off, or the run proves nothing
        overlaps: if shows.two_holders { Chance::Certain } else { may_break },
        overstated: may_break,
        stale: certain_if(shows.stale_write),
        lost_update: certain_if(shows.lost_update),
        losses: certain_if(shows.loss),
        quorum: Some(quorum),
        crash_bound,
        // A quarantine begins when the first client has found the node again.
        gap_bound: match shows.closed {
            true => Some(lease * 2),
            false => (shows.crash_bound || shows.goes_on).then(|| on.succession(lease)),
        },
        survives: shows.lock_survives.then(|| lease / 8),
        closed: shows.closed.then(|| lease * 9 / 10),
        retransmission: shows.retransmission,
        clocks_apart: scenario.clock_ahead / 2,
        // Nothing may be left on the servers in the end, whatever the fault: it is over by then, and each server runs and
        // can be read. What clients that were struck had goes with their leases, or is given back when they go on. A
        // promoted replica may have a lock whose release it never heard of: with an end, which is a time on the clock. A
        // clock that has jumped ahead ends leases early, and what is set afterwards goes by that clock. Whoever deletes or
        // flushes adds nothing.
        left: Chance::Never,
        lingers: on.lingers(lease) + SUCCESSION_SLACK,
        ..Expected::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{deployment::Deployment, failover::fault::Fault};

    const LEASE: Duration = Duration::from_secs(1);

    fn all() -> impl Iterator<Item = Pair> {
        let pairs = |on| Fault::ALL.into_iter().map(move |fault| Pair { on, fault });
        Deployment::struck().into_iter().flat_map(pairs).filter(|pair| pair.fault.applies_to(pair.on))
    }

    #[test]
    fn while_a_majority_lives_two_hold_at_most_when_a_stopped_leader_of_etcd_goes_on() {
        for pair in all().filter(|pair| pair.on.is_ensemble() || pair.on.is_quorum()) {
            let expected = expected(pair, LEASE, Quorum::ONE);
            if pair.fault.stays_within_a_minority(pair.on) {
                let is_excepted = pair.on.stopped_leader.is_some() && pair.fault == Fault::ServerFrozen;
                let chance = if is_excepted { Chance::Possible } else { Chance::Never };
                assert_eq!((expected.overlaps, expected.overstated), (chance, chance), "{pair:?}");
            }
        }
    }

    #[test]
    fn an_asynchronous_failover_must_show_two_holders_and_what_the_fence_is_for() {
        for on in ["sentinel", "cluster"].map(|on| on.parse().unwrap()) {
            let expected = expected(Pair { on, fault: Fault::FailoverBeforeReplication }, LEASE, Quorum::ONE);
            assert_eq!((expected.overlaps, expected.stale), (Chance::Certain, Chance::Certain), "{on}");
        }
    }

    #[test]
    fn nothing_may_be_left_on_any_server_whatever_the_fault_but_for_a_lease() {
        for pair in all() {
            let expected = expected(pair, LEASE, Quorum::ONE);
            assert_eq!(expected.left, Chance::Never, "{pair:?}");
            assert!(expected.lingers >= LEASE && expected.lingers < LEASE * 2, "{pair:?}");
        }
    }

    #[test]
    fn nothing_that_must_show_is_promised_against() {
        for pair in all().filter(|pair| expected(*pair, LEASE, Quorum::ONE).overlaps == Chance::Certain) {
            assert!(!pair.fault.expects(pair.on).is_safe(), "{pair:?}");
        }
    }

    #[test]
    fn the_workload_of_the_published_test_must_lose_updates_without_a_fence_on_every_arrangement() {
        for on in Deployment::struck() {
            let expected = expected(Pair { on, fault: Fault::Pauses }, LEASE, Quorum::ONE);
            assert_eq!((expected.lost_update, expected.losses), (Chance::Certain, Chance::Certain), "{on}");
        }
    }

    #[test]
    fn a_rolling_restart_is_survived_by_a_held_lock_where_a_majority_decides() {
        for pair in all().filter(|pair| pair.fault == Fault::RollingRestart) {
            let survives = expected(pair, LEASE, Quorum::ONE).survives;
            assert_eq!(survives.is_some(), pair.on.voters() > 1, "{pair:?}");
        }
    }
}
