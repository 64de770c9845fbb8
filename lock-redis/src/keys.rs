//! Which keys a lock name has on the server.

use lock_core::LockName;

/// The keys and the channel of one lock name.
///
/// All begin with the lock key, so they share its hash tag: the text between the first `{` and the first `}` after it.
/// Two names never share a key: the lock key ends with `}`, the others do not, and what stands before their last part
/// is the whole lock key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    lock: String,
}

impl Keys {
    /// The keys of `name` under `prefix`, which must pass [`Keys::is_prefix`].
    #[must_use]
    pub fn new(prefix: &str, name: &LockName) -> Self {
        debug_assert!(Self::is_prefix(prefix), "an unchecked prefix: {prefix:?}");
        Self { lock: format!("{{{prefix}:{name}}}") }
    }

    /// Whether `prefix` can be told from a lock name: 1 to 64 ASCII letters, digits, `.`, `_`, `-` and `/`. A colon would
    /// let two prefixes share a key, a brace would end the hash tag.
    #[must_use]
    pub fn is_prefix(prefix: &str) -> bool {
        let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        (1..=64).contains(&prefix.len()) && prefix.bytes().all(safe)
    }

    /// What [`Keys::is_prefix`] accepts, for an error.
    pub const PREFIXES: &str = "1 to 64 of the characters a-z A-Z 0-9 . _ - /";

    /// The lock itself: a plain string, the value of the attempt that holds it, so that any other client's `SET NX` on it
    /// is excluded, too.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// A hash: `counter` the last token number that was given out; and, while the lock is held alone by a holder of this
    /// library, `value` whose they are, `held` the number of its grant, `since` its time in microseconds, `payload` who it
    /// is. A holder that died leaves them until the next grant; they count only together with a lock key of the same
    /// value.
    #[must_use]
    pub fn token(&self) -> String {
        format!("{}:token", self.lock)
    }

    /// Says for a few seconds that the attempt with this value was undone, should its acquisition arrive late.
    #[must_use]
    pub fn tombstone(&self, value: &str) -> String {
        format!("{}:undone:{value}", self.lock)
    }

    /// With `queue=fifo`, those who stand in line: a sorted set of the values of their attempts by their places; beside it,
    /// with the same expiry, until when each counts as alive, and who each is.
    #[must_use]
    pub fn queue(&self) -> [String; 3] {
        ["queue", "queue:fresh", "queue:waiters"].map(|part| format!("{}:{part}", self.lock))
    }

    /// The value of a holder that asked for a lock delay, until that delay would be over.
    #[must_use]
    pub fn delay(&self) -> String {
        format!("{}:delay", self.lock)
    }

    /// Those who read: a sorted set of the attempts' values, each with the time in milliseconds at which it ends.
    #[must_use]
    pub fn readers(&self) -> String {
        format!("{}:readers", self.lock)
    }

    /// A hash with a note on each reader: the number and the time (in microseconds) of its grant, its lock delay in
    /// milliseconds, 0, and its payload, with a space between them.
    #[must_use]
    pub fn reading(&self) -> String {
        format!("{}:reading", self.lock)
    }

    /// Writers that wait, so that readers who come later wait for them: a sorted set, each with the time in milliseconds
    /// at which its note ends unless it is renewed.
    #[must_use]
    pub fn writers(&self) -> String {
        format!("{}:writers", self.lock)
    }

    /// A hash that says of each writer that waits when it came, in microseconds.
    #[must_use]
    pub fn writing(&self) -> String {
        format!("{}:writing", self.lock)
    }

    /// Those who hold a permit of the semaphore of this name, as [`Keys::readers`].
    #[must_use]
    pub fn permits(&self) -> String {
        format!("{}:permits", self.lock)
    }

    /// A hash with a note on each of them, as [`Keys::reading`], with the number of permits in the place of the 0.
    #[must_use]
    pub fn permitted(&self) -> String {
        format!("{}:permitted", self.lock)
    }

    /// The channel on which each release of the lock is published, that of readers only when the last of them goes.
    #[must_use]
    pub fn channel(&self) -> String {
        format!("{}:released", self.lock)
    }

    /// The channel on which each release of a permit is published.
    #[must_use]
    pub fn permit_channel(&self) -> String {
        format!("{}:returned", self.lock)
    }

    /// The channel on which each grant and each release is published, for those who only look on.
    #[must_use]
    pub fn changes(&self) -> String {
        format!("{}:changed", self.lock)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash_tag(key: &str) -> &str {
        let after = &key[key.find('{').unwrap() + 1..];
        &after[..after.find('}').unwrap()]
    }

    fn all(prefix: &str, name: &LockName) -> [String; 16] {
        let keys = Keys::new(prefix, name);
        let [queue, fresh, waiters] = keys.queue();
        [
            keys.lock().to_owned(),
            keys.token(),
            keys.tombstone("0a1b"),
            keys.delay(),
            keys.readers(),
            keys.reading(),
            keys.writers(),
            keys.writing(),
            keys.permits(),
            keys.permitted(),
            keys.channel(),
            keys.permit_channel(),
            keys.changes(),
            queue,
            fresh,
            waiters,
        ]
    }

    proptest! {
        #[test]
        fn all_keys_of_a_name_share_one_hash_tag_that_is_not_empty(name in "[a{}:%/]{1,8}") {
            let keys = all("lock", &LockName::new(name).unwrap());
            prop_assert!(!hash_tag(&keys[0]).is_empty());
            prop_assert!(keys.iter().all(|key| hash_tag(key) == hash_tag(&keys[0])));
        }

        #[test]
        fn no_two_keys_of_a_name_are_the_same(name in "[a{}:]{1,8}") {
            let keys = all("lock", &LockName::new(name).unwrap());
            let distinct: std::collections::HashSet<_> = keys.iter().collect();
            prop_assert_eq!(distinct.len(), keys.len());
        }

        #[test]
        fn two_names_never_share_a_key(a in "[a{}:]{1,4}(:token|:undone:0a1b|:released|:readers)?", b in "[a{}:]{1,4}(:token)?") {
            let (a, b) = (LockName::new(a).unwrap(), LockName::new(b).unwrap());
            let shared = all("lock", &a).iter().any(|key| all("lock", &b).contains(key));
            prop_assert_eq!(shared, a == b);
        }

        #[test]
        fn two_prefixes_never_share_a_lock_key(p in "[a./]{1,3}", q in "[a./]{1,3}", a in "[a:/]{1,4}", b in "[a:/]{1,4}") {
            let (a, b) = (LockName::new(a).unwrap(), LockName::new(b).unwrap());
            let same = Keys::new(&p, &a) == Keys::new(&q, &b);
            prop_assert_eq!(same, p == q && a == b);
        }
    }

    #[test]
    fn a_prefix_with_a_colon_or_a_brace_is_refused() {
        assert!(Keys::is_prefix("app.locks-1/x_y"));
        for prefix in ["", "a:b", "a{", "}", "ä", &"x".repeat(65)] {
            assert!(!Keys::is_prefix(prefix), "{prefix:?}");
        }
    }
}
