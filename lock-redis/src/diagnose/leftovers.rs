//! Keys of locks without an expiry: every key of this library has one, so such a key was made by somebody else or has lost its
//! expiry, and its lock may never be free.

use redis::{Cmd, Value};

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
        let keys = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(endless(&keys, &[Value::Int(-1), Value::Int(-2), Value::Int(5)]), ["a"]);
    }
}
