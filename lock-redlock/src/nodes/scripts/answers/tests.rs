//! Whatever a node answers, reading it never panics, and is a vote only where the script says so.

#[path = "../../../../../lock-redis/tests/suite/fixtures/mod.rs"]
mod fixtures;

use lock_redis::node::Value;
use proptest::prelude::*;

use self::fixtures::answer;
use super::{ballot, read_status, renumbered};
use crate::protocol::{ballots::Ballot, token::Renumbered};

const WORDS: &[&str] = &["granted", "held", "read", "behind", "reserved", "quarantined", "undone"];

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic_and_none_but_a_vote_is_one(answer in answer(WORDS)) {
        if let Ok(Ballot::Granted(number)) = ballot(&answer) {
            let Value::Array(parts) = &answer else { panic!("{answer:?}") };
            let [Value::BulkString(word), text] = parts.as_slice() else { panic!("{answer:?}") };
            prop_assert_eq!(word.as_slice(), b"granted");
            let text = match text {
                Value::BulkString(text) => String::from_utf8_lossy(text).into_owned(),
                Value::SimpleString(text) => text.clone(),
                other => panic!("{other:?}"),
            };
            prop_assert_eq!(text.parse::<u64>().ok(), Some(number));
        }
        if let Ok(Renumbered::Done) = renumbered(&answer) {
            prop_assert_eq!(&answer, &Value::Int(1));
        }
        let _ = read_status(&answer);
    }
}
