//! What the server keeps, by what stands in its keys.

use std::sync::LazyLock;

use lock_core::LockName;
use lock_redis::{
    keys::{Keys, LineKeys},
    protocol::packed::{Lock, Note},
};

use crate::{
    MS, Time,
    contest::Grant,
    redis::{Fleet, Store, Value},
    world::ServerId,
};

/// The key with the newest token.
pub(super) static TOKEN: LazyLock<String> = LazyLock::new(|| keys().token());

/// The lines of the lock and of the semaphore.
pub(super) static LINES: LazyLock<[LineKeys; 2]> = LazyLock::new(|| [false, true].map(|of| keys().line(of)));

fn keys() -> Keys {
    Keys::new("lock", &LockName::new("orders").unwrap_or_else(|error| panic!("{error}")))
}

/// The string in this key.
pub(super) fn text<'a>(store: &'a Store, key: &str) -> Option<&'a Vec<u8>> {
    match &store.get(key.as_bytes())?.value {
        Value::Text(text) => Some(text),
        _ => None,
    }
}

/// Those who share what is held in this line, with their notes.
pub(super) fn notes<'a>(store: &'a Store, line: &LineKeys) -> Vec<(&'a Vec<u8>, Note)> {
    let Some(Value::Hash(notes)) = store.get(line.notes.as_bytes()).map(|entry| &entry.value) else {
        return Vec::new();
    };
    notes.iter().filter_map(|(value, note)| Some((value, Note::read(note)?))).collect()
}

/// Until when a server keeps a grant, if nobody asks anything of it any more; 0 where it does not.
pub(super) fn until(fleet: &mut Fleet, now: Time, server: ServerId, grant: &Grant) -> Time {
    let clock = fleet.clock(server);
    let store = fleet.store(server, now);
    let number = grant.token.number;
    let [lock, semaphore] = &*LINES;
    // One that becomes a reader may be one on the server already, or not yet.
    let last = if grant.permits.is_some() {
        // Its number is not told.
        member(store, semaphore, |note| note.payload == grant.payload.as_bytes())
    } else {
        let as_reader = if grant.reads { member(store, lock, |note| note.number == number) } else { None };
        as_reader.or_else(|| writer(store, lock, number))
    };
    // It is there in the whole of its last millisecond.
    last.map_or(0, |last| clock.when((last + 1) * MS))
}

/// The last millisecond of the lock key, if it is that of the grant with this number.
fn writer(store: &Store, line: &LineKeys, number: u64) -> Option<u64> {
    let lock = Lock::read(text(store, &line.lock)?)?;
    let entry = store.get(line.lock.as_bytes())?;
    u64::try_from(entry.expires?).ok().filter(|_| lock.number == number)
}

/// The last millisecond of the lease of the member with this note; the later one of two attempts of one acquisition.
fn member(store: &Store, line: &LineKeys, is_its: impl Fn(&Note) -> bool) -> Option<u64> {
    leases(store, line).filter(|(note, _)| is_its(note)).map(|(_, ends)| ends).max()
}

/// The members of a line with the last milliseconds of their leases, after which a member stays for its lock delay.
fn leases(store: &Store, line: &LineKeys) -> impl Iterator<Item = (Note, u64)> {
    let members = match store.get(line.members.as_bytes()).map(|entry| &entry.value) {
        Some(Value::Sorted(members)) => Some(members),
        _ => None,
    };
    notes(store, line).into_iter().filter_map(move |(value, note)| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in milliseconds")]
        let ends = members?.score(value)? as u64;
        let delay = u64::try_from(note.delay.as_millis()).ok()?;
        Some((note, ends.saturating_sub(delay)))
    })
}

/// A key that nobody needs any more: at once, or when everything that ends has ended.
pub(super) fn residue(fleet: &mut Fleet, now: Time, server: ServerId, at_once: bool) -> Option<String> {
    let clock = fleet.clock(server);
    let store = fleet.store(server, now);
    // Tombstones and lock delays are there to end by themselves, and so are members whose leases have ended.
    let has_ended = |line: &LineKeys| leases(store, line).all(|(_, ends)| clock.when((ends + 1) * MS) <= now);
    let ended: Vec<&String> =
        LINES.iter().filter(|line| has_ended(line)).flat_map(|line| [&line.members, &line.notes]).collect();
    let ends = |key: &String| key.contains(":undone:") || key.ends_with(":delay") || ended.contains(&key);
    let names = store.keys().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
    let mut left = names.filter(|key| *key != *TOKEN);
    left.find(|key| !at_once || !ends(key))
}
