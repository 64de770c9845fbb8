//! Who stands in line on the server, and whether the lock is handed over in that order, to those who are there.

use std::collections::BTreeMap;

use lock_redis::{keys::LineKeys, protocol::packed::Lock};

use crate::{
    MS, Time,
    contest::Oracle,
    redis::{Seen, Store, Value},
};

use super::kept::{LINES, notes, text};

/// Checks the order of hand-overs: what the queues of the lock and of the semaphore were when they were seen last.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: [Line; 2],
    seen: Option<Seen>,
}

/// The queue of a lock or of a semaphore, with its holders, when it was seen last.
#[derive(Debug, Default)]
struct Line {
    /// Who held, by the values of their attempts.
    holding: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Those who stood in line, in their order.
    waiting: Vec<Vec<u8>>,
}

/// For how long a server may still take a waiter for alive that has died.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Since the last beat: three of them, for the longest ttl.
    pub(super) alive: Time,
    /// How long the last beat is on its way at most.
    pub(super) late: Time,
}

impl Lines {
    /// Looks at the lines; says what is wrong with a hand-over since the last look.
    pub(super) fn look(
        &mut self,
        store: &Store,
        now: Time,
        patience: Option<Patience>,
        oracle: &Oracle,
    ) -> Option<String> {
        if self.seen.is_some_and(|seen| store.is_as_seen(seen)) {
            return None;
        }
        self.seen = Some(store.seen());
        let mut wrong = None;
        for (line, keys) in self.lines.iter_mut().zip(&*LINES) {
            wrong = wrong.or(line.look(store, keys, now, patience, oracle));
        }
        wrong
    }
}

impl Line {
    fn look(
        &mut self,
        store: &Store,
        keys: &LineKeys,
        now: Time,
        patience: Option<Patience>,
        oracle: &Oracle,
    ) -> Option<String> {
        let waited = std::mem::replace(&mut self.waiting, queue(store, keys));
        let held = std::mem::replace(&mut self.holding, holders(store, keys));
        let new = self.holding.iter().filter(|(value, _)| !held.contains_key(*value));
        let mut wrong = new.filter_map(|(value, payload)| {
            let mut ahead = waited.iter().take_while(|waiter| *waiter != value);
            if ahead.any(|waiter| self.waiting.contains(waiter)) {
                return Some(format!("{} came later and overtook one that stands in line", show(payload)));
            }
            let died = oracle.died_at(show(payload).split('-').next()?.parse().ok()?)?;
            let Patience { alive, late } = patience?;
            let most = died + late + alive + alive / 100 + 50 * MS;
            let by = now.saturating_sub(most) / MS;
            let who = show(payload);
            (now > most).then(|| format!("the lock is handed to {who}, dead for {by} ms more than it may be"))
        });
        wrong.next()
    }
}

/// Who holds, alone or beside others, by the values of their attempts.
fn holders(store: &Store, keys: &LineKeys) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let alone = text(store, &keys.lock).and_then(|packed| Lock::read(packed));
    let alone = alone.map(|lock| (lock.value, lock.payload));
    let shared = notes(store, keys).into_iter().map(|(value, note)| (value.clone(), note.payload));
    shared.chain(alone).collect()
}

fn queue(store: &Store, keys: &LineKeys) -> Vec<Vec<u8>> {
    match store.get(keys.queue.as_bytes()).map(|entry| &entry.value) {
        Some(Value::Sorted(set)) => set.0.iter().map(|(_, waiter)| waiter.clone()).collect(),
        _ => Vec::new(),
    }
}

fn show(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
