//! The scripts of readers, of permits, and of writers that wait.

use std::{num::NonZeroU32, time::Duration};

use super::{Ask, Attempt, PROLOGUE, TOMBSTONE, Writer};
use crate::{
    keys::Keys,
    node::{Script, ScriptCall},
};

static ACQUIRE_READ: Script = Script::with_prologue(PROLOGUE, include_str!("acquire_read.lua"));
static ACQUIRE_PERMIT: Script = Script::with_prologue(PROLOGUE, include_str!("acquire_permit.lua"));
static RENEW: Script = Script::with_prologue(PROLOGUE, include_str!("renew_member.lua"));
static RELEASE: Script = Script::with_prologue(PROLOGUE, include_str!("release_member.lua"));
static DOWNGRADE: Script = Script::with_prologue(PROLOGUE, include_str!("downgrade.lua"));
static ANNOUNCE: Script = Script::with_prologue(PROLOGUE, include_str!("announce.lua"));
static WITHDRAW: Script = Script::new(include_str!("withdraw.lua"));

/// Those who share something, each with an end of its own: which keys they have, and who is told of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Members {
    /// The readers of the lock.
    Readers,
    /// The holders of permits.
    Permits,
}

impl Members {
    fn keys(self, keys: &Keys) -> [String; 2] {
        match self {
            Self::Readers => [keys.readers(), keys.reading()],
            Self::Permits => [keys.permits(), keys.permitted()],
        }
    }

    /// The channel on which releases are published, and which of them.
    fn told(self, keys: &Keys) -> (String, &'static str) {
        match self {
            // A writer has to wait for all of them.
            Self::Readers => (keys.channel(), "last"),
            Self::Permits => (keys.permit_channel(), "each"),
        }
    }

    fn call(self, script: &'static Script, keys: &Keys) -> ScriptCall {
        let [members, notes] = self.keys(keys);
        ScriptCall::new(script).key(members).key(notes)
    }
}

impl Attempt {
    /// Takes the lock beside other readers. A reader that has `waited` so far waits for the writers that came before it.
    #[must_use]
    pub fn acquire_read(&self, ask: &Ask<'_>, waited: Duration) -> ScriptCall {
        ask.arguments(self.lock_keys(&ACQUIRE_READ), self).number(waited.as_millis())
    }

    /// Takes one of `of` permits.
    #[must_use]
    pub fn acquire_permit(&self, ask: &Ask<'_>, of: NonZeroU32) -> ScriptCall {
        let call = Members::Permits
            .call(&ACQUIRE_PERMIT, &self.keys)
            .key(self.keys.token())
            .key(self.keys.tombstone(&self.value));
        ask.arguments(call, self).number(of.get())
    }

    /// As [`Attempt::renew`], for a reader or a permit.
    #[must_use]
    pub fn renew_member(&self, members: Members, ttl: Duration, delay: Duration, number: Option<u64>) -> ScriptCall {
        let call = members
            .call(&RENEW, &self.keys)
            .key(self.keys.token())
            .arg(self.value.as_str())
            .number(ttl.as_millis())
            .number(delay.as_millis());
        match number {
            Some(number) => call.number(number),
            None => call,
        }
    }

    /// As [`Attempt::release`], for a reader or a permit.
    #[must_use]
    pub fn release_member(&self, members: Members, delay: Duration) -> ScriptCall {
        self.give_member_back(members, delay, Duration::ZERO)
    }

    /// As [`Attempt::undo`], for a reader or a permit.
    #[must_use]
    pub fn undo_member(&self, members: Members, delay: Duration) -> ScriptCall {
        self.give_member_back(members, delay, TOMBSTONE)
    }

    fn give_member_back(&self, members: Members, delay: Duration, tombstone: Duration) -> ScriptCall {
        let (channel, which) = members.told(&self.keys);
        let call = members.call(&RELEASE, &self.keys);
        // As in `Attempt::give_back`.
        let call = if tombstone.is_zero() { call } else { call.key(self.keys.tombstone(&self.value)) };
        call.arg(self.value.as_str())
            .arg(channel)
            .number(tombstone.as_millis())
            .arg(self.keys.changes())
            .arg(which)
            .number(delay.as_millis())
    }

    /// Makes a reader of this attempt, if it holds the lock alone, and wakes those who may read beside it. Its number
    /// stays, and so does who it is; its lease is extended to `ttl` from now. May be sent again.
    #[must_use]
    pub fn downgrade(&self, ttl: Duration, delay: Duration) -> ScriptCall {
        ScriptCall::new(&DOWNGRADE)
            .key(self.keys.lock())
            .key(self.keys.token())
            .key(self.keys.readers())
            .key(self.keys.reading())
            .key(self.keys.delay())
            .arg(self.value.as_str())
            .number(ttl.as_millis())
            .number(delay.as_millis())
            .arg(self.keys.channel())
            .arg(self.keys.changes())
    }
}

/// Notes that `writer` waits for the lock of `keys`, or still does, for `kept` unless it says so again.
#[must_use]
pub fn announce(keys: &Keys, writer: &Writer<'_>, kept: Duration) -> ScriptCall {
    ScriptCall::new(&ANNOUNCE)
        .key(keys.writers())
        .key(keys.writing())
        .arg(writer.id)
        .number(writer.waited.as_millis())
        .number(kept.as_millis())
}

/// Takes that note back, and wakes those who waited for the writer.
#[must_use]
pub fn withdraw(keys: &Keys, writer: &str) -> ScriptCall {
    ScriptCall::new(&WITHDRAW).key(keys.writers()).key(keys.writing()).key(keys.lock()).arg(writer).arg(keys.channel())
}
