//! A look at a name: who holds it and who waits for it.

use std::{num::NonZeroU32, time::Duration};

use lock_core::{Contender, Mode, Snapshot};

use super::{
    answers::remaining,
    keys::Keys,
    packed::{Lock, Note, Waiter},
    plain,
};
use crate::node::{NodeError, Script, ScriptCall, Value, text};

static LOOK: Script = Script::new(include_str!("scripts/look.lua"));

/// Asks who holds the name of `keys` and who waits for it. Whoever wants to be told of changes says for how long.
#[must_use]
pub fn look(keys: &Keys, wanted: Duration) -> ScriptCall {
    if keys.are_plain() {
        return plain::look(keys, wanted);
    }
    let [lock, permits] = [false, true].map(|is_semaphore| keys.line(is_semaphore));
    let call = ScriptCall::new(&LOOK).key(lock.head).key(lock.lock);
    let call = call.key(lock.members).key(lock.notes).key(lock.queue).key(lock.waiters).key(lock.alive);
    let call = call.key(permits.members).key(permits.notes).key(permits.queue).key(permits.waiters).key(permits.alive);
    call.number(wanted.as_micros())
}

/// Reads the answer to [`look`]; `None` when another version of this library uses the name.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn seen(answer: &Value) -> Result<Option<Snapshot>, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let [
        Value::Int(format),
        Value::Array(alone),
        Value::Array(readers),
        Value::Array(waiters),
        Value::Array(permits),
        Value::Array(others),
    ] = parts.as_slice()
    else {
        return Err(nonsense());
    };
    if *format != 0 {
        return Ok(None);
    }
    let mut holders = if alone.is_empty() { Vec::new() } else { vec![holder(alone).ok_or_else(nonsense)?] };
    for set in [readers, permits] {
        holders.extend(members(set).ok_or_else(nonsense)?);
    }
    let queue = waiters.iter().chain(others).map(waiter).collect::<Option<Vec<_>>>();
    Ok(Some(Snapshot::new(holders, queue.ok_or_else(nonsense)?)))
}

fn holder(parts: &[Value]) -> Option<Contender> {
    let [kind, Value::BulkString(held), Value::Int(left)] = parts else { return None };
    let mut contender = match Lock::read(held) {
        Some(Lock { number, value, since, payload }) => Contender::new(String::from_utf8_lossy(&value))
            .with_payload(payload)
            .with_token(number)
            .with_since_micros(since),
        // Of another library; where it has another type, that is all that is known.
        None if text(kind) == Some("string") => Contender::new(String::from_utf8_lossy(held)),
        None => Contender::new(text(kind)?),
    };
    contender.remaining = remaining(*left);
    Some(contender.with_mode(Mode::Exclusive))
}

/// Those whose leases have not ended, in the order of their grants.
fn members(all: &[Value]) -> Option<Vec<Contender>> {
    let mut members = Vec::with_capacity(all.len());
    for one in all {
        let Value::Array(parts) = one else { return None };
        let [Value::BulkString(value), Value::Int(left), Value::BulkString(note)] = parts.as_slice() else {
            return None;
        };
        let contender = Contender::new(String::from_utf8_lossy(value));
        // One without a note that makes sense is no holder of this library; its place is taken all the same.
        let Some(Note { number, since, delay, of, payload }) = Note::read(note) else {
            members.push(contender.with_remaining(remaining(*left)?));
            continue;
        };
        let Some(left) = remaining(*left)?.checked_sub(delay) else { continue };
        let contender = contender.with_payload(payload).with_token(number).with_since_micros(since);
        members.push(contender.with_remaining(left).with_mode(mode(of)));
    }
    members.sort_by_key(|member| member.token);
    Some(members)
}

fn mode(of: u64) -> Mode {
    let of = u32::try_from(of).ok().and_then(NonZeroU32::new);
    of.map_or(Mode::Read, |of| Mode::Permit { of })
}

fn waiter(answer: &Value) -> Option<Contender> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(value), Value::BulkString(note)] = parts.as_slice() else { return None };
    let contender = Contender::new(String::from_utf8_lossy(value));
    let Some(Waiter { kind, since, of, payload }) = Waiter::read(note) else { return Some(contender) };
    let mode = if kind == b'w' { Mode::Exclusive } else { mode(of) };
    Some(contender.with_payload(payload).with_mode(mode).with_since_micros(since))
}
