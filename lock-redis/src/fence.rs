//! A fence in Redis: values that are written only with a fencing token that is not lower than the highest so far.
//!
//! It guards data *in* Redis, by whatever lock it is protected, and needs none of this crate's locks. Value and token are two
//! keys that one [script](SCRIPT) writes together. A write that goes past it is not checked, so a fenced value is written in
//! this way only.
//!
//! # Which client
//! [`FencedKey::set`] and [`FencedKey::delete`] take a connection of the crate `redis` in the version that this crate is built
//! with, 1.x, which is re-exported as [`redis`]. Nothing depends on that version, or on that crate: [`FencedKey::set_call`] and
//! [`FencedKey::delete_call`] give the same as values, to be run by whatever client the program has, one that blocks included:
//!
//! ```
//! use lock_core::FencingToken;
//! use lock_redis::fence::{FenceError, FencedKey, ScriptCall};
//!
//! /// The program's own client: `EVAL script 2 KEY KEY ARGUMENT...`, and its answer, nil or a string.
//! fn eval(call: &ScriptCall) -> Option<Vec<u8>> {
//!     assert_eq!(call.keys, ["report", "{report}:fence"]);
//!     assert_eq!(call.arguments.len(), 2); // the token, the value
//!     Some(b"0000000000-00000000000000000034".to_vec())
//! }
//!
//! let key = FencedKey::new("report");
//! let call = key.set_call(FencingToken { era: 0, number: 33 }, "all is well");
//! let refused = call.outcome(eval(&call).as_deref()).unwrap_err();
//! assert!(matches!(refused, FenceError::Stale(stale) if stale.highest.number == 34));
//! ```
//!
//! # What this does not guarantee
//! The fence is as durable as the server. Where the server forgets the token (a restart without persistence, a failover
//! before it was replicated, an eviction: let `maxmemory-policy` spare keys without expiry) an old holder is let in again.

use std::{fmt, sync::LazyLock};

use lock_core::{FencingToken, StaleToken};
pub use redis;
use redis::{RedisError, Script, aio::ConnectionLike};

use crate::cluster::slots;

/// The script, for clients in any language: `EVAL script 2 VALUE-KEY TOKEN-KEY TOKEN VALUE`, with the token in its text form
/// of 31 characters or as an integer ([`FencingToken::to_i64`]; all clients of a key need not agree); without `VALUE` the value
/// is deleted. It answers nil when it was done, and the highest token so far, in its text form, when it was not. In a cluster
/// both keys must be in one slot.
pub const SCRIPT: &str = include_str!("fence.lua");

static FENCE: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));

/// A value in Redis behind a fence.
///
/// ```no_run
/// # async fn example(token: lock_core::FencingToken) -> Result<(), Box<dyn std::error::Error>> {
/// use lock_redis::fence::{FenceError, FencedKey, redis};
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

/// A fenced write as values: [`SCRIPT`] with what it is given, for any client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ScriptCall<'a> {
    /// The key of the value and that of the token, in this order.
    pub keys: [&'a str; 2],
    /// The token and, unless the value is to be deleted, the value.
    pub arguments: Vec<Vec<u8>>,
    given: FencingToken,
}

/// Why a fenced write was not done, or is not known to be done.
#[derive(Debug)]
#[non_exhaustive]
pub enum FenceError {
    /// A write with a higher token came before. Nothing was written.
    Stale(StaleToken),
    /// Redis refused it, or gave no answer. Without an answer it may have been done; it may be repeated with the same token.
    Redis(RedisError),
    /// What answered was not the script of a fence. Whether it was done is not known.
    Answer {
        /// The answer.
        answer: String,
    },
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
        self.set_call(token, value).send(connection).await
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
        self.delete_call(token).send(connection).await
    }

    /// What [`FencedKey::set`] sends, for another client.
    #[must_use]
    pub fn set_call(&self, token: FencingToken, value: impl AsRef<[u8]>) -> ScriptCall<'_> {
        self.call(token, Some(value.as_ref()))
    }

    /// What [`FencedKey::delete`] sends, for another client.
    #[must_use]
    pub fn delete_call(&self, token: FencingToken) -> ScriptCall<'_> {
        self.call(token, None)
    }

    fn call(&self, given: FencingToken, value: Option<&[u8]>) -> ScriptCall<'_> {
        let token = given.to_string().into_bytes();
        let arguments = std::iter::once(token).chain(value.map(<[u8]>::to_vec)).collect();
        ScriptCall { keys: [&self.value, &self.token], arguments, given }
    }
}

impl ScriptCall<'_> {
    /// What the script's answer means: `None` is nil.
    ///
    /// # Errors
    /// [`FenceError::Stale`] when the token is lower than the highest so far, [`FenceError::Answer`].
    pub fn outcome(&self, answer: Option<&[u8]>) -> Result<(), FenceError> {
        let Some(answer) = answer.map(String::from_utf8_lossy) else { return Ok(()) };
        match answer.parse() {
            Ok(highest) => Err(FenceError::Stale(StaleToken::new(self.keys[0], self.given, highest))),
            Err(_) => Err(FenceError::Answer { answer: answer.into_owned() }),
        }
    }

    async fn send<C: ConnectionLike + Send>(&self, connection: &mut C) -> Result<(), FenceError> {
        let mut call = FENCE.prepare_invoke();
        for key in self.keys {
            call.key(key);
        }
        for argument in &self.arguments {
            call.arg(argument);
        }
        let answer: Option<Vec<u8>> = call.invoke_async(connection).await?;
        self.outcome(answer.as_deref())
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
            Self::Answer { answer } => {
                write!(f, "a fenced write to Redis was answered by something else than its script: {answer:?}")
            }
        }
    }
}

impl std::error::Error for FenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Stale(stale) => Some(stale),
            Self::Redis(error) => Some(error),
            Self::Answer { .. } => None,
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

    #[test]
    fn a_call_has_the_keys_and_arguments_of_the_script_and_reads_its_answer() {
        let token = FencingToken { era: 1, number: 42 };
        let key = FencedKey::new("a");
        let (set, delete) = (key.set_call(token, [0, 255]), key.delete_call(token));
        assert_eq!((set.keys, delete.keys), (["a", "{a}:fence"], ["a", "{a}:fence"]));
        let text = b"0000000001-00000000000000000042".to_vec();
        assert_eq!(
            (set.arguments.as_slice(), delete.arguments.as_slice()),
            (&[text.clone(), vec![0, 255]][..], &[text.clone()][..])
        );
        assert!(set.outcome(None).is_ok());
        assert!(matches!(set.outcome(Some(&text)), Err(FenceError::Stale(stale)) if stale.highest == token));
        assert!(matches!(set.outcome(Some(b"OK")), Err(FenceError::Answer { answer }) if answer == "OK"));
    }

    proptest::proptest! {
        #[test]
        fn value_and_token_are_in_one_slot_wherever_the_braces_are(key in "[{}a:]{0,8}|\\PC{0,8}") {
            let fenced = FencedKey::new(key.as_str());
            proptest::prop_assert_eq!(slots::slot_of(&key), slots::slot_of(fenced.token_key()), "{:?}", fenced);
        }
    }
}
