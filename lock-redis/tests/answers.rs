//! Whatever a server answers, reading it never panics, and is a grant only where the script says so.

use lock_redis::{
    node::Value,
    scripts::{self, Acquired},
};
use proptest::prelude::*;

/// Any value, the words and numbers that scripts answer more often than others.
fn answer() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("granted"),
        Just("held"),
        Just("permits"),
        Just("in line"),
        Just("undone"),
        Just("string"),
        Just("OK"),
        Just("-1"),
        Just("7"),
        Just("18446744073709551616"),
    ];
    let leaf = prop_oneof![
        4 => word.prop_map(|word| Value::BulkString(word.as_bytes().to_vec())),
        3 => prop_oneof![any::<i64>(), Just(i64::MIN), -2_i64..3].prop_map(Value::Int),
        1 => proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
        1 => "\\PC{0,8}".prop_map(Value::SimpleString),
        1 => Just(Value::Nil),
        1 => any::<bool>().prop_map(Value::Boolean),
    ];
    leaf.prop_recursive(3, 40, 8, |inner| proptest::collection::vec(inner, 0..8).prop_map(Value::Array))
}

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
    fn no_answer_makes_a_reader_panic_and_none_but_a_grant_is_one(answer in answer()) {
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
