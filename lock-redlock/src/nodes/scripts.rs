//! The scripts of one node, as calls with typed answers.

mod answers;
pub(crate) mod look;

use std::{sync::Arc, time::Duration};

use lock_core::LockName;
use lock_redis::{
    keys::Keys,
    node::{Script, ScriptCall},
    protocol::{TOMBSTONE, packed::pack},
};

pub(crate) use self::answers::{ballot, held, read_status, renumbered};
use crate::protocol::{
    deployment::{Deployment, members_text, on_or_off},
    kind::LockKind,
};

/// A script out of files in `scripts/`, one after the other. A server makes each function of a file anew in each call, so a script
/// has only the files that it needs.
macro_rules! script {
    ($($part:literal),+) => {
        Script::new(concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+))
    };
}

static ACQUIRE: Script = script!(
    "grant",
    "vote",
    "acquire_short",
    "head",
    "undone",
    "acquire_held",
    "expiring_set",
    "readers",
    "waiters",
    "counter",
    "acquire"
);
static ACQUIRE_READ: Script =
    script!("grant", "vote", "head", "undone", "expiring_set", "readers", "waiters", "counter", "acquire_read");
static WRITE_BACK: Script = script!("prologue", "head", "counter", "member", "write_back");
static RENUMBER: Script = script!("prologue", "head", "expiring_set", "readers", "counter", "member", "renumber");
static RENEW: Script = script!("head", "keep_counter", "member", "renew");
static RENEW_READ: Script =
    script!("prologue", "head", "expiring_set", "readers", "keep_counter", "member", "renew_read");
static REJOIN: Script = script!("prologue", "head", "expiring_set", "readers", "counter", "member", "rejoin");
static REJOIN_READ: Script = script!("prologue", "head", "expiring_set", "readers", "counter", "member", "rejoin_read");
static DOWNGRADE: Script =
    script!("prologue", "head", "expiring_set", "readers", "waiters", "counter", "member", "turn", "downgrade");
static UNDO: Script = script!("undo_short", "prologue", "head", "expiring_set", "readers", "waiters", "turn", "undo");
static STATUS: Script = script!("status");
static MARK_MEMBER: Script = script!("mark");

// A server has each of these keys once, whatever the prefix of the locks. Lock keys begin with a brace, so none collides.

/// The deployment, its generation, and which of its members this server is.
const STAMP: &str = "redlock:member";
/// The run id of the process that the deployment knows as this member; `any` where servers forget nothing.
const RUN: &str = "redlock:run";
/// Exists while the server gives no vote.
const QUARANTINE: &str = "redlock:quarantine";
/// The record of the deployment: a hash.
const DEPLOYMENT: &str = "redlock:deployment";

/// For how long after the last enrollment a node remembers its waiters, and no longer than their ttl. A waiter looks more
/// than twice in that time, and each refused look enrolls it anew.
const WAITERS_KEPT: Duration = Duration::from_secs(10);
/// For how long after its last look a waiting writer keeps later readers out, and no longer than its ttl. Each look renews
/// the intent, so a writer that died stands in the readers' way for no longer than this.
const INTENT_KEPT: Duration = Duration::from_secs(5);

/// The keys of a lock name: those that it has on any Redis, and those of Redlock's waiters.
#[derive(Debug, Clone)]
pub(crate) struct LockKeys(Keys);

/// What an attempt claims on each node, and under which value.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) kind: LockKind,
    pub(crate) keys: LockKeys,
    /// Tells the attempt from all others, its own earlier rounds included.
    pub(crate) value: String,
    pub(crate) ttl: Duration,
    pub(crate) payload: Arc<[u8]>,
}

/// A call that goes to several servers, to each of them as the member that the client counts it as. The scripts read its stamp
/// from the last argument.
#[derive(Debug)]
pub(crate) struct MemberCall(ScriptCall);

impl MemberCall {
    /// The call for the member with this stamp.
    pub(crate) fn to(&self, stamp: &str) -> ScriptCall {
        self.0.clone().arg(stamp)
    }
}

/// A waiter, as a node's queue has it.
#[derive(Debug, Clone)]
pub(crate) struct WaiterEntry {
    /// The name `<channel>@<visit>`, which no other waiter ever gets.
    pub(crate) waiter: String,
    /// For how long it has waited when the request is sent: each node orders its queue by this and its own clock.
    pub(crate) waited: Duration,
    /// A node that hears nothing more from a waiter forgets it no later than it would forget a lease with this ttl.
    pub(crate) ttl: Duration,
}

/// What an undo does with the waiter's entry in the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum QueueChange<'a> {
    /// The attempt does not wait, or its entry is left alone.
    None,
    /// The waiter goes on waiting.
    Stay(&'a WaiterEntry),
    /// The waiter leaves, and no earlier request of it may still arrive.
    Leave(&'a WaiterEntry),
    /// The waiter leaves, and an earlier request that still arrives does not enroll it again.
    LeaveForGood(&'a WaiterEntry),
}

/// The name of a waiter: the channel on which it is woken, and the number of its visit.
pub(crate) fn waiter_name(channel: &str, visit: u64) -> String {
    format!("{channel}@{visit}")
}

/// For how long after its last look a waiting writer with this ttl keeps later readers out.
pub(crate) fn intent_kept(ttl: Duration) -> Duration {
    INTENT_KEPT.min(ttl)
}

impl LockKeys {
    pub(crate) fn new(prefix: &str, name: &LockName) -> Self {
        Self(Keys::new(prefix, name))
    }

    /// The keys that the lock has on any Redis.
    pub(crate) const fn common(&self) -> &Keys {
        &self.0
    }

    /// The pub/sub channel that wakes the waiters whose names begin with `channel`.
    pub(crate) fn channel(&self, channel: &str) -> String {
        format!("{}:released:{channel}", self.0.lock())
    }

    /// A call of a script about this lock.
    fn call(&self, script: &'static Script) -> ScriptCall {
        ScriptCall::new(script).key(self.0.lock())
    }
}

impl Claim {
    /// Asks a server for its vote; `entry` is `None` for an attempt that does not wait.
    pub(crate) fn vote(&self, proposal: u64, entry: Option<&WaiterEntry>) -> MemberCall {
        let waits = entry.map_or([0; 3], |entry| enrolled(entry).map(|time| u64::try_from(time).unwrap_or(u64::MAX)));
        let numbers = [proposal, waits[0], waits[1], waits[2]].map(pack);
        let waiter = entry.map_or("", |entry| &entry.waiter);
        let call = self
            .keys
            .call(self.pick(&ACQUIRE, &ACQUIRE_READ))
            .arg([self.value.as_bytes(), &self.payload].concat())
            .number(self.ttl.as_millis())
            .arg([numbers.as_flattened(), waiter.as_bytes()].concat());
        MemberCall(call)
    }

    /// Gives the holding to which a node gave `number` the number `token`, and raises the node's counter to `token`. A node
    /// refuses a reader the number if another one may have it.
    pub(crate) fn renumber(&self, number: u64, token: u64, stamp: &str) -> ScriptCall {
        self.call(&WRITE_BACK, &RENUMBER).number(number).number(token).arg(stamp)
    }

    /// Extends the holding to which a node gave `number`, and no other holding of the same value.
    pub(crate) fn extend(&self, number: u64, stamp: &str) -> ScriptCall {
        self.call(&RENEW, &RENEW_READ).number(self.ttl.as_millis()).number(number).arg(stamp)
    }

    /// Joins a node to the lease whose token is `token`.
    pub(crate) fn rejoin(&self, token: u64, stamp: &str) -> ScriptCall {
        let call = self.call(&REJOIN, &REJOIN_READ).number(self.ttl.as_millis()).number(token);
        call.arg(&*self.payload).arg(stamp)
    }

    /// Makes a reader, with the number `token`, of the writer to which a node gave `number`. May be sent again.
    pub(crate) fn downgrade(&self, number: u64, token: u64, stamp: &str) -> ScriptCall {
        let call =
            self.keys.call(&DOWNGRADE).arg(&self.value).number(self.ttl.as_millis()).number(number).number(token);
        call.arg(&*self.payload).arg(stamp)
    }

    /// Gives back what the attempt has on a node, as a writer or as a reader. May be sent again.
    pub(crate) fn undo(&self, tombstone: bool, change: QueueChange<'_>) -> ScriptCall {
        self.undo_value(&self.value, tombstone, change)
    }

    /// Changes the queue and gives nothing back.
    pub(crate) fn change_queue(&self, change: QueueChange<'_>) -> ScriptCall {
        // No attempt has the empty value.
        self.undo_value("", false, change)
    }

    fn undo_value(&self, value: &str, tombstone: bool, change: QueueChange<'_>) -> ScriptCall {
        let tombstone = if tombstone { TOMBSTONE } else { Duration::ZERO };
        let call = self.keys.call(&UNDO).arg(value).number(tombstone.as_millis());
        let call = call.arg(if self.kind == LockKind::Reader { "1" } else { "" });
        match change {
            QueueChange::None => call,
            QueueChange::Stay(entry) => {
                enrolled(entry).into_iter().fold(call.arg(&entry.waiter).arg("1"), ScriptCall::number)
            }
            QueueChange::Leave(entry) => call.arg(&entry.waiter).arg("").arg("0"),
            QueueChange::LeaveForGood(entry) => call.arg(&entry.waiter).arg("").number(TOMBSTONE.as_millis()),
        }
    }

    fn call(&self, writer: &'static Script, reader: &'static Script) -> ScriptCall {
        self.keys.call(self.pick(writer, reader)).arg(&self.value)
    }

    const fn pick(&self, writer: &'static Script, reader: &'static Script) -> &'static Script {
        match self.kind {
            LockKind::Writer => writer,
            LockKind::Reader => reader,
        }
    }
}

/// For how many milliseconds a waiter has waited, and for how many a node keeps its waiters and a writer's intent.
fn enrolled(entry: &WaiterEntry) -> [u128; 3] {
    [entry.waited, WAITERS_KEPT.min(entry.ttl), intent_kept(entry.ttl)].map(|time| time.as_millis())
}

/// A call of a script about the server itself.
fn server_call(script: &'static Script) -> ScriptCall {
    ScriptCall::new(script).key(STAMP).key(RUN).key(QUARANTINE).key(DEPLOYMENT)
}

/// Asks what a server says of itself.
pub(crate) fn status() -> ScriptCall {
    server_call(&STATUS)
}

/// Makes a server a member of a deployment if its stamp is still `seen`; the server gives no vote for `quarantine`.
pub(crate) fn mark_member(deployment: &Deployment, member: u32, seen: &str, quarantine: Duration) -> ScriptCall {
    mark(deployment, member, seen).number(quarantine.as_millis())
}

/// Tells a server of this generation of its deployment, in which it is this member or was one before. The server keeps its
/// locks.
pub(crate) fn advance(deployment: &Deployment, member: u32, seen: &str) -> ScriptCall {
    mark(deployment, member, seen).arg("")
}

fn mark(deployment: &Deployment, member: u32, seen: &str) -> ScriptCall {
    server_call(&MARK_MEMBER)
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
