//! The two ways to hold a lock, each with its own scripts.

use std::time::Duration;

use lock_core::Mode;
use lock_redis::node::{Script, ScriptCall};

use crate::scripts::{LockKeys, as_member, script};

static ACQUIRE: Script = script!("head.lua", "member.lua", "vote.lua", "acquire.lua");
static WRITE_BACK: Script = script!("head.lua", "member.lua", "write_back.lua");
static RENEW: Script = script!("head.lua", "member.lua", "renew.lua");
static REJOIN: Script = script!("head.lua", "member.lua", "rejoin.lua");

static ACQUIRE_READ: Script = script!("head.lua", "member.lua", "vote.lua", "acquire_read.lua");
static RENUMBER: Script = script!("head.lua", "member.lua", "renumber.lua");
static RENEW_READ: Script = script!("head.lua", "member.lua", "renew_read.lua");
static REJOIN_READ: Script = script!("head.lua", "member.lua", "rejoin_read.lua");

/// How an attempt shares the lock, and by which scripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Alone.
    Writer,
    /// Beside other readers.
    Reader,
}

impl Kind {
    /// How `mode` is held; `None` where a quorum has nothing for it.
    pub const fn of(mode: Mode) -> Option<Self> {
        match mode {
            Mode::Exclusive => Some(Self::Writer),
            Mode::Read => Some(Self::Reader),
            _ => None,
        }
    }

    pub const fn mode(self) -> Mode {
        match self {
            Self::Writer => Mode::Exclusive,
            Self::Reader => Mode::Read,
        }
    }

    /// A node's vote; see [`Vote`](crate::scripts::Vote) for its arguments.
    pub const fn acquire(self) -> &'static Script {
        match self {
            Self::Writer => &ACQUIRE,
            Self::Reader => &ACQUIRE_READ,
        }
    }

    /// Gives the holding to which a node gave `number` the number `token`, and raises the node's counter to it. To a
    /// reader a node gives it only if it has given it to nobody else.
    pub fn renumber(self, keys: &LockKeys, value: &str, number: u64, token: u64, stamp: &str) -> ScriptCall {
        let script = match self {
            Self::Writer => &WRITE_BACK,
            Self::Reader => &RENUMBER,
        };
        let call = keys.call(script, value).arg(value).number(number).number(token).arg(keys.common().changes());
        as_member(call, stamp)
    }

    /// Extends the holding to which a node gave `number`: that one and no other of the same value.
    pub fn extend(self, keys: &LockKeys, value: &str, ttl: Duration, number: u64, stamp: &str) -> ScriptCall {
        let script = match self {
            Self::Writer => &RENEW,
            Self::Reader => &RENEW_READ,
        };
        as_member(keys.call(script, value).arg(value).number(ttl.as_millis()).number(number), stamp)
    }

    /// Joins a node to the lease whose token is `token`.
    pub fn rejoin(
        self,
        keys: &LockKeys,
        value: &str,
        ttl: Duration,
        token: u64,
        payload: &[u8],
        stamp: &str,
    ) -> ScriptCall {
        let script = match self {
            Self::Writer => &REJOIN,
            Self::Reader => &REJOIN_READ,
        };
        as_member(keys.call(script, value).arg(value).number(ttl.as_millis()).number(token).arg(payload), stamp)
    }
}
