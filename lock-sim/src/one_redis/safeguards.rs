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
const TOMBSTONE_ALWAYS: Removal = Removal {
    name: "tombstone-always",
    changes: &[
        (
            "if is_undo then\n  redis.call('SET', tombstone",
            "if is_undo and not (held or waited) then\n  redis.call('SET', tombstone",
        ),
        ("redis.call('DEL', KEYS[1])\nbury()", "redis.call('DEL', KEYS[1])"),
        ("redis.call('ZREM', members, value)\nbury()", "redis.call('ZREM', members, value)"),
    ],
};
const PROMOTE_FIRST: Removal =
    Removal { name: "promote-first", changes: &[("promote()\nif is_holder() then", "if is_holder() then")] };
const SKIP_DEAD: Removal =
    Removal { name: "skip-dead", changes: &[("redis.call('ZRANGEBYSCORE', fresh, '-inf', digits(ms))", "{}")] };
const INTENT: Removal = Removal {
    name: "intent",
    changes: &[("if tonumber(redis.call('HGET', writing, waiting[at]) or '0') <= came then", "if false then")],
};
const REARM: Removal = Removal { name: "rearm", changes: &[("    arm(tonumber(ARGV[3]), tonumber(ARGV[4]))", "")] };

/// All of them, and where they stand.
pub(super) const ALL: [Placed; 14] = [
    script("An undo that comes before its acquisition leaves a tombstone.", &TOMBSTONE, 100_000),
    script("An undo leaves its tombstone also where it found something to give back.", &TOMBSTONE_ALWAYS, 100_000),
    placed(
        "bury",
        "After the release of an attempt that was sent twice its undo leaves a tombstone.",
        Stands::Code,
        100_000,
    ),
    script("A release and a renewal are of the own holding only.", &OWN_VALUE, 10_000),
    script("A writer is refused where somebody reads.", &WRITER_ALONE, 10_000),
    script("A reader is refused where a writer holds.", &READER_BEHIND_WRITER, 10_000),
    script("A reader does not overtake a writer that waits.", &INTENT, 10_000),
    script("Every script hands a free lock to the first in line before anything else.", &PROMOTE_FIRST, 10_000),
    script("Whoever has not been heard of for three heartbeats is passed over.", &SKIP_DEAD, 10_000),
    script("A heartbeat that finds the lock its own arms the whole ttl.", &REARM, 100_000),
    placed(
        "from-heartbeat",
        "A grant that was handed over counts from the newest heartbeat that was answered in line.",
        Stands::Code,
        10_000,
    ),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
    placed("end-before-release", "The holder's validity ends before its release is sent.", Stands::Code, 10_000),
    placed("limit", "No renewal moves the end of the longest holding time.", Stands::Code, 10_000),
];

pub(super) const SAFEGUARDS: [Safeguard; 14] = alone(&ALL);
