//! What can be taken out.

use crate::{
    Safeguard,
    contest::{Placed, Stands, alone, placed, script},
    redis::Removal,
};

const TOMBSTONE: Removal = Removal {
    name: "tombstone",
    changes: &[
        ("looked = math.max(looked, now + ARGV[4] * 1000)", ""),
        ("if redis.pcall('GET', tombstone(value)) == '' then", "if false then"),
    ],
};

const TOMBSTONE_ALWAYS: Removal = Removal {
    name: "tombstone-always",
    changes: &[(
        "if is_undo then\n  redis.call('SET', tombstone(value)",
        "if is_undo and not had then\n  redis.call('SET', tombstone(value)",
    )],
};

const OWN_VALUE: Removal = Removal {
    name: "own-value",
    changes: &[
        ("string.find(found[1], ARGV[2], 18, true) == 18", "true"),
        ("#held >= 49 and string.sub(held, 18, 49) == value", "true"),
    ],
};

const WRITER_ALONE: Removal = Removal {
    name: "writer-alone",
    changes: &[
        ("if flags == 1 and looked == 0 then\n    local time", "if true then\n    local time"),
        ("return last and last >= ms and last - ms", "return false"),
    ],
};

const READER_BEHIND_WRITER: Removal = Removal {
    name: "reader-behind-writer",
    changes: &[
        (
            "  if held then\n    return redis.call('PTTL', lock)\n  end",
            "  if held and kind == 'w' then\n    return redis.call('PTTL', lock)\n  end",
        ),
        ("local first = not held and redis", "local first = redis"),
    ],
};

const BEHIND_WHO_WAITS: Removal = Removal {
    name: "behind-who-waits",
    changes: &[("if not left and redis.call('EXISTS', queue) == 0 then", "if not left then")],
};

const PERMITS: Removal =
    Removal { name: "permits", changes: &[("if kind == 'p' and living() >= of then", "if false then")] };

const SKIP_DEAD: Removal = Removal {
    name: "skip-dead",
    changes: &[
        ("local is_alive = note and stamp > now", "local is_alive = note"),
        ("stamp > now and ", ""),
        ("redis.call('ZRANGEBYSCORE', alive, '-inf', digits(now), 'LIMIT', 0, MOST)", "{}"),
    ],
};

const REARM: Removal = Removal { name: "rearm", changes: &[("    arm(value, tonumber(ARGV[at + 2]), delay)\n", "")] };

const REARM_AGAIN: Removal =
    Removal { name: "rearm-again", changes: &[("    arm(value, ttl, delay)\n    save_head()", "    save_head()")] };

/// Every safeguard of the machine `redis`, and where it stands.
pub const ALL: [Placed; 15] = [
    script("An undo that comes before its acquisition leaves a tombstone.", &TOMBSTONE, 100_000),
    script("An undo leaves its tombstone also where it found something to give back.", &TOMBSTONE_ALWAYS, 100_000),
    script("A release and a renewal are of the own holding only.", &OWN_VALUE, 10_000),
    script("A writer is refused where somebody reads.", &WRITER_ALONE, 10_000),
    script("A reader is refused where a writer holds.", &READER_BEHIND_WRITER, 10_000),
    script("Whoever comes while somebody waits stands behind.", &BEHIND_WHO_WAITS, 10_000),
    script("No more permits are held than there are.", &PERMITS, 10_000),
    script("Whoever has not been heard of for three beats is passed over.", &SKIP_DEAD, 10_000),
    script("A beat that finds the lock its own arms the whole ttl.", &REARM, 100_000),
    script("A request that is sent again and finds its own grant arms the whole ttl.", &REARM_AGAIN, 100_000),
    placed(
        "bury",
        "After the release of an attempt that was sent twice its undo leaves a tombstone.",
        Stands::Code,
        100_000,
    ),
    placed(
        "from-heartbeat",
        "A grant that was handed over counts from the newest beat that was answered in line.",
        Stands::Code,
        10_000,
    ),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
    placed("end-before-release", "The holder's validity ends before its release is sent.", Stands::Code, 10_000),
    placed("limit", "No renewal moves the end of the longest holding time.", Stands::Code, 10_000),
];

pub(super) const SAFEGUARDS: [Safeguard; 15] = alone(&ALL);

const PLAIN_TOMBSTONE: Removal = Removal { name: "tombstone", changes: &[("if found[3] then", "if false then")] };

const PLAIN_TOMBSTONE_ALWAYS: Removal = Removal {
    name: "tombstone-always",
    changes: &[("if ARGV[2] ~= '0' then", "if ARGV[2] ~= '0' and not is_own then")],
};

const PLAIN_OWN_VALUE: Removal = Removal {
    name: "own-value",
    changes: &[
        ("if found[1] ~= ARGV[1] then", "if not found[1] then"),
        ("local is_own = found[1] == ARGV[1]", "local is_own = found[1]"),
    ],
};

const PLAIN_IF_FREE: Removal = Removal { name: "if-free", changes: &[("'NX', 'PX'", "'PX'")] };

const PLAIN_CLOCK_FLOOR: Removal = Removal { name: "clock-floor", changes: &[("counter + 1, now)", "counter + 1)")] };

/// Every safeguard of the machine `redis-plain`, and where it stands.
pub const PLAIN: [Placed; 9] = [
    script("An undo that comes before its acquisition leaves a tombstone.", &PLAIN_TOMBSTONE, 100_000),
    script(
        "An undo leaves its tombstone also where it found something to give back.",
        &PLAIN_TOMBSTONE_ALWAYS,
        100_000,
    ),
    script("A release and a renewal are of the own value only.", &PLAIN_OWN_VALUE, 10_000),
    script("The lock is taken only where the key is not there.", &PLAIN_IF_FREE, 10_000),
    script("No number is below the server's clock.", &PLAIN_CLOCK_FLOOR, 100_000),
    placed(
        "bury",
        "After the release of an attempt that was sent twice its undo leaves a tombstone.",
        Stands::Code,
        100_000,
    ),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
    placed("end-before-release", "The holder's validity ends before its release is sent.", Stands::Code, 10_000),
    placed("limit", "No renewal moves the end of the longest holding time.", Stands::Code, 10_000),
];

pub(super) const PLAIN_SAFEGUARDS: [Safeguard; 9] = alone(&PLAIN);
