//! What can be taken out of the algorithm.

use super::node::{self, Checks};
use crate::Safeguard;

/// What the clients and the nodes of a schedule do.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) checks: Checks,
    /// A grant takes a majority.
    pub(super) majority: bool,
    /// A token that no majority answered is written back.
    pub(super) write_back: bool,
    /// A lease is worth its ttl less a margin.
    pub(super) margin: bool,
    /// Validity counts from before the request is sent.
    pub(super) from_sending: bool,
    /// Validity ends when the first of a majority ends.
    pub(super) majority_deadline: bool,
    /// A grant of which too little is left is none.
    pub(super) minimum_remainder: bool,
    /// A lost vote is undone.
    pub(super) undo: bool,
    /// A node that joined during a renewal does not count in it.
    pub(super) joined_later: bool,
    /// Nor does it in later ones, until those that count were heard to keep the lease since.
    pub(super) joined_proven: bool,
    /// A node that granted late, by a number that passes the token, does not join as that.
    pub(super) straggler: bool,
    /// Validity ends before a release is sent.
    pub(super) end_before_release: bool,
    /// A new server gives no vote for the longest ttl.
    pub(super) newcomer_quarantine: bool,
    /// It is made a member when a majority knows of it.
    pub(super) newcomer_after_majority: bool,
    /// What a server has kept that was replaced counts for no longer than the lease was valid by then.
    pub(super) replaced_frozen: bool,
    /// A server answers to clients of its own generation only.
    pub(super) generation: bool,
    /// It does not forget with the newest of its data of which generation it is. Servers have to be made to do so: by
    /// themselves they forget the stamp with the rest.
    pub(super) stamp_kept: bool,
    /// Those that were told are looked at again when they are a majority. The tool does not do so yet.
    pub(super) told_still: bool,
}

impl Rules {
    const ALL: Self = Self {
        checks: node::ALL,
        majority: true,
        write_back: true,
        margin: true,
        from_sending: true,
        majority_deadline: true,
        minimum_remainder: true,
        undo: true,
        joined_later: true,
        joined_proven: true,
        straggler: true,
        end_before_release: true,
        newcomer_quarantine: true,
        newcomer_after_majority: true,
        replaced_frozen: true,
        generation: true,
        stamp_kept: true,
        told_still: true,
    };

    /// All rules but the safeguard at that place.
    pub(super) fn without(place: Option<usize>) -> Self {
        let mut rules = Self::ALL;
        let Some(safeguard) = place.and_then(|place| SAFEGUARDS.get(place)) else { return rules };
        let checks = &mut rules.checks;
        let rule = match safeguard.name {
            "majority" => &mut rules.majority,
            "write-back" => &mut rules.write_back,
            "write-back-number" => &mut checks.write_back_number,
            "renewal-number" => &mut checks.renewal_number,
            "downgrade-number" => &mut checks.downgrade_number,
            "quarantine" => &mut checks.quarantine,
            "run-id" => &mut checks.run,
            "margin" => &mut rules.margin,
            "minimum-remainder" => &mut rules.minimum_remainder,
            "from-sending" => &mut rules.from_sending,
            "majority-deadline" => &mut rules.majority_deadline,
            "undo" => &mut rules.undo,
            "tombstone" => &mut checks.tombstone,
            "tombstone-always" => &mut checks.tombstone_always,
            "own-value" => &mut checks.own_value,
            "writer-behind-readers" => &mut checks.writer_behind_readers,
            "reader-behind-writer" => &mut checks.reader_behind_writer,
            "number-once" => &mut checks.number_once,
            "rejoin-if-free" => &mut checks.rejoin_if_free,
            "joined-later" => &mut rules.joined_later,
            "joined-proven" => &mut rules.joined_proven,
            "straggler" => &mut rules.straggler,
            "intent" => &mut checks.intent,
            "clock-floor" => &mut checks.clock_floor,
            "end-before-release" => &mut rules.end_before_release,
            "newcomer-quarantine" => &mut rules.newcomer_quarantine,
            "newcomer-after-majority" => &mut rules.newcomer_after_majority,
            "replaced-frozen" => &mut rules.replaced_frozen,
            "generation" => &mut rules.generation,
            "stamp-kept" => &mut rules.stamp_kept,
            "told-still" => &mut rules.told_still,
            other => unreachable!("{other} is no safeguard of this machine"),
        };
        *rule = false;
        rules
    }
}

const fn safeguard(name: &'static str, about: &'static str, seeds: u64) -> Safeguard {
    Safeguard { name, about, seeds }
}

/// Every safeguard.
pub(super) const SAFEGUARDS: &[Safeguard] = &[
    safeguard("majority", "A grant takes a majority of all nodes.", 10_000),
    safeguard("write-back", "A token that no majority answered is written back before the grant is reported.", 100_000),
    safeguard("write-back-number", "A write-back is for the very holding that was counted, by its number.", 1_000_000),
    safeguard("renewal-number", "A renewal is for the very holding that was counted, by its number.", 1_000_000),
    safeguard("downgrade-number", "A downgrade is for the very holding that was counted, by its number.", 1_000_000),
    safeguard("quarantine", "A node that forgot its votes gives none for as long as any lease may last.", 100_000),
    safeguard("run-id", "Each vote asks whether the node has restarted.", 100_000),
    safeguard("margin", "A lease is worth its ttl less one per cent and 2 ms.", 100_000),
    safeguard("minimum-remainder", "A grant of which less than a third of the ttl is left is none.", 100_000),
    safeguard("from-sending", "Validity counts from before the request was sent.", 100_000),
    safeguard("majority-deadline", "Validity ends when the first node of a majority may end the lease.", 100_000),
    safeguard("undo", "A vote that was lost is undone on all nodes.", 100_000),
    safeguard("tombstone", "An undo that comes before its acquisition leaves a tombstone.", 100_000),
    safeguard("tombstone-always", "An undo leaves its tombstone also where it found something to give back.", 100_000),
    safeguard("own-value", "An undo removes only its own holding.", 10_000),
    safeguard("writer-behind-readers", "A node refuses a writer where somebody reads.", 100_000),
    safeguard("reader-behind-writer", "A node refuses a reader where a writer holds.", 100_000),
    safeguard("number-once", "A node gives a number to one reader only.", 100_000),
    safeguard("rejoin-if-free", "A node is joined to a lease only where nobody else holds.", 1_000_000),
    safeguard("joined-later", "A node that joins a lease during a renewal does not count in that renewal.", 1_000_000),
    safeguard(
        "joined-proven",
        "A node that joined does not count until a majority of those that do was heard to keep the lease since.",
        1_000_000,
    ),
    safeguard(
        "straggler",
        "A node that grants when the vote is won, by a number that passes the token, does not join as that.",
        1_000_000,
    ),
    safeguard("intent", "A reader does not overtake a writer that waits.", 10_000),
    safeguard(
        "clock-floor",
        "A number is no lower than the clock, also where the counter was lost or lags behind.",
        1_000_000,
    ),
    safeguard("end-before-release", "The holder's validity ends before its release is sent.", 10_000),
    safeguard(
        "newcomer-quarantine",
        "A server that takes the place of a member gives no vote for the longest ttl.",
        1_000_000,
    ),
    safeguard(
        "newcomer-after-majority",
        "It is made a member, and its time begins, when a majority of those that stay was told.",
        1_000_000,
    ),
    safeguard(
        "replaced-frozen",
        "What a replaced member kept counts for no longer than the lease was valid when it moved.",
        1_000_000,
    ),
    safeguard("generation", "A server answers to clients of its own generation of the members only.", 1_000_000),
    safeguard(
        "stamp-kept",
        "A server that loses the newest of its data does not go back to a generation before the one that it was told of.",
        1_000_000,
    ),
    safeguard(
        "told-still",
        "A new server is made a member only when those that were told are looked at again and a majority still knows of it.",
        1_000_000,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_safeguard_is_a_rule() {
        for place in 0..SAFEGUARDS.len() {
            Rules::without(Some(place));
        }
    }
}
