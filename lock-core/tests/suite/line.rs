//! The order in a line: who holds and who waits, by arrival alone.

use std::{num::NonZeroU32, ops::Range};

use lock_core::Mode;
use proptest::prelude::*;

fn of(permits: u32) -> Mode {
    Mode::Permit { of: NonZeroU32::new(permits).unwrap() }
}

fn holds(mode: Mode, ahead: &[Mode]) -> bool {
    mode.waits_for(ahead.iter().rev().map(|mode| Ok::<_, ()>(((), *mode)))) == Ok(None)
}

/// Those of a queue that hold, when each looks for itself.
fn holders(queue: &[Mode]) -> Vec<Mode> {
    (0..queue.len()).filter(|&place| holds(queue[place], &queue[..place])).map(|place| queue[place]).collect()
}

fn lock_queue(length: Range<usize>) -> impl Strategy<Value = Vec<Mode>> {
    prop::collection::vec(prop_oneof![Just(Mode::Exclusive), Just(Mode::Read)], length)
}

#[test]
fn a_writer_waits_for_whoever_is_next_ahead_and_a_reader_for_the_nearest_writer() {
    let ahead = [(5, Mode::Read), (3, Mode::Exclusive), (1, Mode::Exclusive)].map(Ok::<_, ()>);
    assert_eq!(Mode::Exclusive.waits_for(ahead), Ok(Some(5)));
    assert_eq!(Mode::Read.waits_for(ahead), Ok(Some(3)));
    assert_eq!(Mode::Read.waits_for([Ok((5, Mode::Read)), Err(())]), Err(()));
}

proptest! {
    #[test]
    fn a_lock_has_one_writer_or_only_readers_and_the_first_in_line_always_holds(queue in lock_queue(0..12)) {
        let holders = holders(&queue);
        let writers = holders.iter().filter(|mode| **mode == Mode::Exclusive).count();
        prop_assert!(writers == 0 || holders.len() == 1, "{holders:?} of {queue:?}");
        prop_assert_eq!(holders.is_empty(), queue.is_empty());
    }

    #[test]
    fn whoever_leaves_or_downgrades_takes_a_grant_from_nobody(
        queue in lock_queue(1..12),
        place: prop::sample::Index,
        leaves: bool,
    ) {
        let place = place.index(queue.len());
        let mut after = queue.clone();
        if leaves {
            after.remove(place);
        } else {
            after[place] = Mode::Read;
        }
        for other in (0..queue.len()).filter(|other| *other != place) {
            let moved = if leaves && other > place { other - 1 } else { other };
            if holds(queue[other], &queue[..other]) {
                prop_assert!(holds(after[moved], &after[..moved]));
            }
        }
    }

    #[test]
    fn a_semaphore_has_as_many_holders_as_permits(permits in 1_u32..5, contenders in 0_usize..9) {
        let queue = vec![of(permits); contenders];
        prop_assert_eq!(holders(&queue).len(), contenders.min(permits as usize));
    }
}
