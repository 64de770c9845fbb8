//! What the servers keep of a grant, and which of them give no vote.

use std::sync::LazyLock;

use lock_core::LockName;
use lock_redis::{keys::Keys, protocol::packed::Lock};

use crate::{
    MS, Time,
    contest::{Grant, Stage},
    redis::{Fleet, Store, Value, server_at},
    world::ServerId,
};

/// What a server keeps of the lock that everybody competes for.
struct LockKeys {
    token: String,
    lock: String,
    readers: String,
    reading: String,
}

static KEYS: LazyLock<LockKeys> = LazyLock::new(|| {
    let name = LockName::new("orders").unwrap_or_else(|error| panic!("{error}"));
    let keys = Keys::new("lock", &name);
    let lock = keys.lock().to_owned();
    LockKeys { token: keys.token(), lock, readers: keys.readers(), reading: keys.reading() }
});

/// The keys that say who holds.
pub(super) fn holding_keys() -> [&'static str; 3] {
    [&KEYS.lock, &KEYS.readers, &KEYS.reading]
}

/// Until when nobody whom this grant excludes can win a vote, in none of the generations of the members, if nobody asks
/// for anything any more but to be granted the lock.
pub(super) fn until(
    stage: &mut Stage,
    records: &mut Records,
    generations: &[Vec<ServerId>],
    max_ttl: Time,
    grant: &Grant,
) -> Time {
    let now = stage.world.now();
    let mut kept = |stage: &mut Stage, server: ServerId, asked_in: usize| {
        let clock = stage.fleet.clock(server);
        // Another process, or one without its data, gives no vote for the longest ttl from when it becomes a member again.
        let is_out = stage.world.is_stopped(server) || !is_voting(stage.fleet.at(server, now).store());
        if is_out {
            return clock.when(clock.at(now) + max_ttl);
        }
        // One that knows of a later generation does not vote in an earlier one any more. The other way round it may be
        // told in the next moment, and keeps what it keeps.
        let store = stage.fleet.store(server, now);
        if generations.len() > 1 && records.known(store, generations).is_some_and(|its| its > asked_in) {
            return Time::MAX;
        }
        let quiet =
            store.get(b"redlock:quarantine").and_then(|entry| entry.expires).and_then(|last| u64::try_from(last).ok());
        let last = quiet.max(last_millisecond(store, grant.payload.as_bytes()));
        last.map_or(0, |last| clock.when((last + 1) * MS))
    };
    let mut of = |stage: &mut Stage, place: usize, members: &[ServerId]| {
        let mut all: Vec<Time> = members.iter().map(|server| kept(stage, *server, place)).collect();
        all.sort_unstable_by(|one, other| other.cmp(one));
        all[members.len() / 2]
    };
    (0..generations.len()).map(|place| of(stage, place, &generations[place])).min().unwrap_or(0)
}

/// Of which generation a record is, by the members that it names: the same few records are looked at again and again.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<(Vec<u8>, usize)>);

impl Records {
    /// Which one of the generations a server knows of.
    pub(super) fn known(&mut self, store: &Store, generations: &[Vec<ServerId>]) -> Option<usize> {
        let Value::Hash(record) = &store.get(b"redlock:deployment")?.value else { return None };
        let (_, members) = record.iter().find(|(field, _)| field == b"members")?;
        if let Some((_, generation)) = self.0.iter().find(|(text, _)| text == members) {
            return Some(*generation);
        }
        let names = std::str::from_utf8(members).ok()?.split(' ').filter_map(name);
        let named: Vec<ServerId> = names.map(server_at).collect::<Option<_>>()?;
        let is_it = |generation: &Vec<ServerId>| {
            generation.len() == named.len() && generation.iter().all(|server| named.contains(server))
        };
        let generation = generations.iter().position(is_it)?;
        self.0.push((members.clone(), generation));
        Some(generation)
    }
}

/// Whether most of the members have lost all their data, and none of them knows of the last generation.
pub(super) fn is_forgotten(
    stage: &mut Stage,
    records: &mut Records,
    generations: &[Vec<ServerId>],
    members: &[ServerId],
) -> bool {
    let now = stage.world.now();
    let mut known = |server: &ServerId| records.known(stage.fleet.store(*server, now), generations);
    let all: Vec<Option<usize>> = members.iter().map(&mut known).collect();
    let empty = all.iter().filter(|known| known.is_none()).count();
    empty > members.len() / 2 && !all.contains(&Some(generations.len() - 1))
}

/// The address in `number=address`.
fn name(member: &str) -> Option<&str> {
    member.split_once('=').map(|(_, name)| name)
}

/// Whether the process is the one that was made a member.
fn is_voting(store: &Store) -> bool {
    let text = |key: &[u8]| match store.get(key).map(|entry| &entry.value) {
        Some(Value::Text(text)) => Some(text),
        _ => None,
    };
    text(b"redlock:run").is_some_and(|run| run == store.run_id().as_bytes()) && text(b"redlock:member").is_some()
}

/// The last millisecond in which a server keeps something for whoever asked with this payload.
fn last_millisecond(store: &Store, payload: &[u8]) -> Option<u64> {
    writer(store, payload).max(reader(store, payload))
}

fn writer(store: &Store, payload: &[u8]) -> Option<u64> {
    let entry = store.get(KEYS.lock.as_bytes())?;
    let Value::Text(held) = &entry.value else { return None };
    let is_its = Lock::read(held).is_some_and(|writer| writer.payload == payload);
    u64::try_from(entry.expires?).ok().filter(|_| is_its)
}

fn reader(store: &Store, payload: &[u8]) -> Option<u64> {
    let Value::Hash(notes) = &store.get(KEYS.reading.as_bytes())?.value else { return None };
    let Value::Sorted(readers) = &store.get(KEYS.readers.as_bytes())?.value else { return None };
    let is_its = |note: &[u8]| note.split(|byte| *byte == b' ').nth(4) == Some(payload);
    // What an earlier round of the same acquisition left keeps others out, too.
    let its = notes.iter().filter(|(_, note)| is_its(note)).filter_map(|(value, _)| readers.score(value));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time in milliseconds")]
    its.map(|ends| ends as u64).max()
}

/// A key that nobody needs any more: at once, or when everything that ends has ended.
pub(super) fn residue(fleet: &mut Fleet, now: Time, server: ServerId, at_once: bool) -> Option<String> {
    let store = fleet.store(server, now);
    let held = holding_keys();
    let mut left = store.keys().filter(|(key, _)| *key != KEYS.token.as_bytes() && !key.starts_with(b"redlock:"));
    let found = left.find(|(key, _)| !at_once || held.iter().any(|held| held.as_bytes() == *key));
    found.map(|(key, _)| String::from_utf8_lossy(key).into_owned())
}
