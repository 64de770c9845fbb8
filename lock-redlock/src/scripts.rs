//! The scripts of one node, as calls with typed answers.

use std::time::Duration;

use lock_core::LockName;
use lock_redis::{
    keys::Keys,
    node::{NodeError, Script, ScriptCall, Value},
    scripts::{Attempt, TOMBSTONE},
};

static ACQUIRE: Script = Script::new(include_str!("scripts/acquire.lua"));
static UNDO: Script = Script::new(include_str!("scripts/undo.lua"));
static WRITE_BACK: Script = Script::new(include_str!("scripts/write_back.lua"));
static REJOIN: Script = Script::new(include_str!("scripts/rejoin.lua"));
static ADMIT: Script = Script::new(include_str!("scripts/admit.lua"));
static STANDING: Script = Script::new(include_str!("scripts/standing.lua"));
static MARK: Script = Script::new(include_str!("scripts/mark.lua"));

/// The run id of the process that the deployment knows as this node. One for the whole server, whatever the prefix: no
/// lock key is like it, because those begin with a brace.
const MEMBER: &str = "redlock:member";
/// There while the node gives no vote.
const QUARANTINE: &str = "redlock:quarantine";

/// For how long after a release a lock is kept for the waiter that was woken: a few round trips, so that newcomers do
/// not split the vote with it, and short, should it not come.
const RESERVATION: Duration = Duration::from_millis(10);
/// For how long after the last of them lined up a node remembers who waits.
const WAITERS_KEPT: Duration = Duration::from_secs(60);

/// What the keys of a lock name are beside those that it has on any Redis.
#[derive(Debug, Clone)]
pub(crate) struct LockKeys(Keys);

/// A waiter, as the nodes know it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Which waiter; also the last part of the channel that it listens to.
    pub(crate) waiter: String,
    /// Its place in line: when it came, by its own clock.
    pub(crate) since: u64,
}

/// What an undo does with the waiter's place in line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line<'a> {
    /// It has none.
    None,
    /// It goes on waiting.
    Stay(&'a Place),
    /// It leaves.
    Leave(&'a Place),
}

/// A node's answer to an acquisition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ballot {
    /// It is this attempt's, with this number.
    Granted(u64),
    /// It is somebody else's, for this long unless it is renewed; `None` where it has no expiry.
    Held { remaining: Option<Duration>, holder: Vec<u8> },
    /// It is kept for a waiter that was woken.
    Reserved(Duration),
    /// This attempt was undone before.
    Undone,
    /// The node gives no vote, for this long.
    Quarantined(Duration),
}

/// How a node stands in its deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) run_id: String,
    /// The run id of the process that the deployment knows; empty for a node that was never marked or has lost its data.
    pub(crate) member: String,
    pub(crate) quarantine: Option<Duration>,
}

impl LockKeys {
    pub(crate) fn new(prefix: &str, name: &LockName) -> Self {
        Self(Keys::new(prefix, name))
    }

    /// As on any Redis.
    pub(crate) const fn common(&self) -> &Keys {
        &self.0
    }

    /// The channel on which a waiter is told that it is its turn.
    pub(crate) fn channel(&self, waiter: &str) -> String {
        format!("{}{waiter}", self.channels())
    }

    fn channels(&self) -> String {
        format!("{}:", self.0.channel())
    }

    fn waiters(&self) -> String {
        format!("{}:waiters", self.0.lock())
    }

    fn reservation(&self) -> String {
        format!("{}:reserved", self.0.lock())
    }
}

/// Takes the lock on a node, for an attempt with this value. `quarantine`: for how long a node gives no vote that turns
/// out to have lost its data; `None` for nodes that lose nothing.
pub(crate) fn acquire(
    keys: &LockKeys,
    value: &str,
    ttl: Duration,
    proposal: u64,
    payload: &[u8],
    place: Option<&Place>,
    quarantine: Option<Duration>,
) -> ScriptCall {
    ScriptCall::new(&ACQUIRE)
        .key(keys.0.lock())
        .key(keys.0.token())
        .key(keys.0.tombstone(value))
        .key(keys.waiters())
        .key(keys.reservation())
        .key(MEMBER)
        .key(QUARANTINE)
        .arg(value)
        .number(ttl.as_millis())
        .number(proposal)
        .arg(payload)
        .arg(place.map_or("", |place| place.waiter.as_str()))
        .number(place.map_or(0, |place| place.since))
        .number(WAITERS_KEPT.as_millis())
        .number(quarantine.map_or(0, |quarantine| quarantine.as_millis()))
}

/// Gives back what the attempt with this value has on a node. May be sent again.
pub(crate) fn undo(keys: &LockKeys, value: &str, tombstone: bool, line: Line<'_>) -> ScriptCall {
    let tombstone = if tombstone { TOMBSTONE } else { Duration::ZERO };
    let (waiter, place) = match line {
        Line::None => ("", String::new()),
        Line::Stay(place) => (place.waiter.as_str(), place.since.to_string()),
        Line::Leave(place) => (place.waiter.as_str(), String::new()),
    };
    ScriptCall::new(&UNDO)
        .key(keys.0.lock())
        .key(keys.0.token())
        .key(keys.0.tombstone(value))
        .key(keys.waiters())
        .key(keys.reservation())
        .arg(value)
        .number(tombstone.as_millis())
        .arg(waiter)
        .arg(place)
        .number(WAITERS_KEPT.as_millis())
        .arg(keys.channels())
        .number(RESERVATION.as_millis())
}

/// Raises a node's counter to `token`, while the holding to which it gave `number` stands.
pub(crate) fn write_back(keys: &LockKeys, value: &str, number: u64, token: u64) -> ScriptCall {
    ScriptCall::new(&WRITE_BACK).key(keys.0.lock()).key(keys.0.token()).arg(value).number(number).number(token)
}

/// Extends the holding to which a node gave `number`.
pub(crate) fn extend(keys: &LockKeys, value: &str, ttl: Duration, number: u64) -> ScriptCall {
    Attempt::known(keys.0.clone(), value.to_owned()).renew(ttl, Duration::ZERO, Some(number))
}

/// Joins a node to the lease whose token is `token`.
pub(crate) fn rejoin(keys: &LockKeys, value: &str, ttl: Duration, token: u64, payload: &[u8]) -> ScriptCall {
    ScriptCall::new(&REJOIN)
        .key(keys.0.lock())
        .key(keys.0.token())
        .key(keys.0.tombstone(value))
        .arg(value)
        .number(ttl.as_millis())
        .number(token)
        .arg(payload)
}

/// Checks whether the node has restarted. Goes before everything else on each connection.
pub(crate) fn admit(quarantine: Duration) -> ScriptCall {
    ScriptCall::new(&ADMIT).key(MEMBER).key(QUARANTINE).number(quarantine.as_millis())
}

/// Asks how a node stands.
pub(crate) fn standing() -> ScriptCall {
    ScriptCall::new(&STANDING).key(MEMBER).key(QUARANTINE)
}

/// Makes a node that nobody has marked a member.
pub(crate) fn mark() -> ScriptCall {
    ScriptCall::new(&MARK).key(MEMBER)
}

/// Reads the answer to [`acquire`] or [`rejoin`].
pub(crate) fn ballot(answer: &Value) -> Result<Ballot, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    match parts.as_slice() {
        [kind, number] if text(kind) == Some("granted") => {
            text(number).and_then(|number| number.parse().ok()).map(Ballot::Granted).ok_or_else(nonsense)
        }
        [kind, Value::Int(left), Value::BulkString(holder)] if text(kind) == Some("held") => {
            Ok(Ballot::Held { remaining: millis(*left), holder: holder.clone() })
        }
        [kind, Value::Int(left)] if text(kind) == Some("reserved") => {
            Ok(Ballot::Reserved(millis(*left).unwrap_or_default()))
        }
        [kind, Value::Int(left)] if text(kind) == Some("quarantined") => {
            Ok(Ballot::Quarantined(millis(*left).unwrap_or_default()))
        }
        [kind] if text(kind) == Some("undone") => Ok(Ballot::Undone),
        _ => Err(nonsense()),
    }
}

/// Reads the answer to [`standing`].
pub(crate) fn read_standing(answer: &Value) -> Result<Standing, NodeError> {
    if let Value::Array(parts) = answer
        && let [run_id, member, Value::Int(left)] = parts.as_slice()
        && let (Some(run_id), Some(member)) = (text(run_id), text(member))
    {
        return Ok(Standing { run_id: run_id.to_owned(), member: member.to_owned(), quarantine: millis(*left) });
    }
    Err(NodeError::nonsense(answer))
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What `PTTL` says: negative without an expiry, or without the key.
fn millis(left: i64) -> Option<Duration> {
    u64::try_from(left).ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests;
