//! The strategy `plain`: what the server keeps, and clients of other libraries on the same key.

use std::sync::LazyLock;

use lock_core::LockName;
use lock_redis::{keys::Keys, protocol::packed::Lock};

use super::kept::text;
use crate::{
    MS, Time,
    contest::Grant,
    redis::{Fleet, Reply, Store},
    world::ServerId,
};

/// What the lock key holds while a client of another library holds the lock.
const FOREIGN: &[u8] = b"foreign";

/// What the checks of the strategy `plain` know of a schedule: records that were deleted, and a foreign holder.
#[derive(Debug, Default)]
pub(super) struct Plain {
    /// What records said that somebody deleted: who is told of its number goes on without its record.
    former: Vec<Lock>,
    foreign: Option<Foreign>,
}

/// A client of another library that holds the lock.
#[derive(Debug, Clone, Copy)]
struct Foreign {
    /// Its last millisecond, by the server's clock.
    until: u64,
    /// The process of the server, which may lose it when it ends.
    process: u32,
}

static KEYS: LazyLock<Keys> = LazyLock::new(|| {
    let name = LockName::new("orders").unwrap_or_else(|error| panic!("{error}"));
    Keys::plain("lock", &name).unwrap_or_else(|| panic!("a reserved name"))
});

static TOKEN: LazyLock<String> = LazyLock::new(|| KEYS.token());

fn record(store: &Store) -> Option<Lock> {
    Lock::read_record(text(store, &TOKEN)?)
}

impl Plain {
    /// Until when a server keeps a grant, if nobody asks anything of it any more; 0 where it does not.
    pub(super) fn until(&self, fleet: &mut Fleet, now: Time, server: ServerId, grant: &Grant) -> Time {
        let clock = fleet.clock(server);
        let store = fleet.store(server, now);
        let Some(held) = text(store, KEYS.lock()) else { return 0 };
        let mut known = self.former.iter().cloned().chain(record(store));
        let is_its = known.any(|lock| lock.number == grant.token.number && lock.value == *held);
        let last = store.get(KEYS.lock().as_bytes()).and_then(|entry| u64::try_from(entry.expires?).ok());
        // It is there in the whole of its last millisecond.
        last.filter(|_| is_its).map_or(0, |last| clock.when((last + 1) * MS))
    }

    /// A key that nobody needs any more: at once, or when everything that ends has ended.
    pub(super) fn residue(fleet: &mut Fleet, now: Time, server: ServerId, at_once: bool) -> Option<String> {
        let store = fleet.store(server, now);
        let lock = KEYS.lock();
        let is_foreign = text(store, lock).is_some_and(|held| held == FOREIGN);
        let ends = |key: &String| key.starts_with("lock-plain:undone:") || is_foreign && key == lock;
        let names = store.keys().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
        let mut left = names.filter(|key| *key != *TOKEN);
        left.find(|key| !at_once || !ends(key))
    }

    /// Somebody deletes the record.
    pub(super) fn delete_record(&mut self, fleet: &mut Fleet, now: Time, server: ServerId) {
        let store = fleet.at(server, now).store_mut();
        self.former.extend(record(store));
        store.remove(TOKEN.as_bytes());
    }

    /// Somebody deletes the lock.
    pub(super) fn delete_lock(&mut self, fleet: &mut Fleet, now: Time, server: ServerId) {
        self.foreign = None;
        fleet.at(server, now).store_mut().remove(KEYS.lock().as_bytes());
    }

    /// A client of another library takes the lock for so many milliseconds, if it is free. Whether it was.
    pub(super) fn take_foreign(&mut self, fleet: &mut Fleet, now: Time, server: ServerId, ms: u64) -> bool {
        let (clock, process) = (fleet.clock(server), fleet.process(server));
        let store = fleet.at(server, now).store_mut();
        let length = ms.to_string();
        let taking: [&[u8]; 6] = [b"SET", KEYS.lock().as_bytes(), FOREIGN, b"NX", b"PX", length.as_bytes()];
        let is_granted = store.command(&taking) == Reply::ok();
        if is_granted {
            self.foreign = Some(Foreign { until: clock.at(now) / MS + ms, process });
        }
        is_granted
    }

    /// It gives the lock back, if it still has it.
    pub(super) fn release_foreign(&mut self, fleet: &mut Fleet, now: Time, server: ServerId) {
        if text(fleet.store(server, now), KEYS.lock()).is_some_and(|held| held == FOREIGN) {
            self.delete_lock(fleet, now, server);
        }
    }

    /// What is wrong with the lock that a client of another library holds.
    pub(super) fn look(&mut self, fleet: &mut Fleet, now: Time, server: ServerId) -> Option<String> {
        let foreign = self.foreign?;
        let ms = fleet.clock(server).at(now) / MS;
        if ms >= foreign.until || fleet.process(server) != foreign.process {
            self.foreign = None;
            return None;
        }
        let held = text(fleet.store(server, now), KEYS.lock());
        let left = foreign.until - ms;
        (held.is_none_or(|held| held != FOREIGN))
            .then(|| format!("the lock of another library's client is gone, {left} ms before its end"))
    }
}
