//! Which keys a lock name has on the server.

use lock_core::LockName;

use crate::cluster::slots;

/// The keys and the channels of one lock name.
///
/// With the strategy `queue` all begin with the lock key, so they share its hash tag: the text between the first `{` and the
/// first `}` after it. Two names never share a key: the lock key ends with `}`, the others do not, and what stands before
/// their last part is the whole lock key.
///
/// With the strategy `plain` the lock key is one that other libraries use, so it has no brace of ours. The other keys begin
/// with [`Keys::RESERVED`], as no lock key does, and what they end with leads to the slot of the lock key and tells it from
/// all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    lock: String,
    /// What the other keys end with; `None` with the strategy `queue`.
    anchor: Option<String>,
    /// Whether scripts are passed all keys.
    are_declared: bool,
}

impl Keys {
    /// What the keys beside the lock keys begin with, with the strategy `plain`. No lock key does there.
    pub const RESERVED: &str = "lock-plain:";

    /// The keys of `name` under `prefix`, which must pass [`Keys::is_prefix`].
    #[must_use]
    pub fn new(prefix: &str, name: &LockName) -> Self {
        debug_assert!(Self::is_prefix(prefix), "an unchecked prefix: {prefix:?}");
        Self { lock: format!("{{{prefix}:{name}}}"), anchor: None, are_declared: false }
    }

    /// The same with the strategy `plain`: the lock key is `prefix:name`, or the bare name where the prefix is empty. `None`
    /// when it would begin with [`Keys::RESERVED`].
    #[must_use]
    pub fn plain(prefix: &str, name: &LockName) -> Option<Self> {
        debug_assert!(prefix.is_empty() || Self::is_prefix(prefix), "an unchecked prefix: {prefix:?}");
        let lock = if prefix.is_empty() { name.to_string() } else { format!("{prefix}:{name}") };
        // Safeguard: no name is a key beside another lock (Redis, plain)
        if lock.starts_with(Self::RESERVED) {
            return None;
        }
        let anchor = match slots::hash_tag(&lock) {
            Some(_) => format!("={lock}"),
            // A closing brace in it would end the tag.
            None if !lock.contains('}') => format!("{{{lock}}}"),
            None => format!("{{{}}}:{lock}", slots::tag_of(slots::slot_of(&lock))),
        };
        Some(Self { lock, anchor: Some(anchor), are_declared: true })
    }

    /// The same keys, all of which are passed to scripts, as a cluster wants it: while it moves their slot to another server,
    /// it runs a script only where all keys are that the script was passed.
    #[must_use]
    pub fn declared(self) -> Self {
        Self { are_declared: true, ..self }
    }

    /// Whether scripts are passed all of them, and not the lock key alone.
    #[must_use]
    pub const fn are_declared(&self) -> bool {
        self.are_declared
    }

    /// Whether they are those of the strategy `plain`.
    #[must_use]
    pub const fn are_plain(&self) -> bool {
        self.anchor.is_some()
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

    /// The lock itself. It exists while one holds it alone, and ends with that lease: byte 1, the time of the grant in
    /// microseconds, its number, the value of the attempt, and who holds it. Numbers are doubles of 8 bytes, here
    /// and below. Any other client's `SET NX` on the key is excluded, and excludes. With the strategy `plain` it is the
    /// value of the attempt alone.
    #[must_use]
    pub fn lock(&self) -> &str {
        &self.lock
    }

    /// The head: byte 1; a byte each that is 1 when somebody may wait, read, or keep the lock closed by a lock delay; the
    /// newest token number that was given out; until when somebody looks on or an attempt counts as just undone, in
    /// microseconds. Earlier versions of this library kept a hash here, so they and this one refuse each other's names.
    ///
    /// On Redlock it is the counter alone, as digits, and the lock key is as with the strategy `queue`.
    ///
    /// With the strategy `plain` the *record*: byte 2; of the newest grant the number, the value of the attempt, and the time
    /// in microseconds; until when somebody waits and until when somebody looks on, in microseconds; and who was granted.
    #[must_use]
    pub fn token(&self) -> String {
        self.part("token")
    }

    /// Says for a few seconds that the attempt with this value was undone, should its acquisition arrive late.
    #[must_use]
    pub fn tombstone(&self, value: &str) -> String {
        self.part(&["undone:", value].concat())
    }

    /// The keys of the line of the lock, or of that of the semaphore.
    #[must_use]
    pub fn line(&self, is_semaphore: bool) -> LineKeys {
        let head = self.token();
        if is_semaphore {
            // Nobody holds a semaphore alone, and its permits keep their lock delays themselves: the first two never exist.
            let [lock, delay, queue, waiters, alive] = ["alone", "delay", "queue", "queue:waiters", "queue:alive"]
                .map(|part| self.part(&format!("permits:{part}")));
            let (members, notes) = (self.part("permits"), self.part("permitted"));
            return LineKeys { lock, head, delay, members, notes, queue, waiters, alive };
        }
        let [delay, queue, waiters, alive] =
            ["delay", "queue", "queue:waiters", "queue:alive"].map(|part| self.part(part));
        LineKeys {
            lock: self.lock.clone(),
            head,
            delay,
            members: self.readers(),
            notes: self.reading(),
            queue,
            waiters,
            alive,
        }
    }

    /// Those who read: a sorted set of the attempts' values, each with the time in milliseconds at which lease and lock delay
    /// end.
    #[must_use]
    pub fn readers(&self) -> String {
        self.part("readers")
    }

    /// A hash with a note on each reader: the number and the time (in microseconds) of its grant, its lock delay in
    /// milliseconds, 0, and who it is.
    #[must_use]
    pub fn reading(&self) -> String {
        self.part("reading")
    }

    /// The name whose holders are in a key, of which `rest` is what follows the prefix of the lock keys: that of a lock, of its
    /// readers, or of those who hold a permit.
    pub(super) fn name_of_holders(rest: &str) -> Option<&str> {
        ["}", "}:readers", "}:permits"].iter().find_map(|ending| rest.strip_suffix(ending))
    }

    /// The channel on which each grant and each release is published while somebody looks on.
    #[must_use]
    pub fn changes(&self) -> String {
        self.part("changed")
    }

    /// The channel on which a release is published with the strategy `plain` while somebody waits.
    #[must_use]
    pub fn releases(&self) -> String {
        self.part("released")
    }

    fn part(&self, part: &str) -> String {
        match &self.anchor {
            None => [&self.lock, ":", part].concat(),
            Some(anchor) => [Self::RESERVED, part, ":", anchor].concat(),
        }
    }
}

/// The keys of a line: that of a lock or of a semaphore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineKeys {
    /// See [`Keys::lock`].
    pub lock: String,
    /// See [`Keys::token`].
    pub head: String,
    /// The value of a holder that asked for a lock delay, until that delay would be over.
    pub delay: String,
    /// See [`Keys::readers`]. For permits the same.
    pub members: String,
    /// See [`Keys::reading`]. For permits with the number of permits in the place of the 0.
    pub notes: String,
    /// Those who wait: a sorted set of their values by their places.
    pub queue: String,
    /// A hash of what a grant to each of them looks like: `w`, `r` or `p`; six numbers: the milliseconds of a claim and of its
    /// lock delay, its proposal, since when it waits (in microseconds), the number of permits, and the length of the channel
    /// of its client; that channel; who it is.
    pub waiters: String,
    /// A sorted set of their values by until when each counts as alive, in microseconds.
    pub alive: String,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash_tag(key: &str) -> &str {
        let after = &key[key.find('{').unwrap() + 1..];
        &after[..after.find('}').unwrap()]
    }

    fn all(prefix: &str, name: &LockName) -> Vec<String> {
        let keys = Keys::new(prefix, name);
        let mut all = vec![keys.token(), keys.tombstone("0a1b"), keys.changes()];
        for LineKeys { lock, head: _, delay, members, notes, queue, waiters, alive } in
            [keys.line(false), keys.line(true)]
        {
            all.extend([lock, delay, members, notes, queue, waiters, alive]);
        }
        all
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
        fn two_names_never_share_a_key(a in "[a{}:]{1,4}(:token|:undone:0a1b|:queue|:readers)?", b in "[a{}:]{1,4}(:token)?") {
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

    /// The keys of a name without a prefix, with the strategy `plain`; none when it is refused.
    fn all_plain(name: &str) -> Vec<String> {
        let Some(keys) = Keys::plain("", &LockName::new(name).unwrap()) else { return Vec::new() };
        vec![
            keys.lock().to_owned(),
            keys.token(),
            keys.tombstone("0a1b"),
            keys.tombstone("0a"),
            keys.changes(),
            keys.releases(),
        ]
    }

    /// Names in which braces, and what the other keys begin and end with, come together in all ways.
    fn odd_name() -> impl Strategy<Value = String> {
        let part = prop_oneof![
            Just("{"),
            Just("}"),
            Just("a"),
            Just(":"),
            Just("="),
            Just("1"),
            Just("ä"),
            Just("lock-plain:"),
            Just("token:"),
            Just("undone:0a:"),
        ];
        proptest::collection::vec(part, 1..6).prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn all_keys_of_a_plain_lock_are_in_one_slot(name in prop_oneof![odd_name(), "\\PC{1,12}"]) {
            let keys = all_plain(&name);
            prop_assert!(keys.iter().all(|key| slots::slot_of(key) == slots::slot_of(&name)), "{keys:?}");
        }

        #[test]
        fn two_plain_locks_never_share_a_key(a in odd_name(), b in odd_name()) {
            let (all, others) = (all_plain(&a), all_plain(&b));
            let distinct: std::collections::HashSet<_> = all.iter().collect();
            prop_assert_eq!(distinct.len(), all.len());
            prop_assert_eq!(all.iter().any(|key| others.contains(key)), a == b && !all.is_empty());
        }

        #[test]
        fn a_plain_lock_beside_one_with_a_queue_shares_no_key_but_by_its_own_name(a in odd_name(), b in odd_name()) {
            let queue = all("lock", &LockName::new(a).unwrap());
            prop_assert!(!all_plain(&b).iter().skip(1).any(|key| queue.contains(key)));
        }
    }

    #[test]
    fn a_plain_lock_key_is_the_prefix_and_the_name() {
        let name = |name| LockName::new(name).unwrap();
        let keys = Keys::plain("lock", &name("a")).unwrap();
        assert_eq!((keys.lock(), keys.token().as_str()), ("lock:a", "lock-plain:token:{lock:a}"));
        let keys = Keys::plain("", &name("{x}a")).unwrap();
        assert_eq!((keys.lock(), keys.token().as_str()), ("{x}a", "lock-plain:token:={x}a"));
        assert_eq!(Keys::plain("", &name("lock-plain:a")), None);
        assert_eq!(Keys::plain("lock-plain", &name("a")), None);
        assert!(Keys::plain("lock", &name("lock-plain:a")).is_some() && Keys::plain("", &name("lock-plain")).is_some());
    }

    #[test]
    fn a_prefix_with_a_colon_or_a_brace_is_refused() {
        assert!(Keys::is_prefix("app.locks-1/x_y"));
        for prefix in ["", "a:b", "a{", "}", "ä", &"x".repeat(65)] {
            assert!(!Keys::is_prefix(prefix), "{prefix:?}");
        }
    }
}
