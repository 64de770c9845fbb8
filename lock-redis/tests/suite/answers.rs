//! Whatever a server answers, reading it never panics, and is a grant only where the script says so.

use crate::fixtures::answer;
use lock_redis::{
    node::Value,
    scripts::{self, Acquired},
};
use proptest::prelude::*;

const WORDS: &[&str] = &["granted", "held", "permits", "in line", "undone", "string", "OK"];

fn says_granted(answer: &Value) -> bool {
    let Value::Array(parts) = answer else { return false };
    match parts.first() {
        Some(Value::BulkString(word)) => word == b"granted",
        Some(Value::SimpleString(word)) => word == "granted",
        _ => false,
    }
}

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic_and_none_but_a_grant_is_one(answer in answer(WORDS)) {
        if let Ok(Acquired::Granted(_)) = scripts::acquired(&answer) {
            prop_assert!(says_granted(&answer), "{:?}", answer);
        }
        let (held, released) = (scripts::held(&answer), scripts::released(&answer));
        if let Ok(true) = held {
            prop_assert!(matches!(answer, Value::Int(1..)), "{:?}", answer);
        }
        prop_assert_eq!(held.is_ok(), released.is_ok());
        let _ = scripts::look(&answer);
    }
}

#[test]
fn the_smallest_number_there_is_means_nothing() {
    assert!(scripts::held(&Value::Int(i64::MIN)).is_err());
}
