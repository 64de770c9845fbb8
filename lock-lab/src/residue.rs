//! What is left of locks on servers where nobody should hold or wait any more, read past the backends, by the format that
//! docs/protocols.md describes.
//!
//! Some things are meant to stay, and are told apart here: the counter behind the fencing token, the note of an undone
//! attempt, the directory of a lock. They keep nobody out, and go by themselves.

use std::time::Duration;

use lock_core::LockName;
use redis::{Pipeline, RedisResult, aio::MultiplexedConnection};
use zookeeper_client::{Client, Error};

/// The longest that the note of an undone attempt may stay: it ends by itself and keeps nobody out.
const LONGEST_NOTE: Duration = Duration::from_secs(120);

/// For how long after its last member has ended a set of members stays.
const AFTER_MEMBERS: Duration = Duration::from_secs(1);

/// What `PTTL` answers about a key that is not there, or not any more.
const KEY_IS_GONE: i64 = -2;

/// Keys of one lock, or of several, on a server of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisKeys {
    beginning: String,
    /// Whether the beginning is the whole lock key.
    is_one_lock: bool,
    /// Whether sets whose members have all ended may stay.
    ended_members: bool,
}

impl RedisKeys {
    /// Those of one lock, by its lock key, as `{prefix:name}`.
    #[must_use]
    pub fn of_lock(lock_key: impl Into<String>) -> Self {
        Self { beginning: lock_key.into(), is_one_lock: true, ended_members: false }
    }

    /// Those of all locks whose lock keys begin so. Their names have no brace in them.
    #[must_use]
    pub fn beginning_with(beginning: impl Into<String>) -> Self {
        Self { beginning: beginning.into(), is_one_lock: false, ended_members: false }
    }

    /// Where somebody may have died: sets of members may stay for the moment that they do after the last of them has ended.
    #[must_use]
    pub const fn with_ended_members(mut self) -> Self {
        self.ended_members = true;
        self
    }

    /// A pattern for `KEYS` that matches all of them.
    #[must_use]
    pub fn pattern(&self) -> String {
        let mut pattern = String::with_capacity(self.beginning.len() + 1);
        for c in self.beginning.chars() {
            if r"*?[]^-\".contains(c) {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + "*"
    }

    /// What the server is to be asked about keys that match, all at once: a look that takes long says little about when it
    /// was true.
    #[must_use]
    pub fn times(keys: &[String]) -> Pipeline {
        let mut looks = redis::pipe();
        for key in keys {
            looks.cmd("PTTL").arg(key);
        }
        looks
    }

    /// Of keys that match, each with what [`RedisKeys::times`] brought, those that are left behind, in words.
    #[must_use]
    pub fn left(&self, found: impl IntoIterator<Item = (String, i64)>) -> Vec<String> {
        let is_left = |(key, ttl): &(String, i64)| {
            *ttl != KEY_IS_GONE && self.part(key).is_some_and(|part| !self.may_stay(part, *ttl))
        };
        let words = |(key, ttl): (String, i64)| match ttl {
            0.. => format!("the key {key} (for another {ttl} ms)"),
            _ => format!("the key {key} (for ever)"),
        };
        found.into_iter().filter(is_left).map(words).collect()
    }

    /// Those that are left behind on that server.
    ///
    /// # Errors
    /// The server's, and those of the connection.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn left_on(&self, node: &mut MultiplexedConnection) -> RedisResult<Vec<String>> {
        let keys: Vec<String> = redis::cmd("KEYS").arg(self.pattern()).query_async(node).await?;
        if keys.is_empty() {
            return Ok(keys);
        }
        let ttls: Vec<i64> = Self::times(&keys).query_async(node).await?;
        Ok(self.left(keys.into_iter().zip(ttls)))
    }

    /// What a key adds to its lock key; `None` when it is another lock's. The lock key ends with a brace, and what it is
    /// added to has none: names that begin alike and have a brace in them are told apart by it.
    fn part<'key>(&self, key: &'key str) -> Option<&'key str> {
        let part = if self.is_one_lock {
            key.strip_prefix(&self.beginning)?
        } else {
            key.rsplit_once('}').map_or("", |(_, part)| part)
        };
        (part.is_empty() || (part.starts_with(':') && !part.contains('}'))).then_some(part)
    }

    /// Whether a key that adds `part` to its lock key, and goes in `ttl` ms, may be there without anybody who holds or
    /// waits: the counter behind the token goes when the clock has passed it, the note of an undone attempt goes soon. None
    /// of them is without an end.
    fn may_stay(&self, part: &str, ttl: i64) -> bool {
        let ends_within = |limit: Duration| u64::try_from(ttl).is_ok_and(|ttl| Duration::from_millis(ttl) <= limit);
        match part {
            ":token" => ttl >= 0,
            ":readers" | ":reading" | ":permits" | ":permitted" | ":writers" | ":writing" => {
                self.ended_members && ends_within(AFTER_MEMBERS)
            }
            note => note.starts_with(":undone:") && ends_within(LONGEST_NOTE),
        }
    }
}

/// Where the locks are on ZooKeeper by default.
const ROOT: &str = "/locks";

/// What of contenders of these locks is left in an ensemble, as far as the server of that client knows: nodes in a lock's
/// directory. The directory itself stays until the servers reap it.
///
/// # Errors
/// Those of the client.
///
/// # Cancel safety
/// It only reads.
pub async fn contenders_left(client: &Client, names: &[LockName]) -> Result<Vec<String>, Error> {
    let paths = names.iter().map(|name| format!("{ROOT}/{}", name.to_component()));
    children_left(client, paths).await
}

/// What of sessions is left: their own nodes. A connection that was closed has none.
///
/// # Errors
/// Those of the client.
///
/// # Cancel safety
/// It only reads.
pub async fn sessions_left(client: &Client) -> Result<Vec<String>, Error> {
    children_left(client, [format!("{ROOT}/.sessions")]).await
}

/// The same as [`contenders_left`] with the strategy `herd`, where the lock's path is the holder's node.
///
/// # Errors
/// Those of the client.
///
/// # Cancel safety
/// It only reads.
pub async fn herd_left(client: &Client, names: &[LockName]) -> Result<Vec<String>, Error> {
    let paths = names.iter().map(|name| format!("{ROOT}/{}", name.to_component()));
    // Requests go out when they are made: all are on their way before the first is awaited.
    let looks: Vec<_> = paths.map(|path| (client.check_stat(&path), path)).collect();
    let mut left = Vec::new();
    for (stat, path) in looks {
        left.extend(stat.await?.map(|_| format!("the node {path}")));
    }
    Ok(left)
}

async fn children_left(client: &Client, paths: impl IntoIterator<Item = String>) -> Result<Vec<String>, Error> {
    let looks: Vec<_> = paths.into_iter().map(|path| (client.list_children(&path), path)).collect();
    let mut left = Vec::new();
    for (children, path) in looks {
        match children.await {
            Ok(children) => left.extend(children.into_iter().map(|child| format!("the node {path}/{child}"))),
            Err(Error::NoNode) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400_000;

    fn left(keys: &[(&str, i64)]) -> Vec<String> {
        let found = keys.iter().map(|(part, ttl)| (format!("{{lock:a}}{part}"), *ttl));
        RedisKeys::of_lock("{lock:a}").with_ended_members().left(found)
    }

    #[test]
    fn a_lock_key_a_place_in_line_and_a_note_of_one_who_waits_are_left_behind() {
        for part in ["", ":queue", ":queue:fresh", ":waiters", ":waiting", ":reserved", ":delay", ":anything"] {
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
            let found = [(format!("{{lock:a}}{part}"), 1)];
            assert_eq!(RedisKeys::of_lock("{lock:a}").left(found.clone()).len(), 1, "{part}");
            assert_eq!(RedisKeys::beginning_with("{lock:").left(found).len(), 1, "{part}");
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
        let some = RedisKeys::beginning_with("{lock:b1-2.");
        assert_eq!(some.left([("{lock:b1-2.p7}".to_owned(), 10), ("{lock:b1-2.p7}:token".to_owned(), DAY)]).len(), 1);
    }

    #[test]
    fn a_pattern_matches_only_what_begins_so() {
        assert_eq!(RedisKeys::of_lock("{lock:a*[x]-y}").pattern(), r"{lock:a\*\[x\]\-y}*");
    }
}
