//! Whatever a node answers, reading it never panics, and is a vote only where the script says so.

#[path = "../../../../../lock-redis/tests/suite/fixtures/mod.rs"]
mod fixtures;

use lock_redis::node::Value;
use proptest::prelude::*;

use self::fixtures::answer;
use super::{ballot, read_status, renumbered};
use crate::protocol::{ballots::Ballot, token::Renumbered};

const WORDS: &[&str] = &["held", "read", "behind", "reserved", "quarantined", "undone"];

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic_and_none_but_a_vote_is_one(answer in answer(WORDS)) {
        if let Ok(Ballot::Granted(number)) = ballot(&answer) {
            prop_assert_eq!(&answer, &Value::Int(number.try_into().unwrap()));
        }
        if let Ok(Renumbered::Done) = renumbered(&answer) {
            prop_assert_eq!(&answer, &Value::Int(1));
        }
        let _ = read_status(&answer);
    }
}
