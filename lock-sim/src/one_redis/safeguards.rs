//! What can be taken out.

use crate::{
    Safeguard,
    contest::{Placed, Stands, alone, placed, script},
    redis::Removal,
};

const TOMBSTONE: Removal = Removal {
    name: "tombstone",
    changes: &[
        ("redis.call('EXISTS', tombstone) == 1", "false"),
        ("if not is_clear then\n  -- A key", "if true then\n  -- A key"),
    ],
};
const OWN_VALUE: Removal =
    Removal { name: "own-value", changes: &[("if redis.pcall('GET', KEYS[1]) ~= ARGV[1] then", "if false then")] };
const WRITER_ALONE: Removal =
    Removal { name: "writer-alone", changes: &[("if readers_end and readers_end >= ms then", "if false then")] };
const READER_BEHIND_WRITER: Removal = Removal {
    name: "reader-behind-writer",
    changes: &[("if redis.call('EXISTS', lock) == 1 then\n  return {'held'", "if false then\n  return {'held'")],
};
const REARM: Removal = Removal { name: "rearm", changes: &[("    arm(tonumber(ARGV[3]), tonumber(ARGV[4]))", "")] };

/// All of them, and where they stand.
pub(super) const ALL: [Placed; 6] = [
    script("An undo that comes before its acquisition leaves a tombstone.", &TOMBSTONE, 100_000),
    script("A release and a renewal are of the own holding only.", &OWN_VALUE, 10_000),
    script("A writer is refused where somebody reads.", &WRITER_ALONE, 10_000),
    script("A reader is refused where a writer holds.", &READER_BEHIND_WRITER, 10_000),
    script("A heartbeat that finds the lock its own arms the whole ttl.", &REARM, 100_000),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
];

pub(super) const SAFEGUARDS: [Safeguard; 6] = alone(&ALL);
