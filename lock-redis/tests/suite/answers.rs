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

const WORDS: &[&str] = &["held", "permits", "in line", "undone", "format", "string", "OK"];

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic_and_none_but_a_grant_is_one(answer in answer(WORDS), places in 0..3_usize) {
        if let Ok(Entered::Granted(number)) = entered(&answer) {
            prop_assert_eq!(&answer, &Value::Int(number.try_into().unwrap()));
        }
        if done(&answer).is_ok_and(|done| done.had) {
            let first = if let Value::Array(parts) = &answer { &parts[0] } else { &answer };
            prop_assert_eq!(first, &Value::Int(1));
        }
        let _ = (beaten(&answer, places), look::seen(&answer));
    }
}
