//! **M** by interval sweep: no two holders inside their own validity.

use std::time::Duration;

use super::holds::Hold;

/// Two holds of one lock that were valid at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overlap {
    /// Places in the list of holds.
    pub(super) pair: [usize; 2],
    pub(super) length: Duration,
}

/// All overlaps of `holds`, which are in the order of their grants.
pub(super) fn overlaps(holds: &[Hold]) -> Vec<Overlap> {
    let mut found = Vec::new();
    // Those that were still valid at the grant before.
    let mut valid: Vec<usize> = Vec::new();
    for (place, hold) in holds.iter().enumerate() {
        // Safeguard: the checker compares with every hold that is still valid
        valid.retain(|other| holds[*other].ended() > hold.granted);
        for other in &valid {
            let length = holds[*other].ended().min(hold.ended()).saturating_since(hold.granted);
            if !length.is_zero() {
                found.push(Overlap { pair: [*other, place], length });
            }
        }
        valid.push(place);
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::fixtures::{at, held},
        *,
    };

    #[test]
    fn holds_that_touch_do_not_overlap_and_one_millisecond_does() {
        let apart = [held(1, 0, 10, 20), held(2, 0, 20, 30)];
        assert_eq!(overlaps(&apart), []);
        let together = [held(1, 0, 10, 21), held(2, 0, 20, 30)];
        assert_eq!(overlaps(&together), [Overlap { pair: [0, 1], length: Duration::from_millis(1) }]);
    }

    #[test]
    fn a_long_hold_overlaps_every_short_one_in_it() {
        let holds = [held(1, 0, 0, 100), held(2, 0, 10, 20), held(3, 0, 30, 40)];
        assert_eq!(overlaps(&holds).iter().map(|overlap| overlap.pair).collect::<Vec<_>>(), [[0, 1], [0, 2]]);
    }

    #[test]
    fn a_hold_ends_with_its_validity_although_nobody_looked() {
        let mut first = held(1, 0, 10, 50);
        first.releasing = Some(at(90));
        assert_eq!(overlaps(&[first, held(2, 0, 50, 60)]), []);
    }

    proptest! {
        #[test]
        fn the_sweep_finds_what_comparing_every_pair_finds(times in prop::collection::vec((0_u64..60, 0_u64..20), 0..20)) {
            let mut holds: Vec<_> =
                (1..).zip(&times).map(|(token, (from, length))| held(token, 0, *from, from + length)).collect();
            holds.sort_by_key(|hold| hold.granted);
            let mut pairs = 0;
            for (place, one) in holds.iter().enumerate() {
                for other in &holds[place + 1..] {
                    let together = one.ended().min(other.ended()).saturating_since(one.granted.max(other.granted));
                    pairs += usize::from(!together.is_zero());
                }
            }
            prop_assert_eq!(overlaps(&holds).len(), pairs);
        }
    }
}
