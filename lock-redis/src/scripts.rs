//! The scripts of one lock on one server, as calls with typed answers: those of holders that are alone here, those of
//! readers and permits in [`sharing`], looks in [`mod@look`].

pub mod look;
pub mod sharing;

use std::time::Duration;

use redis::Value;

pub use self::look::{Holder, Look, holder, inspect, look};
use crate::{
    fifo,
    keys::Keys,
    node::{NodeError, Script, ScriptCall},
};

/// The functions with which scripts begin that need the server's clock, the count of tokens, or members with an end each.
pub const PROLOGUE: &str = include_str!("scripts/prologue.lua");

static ACQUIRE: Script = Script::with_prologue(PROLOGUE, include_str!("scripts/acquire.lua"));
static RENEW: Script = Script::new(include_str!("scripts/renew.lua"));
static RELEASE: Script = Script::new(include_str!("scripts/release.lua"));

/// How long an undo is remembered, should its acquisition still be on its way: longer than a socket goes on sending what is
/// not acknowledged, and the socket of an acquisition that is undone on another connection has ended by then.
pub const TOMBSTONE: Duration = Duration::from_secs(5);

/// One attempt to acquire: its keys, and the value that tells it from all others.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The keys of the lock name.
    pub keys: Keys,
    /// The unique value that is written into the lock key, or that stands among the readers or permits.
    pub value: String,
    /// Whether it stands in line for the lock on the server (`queue=fifo`).
    pub(crate) in_line: bool,
}

/// What an attempt asks for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// How long the server keeps it without a renewal.
    pub ttl: Duration,
    /// A lower bound of the token number; see [`token`](crate::token).
    pub proposal: u64,
    /// Who asks.
    pub payload: &'a [u8],
    /// The lock delay; zero for none.
    pub delay: Duration,
}

impl<'a> Ask<'a> {
    /// Asks for the lock for `ttl`, without a lock delay.
    #[must_use]
    pub const fn new(ttl: Duration, proposal: u64, payload: &'a [u8]) -> Self {
        Self { ttl, proposal, payload, delay: Duration::ZERO }
    }

    fn arguments(&self, call: ScriptCall, attempt: &Attempt) -> ScriptCall {
        call.arg(attempt.value.as_str())
            .number(self.ttl.as_millis())
            .number(self.proposal)
            .arg(self.payload)
            .arg(attempt.keys.changes())
            .number(self.delay.as_millis())
    }
}

/// A writer that waits. Readers who come later wait for it; it is noted by the refusal that it gets.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// What tells it from all others; the same through all its attempts.
    pub id: &'a str,
    /// For how long it has waited, when the request is sent.
    pub waited: Duration,
}

/// What an attempt of a writer that waits has the server note.
#[derive(Debug, Clone, Copy)]
pub struct Intent<'a> {
    /// Itself, should it be refused.
    pub writer: Writer<'a>,
    /// For how long the server keeps a note of a writer that is not renewed.
    pub kept: Duration,
    /// Whether it is noted already.
    pub noted: Noted,
    /// The writer behind it on the same connection, should it be granted.
    pub next: Option<Writer<'a>>,
}

/// How one stands in line (`queue=fifo`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InLine {
    /// How many stand before it.
    pub ahead: u64,
    /// How long the holder still has the lock unless it is renewed; `None` where it has no expiry.
    pub left: Option<Duration>,
    /// The newest token number that was given out by then: any later grant has a higher one.
    pub newest: u64,
}

/// Whether the server has noted a writer that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// It has not: a refusal notes it.
    No,
    /// It may have: a refusal notes it, and a grant takes the note back.
    Perhaps,
    /// It has, a moment ago: a grant takes the note back.
    Surely,
}

/// What an acquisition is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// This attempt holds the lock, with this token number.
    Granted(u64),
    /// Somebody else holds it, for this long unless it is renewed; `None` where it has no expiry.
    Held(Option<Duration>),
    /// Those who hold a permit named another number of permits: this one.
    Permits(u64),
    /// Somebody else holds it or goes first, and this attempt stands in line (`queue=fifo`).
    InLine(InLine),
    /// This attempt was undone before.
    Undone,
}

impl Acquired {
    /// Whether the attempt has something on the server now.
    pub(crate) const fn left_something(&self) -> bool {
        matches!(self, Self::Granted(_) | Self::InLine(_))
    }
}

impl Attempt {
    /// A new attempt on the lock of `keys`.
    #[must_use]
    pub fn new(keys: Keys) -> Self {
        Self::known(keys, uuid::Uuid::new_v4().simple().to_string())
    }

    /// The same attempt, standing in line for the lock.
    pub(crate) fn in_line(self) -> Self {
        Self { in_line: true, ..self }
    }

    /// The attempt with this value.
    #[must_use]
    pub const fn known(keys: Keys, value: String) -> Self {
        Self { keys, value, in_line: false }
    }

    /// Takes the lock, to hold it alone, or says how long others still have it. May be sent again: the same attempt is
    /// granted once. An `intent` is for one that waits.
    #[must_use]
    pub fn acquire(&self, ask: &Ask<'_>, intent: Option<&Intent<'_>>) -> ScriptCall {
        let call = ask.arguments(self.lock_keys(&ACQUIRE), self);
        let Some(intent) = intent else { return call };
        let call = call
            .arg(intent.writer.id)
            .number(intent.writer.waited.as_millis())
            .number(intent.kept.as_millis())
            .number(intent.noted as u8);
        match intent.next {
            Some(next) => call.arg(next.id).number(next.waited.as_millis()),
            None => call,
        }
    }

    /// Extends the lease to `ttl` from now, if this attempt holds the lock alone; with `number` given, only if it holds it
    /// by the grant with that token number. May be sent again.
    #[must_use]
    pub fn renew(&self, ttl: Duration, delay: Duration, number: Option<u64>) -> ScriptCall {
        let call = ScriptCall::new(&RENEW).key(self.keys.lock()).key(self.keys.token());
        let call = if delay.is_zero() { call } else { call.key(self.keys.delay()) };
        let call = call.arg(self.value.as_str()).number(ttl.as_millis()).number(delay.as_millis());
        match number {
            Some(number) => call.number(number),
            None => call,
        }
    }

    /// Gives the lock back, if this attempt holds it alone, and wakes those who wait. May be sent again.
    #[must_use]
    pub fn release(&self, delay: Duration) -> ScriptCall {
        self.give_back(delay, Duration::ZERO)
    }

    /// Gives the lock back, if this attempt holds it, and keeps it from taking the lock should its acquisition arrive later,
    /// or for the second time. For acquisitions of unknown outcome, on another connection than theirs: on the same one
    /// [`Attempt::release`] will do, because nothing overtakes there.
    #[must_use]
    pub fn undo(&self, delay: Duration) -> ScriptCall {
        self.give_back(delay, TOMBSTONE)
    }

    fn give_back(&self, delay: Duration, tombstone: Duration) -> ScriptCall {
        if self.in_line {
            return fifo::scripts::leave(self, tombstone);
        }
        // No key that need not be there: while a cluster moves the slot, a script runs only where all of its keys are.
        let call = ScriptCall::new(&RELEASE).key(self.keys.lock()).key(self.keys.token());
        let is_undo = !tombstone.is_zero();
        let call = if delay.is_zero() && !is_undo { call } else { call.key(self.keys.delay()) };
        let call = if is_undo { call.key(self.keys.tombstone(&self.value)) } else { call };
        call.arg(self.value.as_str())
            .arg(self.keys.channel())
            .number(tombstone.as_millis())
            .arg(self.keys.changes())
            .number(u8::from(!delay.is_zero()))
    }

    /// A call with the keys that acquisitions of the lock read.
    fn lock_keys(&self, script: &'static Script) -> ScriptCall {
        ScriptCall::new(script)
            .key(self.keys.lock())
            .key(self.keys.token())
            .key(self.keys.tombstone(&self.value))
            .key(self.keys.readers())
            .key(self.keys.reading())
            .key(self.keys.writers())
            .key(self.keys.writing())
            .key(self.keys.delay())
    }
}

/// Reads the answer to an acquisition.
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
        (Some("permits"), Some(Value::Int(of))) => u64::try_from(*of).map(Acquired::Permits).map_err(|_| nonsense()),
        (Some("in line"), Some(_)) => fifo::scripts::in_line(parts).map(Acquired::InLine).ok_or_else(nonsense),
        (Some("undone"), None) => Ok(Acquired::Undone),
        _ => Err(nonsense()),
    }
}

/// Reads the answer to a renewal, a release, an undo or a downgrade: whether the attempt held the lock.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn held(answer: &Value) -> Result<bool, NodeError> {
    released(answer).map(|listeners| listeners.is_some())
}

/// Reads the answer to a release: how many were listening, or `None` when the attempt did not hold the lock.
///
/// # Errors
/// [`NodeError::Unknown`] when it is none.
pub fn released(answer: &Value) -> Result<Option<u64>, NodeError> {
    match answer {
        Value::Int(0) => Ok(None),
        Value::Int(more @ 1..) => Ok(Some(more.unsigned_abs() - 1)),
        other => Err(NodeError::nonsense(other)),
    }
}

pub(crate) fn text(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

/// What `PTTL` says: -1 without an expiry.
pub(crate) fn remaining(millis: i64) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}
