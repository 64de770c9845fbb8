//! For each safeguard the schedule that is known to miss it.

/// A schedule that misses a safeguard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    /// The invariant that the safeguard stands for, and that is violated without it.
    pub invariant: &'static str,
    /// The schedule, which is clean with the safeguard.
    pub seed: u64,
}

/// The machine, the safeguard, the invariant that it stands for, the seed. A change of the weather moves the seeds: the
/// command tells the new ones.
pub const MISSED: &[(&str, &str, &str, u64)] = &[
    ("zookeeper", "margin", "T", 1_651),
    ("zookeeper", "tick-before", "T", 7),
    ("zookeeper", "answered-before", "T", 5_415),
    ("zookeeper", "running-session", "L", 1),
    ("zookeeper", "own-session", "T", 43),
    ("zookeeper", "own-node-watch", "P", 187),
    ("zookeeper", "only-writers-mark", "M", 16),
    ("zookeeper", "only-holders-mark", "M", 34),
    ("zookeeper", "look-after-deletion", "M", 0),
    ("zookeeper", "predecessor", "M", 0),
    ("zookeeper", "writer-behind-readers", "M", 0),
    ("zookeeper", "gate-tells", "P", 26),
    ("zookeeper", "gate-versions", "P", 342),
    ("zookeeper", "all-agree", "M", 661),
    ("zookeeper", "unique-id", "O", 5),
    ("zookeeper", "write-before-search", "O", 7),
    ("zookeeper", "counter-end", "M", 10),
    ("zookeeper", "waits-outside", "P", 5_911),
    ("zookeeper", "one-exchange", "M", 11),
    ("zookeeper", "lapsed-withdraws", "O", 18),
    ("zookeeper", "repeated-removal", "O", 0),
    ("zookeeper", "seen-in-answers", "P", 2_527),
    ("zookeeper", "own-sole-node", "M", 146),
    ("zookeeper", "verified-timeout", "T", 11_426),
    ("zookeeper", "doubted-timeout", "T", 391_286),
    ("redlock", "majority", "T", 1),
    ("redlock", "write-back", "F", 64),
    ("redlock", "quarantine", "M", 10),
    ("redlock", "run-id", "M", 10),
    ("redlock", "margin", "T", 1),
    ("redlock", "minimum-remainder", "L", 6),
    ("redlock", "from-sending", "T", 1),
    ("redlock", "majority-deadline", "T", 2),
    ("redlock", "undo", "O", 61),
    ("redlock", "tombstone", "O", 13),
    ("redlock", "own-value", "T", 1),
    ("redlock", "writer-behind-readers", "M", 6),
    ("redlock", "reader-behind-writer", "M", 2),
    ("redlock", "number-once", "F", 2),
    ("redlock", "rejoin-if-free", "T", 222),
    ("redlock", "joined-later", "L", 949),
    ("redlock", "joined-proven", "L", 1_238),
    ("redlock", "straggler", "L", 1_054),
    ("redlock", "intent", "P", 95),
    ("redlock", "clock-floor", "F", 6_876),
    ("redlock", "end-before-release", "T", 0),
    ("redlock", "newcomer-quarantine", "T", 119),
    ("redlock", "newcomer-after-majority", "T", 118),
    ("redlock", "told-still", "T", 118),
    ("redlock", "generation", "T", 119),
    ("redlock", "stamp-kept", "P", 3_735),
    ("redlock", "tombstone-always", "O", 1_325),
    ("redlock", "undo-arrivals", "O", 10_893),
    ("redlock", "replaced-frozen", "T", 2_062),
    ("redis", "tombstone", "O", 74),
    ("redis", "tombstone-always", "O", 74),
    ("redis", "bury", "O", 452),
    ("redis", "own-value", "M", 3),
    ("redis", "writer-alone", "M", 2),
    ("redis", "reader-behind-writer", "M", 2),
    ("redis", "behind-who-waits", "P", 20),
    ("redis", "permits", "M", 15),
    ("redis", "skip-dead", "P", 651),
    ("redis", "rearm", "T", 2),
    ("redis", "rearm-again", "T", 119),
    ("redis", "from-heartbeat", "T", 4),
    ("redis", "margin", "T", 1),
    ("redis", "end-before-release", "T", 0),
    ("redis", "limit", "L", 1),
    ("validity", "compare-and-swap", "L", 5),
    ("validity", "first-reason", "L", 135),
    ("validity", "seen-is-final", "L", 0),
    ("validity", "limit", "L", 37),
    ("redis-plain", "tombstone", "O", 74),
    ("redis-plain", "tombstone-always", "O", 1_745),
    ("redis-plain", "bury", "O", 164),
    ("redis-plain", "own-value", "T", 3),
    ("redis-plain", "if-free", "T", 2),
    ("redis-plain", "clock-floor", "F", 4_109),
    ("redis-plain", "margin", "T", 1),
    ("redis-plain", "end-before-release", "T", 0),
    ("redis-plain", "limit", "L", 0),
];

/// What is known of a safeguard of the machine that is called so.
#[must_use]
pub fn missed(machine: &str, safeguard: &str) -> Option<Missed> {
    let mut known = MISSED.iter().filter(|(its, name, ..)| *its == machine && *name == safeguard);
    known.next().map(|(_, _, invariant, seed)| Missed { invariant, seed: *seed })
}
