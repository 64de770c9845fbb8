//! **T**: validity is never overstated against what the servers hold.
//!
//! Each sample bounds from above until when a server can have kept a holder: its answer came at the latest when the read
//! ended, so a lease with so much time left ends by that much after it at the latest, and a holder that is not there has
//! ended by then. A server that grants nothing to anybody, because it was restarted and may have forgotten a holder, keeps
//! everybody else out like one that has not. What counts is how many servers it takes: the service keeps a holder for as long
//! as that many of them do. A server that gave no sample may have kept it for ever.

use std::{collections::BTreeMap, time::Duration};

use lock_core::BootInstant;
use serde::{Deserialize, Serialize};

use super::{
    holds::Hold,
    verdict::{Chance, Verdict},
};
use crate::{
    deployment::Held,
    failover::events::{Lock, Truth},
};

/// How many servers there are, and on how many of them a holder must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quorum {
    /// Servers that are asked in one round.
    pub servers: usize,
    /// On how many of them a holder has to be kept.
    pub needed: usize,
}

impl Quorum {
    /// One server, or a service that answers as one.
    pub const ONE: Self = Self { servers: 1, needed: 1 };

    /// A majority of so many.
    #[must_use]
    pub const fn majority(servers: usize) -> Self {
        Self { servers, needed: servers / 2 + 1 }
    }
}

/// What comparing validity with the servers found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Truthfulness {
    /// Looks at the servers.
    pub rounds: usize,
    /// How often a holder was compared with what they held.
    pub compared: usize,
    /// How often its validity reached beyond that.
    pub overstated: usize,
    /// The furthest by which it did, in milliseconds.
    pub overstated_ms: f64,
    /// Whether it never did.
    pub verdict: Verdict,
}

pub(super) fn truthfulness(
    samples: &[Truth],
    holds: &BTreeMap<Lock, Vec<Hold>>,
    quorum: Quorum,
    chance: Chance,
    tame: Option<&str>,
) -> Truthfulness {
    let mut rounds: BTreeMap<(Lock, u64), Vec<&Truth>> = BTreeMap::new();
    for sample in samples {
        rounds.entry((sample.lock, sample.round)).or_default().push(sample);
    }
    let (mut compared, mut overstated, mut furthest) = (0, 0, Duration::ZERO);
    for ((lock, _), round) in &rounds {
        // What a holder knew before the first question; a renewal after that may be on the servers or not.
        let Some(known) = round.iter().map(|sample| sample.asked).min() else { continue };
        for hold in holds.get(lock).into_iter().flatten() {
            let Some(deadline) = hold.deadline_at(known).filter(|_| hold.ended() > known) else { continue };
            let believed = deadline.min(hold.ended());
            compared += 1;
            let too_far = believed.saturating_since(kept_until(round, hold, quorum));
            overstated += usize::from(!too_far.is_zero());
            furthest = furthest.max(too_far);
        }
    }
    let tame = tame.or((compared == 0).then_some("no holder was compared with what the servers held"));
    let what = || {
        let furthest = furthest.as_secs_f64() * 1e3;
        format!("validity reached up to {furthest:.1} ms beyond what the servers held, {overstated} times")
    };
    Truthfulness {
        rounds: rounds.len(),
        compared,
        overstated,
        overstated_ms: furthest.as_secs_f64() * 1e3,
        verdict: Verdict::of(overstated, chance, what, tame),
    }
}

/// Until when at the latest the service keeps `hold`, going by one round of samples.
fn kept_until(round: &[&Truth], hold: &Hold, quorum: Quorum) -> BootInstant {
    let forever = BootInstant::from_nanos(u64::MAX);
    let mut ends: Vec<_> = round.iter().map(|sample| ends_on_server(sample, hold)).collect();
    ends.resize(ends.len().max(quorum.servers), forever);
    ends.sort_unstable();
    // So many of them go on beyond that place.
    // Safeguard: what counts is how long enough servers keep it (checker)
    ends.len().checked_sub(quorum.needed).and_then(|place| ends.get(place)).copied().unwrap_or(forever)
}

fn ends_on_server(sample: &Truth, hold: &Hold) -> BootInstant {
    // Safeguard: a quarantine keeps others out for as long as it lasts, and no longer (checker)
    let closed = sample.closed_nanos.map_or(Duration::ZERO, Duration::from_nanos);
    held_until(sample, hold).max(sample.answered.saturating_add(closed))
}

fn held_until(sample: &Truth, hold: &Hold) -> BootInstant {
    match &sample.held {
        Some(kept) if is_of(kept, hold) => match kept.remaining_nanos {
            Some(nanos) => sample.answered.saturating_add(Duration::from_nanos(nanos)),
            None => BootInstant::from_nanos(u64::MAX),
        },
        // Safeguard: a lock that is another's on the server is not held (checker)
        _ => sample.answered,
    }
}

/// Whether a server's holder is this one, by whichever of the two the server has. One that it cannot tell may be anybody.
fn is_of(kept: &Held, hold: &Hold) -> bool {
    let by_payload = kept.payload.as_ref().is_none_or(|payload| *payload == hold.whose.to_string());
    let by_token = kept.token.is_none_or(|token| token == hold.token.number);
    by_payload && by_token
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::fixtures::{at, held},
        *,
    };

    fn sample(server: usize, from: u64, until: u64, held: Option<(u64, u64)>) -> Truth {
        Truth {
            lock: Lock::Kept,
            round: from,
            server: server.to_string(),
            asked: at(from),
            answered: at(until),
            held: held.map(|(token, remaining)| Held {
                token: Some(token),
                payload: None,
                remaining_nanos: Some(remaining * 1_000_000),
            }),
            closed_nanos: None,
        }
    }

    fn of(samples: &[Truth], hold: Hold, quorum: Quorum) -> Truthfulness {
        truthfulness(samples, &BTreeMap::from([(Lock::Kept, vec![hold])]), quorum, Chance::Never, None)
    }

    #[test]
    fn a_deadline_before_the_servers_end_is_true_and_one_after_it_is_not() {
        let hold = held(7, 0, 10, 100);
        let found = of(&[sample(0, 50, 51, Some((7, 49)))], hold.clone(), Quorum::ONE);
        assert_eq!((found.compared, found.overstated, &found.verdict), (1, 0, &Verdict::Holds));
        let found = of(&[sample(0, 50, 51, Some((7, 40)))], hold, Quorum::ONE);
        assert_eq!((found.overstated, found.overstated_ms, found.verdict.is_broken()), (1, 9.0, true));
    }

    #[test]
    fn a_lock_that_is_anothers_on_the_server_is_not_held() {
        let found = of(&[sample(0, 50, 51, Some((8, 900)))], held(7, 0, 10, 100), Quorum::ONE);
        assert_eq!((found.overstated, found.overstated_ms), (1, 49.0));
        let found = of(&[sample(0, 50, 51, None)], held(7, 0, 10, 100), Quorum::ONE);
        assert_eq!(found.overstated, 1);
    }

    #[test]
    fn a_release_during_the_read_is_no_lie() {
        let mut hold = held(7, 0, 10, 100);
        hold.releasing = Some(at(51));
        assert_eq!(of(&[sample(0, 50, 52, None)], hold, Quorum::ONE).overstated, 0);
    }

    #[test]
    fn what_counts_is_how_long_a_majority_keeps_it() {
        let hold = held(7, 0, 10, 100);
        let three = |ends: [u64; 3]| -> Vec<_> {
            (0..3).map(|server| sample(server, 50, 50, Some((7, ends[server])))).collect()
        };
        assert_eq!(of(&three([50, 50, 0]), hold.clone(), Quorum::majority(3)).overstated, 0);
        assert_eq!(of(&three([50, 49, 0]), hold.clone(), Quorum::majority(3)).overstated, 1);
        // Two do not answer: they may keep it.
        assert_eq!(of(&three([0, 0, 0])[..1], hold, Quorum::majority(3)).overstated, 0);
    }

    #[test]
    fn a_server_in_quarantine_keeps_everybody_else_out_until_that_is_over_and_no_longer() {
        let hold = held(7, 0, 10, 100);
        let quarantined = |millis: u64| Truth { closed_nanos: Some(millis * 1_000_000), ..sample(0, 50, 50, None) };
        let round = |millis| [quarantined(millis), Truth { server: "1".into(), ..quarantined(millis) }];
        let third = Truth { server: "2".into(), ..sample(0, 50, 50, None) };
        let all = |millis| [round(millis).to_vec(), vec![third.clone()]].concat();
        assert_eq!(of(&all(50), hold.clone(), Quorum::majority(3)).overstated, 0);
        let found = of(&all(49), hold, Quorum::majority(3));
        assert_eq!((found.overstated, found.overstated_ms, found.verdict.is_broken()), (1, 1.0, true));
    }

    #[test]
    fn samples_of_nobody_prove_nothing() {
        let found = of(&[sample(0, 500, 501, None)], held(7, 0, 10, 100), Quorum::ONE);
        assert!(matches!(found.verdict, Verdict::ProvesNothing { .. }));
    }

    proptest! {
        #[test]
        fn the_end_by_quorum_is_the_last_moment_at_which_enough_servers_hold(
            ends in prop::collection::vec(0_u64..50, 5),
        ) {
            let samples: Vec<_> = (0..5).map(|server| sample(server, 50, 50, Some((7, ends[server])))).collect();
            let round: Vec<_> = samples.iter().collect();
            let end = kept_until(&round, &held(7, 0, 10, 100), Quorum::majority(5));
            let keep = |moment: u64| ends.iter().filter(|end| 50 + **end >= moment).count();
            let last = (50..=100).filter(|moment| keep(*moment) >= 3).max().unwrap();
            prop_assert_eq!(end, at(last));
        }
    }
}
