//! The queue and the counter, without files.

use std::num::NonZeroU32;

use lock_core::Mode;
use lock_local::{
    counter::{RECORD, next},
    queue::{Standing, standing},
};
use proptest::prelude::*;

fn of(permits: u32) -> Mode {
    Mode::Permit { of: NonZeroU32::new(permits).unwrap() }
}

fn holds(mode: Mode, ahead: &[Mode]) -> bool {
    let nearest_first = ahead.iter().enumerate().rev().map(|(number, mode)| Ok::<_, ()>((number as u64, *mode)));
    standing(mode, nearest_first) == Ok(Standing::Holds)
}

/// Those of a queue that hold, when each looks for itself.
fn holders(queue: &[Mode]) -> Vec<Mode> {
    (0..queue.len()).filter(|&place| holds(queue[place], &queue[..place])).map(|place| queue[place]).collect()
}

fn lock_queue() -> impl Strategy<Value = Vec<Mode>> {
    prop::collection::vec(prop_oneof![Just(Mode::Exclusive), Just(Mode::Read)], 0..12)
}

#[test]
fn a_writer_waits_for_whoever_is_next_ahead_and_a_reader_for_the_nearest_writer() {
    let ahead = [(5, Mode::Read), (3, Mode::Exclusive), (1, Mode::Exclusive)].map(Ok::<_, ()>);
    assert_eq!(standing(Mode::Exclusive, ahead), Ok(Standing::Behind(5)));
    assert_eq!(standing(Mode::Read, ahead), Ok(Standing::Behind(3)));
    assert_eq!(standing(Mode::Read, [Ok((5, Mode::Read)), Err(())]), Err(()));
}

proptest! {
    #[test]
    fn a_lock_has_one_writer_or_only_readers_and_the_first_in_line_always_holds(queue in lock_queue()) {
        let holders = holders(&queue);
        let writers = holders.iter().filter(|mode| **mode == Mode::Exclusive).count();
        prop_assert!(writers == 0 || holders.len() == 1, "{holders:?} of {queue:?}");
        prop_assert_eq!(holders.is_empty(), queue.is_empty());
    }

    #[test]
    fn whoever_leaves_or_downgrades_takes_a_grant_from_nobody(
        queue in lock_queue(),
        place in 0_usize..12,
        leaves: bool,
    ) {
        prop_assume!(place < queue.len());
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

    #[test]
    fn a_counter_whose_writer_dies_at_any_byte_never_falls(
        floors in prop::collection::vec(0_u64..1 << 60, 1..20),
        cuts in prop::collection::vec(prop_oneof![Just(16), 0_usize..16], 20),
    ) {
        let mut record = [0; RECORD];
        let mut given = None;
        for (floor, cut) in floors.into_iter().zip(cuts) {
            let (number, offset, slot) = next(&record, floor);
            prop_assert!(Some(number) > given && number >= floor, "{number} after {given:?}");
            let offset = usize::try_from(offset).unwrap();
            record[offset..offset + cut].copy_from_slice(&slot[..cut]);
            if cut == slot.len() {
                given = Some(number);
            }
        }
    }
}
