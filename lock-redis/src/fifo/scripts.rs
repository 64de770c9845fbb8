//! The scripts of the queue, as calls with typed answers.

use std::time::Duration;

use lock_core::{Contender, Mode};

use super::rhythm::Rhythm;
use crate::{
    keys::Keys,
    node::{NodeError, Script, ScriptCall, Value},
    scripts::{self, Ask, Attempt, InLine, PROLOGUE, remaining, text},
};

/// A script that works on the queue.
macro_rules! queue_script {
    ($file:literal) => {
        Script::with_prologue(PROLOGUE, concat!(include_str!("scripts/queue.lua"), include_str!($file)))
    };
}

static ENTER: Script = queue_script!("scripts/enter.lua");
static BEAT: Script = queue_script!("scripts/beat.lua");
static LEAVE: Script = queue_script!("scripts/leave.lua");
static LOOK: Script = Script::with_prologue(
    PROLOGUE,
    concat!(
        "local function inspect()\n",
        include_str!("../scripts/inspect.lua"),
        "end\n",
        include_str!("scripts/look.lua"),
    ),
);

fn on_queue(script: &'static Script, attempt: &Attempt) -> ScriptCall {
    let keys = &attempt.keys;
    let call = ScriptCall::new(script)
        .key(keys.lock())
        .key(keys.token())
        .key(keys.tombstone(&attempt.value))
        .key(keys.delay())
        .key(keys.readers())
        .key(keys.reading());
    let call = keys.queue().into_iter().fold(call, ScriptCall::key);
    call.arg(attempt.value.as_str()).arg(keys.changes())
}

/// Takes the lock, or stands in line for it if it `waits`; `channel` is where its client is told of its grant. Answers as
/// [`Attempt::acquire`] does. May be sent again.
#[must_use]
pub fn enter(attempt: &Attempt, ask: &Ask<'_>, waits: bool, channel: &str) -> ScriptCall {
    let rhythm = Rhythm::of(ask.ttl);
    on_queue(&ENTER, attempt)
        .number(ask.ttl.as_millis())
        .number(ask.proposal)
        .arg(ask.payload)
        .number(ask.delay.as_millis())
        .number(u8::from(waits))
        .arg(channel)
        .number(rhythm.alive.as_millis())
        .number(rhythm.claim.as_millis())
}

/// Says that one who stands in line is alive, and asks how it stands. May be sent again.
#[must_use]
pub fn beat(attempt: &Attempt, ttl: Duration, delay: Duration) -> ScriptCall {
    on_queue(&BEAT, attempt).number(ttl.as_millis()).number(delay.as_millis()).number(Rhythm::of(ttl).alive.as_millis())
}

/// Gives back the lock, which goes to the next in line, or the place in the line. With a `tombstone` it is an undo. Answers
/// as [`Attempt::release`] does.
#[must_use]
pub fn leave(attempt: &Attempt, tombstone: Duration) -> ScriptCall {
    on_queue(&LEAVE, attempt).arg(attempt.keys.channel()).number(tombstone.as_millis())
}

/// What `beat.lua` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Still in line.
    InLine(InLine),
    /// It holds the lock with this number, for a whole ttl from this heartbeat on.
    Granted(u64),
    /// It stands in no line, and holds nothing.
    Gone,
}

/// Reads the answer to [`beat`].
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn standing(answer: &Value) -> Result<Standing, NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    match (parts.first().and_then(text), parts.get(1), parts.get(2)) {
        (Some("in line"), ..) => in_line(parts).map(Standing::InLine).ok_or_else(nonsense),
        (Some("granted"), Some(number), None) => {
            text(number).and_then(|number| number.parse().ok()).map(Standing::Granted).ok_or_else(nonsense)
        }
        (Some("gone"), None, None) => Ok(Standing::Gone),
        _ => Err(nonsense()),
    }
}

/// Reads the answer to one who stands in line.
pub(crate) fn in_line(parts: &[Value]) -> Option<InLine> {
    let [_, Value::Int(ahead), Value::Int(left), newest] = parts else { return None };
    let newest = text(newest)?.parse().ok()?;
    Some(InLine { ahead: u64::try_from(*ahead).ok()?, left: remaining(*left), newest })
}

/// Asks who holds the lock of `keys` and who stands in line.
pub(crate) fn look(keys: &Keys) -> ScriptCall {
    let call = ScriptCall::new(&LOOK)
        .key(keys.lock())
        .key(keys.token())
        .key(keys.readers())
        .key(keys.reading())
        .key(keys.permits())
        .key(keys.permitted());
    keys.queue().into_iter().fold(call, ScriptCall::key)
}

/// Reads the answer to [`look`]: who holds, and who waits.
pub(crate) fn seen(answer: &Value) -> Result<(scripts::Look, Vec<Contender>), NodeError> {
    let nonsense = || NodeError::nonsense(answer);
    let Value::Array(parts) = answer else { return Err(nonsense()) };
    let [holders, Value::Array(line)] = parts.as_slice() else { return Err(nonsense()) };
    let waiters = line.iter().map(waiter).collect::<Option<_>>();
    Ok((scripts::look(holders)?, waiters.ok_or_else(nonsense)?))
}

fn waiter(answer: &Value) -> Option<Contender> {
    let Value::Array(parts) = answer else { return None };
    let [value, Value::BulkString(payload), since] = parts.as_slice() else { return None };
    let since = text(since)?.parse().ok()?;
    Some(Contender::new(text(value)?).with_payload(payload.clone()).with_mode(Mode::Exclusive).with_since_micros(since))
}

#[cfg(test)]
mod tests;
