//! The queue on Redis (`queue=fifo`): a release hands the lock over to the first in line, who has sent nothing for it.
//!
//! What a grant that was handed over is worth, and how often a waiter is heard of, is decided by `lock-redis`; the
//! validity is the cell of `lock-core`. The server is a model of the scripts of the queue. Heartbeats and the messages that
//! tell of a grant are late or lost, programs stop or die, clocks run at different speeds.
//!
//! What is checked: no two hold (M), nobody takes its grant for valid for longer than the server keeps it (T), tokens rise
//! (F), nobody is overtaken who stands in line and is alive (order), everybody who waits gets the lock in the end, and soon
//! when those before it are dead (P), and nothing is left of those who have given up (O).

pub mod server;
mod world;

use self::{server::Checks, world::World};
use crate::{Fact, Machine, Outcome, Safeguard, Sort, Trace};

/// A server with a queue.
#[derive(Debug)]
pub struct Fifo;

/// What the clients and the server of a schedule do.
#[derive(Debug, Clone, Copy)]
struct Rules {
    checks: Checks,
    from_heartbeat: bool,
    newer_number: bool,
    claim_number: bool,
    bury: bool,
    margin: bool,
}

const fn safeguard(name: &'static str, about: &'static str) -> Safeguard {
    Safeguard { name, about, seeds: 1_000_000 }
}

const SAFEGUARDS: &[Safeguard] = &[
    safeguard(
        "from-heartbeat",
        "A grant that was handed over counts from the newest heartbeat that was answered in line.",
    ),
    safeguard("newer-number", "A message about a grant counts only with a number that no heartbeat has seen."),
    safeguard(
        "claim-number",
        "The first renewal of a grant that was handed over is for the grant of that number only.",
    ),
    safeguard("promote-first", "Every script hands a free lock to the first in line before anything else."),
    safeguard("skip-dead", "Whoever has not been heard of for three heartbeats is passed over."),
    safeguard("rearm", "A heartbeat that finds the lock its own arms the whole ttl."),
    safeguard("tombstone", "An undo that comes before its acquisition leaves a tombstone."),
    safeguard("tombstone-always", "An undo leaves its tombstone also where it found something to give back."),
    safeguard("bury", "After the release of an attempt that was sent twice its undo leaves a tombstone."),
    safeguard("margin", "A lease is worth its ttl less one per cent and 2 ms."),
];

mod fact {
    pub(super) const LOST: usize = 0;
    pub(super) const TWICE: usize = 1;
    pub(super) const TOLD_LOST: usize = 2;
    pub(super) const STOPPED: usize = 3;
    pub(super) const DIED: usize = 4;
    pub(super) const ENTERED: usize = 5;
    pub(super) const HANDED_OVER: usize = 6;
    pub(super) const FOUND: usize = 7;
    pub(super) const RENEWED_FIRST: usize = 8;
    pub(super) const PASSED_OVER: usize = 9;
    pub(super) const RENEWED: usize = 10;
    pub(super) const LOST_LEASE: usize = 11;
    pub(super) const UNDONE: usize = 12;
    pub(super) const BURIED: usize = 13;
}

const fn fact(name: &'static str, sort: Sort) -> Fact {
    Fact { name, sort }
}

const FACTS: &[Fact] = &[
    fact("a message lost, or its answer", Sort::Fault),
    fact("a request that arrived twice", Sort::Fault),
    fact("a message about a grant lost", Sort::Fault),
    fact("a program stopped for a while", Sort::Fault),
    fact("a program died", Sort::Fault),
    fact("a free lock taken", Sort::Coverage),
    fact("a lock handed over and held at once", Sort::Coverage),
    fact("a grant found by a heartbeat", Sort::Coverage),
    fact("a grant renewed before it was held", Sort::Coverage),
    fact("a waiter passed over", Sort::Coverage),
    fact("a lease renewed", Sort::Coverage),
    fact("a lease lost while it was held", Sort::Coverage),
    fact("an acquisition after its undo", Sort::Coverage),
    fact("a release of what was sent twice", Sort::Coverage),
];

impl Rules {
    fn without(place: Option<usize>) -> Self {
        let mut rules = Self {
            checks: server::ALL,
            from_heartbeat: true,
            newer_number: true,
            claim_number: true,
            bury: true,
            margin: true,
        };
        let Some(safeguard) = place.and_then(|place| SAFEGUARDS.get(place)) else { return rules };
        let rule = match safeguard.name {
            "from-heartbeat" => &mut rules.from_heartbeat,
            "newer-number" => &mut rules.newer_number,
            "claim-number" => &mut rules.claim_number,
            "promote-first" => &mut rules.checks.promote_first,
            "skip-dead" => &mut rules.checks.skip_dead,
            "rearm" => &mut rules.checks.rearm,
            "tombstone" => &mut rules.checks.tombstone,
            "tombstone-always" => &mut rules.checks.tombstone_always,
            "bury" => &mut rules.bury,
            "margin" => &mut rules.margin,
            other => unreachable!("{other} is no safeguard of this machine"),
        };
        *rule = false;
        rules
    }
}

impl Machine for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn about(&self) -> &'static str {
        "the queue on one Redis, which hands the lock over"
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        World::new(seed, Rules::without(without), trace).play()
    }
}
