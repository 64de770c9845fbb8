//! The calls of the scripts of the strategy `plain`: one key that whoever comes tries to set, and a record beside it.

use std::time::Duration;

use super::{keys::Keys, packed::pack};
use crate::node::{Script, ScriptCall};

static TAKE: Script = Script::new(include_str!("scripts/plain/take.lua"));
static RENEW: Script = Script::new(include_str!("scripts/plain/renew.lua"));
static GIVE_BACK: Script = Script::new(include_str!("scripts/plain/give_back.lua"));
static LOOK: Script = Script::new(include_str!("scripts/plain/look.lua"));

/// Takes the lock, for the attempt with this value. `waits`: for how long a release is to be published, where it is refused.
pub(super) fn take(
    keys: &Keys,
    value: &str,
    ttl: Duration,
    proposal: u64,
    payload: &[u8],
    waits: Duration,
) -> ScriptCall {
    on_lock(&TAKE, keys)
        .key(keys.tombstone(value))
        .arg(value)
        .number(ttl.as_millis())
        .number(proposal)
        .arg(payload)
        .number(waits.as_micros())
        .arg(keys.changes())
}

/// Extends the lease to the whole ttl, if it is held by the grant with this number.
pub(super) fn renew(keys: &Keys, value: &str, number: u64, ttl: Duration) -> ScriptCall {
    on_lock(&RENEW, keys).arg(value).arg(grant(value, number)).number(ttl.as_millis())
}

/// A grant, as the record has it.
fn grant(value: &str, number: u64) -> Vec<u8> {
    [&pack(number), value.as_bytes()].concat()
}

/// Gives it back, and tells those who wait.
pub(super) fn release(keys: &Keys, value: &str) -> ScriptCall {
    given_back(on_lock(&GIVE_BACK, keys), keys, value, Duration::ZERO)
}

/// Gives it back, and tells nobody: only by the lock key.
pub(super) fn drop_it(keys: &Keys, value: &str) -> ScriptCall {
    given_back(ScriptCall::new(&GIVE_BACK).key(keys.lock()), keys, value, Duration::ZERO)
}

/// Gives it back if it is held, and leaves a tombstone for so long; none where that is zero.
pub(super) fn take_back(keys: &Keys, value: &str, tombstone: Duration) -> ScriptCall {
    given_back(on_lock(&GIVE_BACK, keys).key(keys.tombstone(value)), keys, value, tombstone)
}

/// Gives it back if it is held by the grant with this number, and then leaves a tombstone for so long.
pub(super) fn revoke(keys: &Keys, value: &str, number: u64, tombstone: Duration) -> ScriptCall {
    take_back(keys, value, tombstone).arg(grant(value, number))
}

/// Asks who holds it. The answer has the form of [`look`](super::look::look). Whoever wants to be told of changes says for how
/// long.
pub(super) fn look(keys: &Keys, wanted: Duration) -> ScriptCall {
    on_lock(&LOOK, keys).number(wanted.as_micros())
}

fn on_lock(script: &'static Script, keys: &Keys) -> ScriptCall {
    ScriptCall::new(script).key(keys.lock()).key(keys.token())
}

fn given_back(call: ScriptCall, keys: &Keys, value: &str, tombstone: Duration) -> ScriptCall {
    call.arg(value).number(tombstone.as_millis()).arg(keys.releases()).arg(keys.changes())
}
