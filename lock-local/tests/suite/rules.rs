//! The counter, without files.

use lock_local::counter::{RECORD, next};
use proptest::prelude::*;

proptest! {
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
