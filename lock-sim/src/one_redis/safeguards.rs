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
const CLOCK_FLOOR: Removal = Removal {
    name: "clock-floor",
    changes: &[("math.max(math.min(tonumber(proposal), now + 60000000), now)", "tonumber(proposal)")],
};
const WRITER_ALONE: Removal =
    Removal { name: "writer-alone", changes: &[("if readers_end and readers_end >= ms then", "if false then")] };
const READER_BEHIND_WRITER: Removal = Removal {
    name: "reader-behind-writer",
    changes: &[("if redis.call('EXISTS', lock) == 1 then\n  return {'held'", "if false then\n  return {'held'")],
};
const REARM: Removal = Removal { name: "rearm", changes: &[("    arm(tonumber(ARGV[3]), tonumber(ARGV[4]))", "")] };
const SKIP_DEAD: Removal = Removal { name: "skip-dead", changes: &[("'-inf', digits(ms))", "'-inf', '-inf')")] };

/// All of them, and where they stand.
pub(super) const ALL: [Placed; 8] = [
    script("An undo that comes before its acquisition leaves a tombstone.", &TOMBSTONE, 100_000),
    script("A release and a renewal are of the own holding only.", &OWN_VALUE, 10_000),
    script("A number is no lower than the clock of the server.", &CLOCK_FLOOR, 100_000),
    script("A writer is refused where somebody reads.", &WRITER_ALONE, 10_000),
    script("A reader is refused where a writer holds.", &READER_BEHIND_WRITER, 10_000),
    script("A heartbeat that finds the lock its own arms the whole ttl.", &REARM, 100_000),
    script("Whoever has not been heard of for three heartbeats is passed over.", &SKIP_DEAD, 100_000),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
];

pub(super) const SAFEGUARDS: [Safeguard; 8] = alone(&ALL);
