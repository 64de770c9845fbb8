//! The scripts of one node, as calls with typed answers.

mod answers;

use std::time::Duration;

use lock_core::LockName;
use lock_redis::{
    keys::Keys,
    node::{Script, ScriptCall},
    scripts::TOMBSTONE,
};

pub use self::answers::{ballot, read_status, renumbered};
use crate::protocol::{
    deployment::{Deployment, members_text, on_or_off},
    kind::LockKind,
};

/// A script out of files in `scripts/`, one after the other, behind what those of lock-redis begin with.
macro_rules! script {
    ($($part:literal),+) => {
        lock_redis::node::Script::with_prologue(
            lock_redis::scripts::PROLOGUE,
            concat!($(include_str!(concat!("scripts/", $part))),+),
        )
    };
}

static ACQUIRE: Script = script!("head.lua", "member.lua", "vote.lua", "acquire.lua");
static WRITE_BACK: Script = script!("head.lua", "member.lua", "write_back.lua");
static RENEW: Script = script!("head.lua", "member.lua", "renew.lua");
static REJOIN: Script = script!("head.lua", "member.lua", "rejoin.lua");
static ACQUIRE_READ: Script = script!("head.lua", "member.lua", "vote.lua", "acquire_read.lua");
static RENUMBER: Script = script!("head.lua", "member.lua", "renumber.lua");
static RENEW_READ: Script = script!("head.lua", "member.lua", "renew_read.lua");
static REJOIN_READ: Script = script!("head.lua", "member.lua", "rejoin_read.lua");
static UNDO: Script = script!("head.lua", "turn.lua", "undo.lua");
static DOWNGRADE: Script = script!("head.lua", "member.lua", "turn.lua", "downgrade.lua");
static STATUS: Script = Script::new(include_str!("scripts/status.lua"));
static MARK_MEMBER: Script = Script::new(include_str!("scripts/mark.lua"));

// What a server has once, whatever the prefix of the locks: no lock key is like it, because those begin with a brace.

/// The deployment, its generation, and which of its members this server is.
const STAMP: &str = "redlock:member";
/// The run id of the process that the deployment knows as this member; `any` where servers forget nothing.
const RUN: &str = "redlock:run";
/// There while the server gives no vote.
const QUARANTINE: &str = "redlock:quarantine";
/// The record of the deployment: a hash.
const DEPLOYMENT: &str = "redlock:deployment";

/// For how long after a release a lock is kept for those who were woken: a few round trips, so that newcomers do not
/// split the vote with them, and short, should they not come.
const RESERVATION: Duration = Duration::from_millis(10);
/// For how long after the last of them lined up a node remembers who waits, and no longer than their ttl. A waiter looks
/// more than twice in that time, and each look that is refused lines it up anew.
const WAITERS_KEPT: Duration = Duration::from_secs(10);
/// For how long after its last look a writer that waits keeps later readers out, and no longer than its ttl. Each look notes it anew, so that there is
/// nothing else to be renewed; one that died stands in the readers' way for no longer than this.
const INTENT_KEPT: Duration = Duration::from_secs(5);

/// What the keys of a lock name are beside those that it has on any Redis.
#[derive(Debug, Clone)]
pub struct LockKeys(Keys);

/// A waiter, as the nodes know it.
#[derive(Debug, Clone)]
pub struct WaiterEntry {
    /// Which waiter: `<channel>@<visit>`, a name that no other waiter ever gets.
    pub waiter: String,
    /// For how long it has waited, when this is sent: by this and the node's own clock a entry in line is told.
    pub waited: Duration,
    /// Its ttl: a node that hears nothing more from it forgets it no later than it would forget its lease.
    pub ttl: Duration,
}

/// The name of the waiter of that visit, which is told that it is its turn on that channel.
pub(crate) fn waiter_name(channel: &str, visit: u64) -> String {
    format!("{channel}@{visit}")
}

/// A vote that is asked of a node.
#[derive(Debug, Clone, Copy)]
pub struct Vote<'a> {
    pub kind: LockKind,
    pub keys: &'a LockKeys,
    /// What tells the attempt from all others.
    pub value: &'a str,
    pub ttl: Duration,
    pub proposal: u64,
    pub payload: &'a [u8],
    /// `None` for one that does not wait.
    pub entry: Option<&'a WaiterEntry>,
}

/// What an undo does with the waiter's entry in line.
#[derive(Debug, Clone, Copy)]
pub enum QueueChange<'a> {
    /// It has none.
    None,
    /// It goes on waiting.
    Stay(LockKind, &'a WaiterEntry),
    /// It leaves, and nothing that it has sent before may come yet.
    Leave(LockKind, &'a WaiterEntry),
    /// It leaves, and what it has sent before and may come yet does not line it up again.
    LeaveForGood(LockKind, &'a WaiterEntry),
}

impl LockKeys {
    pub fn new(prefix: &str, name: &LockName) -> Self {
        Self(Keys::new(prefix, name))
    }

    /// As on any Redis.
    pub const fn common(&self) -> &Keys {
        &self.0
    }

    /// The channel on which a waiter that listens there is told that it is its turn.
    pub fn channel(&self, channel: &str) -> String {
        format!("{}{channel}", self.channels())
    }

    /// A call of a script that begins with `head.lua`, about the attempt with this value.
    pub fn call(&self, script: &'static Script, value: &str) -> ScriptCall {
        ScriptCall::new(script)
            .key(self.0.lock())
            .key(self.0.token())
            .key(self.0.tombstone(value))
            .key(self.0.readers())
            .key(self.0.reading())
            .key(self.0.writers())
            .key(self.0.writing())
            .key(self.part("waiters"))
            .key(self.part("waiting"))
            .key(self.part("reserved"))
    }

    /// A call of a script that begins with `turn.lua`.
    fn turn(&self, script: &'static Script, value: &str) -> ScriptCall {
        self.call(script, value).arg(value).arg(self.0.changes()).arg(self.channels()).number(RESERVATION.as_millis())
    }

    /// The note that a waiter is gone.
    fn gone(&self, entry: &WaiterEntry) -> String {
        self.0.tombstone(&entry.waiter)
    }

    fn channels(&self) -> String {
        format!("{}:", self.0.channel())
    }

    fn part(&self, part: &str) -> String {
        format!("{}:{part}", self.0.lock())
    }
}

impl LockKind {
    /// A node's vote; see [`Vote`](Vote) for its arguments.
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

impl Vote<'_> {
    /// Asks the server that has this stamp.
    pub fn call(&self, stamp: &str) -> ScriptCall {
        let call = self
            .keys
            .call(self.kind.acquire(), self.value)
            // One that does not wait has nothing but its own tombstone to look for.
            .key(self.entry.map_or_else(|| self.keys.0.tombstone(self.value), |entry| self.keys.gone(entry)))
            .key(RUN)
            .key(QUARANTINE)
            .key(DEPLOYMENT)
            .arg(self.value)
            .number(self.ttl.as_millis())
            .number(self.proposal)
            .arg(self.payload)
            .arg(self.keys.0.changes());
        let call = match self.entry {
            None => call.arg("").number(0_u8).number(0_u8).number(0_u8),
            Some(entry) => call
                .arg(entry.waiter.as_str())
                .number(entry.waited.as_millis())
                .number(WAITERS_KEPT.min(entry.ttl).as_millis())
                .number(intent_kept(entry.ttl).as_millis()),
        };
        as_member(call, stamp)
    }
}

/// Has a call say as which member it counts the server. To be called last: the stamp is the last argument, its key the last
/// key.
pub(crate) fn as_member(call: ScriptCall, stamp: &str) -> ScriptCall {
    call.key(STAMP).arg(stamp)
}

/// For how long after its last look a writer with this ttl keeps later readers out.
pub(crate) fn intent_kept(ttl: Duration) -> Duration {
    INTENT_KEPT.min(ttl)
}

/// Gives back what the attempt with this value has on a node, however it shares the lock. May be sent again.
pub fn undo(keys: &LockKeys, value: &str, tombstone: bool, line: QueueChange<'_>) -> ScriptCall {
    let tombstone = if tombstone { TOMBSTONE } else { Duration::ZERO };
    let gone = match line {
        QueueChange::None => keys.0.tombstone(value),
        QueueChange::Stay(_, entry) | QueueChange::Leave(_, entry) | QueueChange::LeaveForGood(_, entry) => {
            keys.gone(entry)
        }
    };
    let call = keys.turn(&UNDO, value).key(gone).number(tombstone.as_millis());
    match line {
        QueueChange::None => call.number(0_u8).arg(""),
        QueueChange::Stay(kind, entry) => call
            .number(u8::from(kind == LockKind::Reader))
            .arg(entry.waiter.as_str())
            .number(1_u8)
            .number(entry.waited.as_millis())
            .number(WAITERS_KEPT.min(entry.ttl).as_millis())
            .number(intent_kept(entry.ttl).as_millis()),
        QueueChange::Leave(kind, entry) => leaves(call, kind, entry, Duration::ZERO),
        QueueChange::LeaveForGood(kind, entry) => leaves(call, kind, entry, TOMBSTONE),
    }
}

fn leaves(call: ScriptCall, kind: LockKind, entry: &WaiterEntry, noted: Duration) -> ScriptCall {
    let call = call.number(u8::from(kind == LockKind::Reader)).arg(entry.waiter.as_str()).arg("");
    call.number(noted.as_millis())
}

/// Makes a reader, with the number `token`, of the writer to which a node gave `number`. May be sent again.
pub fn downgrade(
    keys: &LockKeys,
    value: &str,
    ttl: Duration,
    number: u64,
    token: u64,
    payload: &[u8],
    stamp: &str,
) -> ScriptCall {
    let call = keys.turn(&DOWNGRADE, value).number(ttl.as_millis()).number(number).number(token).arg(payload);
    as_member(call, stamp)
}

/// A call of a script about the server itself.
fn of_the_server(script: &'static Script) -> ScriptCall {
    ScriptCall::new(script).key(STAMP).key(RUN).key(QUARANTINE).key(DEPLOYMENT)
}

/// Asks what a server says of itself.
pub fn status() -> ScriptCall {
    of_the_server(&STATUS)
}

/// Makes a server a member of a deployment whose stamp is still `seen`; it gives no vote for `quarantine`.
pub fn mark_member(deployment: &Deployment, member: u32, seen: &str, quarantine: Duration) -> ScriptCall {
    mark(deployment, member, seen).number(quarantine.as_millis())
}

/// Has a server know this generation of its deployment, in which it is this member, or was in the one before. What it keeps,
/// it keeps.
pub fn advance(deployment: &Deployment, member: u32, seen: &str) -> ScriptCall {
    mark(deployment, member, seen).arg("")
}

fn mark(deployment: &Deployment, member: u32, seen: &str) -> ScriptCall {
    of_the_server(&MARK_MEMBER)
        .arg(deployment.stamp(member))
        .arg(seen)
        .arg(deployment.id.as_str())
        .number(deployment.generation)
        .number(deployment.previous)
        .arg(members_text(&deployment.members))
        .arg(members_text(&deployment.replaced))
        .number(deployment.max_ttl.as_millis())
        .arg(on_or_off(deployment.quarantine))
}

#[cfg(test)]
mod tests;
