//! Keys of locks without an expiry: every key of this library has one, so such a key was made by somebody else or has lost its
//! expiry, and its lock may never be free.

use redis::{Cmd, Value};

use crate::node::text;

/// How many steps a look takes at most.
pub(super) const STEPS: usize = 20;
/// How many keys a server looks at in one step.
const KEYS: usize = 500;

/// One step of a look at keys.
pub(super) fn scan(cursor: &str, pattern: &str) -> Cmd {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS);
    scan
}

/// Reads the answer to [`scan`]: where the next step begins, and the keys, of which those that are no text are left out.
pub(super) fn found(answer: &Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = answer else { return None };
    let [next, Value::Array(keys)] = parts.as_slice() else { return None };
    Some((text(next)?.to_owned(), keys.iter().filter_map(text).map(str::to_owned).collect()))
}

/// Those of `keys` whose `PTTL` is that of a key without an expiry.
pub(super) fn endless(keys: &[String], answers: &[Value]) -> Vec<String> {
    let is_endless = |answer: &Value| *answer == Value::Int(-1);
    keys.iter().zip(answers).filter(|(_, answer)| is_endless(answer)).map(|(key, _)| key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_without_an_expiry_is_endless_and_one_that_is_gone_is_not() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let answer = Value::Array(vec![bulk("17"), Value::Array(["a", "b", "c"].map(bulk).into())]);
        let (next, keys) = found(&answer).unwrap();
        assert_eq!((next.as_str(), keys.len()), ("17", 3));
        assert_eq!(endless(&keys, &[Value::Int(-1), Value::Int(-2), Value::Int(5)]), ["a"]);
        assert_eq!(found(&Value::Nil), None);
    }
}
