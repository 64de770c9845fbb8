//! Whatever a server answers, reading it never panics, and is a grant only where the script says so.

use crate::fixtures::answer;
use lock_redis::{
    node::Value,
    protocol::{
        answers::{Entered, beaten, done, entered},
        look,
    },
};
use proptest::prelude::*;

const WORDS: &[&str] = &["granted", "held", "permits", "in line", "undone", "format", "string", "OK"];

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
    fn no_answer_makes_a_reader_panic_and_none_but_a_grant_is_one(answer in answer(WORDS), places in 0..3_usize) {
        if let Ok(Entered::Granted(_)) = entered(&answer) {
            prop_assert!(says_granted(&answer), "{:?}", answer);
        }
        if done(&answer).is_ok_and(|done| done.had) {
            prop_assert!(matches!(&answer, Value::Array(parts) if parts[0] == Value::Int(1)), "{:?}", answer);
        }
        let _ = (beaten(&answer, places), look::seen(&answer));
    }
}
