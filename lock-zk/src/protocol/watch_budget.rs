//! How many watches one session can have.
//!
//! A client that is connected again sets all its watches anew. The client library sends them in requests of up to 128 KiB of
//! paths, all under one number: where there are two, the answer to the second one belongs to no request, the connection
//! is given up, and the next one ends in the same way until the session has expired. So the paths that a session may
//! watch are counted, and who finds no room in it goes to another session.

use std::sync::atomic::{AtomicUsize, Ordering};

/// How many bytes of paths the watches of one session may have: what the library sends in one request, less what is counted
/// a moment too late (a watch that is set while the one before it goes).
// Safeguard: a session has no more watches than it can set anew (ZooKeeper)
pub(crate) const CAPACITY: usize = 112 * 1024;

/// No contender's node has a longer name: a unique id, a session, a kind, a number, and what is between them.
const LONGEST_NAME: usize = 96;

/// What somebody takes who watches nothing, so that the session stays.
pub(crate) const NO_WATCH: usize = 1;

/// The bytes of a watch on a contender's node in `directory`.
pub(crate) const fn one_watch(directory: &str) -> usize {
    directory.len() + 1 + LONGEST_NAME
}

/// The bytes of the watches of one who waits: on its own node and on the one ahead, or on the directory.
pub(crate) const fn waiter_watches(directory: &str) -> usize {
    2 * one_watch(directory)
}

/// The bytes that the watches of one session take of the longest message that a client can send.
#[derive(Debug, Default)]
pub(crate) struct WatchBudget(AtomicUsize);

impl WatchBudget {
    /// The value of a session that takes nobody any more.
    const RETIRED: usize = usize::MAX;

    /// Takes `bytes` if there is room for them. There always is in an empty session, or they would find no place at all; and
    /// for one who watches nothing.
    pub(crate) fn take(&self, bytes: usize) -> bool {
        let fits = |taken: usize| {
            let fits = taken == 0 || bytes <= NO_WATCH || taken.saturating_add(bytes) <= CAPACITY;
            (fits && taken != Self::RETIRED).then(|| taken + bytes)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok()
    }

    /// Takes `bytes` beside what whoever asks has taken already.
    pub(crate) fn add(&self, bytes: usize) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_unused(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Lets nobody in any more. False when somebody is there.
    pub(crate) fn retire(&self) -> bool {
        self.0.compare_exchange(0, Self::RETIRED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_room_for_unless_nobody_is_there() {
        let taken = WatchBudget::default();
        assert!(taken.is_unused() && taken.take(CAPACITY + 1));
        assert!(!taken.take(2) && !taken.is_unused() && !taken.retire());
        taken.0.store(CAPACITY - 2, Ordering::Relaxed);
        assert!(taken.take(2) && !taken.take(2) && taken.take(NO_WATCH));
    }

    #[test]
    fn a_session_that_is_retired_takes_nobody() {
        let taken = WatchBudget::default();
        assert!(taken.retire() && !taken.take(NO_WATCH) && !taken.take(2) && !taken.retire());
    }
}
