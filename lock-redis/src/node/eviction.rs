//! Servers that delete keys when they are short of memory: a lock, a quarantine, a tombstone may be among them.

use std::fmt;

/// The settings of a server that may delete locks: it has a limit for its memory, and a policy by which it makes room.
///
/// Every key of a lock has an expiry, so `volatile-*` deletes them as `allkeys-*` does. With `noeviction` writes are refused
/// instead, which is an error for whoever wants a lock and no danger for those who hold one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Eviction {
    /// `maxmemory`, in bytes; not 0, which is no limit.
    pub maxmemory: u64,
    /// `maxmemory-policy`; not `noeviction`.
    pub policy: String,
}

impl Eviction {
    /// What a server is asked for this.
    pub(super) fn question() -> redis::Cmd {
        let mut question = redis::cmd("INFO");
        question.arg("memory");
        question
    }

    /// Reads the text of `INFO memory`. `None` when nothing is evicted by what it says, or when it does not say.
    #[must_use]
    pub fn of(info: &str) -> Option<Self> {
        let field = |name: &str| {
            let lines = info.lines().filter_map(|line| line.trim_end().split_once(':'));
            lines.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let maxmemory = field("maxmemory")?.parse().ok().filter(|limit| *limit > 0)?;
        // Safeguard: a server that deletes locks is refused (Redis, Redlock)
        let policy = field("maxmemory_policy").filter(|policy| *policy != "noeviction")?;
        Some(Self { maxmemory, policy: policy.to_owned() })
    }

    /// The setting that is wrong, what it is, and what is allowed.
    #[must_use]
    pub fn into_error(self, server: &str) -> lock_core::Error {
        lock_core::Error::config("maxmemory-policy", format!("{self} at {server}"), "noeviction, or maxmemory 0")
    }
}

impl fmt::Display for Eviction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with maxmemory {}", self.policy, self.maxmemory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(maxmemory: &str, policy: &str) -> String {
        format!(
            "# Memory\r\nused_memory:1\r\nmaxmemory:{maxmemory}\r\nmaxmemory_human:x\r\nmaxmemory_policy:{policy}\r\n"
        )
    }

    #[test]
    fn a_policy_counts_where_there_is_a_limit() {
        for policy in ["volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl", "allkeys-lru", "allkeys-lfu"]
        {
            let found = Eviction::of(&info("1000", policy)).unwrap();
            assert_eq!((found.maxmemory, found.policy.as_str()), (1_000, policy));
            assert_eq!(Eviction::of(&info("0", policy)), None);
        }
        assert_eq!(Eviction::of(&info("1000", "noeviction")), None);
    }

    #[test]
    fn a_server_that_does_not_say_is_not_refused() {
        for text in ["", "maxmemory:5", "maxmemory_policy:allkeys-lru", &info("x", "allkeys-lru")] {
            assert_eq!(Eviction::of(text), None, "{text:?}");
        }
    }
}
