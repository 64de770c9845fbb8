//! What the servers keep of a grant, and which of them give no vote.

use std::collections::BTreeMap;

use lock_core::LockName;
use lock_redis::keys::Keys;
use lock_redlock::quorum::majority;

use crate::{
    MS, Time,
    contest::{Grant, Stage},
    redis::{Fleet, Store, Value},
    world::ServerId,
};

/// The value of the attempt to which each token was granted, once it was seen.
pub(super) type Values = BTreeMap<u64, Vec<u8>>;

fn keys() -> Keys {
    Keys::new("lock", &LockName::new("orders").unwrap_or_else(|error| panic!("{error}")))
}

/// The keys that say who holds.
pub(super) fn holding_keys() -> [String; 3] {
    let keys = keys();
    [keys.lock().to_owned(), keys.readers(), keys.reading()]
}

/// Until when nobody whom this grant excludes can win a vote, if nobody asks for anything any more: in whichever
/// generation of the members that lasts longest.
pub(super) fn until(
    stage: &mut Stage,
    generations: &[Vec<ServerId>],
    values: &mut Values,
    max_ttl: Time,
    grant: &Grant,
) -> Time {
    let now = stage.world.now();
    let number = grant.token.number;
    if !values.contains_key(&number) {
        // Some servers may have given the same number to another attempt, which has a higher one elsewhere, or lost.
        let mut votes: BTreeMap<Vec<u8>, Vec<u64>> = BTreeMap::new();
        for server in stage.servers.clone() {
            for (value, its) in numbers(stage.fleet.store(server, now)) {
                votes.entry(value).or_default().push(its);
            }
        }
        let mut candidates: Vec<_> = votes.into_iter().filter(|(_, its)| its.contains(&number)).collect();
        // A server that granted late may have given a higher number to the one that it is.
        candidates.sort_by_key(|(_, its)| (its.len(), its.iter().all(|other| *other <= number)));
        if let Some((value, _)) = candidates.pop() {
            values.insert(number, value);
        }
    }
    let Some(value) = values.get(&number) else { return 0 };
    let kept = |stage: &mut Stage, server: ServerId| {
        let clock = stage.fleet.clock(server);
        // Another process, or one without its data, gives no vote for the longest ttl from when it becomes a member again.
        let is_out = stage.world.is_stopped(server) || !is_voting(stage.fleet.at(server, now).store());
        if is_out {
            return clock.when(clock.at(now) + max_ttl);
        }
        let store = stage.fleet.store(server, now);
        let quiet =
            store.get(b"redlock:quarantine").and_then(|entry| entry.expires).and_then(|last| u64::try_from(last).ok());
        let last = quiet.max(last_millisecond(store, value));
        last.map_or(0, |last| clock.when((last + 1) * MS))
    };
    let of = |stage: &mut Stage, members: &[ServerId]| {
        let mut all: Vec<Time> = members.iter().map(|server| kept(stage, *server)).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all[majority(members.len()) - 1]
    };
    generations.iter().map(|members| of(stage, members)).max().unwrap_or(0)
}

/// Whether the process is the one that was made a member.
fn is_voting(store: &Store) -> bool {
    let text = |key: &[u8]| match store.get(key).map(|entry| &entry.value) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    text(b"redlock:run").is_some_and(|run| run == store.run_id().as_bytes()) && text(b"redlock:member").is_some()
}

/// Who holds or reads on a server, and by which numbers.
fn numbers(store: &Store) -> Vec<(Vec<u8>, u64)> {
    let keys = keys();
    let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let mut all = Vec::new();
    if let Some(Value::Hash(fields)) = store.get(keys.token().as_bytes()).map(|entry| &entry.value) {
        let field = |name: &str| fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value);
        // What somebody left behind whose lease has ended says nothing.
        let holds = |value: &Vec<u8>| last_millisecond(store, value).is_some();
        all.extend(field("value").cloned().filter(holds).zip(field("held").and_then(|held| number(held))));
    }
    if let Some(Value::Hash(notes)) = store.get(keys.reading().as_bytes()).map(|entry| &entry.value) {
        let first = |note: &[u8]| note.split(|byte| *byte == b' ').next().and_then(number);
        all.extend(notes.iter().filter_map(|(value, note)| Some((value.clone(), first(note)?))));
    }
    all
}

/// The last millisecond in which a server keeps something for that attempt.
fn last_millisecond(store: &Store, value: &[u8]) -> Option<u64> {
    let keys = keys();
    let lock = store.get(keys.lock().as_bytes());
    let is_its = lock.is_some_and(|entry| matches!(&entry.value, Value::Text(text) if text == value));
    let written = lock.filter(|_| is_its).and_then(|entry| u64::try_from(entry.expires?).ok());
    let Some(Value::Sorted(readers)) = store.get(keys.readers().as_bytes()).map(|entry| &entry.value) else {
        return written;
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in milliseconds")]
    let read = readers.score(value).map(|ends| ends as u64);
    written.max(read)
}

/// A key that nobody needs any more: at once, or when everything that ends has ended.
pub(super) fn residue(fleet: &mut Fleet, now: Time, server: ServerId, at_once: bool) -> Option<String> {
    let store = fleet.store(server, now);
    let token = keys().token();
    let held = holding_keys();
    let names = store.keys().map(|(key, _)| String::from_utf8_lossy(key).into_owned());
    let mut left = names.filter(|key| *key != token && !key.starts_with("redlock:"));
    left.find(|key| !at_once || held.contains(key))
}
