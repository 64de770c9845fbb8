//! What the server keeps, by what stands in its keys.

use lock_core::LockName;
use lock_redis::keys::Keys;

use crate::{
    MS, Time,
    contest::Grant,
    redis::{Fleet, Store, Value},
    world::ServerId,
};

pub(super) fn keys() -> Keys {
    Keys::new("lock", &LockName::new("orders").unwrap_or_else(|error| panic!("{error}")))
}

/// Until when a server keeps a grant, if nobody asks anything of it any more; 0 where it does not.
pub(super) fn until(fleet: &mut Fleet, now: Time, server: ServerId, grant: &Grant) -> Time {
    let clock = fleet.clock(server);
    let store = fleet.store(server, now);
    let number = grant.token.number.to_string();
    // One that becomes a reader may be one on the server already, or not yet.
    let as_reader = if grant.reads { reader(store, &number) } else { None };
    let last = as_reader.or_else(|| writer(store, &number));
    // It is there in the whole of its last millisecond.
    last.map_or(0, |last| clock.when((last + 1) * MS))
}

/// The last millisecond of the lock key, if it is that of the grant with this number.
fn writer(store: &Store, number: &str) -> Option<u64> {
    let keys = keys();
    let Value::Hash(fields) = &store.get(keys.token().as_bytes())?.value else { return None };
    let field = |name: &str| fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value);
    let entry = store.get(keys.lock().as_bytes())?;
    let Value::Text(value) = &entry.value else { return None };
    let is_its = field("held").is_some_and(|held| held == number.as_bytes()) && field("value") == Some(value);
    u64::try_from(entry.expires?).ok().filter(|_| is_its)
}

/// The last millisecond of the reader whose note begins with this number.
fn reader(store: &Store, number: &str) -> Option<u64> {
    let keys = keys();
    let Value::Hash(notes) = &store.get(keys.reading().as_bytes())?.value else { return None };
    let Value::Sorted(readers) = &store.get(keys.readers().as_bytes())?.value else { return None };
    let is_its = |note: &[u8]| note.split(|byte| *byte == b' ').next() == Some(number.as_bytes());
    let (value, _) = notes.iter().find(|(_, note)| is_its(note))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in milliseconds")]
    readers.score(value).map(|ends| ends as u64)
}

/// A key that nobody needs any more: at once, or when everything that ends has ended.
pub(super) fn residue(fleet: &mut Fleet, now: Time, server: ServerId, at_once: bool) -> Option<String> {
    let store = fleet.store(server, now);
    let token = keys().token();
    let names = store.keys().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
    let mut left = names.filter(|key| *key != token);
    // Tombstones, lock delays and the notes of writers that wait are there to end by themselves. A note may come on a
    // connection that was reset, when its writer has held the lock already by another one.
    let ends = |key: &str| {
        key.contains(":undone:") || [":delay", ":writers", ":writing"].iter().any(|part| key.ends_with(part))
    };
    left.find(|key| !at_once || !ends(key))
}
