//! The keys of a server, who listens to which channel, and what its clock shows.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::{reply::Reply, values::Value};

/// Milliseconds since 1970.
pub(super) type Millis = i64;

/// A key's value, and when it ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What it holds.
    pub value: Value,
    /// The last millisecond in which it is there, by the server's clock.
    pub expires: Option<Millis>,
}

/// Keys with what they hold. Their order, which nothing asks for, is the same in each run.
pub(super) type Keys = FxHashMap<Vec<u8>, Entry>;

/// What somebody has seen of a [`Store`]: it is the same until somebody changes something or a key ends.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    changes: u64,
    from: Millis,
    /// The last millisecond of the key that ends first.
    to: Millis,
}

/// What a server keeps and knows while it runs.
#[derive(Debug, Clone, Default)]
pub struct Store {
    keys: Keys,
    /// How often something may have been changed, or read by somebody who may change it.
    changes: u64,
    /// What the server's clock shows, in microseconds since 1970.
    pub(super) now: u64,
    pub(super) run_id: String,
    /// Who listens to a channel, by the numbers of their connections.
    pub(super) channels: BTreeMap<Vec<u8>, Vec<u32>>,
    /// What is to be told to whom.
    pub(super) told: Vec<(u32, Vec<u8>)>,
}

impl Store {
    /// A store without keys, of the server process with that id.
    #[must_use]
    pub fn new(run_id: String) -> Self {
        Self { run_id, ..Self::default() }
    }

    pub(super) fn ms(&self) -> Millis {
        Millis::try_from(self.now / 1_000).unwrap_or(Millis::MAX)
    }

    /// Which process it is.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The key, if it has not ended.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&Entry> {
        let ms = self.ms();
        self.keys.get(key).filter(|entry| !entry.has_ended(ms))
    }

    /// Rises whenever something may have been changed.
    pub(super) const fn changes(&self) -> u64 {
        self.changes
    }

    /// What is there now, to find out later whether it is still the same.
    #[must_use]
    pub fn seen(&self) -> Seen {
        let from = self.ms();
        let ends = self.keys.values().filter_map(|entry| entry.expires).filter(|ends| *ends >= from);
        Seen { changes: self.changes, from, to: ends.min().unwrap_or(Millis::MAX) }
    }

    /// Whether everything is as it was seen: nobody has changed anything, and no key has ended.
    #[must_use]
    pub fn is_as_seen(&self, seen: Seen) -> bool {
        self.changes == seen.changes && (seen.from..=seen.to).contains(&self.ms())
    }

    pub(super) fn get_mut(&mut self, key: &[u8]) -> Option<&mut Entry> {
        self.changes += 1;
        let ms = self.ms();
        if self.keys.get(key).is_some_and(|entry| entry.has_ended(ms)) {
            self.keys.remove(key);
        }
        self.keys.get_mut(key)
    }

    pub(super) fn put(&mut self, key: &[u8], entry: Entry) {
        self.changes += 1;
        self.keys.insert(key.to_vec(), entry);
    }

    /// Removes a key; false when it is not there.
    pub fn remove(&mut self, key: &[u8]) -> bool {
        self.changes += 1;
        let ms = self.ms();
        self.keys.remove(key).is_some_and(|entry| !entry.has_ended(ms))
    }

    /// Removes a key in which nothing is left.
    pub(super) fn tidy(&mut self, key: &[u8]) {
        self.changes += 1;
        if self.keys.get(key).is_some_and(|entry| entry.value.is_empty()) {
            self.keys.remove(key);
        }
    }

    /// All keys that have not ended.
    pub fn keys(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        let ms = self.ms();
        self.keys.iter().filter(move |(_, entry)| !entry.has_ended(ms)).map(|(key, entry)| (key.as_slice(), entry))
    }

    /// What it has kept, of which nothing is left.
    pub fn flush(&mut self) {
        self.changes += 1;
        self.keys.clear();
    }

    /// What it keeps, to be put back.
    #[must_use]
    pub fn snapshot(&self) -> Keys {
        self.keys.clone()
    }

    /// Puts back what was kept.
    pub fn restore(&mut self, keys: Keys) {
        self.changes += 1;
        self.keys = keys;
    }

    /// Tells all who listen to a channel; says how many they are.
    pub(super) fn publish(&mut self, channel: &[u8], message: &[u8]) -> Reply {
        let Some(listeners) = self.channels.get(channel) else { return Reply::Int(0) };
        let mut written = Vec::new();
        let parts = [b"message", channel, message].map(Reply::bulk);
        Reply::Array(parts.into()).write(&mut written);
        self.told.extend(listeners.iter().map(|listener| (*listener, written.clone())));
        Reply::count(listeners.len())
    }
}

impl Entry {
    const fn has_ended(&self, ms: Millis) -> bool {
        matches!(self.expires, Some(expires) if ms > expires)
    }
}
