//! What each measurement finds on one backend.

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// One client, no contention.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Uncontended {
    /// From the call of lock to the guard, in microseconds.
    pub acquire: Latency,
    /// From the call of release to its end, in microseconds.
    pub release: Latency,
    /// Acquire and release together, in microseconds.
    pub both: Latency,
    /// What all servers received, per acquire and release; `None` where there is no server.
    pub requests: Option<f64>,
    /// Pairs that failed, in the acquisition or in the release; they count nowhere else.
    pub errors: usize,
    /// Whether each token was higher than the one before.
    pub tokens_rise: bool,
}

/// Many clients contend for one lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Contended {
    /// Number of grants.
    pub grants: usize,
    /// Hand-offs between different clients.
    pub moves: usize,
    /// Hand-offs between different clients, per second.
    pub moves_per_second: f64,
    /// From a release to the grant of a different client, in microseconds.
    pub hand_off: Latency,
    /// Time held over time passed.
    pub utilisation: f64,
    /// Time for which a holder really held, in microseconds.
    pub held: Latency,
    /// Waiters passed over, per hand-off.
    pub overtakes: f64,
    /// From asking to the grant, in microseconds.
    pub waits: Latency,
    /// What all servers received, per grant; `None` where there is no server.
    pub requests: Option<f64>,
    /// Attempts that failed, in the acquisition or in the release, and were repeated.
    pub errors: usize,
    /// Pairs of grants that were valid at the same time.
    pub overlaps: usize,
    /// Whether each token was higher than the one before.
    pub tokens_rise: bool,
}

/// A holder in a process of its own is killed while another client waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HolderKilled {
    /// From the kill to the next grant, in milliseconds, kill by kill.
    pub next_grant_ms: Vec<f64>,
    /// What the backend promises for that at the latest, in milliseconds.
    pub bound_ms: f64,
}

impl HolderKilled {
    /// The median time to the next grant.
    #[must_use]
    pub fn median_ms(&self) -> f64 {
        let mut sorted = self.next_grant_ms.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    }

    /// The longest time to the next grant.
    #[must_use]
    pub fn longest_ms(&self) -> f64 {
        self.next_grant_ms.iter().copied().fold(0.0, f64::max)
    }
}

/// A server is killed while one client holds a lock, another waits for it, and others keep a second lock busy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ServerKilled {
    /// The longest time without a grant of the busy lock, in milliseconds.
    pub no_grant_ms: f64,
    /// Grants of the busy lock before the kill.
    pub grants_before: usize,
    /// Grants of the busy lock after it.
    pub grants_after: usize,
    /// Attempts on the busy lock that failed, in the acquisition or in the release.
    pub errors: usize,
    /// Pairs of grants of the busy lock that were valid at the same time.
    pub busy_overlaps: usize,
    /// What became of the lock that was held.
    pub old_holder: OldHolder,
    /// From the kill to the next grant of that lock, in milliseconds.
    pub next_grant_ms: f64,
    /// For how long both holders of that lock were valid, in milliseconds.
    pub overlap_ms: f64,
    /// Whether the tokens of both locks went on rising.
    pub tokens_rise: bool,
}

/// What became of the lock that was held when the server was killed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OldHolder {
    /// The lock was held all the time, and released in the end.
    Kept {
        /// From the kill to the release, in milliseconds.
        released_ms: f64,
    },
    /// The holder was told that the lock is lost.
    Lost {
        /// From the kill to that news, in milliseconds.
        after_ms: f64,
        /// Cause of the loss, in the guard's own words.
        why: String,
    },
}

impl Default for OldHolder {
    fn default() -> Self {
        Self::Kept { released_ms: 0.0 }
    }
}
