//! Made-up answers of servers, for the tests of what reads them.

use proptest::{prelude::*, sample::select};

use super::Value;

/// Any value; these words and small numbers more often than others.
pub(crate) fn answer(words: &'static [&'static str]) -> impl Strategy<Value = Value> {
    let word = prop_oneof![3 => select(words), 1 => select(&["-1", "7", "18446744073709551616"][..])];
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
