//! Who stands in line on the server, and whether the lock is handed over in that order, to those who are there.

use crate::{
    MS, Time,
    contest::Oracle,
    redis::{Store, Value},
};

use super::kept::keys;

/// What was last seen of a line.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// The number of the newest holder.
    held: Option<Vec<u8>>,
    /// Those who stood in line, in their order.
    waiting: Vec<Vec<u8>>,
}

/// For how long somebody who died may still be taken for alive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Since the last heartbeat: three of them, for the longest ttl.
    pub(super) alive: Time,
    /// How long the last heartbeat is on its way at most.
    pub(super) late: Time,
}

impl Line {
    /// Looks at the line; says what is wrong with a hand-over since the last look.
    pub(super) fn look(
        &mut self,
        store: &Store,
        now: Time,
        patience: Option<Patience>,
        oracle: &Oracle,
    ) -> Option<String> {
        let token = keys().token();
        let field = |name: &str| match store.get(token.as_bytes()).map(|entry| &entry.value) {
            Some(Value::Hash(fields)) => {
                fields.iter().find(|(field, _)| field == name.as_bytes()).map(|(_, value)| value.clone())
            }
            _ => None,
        };
        let held = field("held");
        let waiting = queue(store);
        let before = std::mem::replace(&mut self.waiting, waiting);
        if held == self.held {
            return None;
        }
        self.held = held;
        let (value, payload) = (field("value")?, field("payload")?);
        let ahead = before.iter().take_while(|waiter| **waiter != value);
        if ahead.clone().any(|waiter| self.waiting.contains(waiter)) {
            return Some(format!("{} came later and overtook one that stands in line", show(&payload)));
        }
        let died = oracle.died_at(show(&payload).split('-').next()?.parse().ok()?)?;
        let Patience { alive, late } = patience?;
        let most = died + late + alive + alive / 100 + 50 * MS;
        let by = now.saturating_sub(most) / MS;
        (now > most).then(|| format!("the lock is handed to {}, dead for {by} ms more than it may be", show(&payload)))
    }
}

fn queue(store: &Store) -> Vec<Vec<u8>> {
    let [queue, ..] = keys().queue();
    match store.get(queue.as_bytes()).map(|entry| &entry.value) {
        Some(Value::Sorted(set)) => set.0.iter().map(|(_, waiter)| waiter.clone()).collect(),
        _ => Vec::new(),
    }
}

fn show(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
