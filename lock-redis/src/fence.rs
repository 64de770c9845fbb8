//! A fence in Redis: values that are written only with a fencing token that is not lower than the highest so far.
//!
//! It guards data *in* Redis, by whatever lock it is protected, and needs none of this crate's locks. Value and token are two
//! keys that one [script](SCRIPT) writes together. A write that goes past it is not checked, so a fenced value is written in
//! this way only.
//!
//! # What this does not guarantee
//! The fence is as durable as the server. Where the server forgets the token (a restart without persistence, a failover
//! before it was replicated, an eviction: let `maxmemory-policy` spare keys without expiry) an old holder is let in again.

use std::{fmt, sync::LazyLock};

use lock_core::{FencingToken, StaleToken};
use redis::{RedisError, Script, aio::ConnectionLike};

use crate::cluster::slots;

/// The script, for clients in any language: `EVAL script 2 VALUE-KEY TOKEN-KEY TOKEN VALUE`, with the token in its text form
/// of 31 characters; without `VALUE` the value is deleted. It answers nil when it was done, and the highest token so far when
/// it was not. In a cluster both keys must be in one slot.
pub const SCRIPT: &str = include_str!("fence.lua");

static FENCE: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));

/// A value in Redis behind a fence.
///
/// ```no_run
/// # async fn example(token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// use lock_redis::fence::{FenceError, FencedKey};
///
/// let mut connection = redis::Client::open("redis://127.0.0.1/")?.get_multiplexed_async_connection().await?;
/// match FencedKey::new("report").set(&mut connection, token, "all is well").await {
///     Ok(()) => {}
///     Err(FenceError::Stale(stale)) => println!("another holder has written since: {stale}"),
///     Err(other) => return Err(other.into()),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FencedKey {
    value: String,
    token: String,
}

/// Why a fenced write was not done, or is not known to be done.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A write with a higher token came before. Nothing was written.
    Stale(StaleToken),
    /// Redis refused it, or gave no answer. Without an answer it may have been done; it may be repeated with the same token.
    Redis(RedisError),
}

impl FencedKey {
    /// The value of that key, with its token beside it, in a key of the same slot.
    #[must_use]
    pub fn new(key: impl Into<String>) -> Self {
        let value = key.into();
        let token = match slots::hash_tag(&value) {
            Some(_) => format!("{value}:fence"),
            // A closing brace in it would end the tag.
            // Safeguard: a fence has its token in the slot of its value (Redis)
            None if !value.is_empty() && !value.contains('}') => format!("{{{value}}}:fence"),
            None => format!("{{{}}}:{value}:fence", slots::tag_of(slots::slot_of(&value))),
        };
        Self { value, token }
    }

    /// Keeps the token in another key: several values may share one, and with it one fence.
    #[must_use]
    pub fn with_token_key(mut self, key: impl Into<String>) -> Self {
        self.token = key.into();
        self
    }

    /// The key of the value. It is a plain string: read it with `GET`.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.value
    }

    /// The key of the highest token so far, in its text form.
    #[must_use]
    pub fn token_key(&self) -> &str {
        &self.token
    }

    /// Sets the value, if `token` is not lower than the highest so far: one command, one step.
    ///
    /// # Errors
    /// [`FenceError::Stale`] when the token is lower, [`FenceError::Redis`].
    ///
    /// # Cancel safety
    /// When the future is dropped, the value may be written or not.
    ///
    /// # Unknown outcomes
    /// After [`FenceError::Redis`] without an answer the value may be written. The same write may be repeated.
    pub async fn set<C: ConnectionLike + Send>(
        &self,
        connection: &mut C,
        token: FencingToken,
        value: impl AsRef<[u8]> + Send,
    ) -> Result<(), FenceError> {
        self.write(connection, token, Some(value.as_ref())).await
    }

    /// Deletes the value, if `token` is not lower than the highest so far. The token stays, and keeps out earlier holders.
    ///
    /// # Errors
    /// As those of [`FencedKey::set`].
    ///
    /// # Cancel safety
    /// As that of [`FencedKey::set`].
    ///
    /// # Unknown outcomes
    /// As those of [`FencedKey::set`].
    pub async fn delete<C: ConnectionLike + Send>(
        &self,
        connection: &mut C,
        token: FencingToken,
    ) -> Result<(), FenceError> {
        self.write(connection, token, None).await
    }

    async fn write<C: ConnectionLike + Send>(
        &self,
        connection: &mut C,
        given: FencingToken,
        value: Option<&[u8]>,
    ) -> Result<(), FenceError> {
        let mut call = FENCE.prepare_invoke();
        call.key(&self.value).key(&self.token).arg(given.to_string());
        if let Some(value) = value {
            call.arg(value);
        }
        let Some(highest) = call.invoke_async::<Option<String>>(connection).await? else { return Ok(()) };
        match highest.parse() {
            Ok(highest) => Err(FenceError::Stale(StaleToken::new(&self.value, given, highest))),
            Err(_) => {
                let what = (redis::ErrorKind::UnexpectedReturnType, "the fence answered no token");
                Err(FenceError::Redis(what.into()))
            }
        }
    }
}

impl From<RedisError> for FenceError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stale(stale) => stale.fmt(f),
            Self::Redis(error) => write!(f, "a fenced write to Redis failed: {error}"),
        }
    }
}

impl std::error::Error for FenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::Redis(error) => Some(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_and_token_are_in_one_slot() {
        for (key, token) in [("report", "{report}:fence"), ("a{b}c", "a{b}c:fence"), ("a{b", "{a{b}:fence")] {
            assert_eq!(FencedKey::new(key).token_key(), token);
        }
        for key in ["", "report", "a{b}c", "a{b", "a}b", "a{}b", "{}", "{", "}", "}{", "a{}{b}c", "{{}}", "a{b}{}c"] {
            let fenced = FencedKey::new(key);
            assert_eq!(slots::slot_of(key), slots::slot_of(fenced.token_key()), "{fenced:?}");
            assert_ne!(fenced.key(), fenced.token_key());
        }
        assert_eq!(FencedKey::new("a").with_token_key("b").token_key(), "b");
    }

    proptest::proptest! {
        #[test]
        fn value_and_token_are_in_one_slot_wherever_the_braces_are(key in "[{}a:]{0,8}|\\PC{0,8}") {
            let fenced = FencedKey::new(key.as_str());
            proptest::prop_assert_eq!(slots::slot_of(&key), slots::slot_of(fenced.token_key()), "{:?}", fenced);
        }
    }
}
