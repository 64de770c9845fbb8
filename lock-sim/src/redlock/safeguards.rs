//! What can be taken out.

use crate::{
    Safeguard,
    contest::{Placed, Stands, alone, placed, script},
    redis::Removal,
};

// Where the common path of a vote or of an undo has a safeguard, too, it is taken out of both.

const QUARANTINE: Removal = Removal { name: "quarantine", changes: &[("if standing[3] then", "if false then")] };
const RUN_ID: Removal = Removal {
    name: "run-id",
    changes: &[("local info = run ~= 'any' and redis.call('INFO', 'server')", "local info = false")],
};
const TOMBSTONE: Removal = Removal {
    name: "tombstone",
    changes: &[
        ("if redis.call('EXISTS', tombstone, gone) > 0 then", "if false then"),
        ("lock .. ':undone:' .. value, gone, ", ""),
    ],
};
const OWN_VALUE: Removal = Removal {
    name: "own-value",
    changes: &[
        ("local held = own(value) ~= nil", "local held = redis.call('EXISTS', lock) == 1"),
        ("string.sub(text, 18, 49) == ARGV[1]", "true"),
    ],
};
const WRITER_BEHIND_READERS: Removal = Removal {
    name: "writer-behind-readers",
    changes: &[
        ("if readers_here() > 0 then\n  line_up()", "if false then"),
        ("lock .. ':readers', lock .. ':reserved'", "lock .. ':reserved'"),
    ],
};
const READER_BEHIND_WRITER: Removal = Removal {
    name: "reader-behind-writer",
    changes: &[("local its = holder()\nif its then", "local its = holder()\nif false then")],
};
const NUMBER_ONCE: Removal =
    Removal { name: "number-once", changes: &[("if counter >= wanted then", "if false then")] };
const INTENT: Removal = Removal { name: "intent", changes: &[("if behind > 0 and not woken then", "if false then")] };
const CLOCK_FLOOR: Removal =
    Removal { name: "clock-floor", changes: &[("if number < now - 250000 then", "if false then")] };
const GENERATION: Removal = Removal {
    name: "generation",
    changes: &[
        ("local is_member = stamp == ARGV[#ARGV]", "local is_member = stamp ~= ''"),
        ("if stamp ~= ARGV[4] then", "if stamp == '' then"),
    ],
};
const REJOIN_IF_FREE: Removal = Removal {
    name: "rejoin-if-free",
    changes: &[("if its and its ~= value then\n  return {'held', redis.call('PTTL', lock), its}\nend\n", "")],
};
const RENEWAL_NUMBER: Removal = Removal {
    name: "renewal-number",
    changes: &[("if own(value) ~= tonumber(ARGV[3]) then", "if not own(value) then")],
};
const DOWNGRADE_NUMBER: Removal =
    Removal { name: "downgrade-number", changes: &[("if number ~= tonumber(ARGV[3]) then", "if false then")] };
const TOMBSTONE_ALWAYS: Removal = Removal {
    name: "tombstone-always",
    changes: &[("if ARGV[2] ~= '0' then", "if ARGV[2] ~= '0' and not held and not read then")],
};

/// Every safeguard of the machine `redlock`, and where it stands.
pub const ALL: [Placed; 32] = [
    placed("majority", "A grant takes a majority of all nodes.", Stands::Code, 10_000),
    placed(
        "write-back",
        "A token that no majority answered is written back before the grant is reported.",
        Stands::Code,
        100_000,
    ),
    script("A node that forgot its votes gives none for as long as any lease may last.", &QUARANTINE, 100_000),
    script("Each vote asks whether the node has restarted.", &RUN_ID, 100_000),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
    placed(
        "minimum-remainder",
        "A grant of which less than a third of the ttl is left is none.",
        Stands::Code,
        100_000,
    ),
    placed("from-sending", "Validity counts from before the request was sent.", Stands::Code, 10_000),
    placed(
        "majority-deadline",
        "Validity ends when the first node of a majority may end the lease.",
        Stands::Code,
        10_000,
    ),
    placed("undo", "A vote that was lost is undone on all nodes.", Stands::Code, 10_000),
    script("An acquisition that comes after its undo finds a tombstone.", &TOMBSTONE, 100_000),
    script("An undo removes only its own holding.", &OWN_VALUE, 10_000),
    script("A node is joined to a lease only where nobody else holds.", &REJOIN_IF_FREE, 200_000),
    placed(
        "joined-later",
        "A node that joins a lease during a renewal does not count in that renewal.",
        Stands::Code,
        200_000,
    ),
    placed(
        "joined-proven",
        "A node that joined does not count until a majority of those that do was heard to keep the lease since.",
        Stands::Code,
        200_000,
    ),
    placed(
        "straggler",
        "A node that grants when the vote is won, by a number that passes the token, does not join as that.",
        Stands::Code,
        200_000,
    ),
    script("A node refuses a writer where somebody reads.", &WRITER_BEHIND_READERS, 10_000),
    script("A node refuses a reader where a writer holds.", &READER_BEHIND_WRITER, 10_000),
    script("A node gives a number to one reader only.", &NUMBER_ONCE, 100_000),
    script("A reader does not overtake a writer that waits.", &INTENT, 10_000),
    script("A node gives no number that its clock has passed long ago.", &CLOCK_FLOOR, 100_000),
    placed("end-before-release", "The holder's validity ends before its release is sent.", Stands::Code, 10_000),
    placed("newcomer-quarantine", "A new server gives no vote for the longest ttl.", Stands::Code, 100_000),
    placed(
        "newcomer-after-majority",
        "A new server is made a member, and its time begins, when a majority of those that stay was told.",
        Stands::Code,
        200_000,
    ),
    placed(
        "told-still",
        "A new server is made a member only when those that were told are looked at again and a majority still knows of it.",
        Stands::Code,
        200_000,
    ),
    script("A server answers to clients of its own generation of the members only.", &GENERATION, 100_000),
    placed(
        "stamp-kept",
        "A server that loses the newest of its data does not go back to a generation before the one that it was told of.",
        Stands::Disk,
        100_000,
    ),
    placed(
        "vote-or-join",
        "A vote that is answered after the node was asked to join counts as a join.",
        Stands::Code,
        200_000,
    ),
    script("A renewal extends the very holding that was counted, by its number.", &RENEWAL_NUMBER, 200_000),
    script("A downgrade changes the very holding that was counted, by its number.", &DOWNGRADE_NUMBER, 200_000),
    script("An undo leaves its tombstone also where it found something.", &TOMBSTONE_ALWAYS, 200_000),
    placed("undo-arrivals", "An undo goes on for as long as what it undoes may arrive.", Stands::Code, 200_000),
    placed(
        "replaced-frozen",
        "What a replaced member kept counts no longer than was promised when it was replaced.",
        Stands::Code,
        200_000,
    ),
];

pub(super) const SAFEGUARDS: [Safeguard; 32] = alone(&ALL);
