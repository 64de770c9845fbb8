//! A list of locks: what is asked of each server, and which names its keys stand for.

use lock_core::LockName;

use super::keys::Keys;
use crate::node::{NodeError, Script, ScriptCall, Value, text};

static LIST: Script = Script::new(include_str!("scripts/list.lua"));

/// The names that a list of locks is about, of one strategy under one prefix of keys.
#[derive(Debug, Clone)]
pub struct Listing {
    /// What the keys begin with, as far as that is the same for all names.
    key_prefix: String,
    /// What the names begin with.
    names: String,
    is_plain: bool,
}

impl Listing {
    /// The names that begin with `names`, of locks and semaphores with a queue (and of Redlock), whose keys are under `prefix`.
    #[must_use]
    pub fn new(prefix: &str, names: &str) -> Self {
        Self { key_prefix: format!("{{{prefix}:"), names: names.to_owned(), is_plain: false }
    }

    /// The same with the strategy `plain`, whose `prefix` is not empty: then nobody can tell which keys are locks.
    #[must_use]
    pub fn plain(prefix: &str, names: &str) -> Self {
        Self { key_prefix: format!("{prefix}:"), names: names.to_owned(), is_plain: true }
    }

    /// Asks for the keys that the step at `cursor` looks at; the first step begins at `0`.
    #[must_use]
    pub fn step(&self, cursor: &str) -> ScriptCall {
        // A prefix of keys means nothing in a pattern.
        ScriptCall::new(&LIST).arg(cursor).arg(format!("{}{}*", self.key_prefix, literally(&self.names)))
    }

    /// Reads the answer to [`Listing::step`]: where the next step begins, `0` for none, and the names whose holders are in the
    /// keys.
    ///
    /// # Errors
    /// [`NodeError::Unknown`] when it is none.
    pub fn found(&self, answer: &Value) -> Result<(String, Vec<LockName>), NodeError> {
        let (next, keys) = scanned(answer).ok_or_else(|| NodeError::nonsense(answer))?;
        Ok((next, keys.iter().filter_map(|key| self.name_of(key)).collect()))
    }

    /// The name whose holders are in `key`.
    fn name_of(&self, key: &str) -> Option<LockName> {
        let rest = key.strip_prefix(&self.key_prefix)?;
        let name = if self.is_plain { rest } else { Keys::name_of_holders(rest)? };
        LockName::new(name).ok().filter(|name| name.as_str().starts_with(&self.names))
    }
}

/// A pattern that fits `text` and nothing else.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        // Safeguard: a list takes its prefix for no pattern (Redis)
        if matches!(c, '*' | '?' | '[' | ']' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

/// Reads the answer to `SCAN`: where the next step begins, and the keys, of which those that are no text are left out.
pub(crate) fn scanned(answer: &Value) -> Option<(String, Vec<String>)> {
    let Value::Array(parts) = answer else { return None };
    let [next, Value::Array(keys)] = parts.as_slice() else { return None };
    Some((text(next)?.to_owned(), keys.iter().filter_map(text).map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_keys_of_its_holders_stand_for_a_name_and_no_others(name in "[a{}:*]{1,6}(:readers|:permits|\\})?") {
            let name = LockName::new(name).unwrap();
            let (keys, listing) = (Keys::new("lock", &name), Listing::new("lock", ""));
            let [lock, semaphore] = [false, true].map(|is_semaphore| keys.line(is_semaphore));
            for key in [lock.lock, lock.members, semaphore.members] {
                prop_assert_eq!(listing.name_of(&key), Some(name.clone()), "{}", key);
            }
            let others = [lock.head, lock.delay, lock.notes, lock.queue, lock.waiters, lock.alive, semaphore.lock];
            for key in others.into_iter().chain([semaphore.delay, semaphore.notes, semaphore.queue, keys.tombstone("0a"), keys.changes()]) {
                prop_assert_eq!(listing.name_of(&key), None, "{}", key);
            }
            let plain = Keys::plain("lock", &name).unwrap();
            prop_assert_eq!(Listing::plain("lock", "").name_of(plain.lock()), Some(name.clone()));
            prop_assert_eq!(Listing::plain("lock", "").name_of(&plain.token()), None);
            prop_assert_eq!(Listing::new("lock", "a").name_of(keys.lock()).is_some(), name.as_str().starts_with('a'));
        }
    }

    #[test]
    fn an_answer_is_a_cursor_and_keys() {
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let keys = Value::Array(vec![bulk("{lock:a}"), bulk("{lock:b}:token"), Value::BulkString(vec![0xff])]);
        let (next, names) = Listing::new("lock", "").found(&Value::Array(vec![bulk("17"), keys])).unwrap();
        assert_eq!((next.as_str(), names), ("17", vec![LockName::new("a").unwrap()]));
        assert!(Listing::new("lock", "").found(&Value::Nil).is_err());
    }

    #[test]
    fn a_prefix_is_no_pattern() {
        assert_eq!(literally("a*b?[c]\\d"), "a\\*b\\?\\[c\\]\\\\d");
    }
}
