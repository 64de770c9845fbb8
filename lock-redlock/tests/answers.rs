//! Whatever a node answers, reading it never panics, and is a vote only where the script says so.

use lock_redis::node::Value;
use lock_redlock::scripts::{Ballot, Renumbered, ballot, read_standing, renumbered};
use proptest::prelude::*;

/// Any value, the words and numbers that scripts answer more often than others.
fn answer() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        Just("granted"),
        Just("held"),
        Just("read"),
        Just("behind"),
        Just("reserved"),
        Just("quarantined"),
        Just("undone"),
        Just("7"),
        Just("-1"),
        Just("18446744073709551616"),
    ];
    let leaf = prop_oneof![
        4 => word.prop_map(|word| Value::BulkString(word.as_bytes().to_vec())),
        3 => prop_oneof![any::<i64>(), Just(i64::MIN), -2_i64..3].prop_map(Value::Int),
        1 => proptest::collection::vec(any::<u8>(), 0..20).prop_map(Value::BulkString),
        1 => "\\PC{0,8}".prop_map(Value::SimpleString),
        1 => Just(Value::Nil),
    ];
    leaf.prop_recursive(2, 20, 4, |inner| proptest::collection::vec(inner, 0..4).prop_map(Value::Array))
}

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic_and_none_but_a_vote_is_one(answer in answer()) {
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
        let _ = read_standing(&answer);
    }
}
