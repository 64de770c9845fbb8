//! The registers of the store that the locks protect.

use std::collections::BTreeMap;

use lock_core::FencingToken;

use super::events::{Attempt, Lock, Update, Values, Write, now};

/// The registers of the store that clients write to under the locks, without the fence that decides who may write.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// The highest token that each register without a fence has seen.
    highest: BTreeMap<Lock, FencingToken>,
    /// Number of updates so far.
    updates: u64,
    values: Values,
}

impl Registers {
    /// The values of the busy lock.
    pub(super) const fn values(&self) -> Values {
        self.values
    }

    /// Writes with that token, which the fence let through or not.
    pub(super) fn write(&mut self, whose: Attempt, token: FencingToken, fenced: bool) -> Write {
        let highest = self.highest.entry(whose.lock).or_insert(token);
        let went_back = token < *highest;
        *highest = token.max(*highest);
        Write { at: now(), whose, token, fenced, went_back }
    }

    /// Updates the value of the busy lock.
    pub(super) fn update(&mut self, update: Update) -> Update {
        self.updates += 1;
        self.values.unfenced = self.updates;
        if update.fenced {
            self.values.fenced = self.updates;
        }
        update
    }
}
