//! What of locks is left among the keys of a Redis server.

use std::{collections::HashSet, time::Duration};

use lock_core::LockName;
use lock_redis::keys::Keys;
use redis::Pipeline;

/// What the keys of locks begin with by default.
pub(crate) const PREFIX: &str = "lock";

/// The longest that the note of an undone attempt may stay: it ends by itself and keeps nobody out.
const LONGEST_NOTE: Duration = Duration::from_secs(120);

/// For how long after its last member has ended a set of members stays.
const AFTER_MEMBERS: Duration = Duration::from_secs(1);

/// What `PTTL` answers about a key that is not there, or not any more.
const KEY_IS_GONE: i64 = -2;

/// What the keys of the records begin with, with the strategy `plain`.
const PLAIN_TOKEN: &str = "lock-plain:token:";

/// The keys of a lock, with the strategy `plain` or with that of the queue.
pub(super) fn lock_keys(is_plain: bool, name: &LockName) -> Keys {
    let plain = is_plain.then(|| Keys::plain(PREFIX, name)).flatten();
    plain.unwrap_or_else(|| Keys::new(PREFIX, name))
}

/// Recognizes the keys of some locks among all keys of a Redis server, and those that must not be left.
#[derive(Debug)]
pub(super) struct LockKeys {
    /// By their lock keys, as `{prefix:name}`.
    locks: HashSet<String>,
    /// What the keys beside them end with, where the strategy is `plain`.
    anchors: HashSet<String>,
    /// Whether sets whose members have all ended may stay.
    has_died: bool,
}

impl LockKeys {
    /// Those of these locks. `has_died`: somebody may have died, so sets of members may stay for the moment that they do
    /// after the last of them has ended.
    pub(super) fn of(is_plain: bool, names: &[LockName], has_died: bool) -> Self {
        let keys: Vec<_> = names.iter().map(|name| lock_keys(is_plain, name)).collect();
        let anchor = |keys: &Keys| keys.token().strip_prefix(PLAIN_TOKEN).map(str::to_owned);
        Self {
            locks: keys.iter().map(|keys| keys.lock().to_owned()).collect(),
            anchors: keys.iter().filter_map(anchor).collect(),
            has_died,
        }
    }

    /// A pattern for `KEYS` that matches all of them.
    pub(super) fn pattern(&self) -> String {
        if !self.anchors.is_empty() {
            // What the lock keys and those beside them have in common.
            return format!("{PREFIX}*");
        }
        let mut locks = self.locks.iter();
        let mut common = locks.next().cloned().unwrap_or_default();
        for lock in locks {
            let same = common.chars().zip(lock.chars()).take_while(|(one, other)| one == other);
            let length = same.map(|(c, _)| c.len_utf8()).sum();
            common.truncate(length);
        }
        let mut pattern = String::with_capacity(common.len() + 1);
        for c in common.chars() {
            if r"*?[]^-\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "*"
    }

    /// What the server is to be asked about keys that match, all at once: a look that takes long says little about when it
    /// was true.
    pub(super) fn times(keys: &[String]) -> Pipeline {
        let mut looks = redis::pipe();
        for key in keys {
            looks.cmd("PTTL").arg(key);
        }
        looks
    }

    /// Of keys that match, each with what [`LockKeys::times`] brought, those that are left behind, in words.
    pub(super) fn left(&self, found: impl IntoIterator<Item = (String, i64)>) -> Vec<String> {
        let is_left = |(key, ttl): &(String, i64)| {
            *ttl != KEY_IS_GONE && self.part(key).is_some_and(|part| !self.may_stay(part, *ttl))
        };
        let words = |(key, ttl): (String, i64)| match ttl {
            0.. => format!("the key {key} (for another {ttl} ms)"),
            _ => format!("the key {key} (for ever)"),
        };
        found.into_iter().filter(is_left).map(words).collect()
    }

    /// What a key adds to its lock key; `None` when it is another lock's. The lock key ends with a brace, and what it is
    /// added to has none.
    fn part<'key>(&self, key: &'key str) -> Option<&'key str> {
        if !self.anchors.is_empty() {
            return self.plain_part(key);
        }
        let (lock, part) = key.split_at(key.rfind('}')? + 1);
        (self.locks.contains(lock) && (part.is_empty() || part.starts_with(':'))).then_some(part)
    }

    /// The same with the strategy `plain`, with a colon in front as there.
    fn plain_part<'key>(&self, key: &'key str) -> Option<&'key str> {
        let Some(rest) = key.strip_prefix(Keys::RESERVED) else { return self.locks.contains(key).then_some("") };
        // With the colon before it.
        let part = &key[Keys::RESERVED.len() - 1..];
        let (first, anchor) = rest.split_once(':')?;
        let anchor = if first == "undone" { anchor.split_once(':')?.1 } else { anchor };
        self.anchors.contains(anchor).then(|| &part[..part.len() - anchor.len() - 1])
    }

    /// Whether a key that adds `part` to its lock key, and goes in `ttl` ms, may be there without anybody who holds or
    /// waits: the counter behind the token goes when the clock has passed it, the note of an undone attempt goes soon. None
    /// of them is without an end.
    fn may_stay(&self, part: &str, ttl: i64) -> bool {
        let ends_within = |limit: Duration| u64::try_from(ttl).is_ok_and(|ttl| Duration::from_millis(ttl) <= limit);
        match part {
            ":token" => ttl >= 0,
            ":readers" | ":reading" | ":permits" | ":permitted" | ":writers" | ":writing" => {
                self.has_died && ends_within(AFTER_MEMBERS)
            }
            note => note.starts_with(":undone:") && ends_within(LONGEST_NOTE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn keys(names: &[&str], has_died: bool) -> LockKeys {
        let names: Vec<_> = names.iter().map(|name| LockName::new(*name).unwrap()).collect();
        LockKeys::of(false, &names, has_died)
    }

    #[test]
    fn keys_beside_a_plain_lock_are_told_from_those_of_others() {
        let names = ["a", "{b}c"].map(|name| LockName::new(name).unwrap());
        let keys = LockKeys::of(true, &names, true);
        assert_eq!(keys.pattern(), "lock*");
        let stays =
            ["lock-plain:token:{lock:a}", "lock-plain:undone:0a1b:=lock:{b}c", "lock-plain:token:{lock:d}", "lock:d"];
        assert!(keys.left(stays.map(|key| (key.to_owned(), 5_000))).is_empty());
        for left in ["lock:a", "lock:{b}c", "lock-plain:other:{lock:a}"] {
            assert_eq!(keys.left([(left.to_owned(), 7)]), [format!("the key {left} (for another 7 ms)")]);
        }
        assert_eq!(keys.left([("lock-plain:token:{lock:a}".to_owned(), -1)]).len(), 1);
    }

    fn left(parts: &[(&str, i64)]) -> Vec<String> {
        keys(&["a"], true).left(parts.iter().map(|(part, ttl)| (format!("{{lock:a}}{part}"), *ttl)))
    }

    #[test]
    fn a_lock_key_a_place_in_line_and_a_note_of_one_who_waits_are_left_behind() {
        for part in
            ["", ":queue", ":queue:alive", ":permits:queue", ":waiters", ":waiting", ":reserved", ":delay", ":anything"]
        {
            assert_eq!(left(&[(part, 10)]), [format!("the key {{lock:a}}{part} (for another 10 ms)")]);
        }
        for part in [":readers", ":permits", ":writers"] {
            assert_eq!(left(&[(part, 1_001)]).len(), 1, "{part}: its last member has not ended");
        }
    }

    #[test]
    fn a_counter_a_tombstone_and_members_that_have_ended_are_not() {
        assert!(left(&[(":token", DAY), (":undone:0a1b", 5_000), (":undone:w@12", 1), (":writing", 999)]).is_empty());
    }

    #[test]
    fn where_nobody_has_died_no_members_stay_either() {
        for part in [":readers", ":reading", ":permits", ":permitted", ":writers", ":writing"] {
            assert_eq!(keys(&["a"], false).left([(format!("{{lock:a}}{part}"), 1)]).len(), 1, "{part}");
        }
    }

    #[test]
    fn nothing_may_stay_for_ever() {
        let all = [(":token", -1), (":undone:0a1b", -1), (":readers", -1), ("", -1)];
        assert_eq!(left(&all).len(), all.len());
        assert!(left(&[("", -1)])[0].ends_with("(for ever)"));
        assert_eq!(left(&[(":undone:0a1b", DAY)]).len(), 1);
    }

    #[test]
    fn a_key_that_went_between_two_questions_is_gone() {
        assert!(left(&[("", KEY_IS_GONE)]).is_empty());
    }

    #[test]
    fn keys_of_other_locks_whose_names_begin_alike_are_not_counted() {
        assert!(left(&[(":b}", 10), ("b}:token", -1), (":}", 10)]).is_empty());
        let some = keys(&["b1-2.p7", "b1-2.p8"], true);
        let found = ["{lock:b1-2.p7}", "{lock:b1-2.p7}:token", "{lock:b1-2.p9}"].map(|key| (key.to_owned(), DAY));
        assert_eq!(some.left(found), ["the key {lock:b1-2.p7} (for another 86400000 ms)"]);
    }

    #[test]
    fn a_pattern_matches_what_the_lock_keys_have_in_common() {
        assert_eq!(keys(&["a*[x]-y"], true).pattern(), r"{lock:a\*\[x\]\-y}*");
        assert_eq!(keys(&["b.p7", "b.p81", "b.q"], true).pattern(), "{lock:b.*");
        assert_eq!(keys(&["ä", "é"], true).pattern(), "{lock:*");
    }
}
