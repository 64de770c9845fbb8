//! One attempt to acquire, and the calls of scripts that it comes to.

use std::{
    num::NonZeroU32,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use lock_core::{Error, Feature, Mode};

use super::{
    TOMBSTONE,
    claim::Rhythm,
    keys::{Keys, LineKeys},
    packed::pack,
    plain,
};
use crate::node::{Script, ScriptCall};

/// The scripts on a line: the common path, what it leaves to the functions of `line.lua`, and the rest.
macro_rules! line_script {
    ($($part:literal),+) => {
        Script::new(concat!($(include_str!(concat!("scripts/", $part))),+))
    };
}

static ENTER: Script = line_script!("enter_short.lua", "line.lua", "enter.lua");
static BEAT: Script = line_script!("line.lua", "beat.lua");
static RELEASE: Script = line_script!("release_short.lua", "line.lua", "release.lua");
static LEAVE: Script = line_script!("line.lua", "leave.lua");
static REVOKE: Script = line_script!("line.lua", "revoke.lua");
static DOWNGRADE: Script = line_script!("line.lua", "downgrade.lua");
static RENEW: Script = line_script!("renew.lua");
static RENEW_MEMBER: Script = line_script!("renew_member.lua");
static DROP: Script = line_script!("drop.lua");

fn saturated(number: u128) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// How many places one beat speaks for at the most, so that its cost is bounded.
pub const PLACES: usize = 64;

/// How a contender holds what it is granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The lock, alone.
    Writer,
    /// The lock, beside other readers.
    Reader,
    /// One of so many permits.
    Permit(NonZeroU32),
    /// The lock, alone, by the strategy `plain`: without a line.
    Plain,
}

impl Kind {
    /// How `mode` is held.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a mode of a later version of `lock-core`.
    pub const fn of(mode: Mode) -> Result<Self, Error> {
        match mode {
            Mode::Exclusive => Ok(Self::Writer),
            Mode::Read => Ok(Self::Reader),
            Mode::Permit { of } => Ok(Self::Permit(of)),
            _ => Err(Error::unsupported(Feature::ReadWrite, "redis")),
        }
    }

    /// What scripts call it.
    #[must_use]
    pub const fn letter(self) -> &'static str {
        match self {
            Self::Writer => "w",
            Self::Reader => "r",
            Self::Permit(_) => "p",
            Self::Plain => "plain",
        }
    }

    fn permits(self) -> u32 {
        if let Self::Permit(of) = self { of.get() } else { 0 }
    }
}

/// One attempt to acquire: all that its renewal, its release and its undo need.
#[derive(Debug)]
pub struct Attempt {
    /// The keys of the lock name.
    pub keys: Keys,
    /// How it holds.
    pub kind: Kind,
    /// What tells it from all others.
    pub value: String,
    /// How long the server keeps it without a renewal.
    pub ttl: Duration,
    /// The lock delay; zero for none.
    pub delay: Duration,
    sent_again: AtomicBool,
    waited: AtomicBool,
}

/// What an attempt brings along to be granted.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// A lower bound of the token number; see [`token`](super::token).
    pub proposal: u64,
    /// Who asks.
    pub payload: &'a [u8],
    /// The channel on which its client is told of its grants; `None` for one that does not wait.
    pub waits: Option<&'a str>,
}

impl Attempt {
    /// The attempt with this value, of 32 characters.
    #[must_use]
    pub const fn new(keys: Keys, kind: Kind, value: String, ttl: Duration, delay: Duration) -> Self {
        Self { keys, kind, value, ttl, delay, sent_again: AtomicBool::new(false), waited: AtomicBool::new(false) }
    }

    /// Notes that it was sent down a second connection: the first request may still come, even after a release.
    pub fn note_sent_again(&self) {
        self.sent_again.store(true, Ordering::Release);
    }

    /// Whether it was sent twice.
    pub fn is_sent_again(&self) -> bool {
        self.sent_again.load(Ordering::Acquire)
    }

    /// Notes that it stood in line: there, others probably stand behind it.
    pub fn note_waited(&self) {
        self.waited.store(true, Ordering::Release);
    }

    /// The same as a reader.
    #[must_use]
    pub fn as_reader(&self) -> Self {
        let (keys, value) = (self.keys.clone(), self.value.clone());
        Self {
            sent_again: AtomicBool::new(self.is_sent_again()),
            ..Self::new(keys, Kind::Reader, value, self.ttl, self.delay)
        }
    }

    /// The keys of the line in which it stands.
    #[must_use]
    pub fn line(&self) -> LineKeys {
        self.keys.line(matches!(self.kind, Kind::Permit(_)))
    }

    /// Takes the lock or a permit, or stands in line for it. May be sent again.
    #[must_use]
    pub fn enter(&self, ask: &Ask<'_>) -> ScriptCall {
        let rhythm = Rhythm::of(self.ttl);
        let (alive, claim) = (rhythm.alive.as_micros(), rhythm.claim.as_millis());
        let rest = [self.delay.as_millis(), self.kind.permits().into(), alive, claim];
        // In few arguments: each costs the server a third of a short command.
        let mut asked = self.kind.letter().as_bytes().to_vec();
        asked.extend([ask.proposal].into_iter().chain(rest.map(saturated)).flat_map(pack));
        asked.extend(ask.waits.unwrap_or_default().as_bytes());
        self.on_line(&ENTER).arg(asked).arg([self.value.as_bytes(), ask.payload].concat()).number(self.ttl.as_millis())
    }

    /// Takes the lock by the strategy `plain`. One that waits says for how long a release is to be published. May be sent
    /// again.
    #[must_use]
    pub fn take(&self, proposal: u64, payload: &[u8], waits: Duration) -> ScriptCall {
        plain::take(&self.keys, &self.value, self.ttl, proposal, payload, waits)
    }

    /// Extends the lease to the whole ttl, if it is held by the grant with this number. May be sent again.
    #[must_use]
    pub fn renew(&self, number: u64) -> ScriptCall {
        if self.kind == Kind::Plain {
            return plain::renew(&self.keys, &self.value, number, self.ttl);
        }
        let call = match self.kind {
            Kind::Writer | Kind::Plain => {
                let call = ScriptCall::new(&RENEW).key(self.keys.lock());
                let call = if self.delay.is_zero() { call } else { call.key(self.line().delay) };
                call.arg([&pack(number), self.value.as_bytes()].concat())
            }
            Kind::Reader | Kind::Permit(_) => {
                let line = self.line();
                ScriptCall::new(&RENEW_MEMBER).key(line.members).key(line.notes).arg(pack(number))
            }
        };
        call.arg(self.value.as_str()).number(self.ttl.as_millis()).number(self.delay.as_millis())
    }

    /// Gives it back, to those who may hold it next. May be sent again.
    #[must_use]
    pub fn release(&self) -> ScriptCall {
        if self.kind == Kind::Plain {
            return plain::release(&self.keys, &self.value);
        }
        let kind_and_delay = format!("{}{}", self.kind.letter(), self.delay.as_millis());
        // Whoever comes next is told of it first: until then nobody is at work under the lock.
        let is_contended = self.waited.load(Ordering::Acquire);
        self.on_line(&RELEASE).arg(kind_and_delay).arg(self.value.as_str()).publishing_first(is_contended)
    }

    /// Gives it back and hands it to nobody: only by keys that are there.
    #[must_use]
    pub fn drop_it(&self) -> ScriptCall {
        if self.kind == Kind::Plain {
            return plain::drop_it(&self.keys, &self.value);
        }
        let (line, call) = (self.line(), ScriptCall::new(&DROP));
        let call = match self.kind {
            Kind::Writer | Kind::Plain => call.key(line.lock),
            Kind::Reader | Kind::Permit(_) => call.key(line.members).key(line.notes),
        };
        call.arg(self.value.as_str()).number(self.delay.as_millis())
    }

    /// Takes back whatever it has, down the connection on which it was sent: nothing overtakes there. May be sent again.
    #[must_use]
    pub fn leave(&self) -> ScriptCall {
        self.take_back(Duration::ZERO)
    }

    /// Takes back whatever it has, and keeps it from coming back, should it arrive later or once more. May be sent again.
    #[must_use]
    pub fn undo(&self) -> ScriptCall {
        self.take_back(TOMBSTONE)
    }

    fn take_back(&self, tombstone: Duration) -> ScriptCall {
        if self.kind == Kind::Plain {
            return plain::take_back(&self.keys, &self.value, tombstone);
        }
        self.called(self.on_line(&LEAVE)).number(self.delay.as_millis()).number(tombstone.as_millis())
    }

    /// Takes it away from whoever holds it, if it is held by the grant with this number, and keeps the attempt from coming back.
    #[must_use]
    pub fn revoke(&self, number: u64) -> ScriptCall {
        if self.kind == Kind::Plain {
            return plain::revoke(&self.keys, &self.value, number, TOMBSTONE);
        }
        self.called(self.on_line(&REVOKE)).arg(pack(number)).number(TOMBSTONE.as_millis())
    }

    /// Makes a reader of one that holds the lock alone. May be sent again.
    #[must_use]
    pub fn downgrade(&self) -> ScriptCall {
        self.called(self.on_line(&DOWNGRADE)).number(self.ttl.as_millis()).number(self.delay.as_millis())
    }

    /// Says that these, which stand in the line of the first of them, are alive, and asks what became of each. At most
    /// [`PLACES`]. May be sent again.
    #[must_use]
    pub fn beat<'a>(&self, places: impl IntoIterator<Item = &'a Self>) -> ScriptCall {
        let call = self.on_line(&BEAT).arg(self.kind.letter());
        places.into_iter().fold(call, |call, place| {
            call.arg(place.value.as_str())
                .arg(place.kind.letter())
                .number(place.ttl.as_millis())
                .number(place.delay.as_millis())
                .number(Rhythm::of(place.ttl).alive.as_micros())
                .number(place.kind.permits())
        })
    }

    fn called(&self, call: ScriptCall) -> ScriptCall {
        call.arg(self.kind.letter()).arg(self.value.as_str())
    }

    /// A call of a script, which finds the other keys from the lock key. On a cluster it is passed all that it may touch, so
    /// that the cluster runs it only where they all are.
    fn on_line(&self, script: &'static Script) -> ScriptCall {
        let call = ScriptCall::new(script).key(self.keys.lock());
        if !self.keys.are_declared() {
            return call;
        }
        let LineKeys { lock, head, delay, members, notes, queue, waiters, alive } = self.line();
        let call =
            call.with_keys([head, delay, members, notes, queue, waiters, alive]).key(self.keys.tombstone(&self.value));
        // That of a semaphore is another one.
        if lock == self.keys.lock() { call } else { call.key(lock) }
    }
}
