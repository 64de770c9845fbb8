//! What a node keeps, for a comparison with a real server.

use std::collections::{BTreeMap, BTreeSet};

use super::{Node, Reserved, Value, Waiter};

/// What the scripts leave of one lock on a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// The writer.
    pub lock: Option<Value>,
    /// The counter.
    pub counter: Option<u64>,
    /// Whose holding was the last writer's, and its number.
    pub held: Option<(Value, u64)>,
    /// The number of each reader.
    pub readers: BTreeMap<Value, u64>,
    /// Which attempts were undone.
    pub tombstones: BTreeSet<Value>,
    /// Writers in line.
    pub waiters: Vec<Waiter>,
    /// Readers in line, and whether each was woken.
    pub waiting: BTreeMap<Waiter, bool>,
    /// The writers that keep readers out.
    pub intents: BTreeSet<Waiter>,
    /// For whom the lock is kept.
    pub reservation: Option<Reserved>,
    /// Whether it gives no vote.
    pub quarantine: bool,
}

impl Node {
    /// What it keeps.
    #[must_use]
    pub fn kept(&self) -> Kept {
        Kept {
            lock: self.lock.map(|lock| lock.value),
            counter: self.counter,
            held: self.held,
            readers: self.readers.iter().map(|reader| (reader.value, reader.number)).collect(),
            tombstones: self.tombstones.iter().map(|(value, _)| *value).collect(),
            waiters: self.waiters.iter().map(|(_, waiter)| *waiter).collect(),
            waiting: self.waiting.iter().map(|(came, waiter)| (*waiter, came.is_none())).collect(),
            intents: self.intents.iter().map(|intent| intent.waiter).collect(),
            reservation: self.reservation.map(|(reserved, _)| reserved),
            quarantine: self.quarantine.is_some(),
        }
    }
}
