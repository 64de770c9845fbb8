//! The scripts of one lock on one server, as calls with typed answers.

use std::time::Duration;

use redis::Value;

use crate::{
    keys::Keys,
    node::{NodeError, Script, ScriptCall},
};

static ACQUIRE: Script = Script::new(include_str!("scripts/acquire.lua"));
static RENEW: Script = Script::new(include_str!("scripts/renew.lua"));
static RELEASE: Script = Script::new(include_str!("scripts/release.lua"));
static INSPECT: Script = Script::new(include_str!("scripts/inspect.lua"));

/// How long an undo that found nothing is remembered, should its acquisition still be on its way.
pub const TOMBSTONE: Duration = Duration::from_secs(5);

/// One attempt to acquire: its keys, and the value that tells it from all others.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The keys of the lock name.
    pub keys: Keys,
    /// The unique value that is written into the lock key.
    pub value: String,
}

/// What `acquire.lua` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// This attempt holds the lock, with this token number.
    Granted(u64),
    /// Somebody else holds it, for this long unless it is renewed; `None` where it has no expiry.
    Held(Option<Duration>),
    /// This attempt was undone before.
    Undone,
}

impl Attempt {
    /// A new attempt on the lock of `keys`.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self { keys, value: uuid::Uuid::new_v4().simple().to_string() }
    }

    /// Takes the lock for `ttl`, or says how long its holder still has it. `proposal` is a lower bound of the token
    /// number; see [`token`](crate::token). May be sent again: the same attempt is granted once.
    #[must_use]
    pub fn acquire(&self, ttl: Duration, proposal: u64, payload: &[u8]) -> ScriptCall {
        ScriptCall::new(&ACQUIRE)
            .key(self.keys.lock())
            .key(self.keys.token())
            .key(self.keys.tombstone(&self.value))
            .arg(self.value.as_str())
            .number(ttl.as_millis())
            .number(proposal)
            .arg(payload)
    }

    /// Extends the lease to `ttl` from now, if this attempt holds the lock; with `number` given, only if it holds it by
    /// the grant with that token number. May be sent again.
    #[must_use]
    pub fn renew(&self, ttl: Duration, number: Option<u64>) -> ScriptCall {
        let call = ScriptCall::new(&RENEW)
            .key(self.keys.lock())
            .key(self.keys.token())
            .arg(self.value.as_str())
            .number(ttl.as_millis());
        match number {
            Some(number) => call.number(number),
            None => call,
        }
    }

    /// Gives the lock back, if this attempt holds it, and wakes those who wait. May be sent again.
    #[must_use]
    pub fn release(&self) -> ScriptCall {
        self.give_back(Duration::ZERO)
    }

    /// Gives the lock back, if this attempt holds it; if it does not, keeps it from taking the lock should its
    /// acquisition arrive later. For acquisitions of unknown outcome, on another connection than theirs: on the same one
    /// [`Attempt::release`] will do, because nothing overtakes there.
    #[must_use]
    pub fn undo(&self) -> ScriptCall {
        self.give_back(TOMBSTONE)
    }

    fn give_back(&self, tombstone: Duration) -> ScriptCall {
        ScriptCall::new(&RELEASE)
            .key(self.keys.lock())
            .key(self.keys.token())
            .key(self.keys.tombstone(&self.value))
            .arg(self.value.as_str())
            .arg(self.keys.channel())
            .number(tombstone.as_millis())
    }
}

/// Reads the answer to [`Attempt::acquire`].
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn acquired(answer: &Value) -> Result<Acquired, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    match (parts.first().and_then(text), parts.get(1)) {
        (Some("granted"), Some(number)) => {
            text(number).and_then(|number| number.parse().ok()).map(Acquired::Granted).ok_or_else(nonsense)
        }
        (Some("held"), Some(Value::Int(left))) => Ok(Acquired::Held(remaining(*left))),
        (Some("undone"), None) => Ok(Acquired::Undone),
        _ => Err(nonsense()),
    }
}

/// Reads the answer to [`Attempt::renew`], [`Attempt::release`] or [`Attempt::undo`]: whether the attempt held the lock.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn held(answer: &Value) -> Result<bool, NodeError> {
    released(answer).map(|listeners| listeners.is_some())
}

/// Reads the answer to [`Attempt::release`]: how many were listening, or `None` when the attempt did not hold the lock.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn released(answer: &Value) -> Result<Option<u64>, NodeError> {
    match answer {
        Value::Int(0) => Ok(None),
        Value::Int(more) => u64::try_from(more - 1).map(Some).map_err(|_| NodeError::nonsense(answer)),
        other => Err(NodeError::nonsense(other)),
    }
}

/// Who holds a lock, as one server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// The value in the lock key; for a key of another type the name of the type.
    pub value: Vec<u8>,
    /// The number of its grant; `None` for a holder of another library.
    pub number: Option<u64>,
    /// Who it is, in its own words; empty for a holder of another library.
    pub payload: Vec<u8>,
    /// How long the server still keeps it; `None` without an expiry.
    pub remaining: Option<Duration>,
}

/// Asks who holds the lock of `keys`.
#[must_use]
pub fn inspect(keys: &Keys) -> ScriptCall {
    ScriptCall::new(&INSPECT).key(keys.lock()).key(keys.token())
}

/// Reads the answer to [`inspect`]; `None` when the lock is free.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn holder(answer: &Value) -> Result<Option<Holder>, NodeError> {
    let Value::Array(parts) = answer else { return Err(NodeError::nonsense(answer)) };
    match parts.as_slice() {
        [] => Ok(None),
        [kind, Value::BulkString(value), Value::Int(left), number, Value::BulkString(payload)] => {
            let value = match text(kind) {
                Some("string") => value.clone(),
                kind => kind.unwrap_or_default().as_bytes().to_vec(),
            };
            let number = text(number).and_then(|number| number.parse().ok());
            Ok(Some(Holder { value, number, payload: payload.clone(), remaining: remaining(*left) }))
        }
        _ => Err(NodeError::nonsense(answer)),
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What `PTTL` says: -1 without an expiry.
fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}
