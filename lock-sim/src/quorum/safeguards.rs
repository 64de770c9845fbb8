//! What can be taken out.

use crate::{
    Safeguard,
    contest::{Placed, Stands, alone, placed, script},
    redis::Removal,
};

const QUARANTINE: Removal = Removal { name: "quarantine", changes: &[("if standing[2] then", "if false then")] };
const OWN_VALUE: Removal = Removal {
    name: "own-value",
    changes: &[("local held = redis.pcall('GET', lock) == value", "local held = redis.call('EXISTS', lock) == 1")],
};
const WRITER_BEHIND_READERS: Removal =
    Removal { name: "writer-behind-readers", changes: &[("if readers_here() > 0 then", "if false then")] };
const READER_BEHIND_WRITER: Removal = Removal {
    name: "reader-behind-writer",
    changes: &[(
        "if redis.call('EXISTS', lock) == 1 then\n  -- A key of another type is a foreign holder, not an error: hence pcall.\n  local holder = redis.pcall('GET', lock)\n  local remaining",
        "if false then\n  local holder = ''\n  local remaining",
    )],
};

/// All of them, and where they stand.
pub(super) const ALL: [Placed; 7] = [
    script("A node that forgot its votes gives none for as long as any lease may last.", &QUARANTINE, 100_000),
    script("An undo removes only its own holding.", &OWN_VALUE, 10_000),
    script("A node refuses a writer where somebody reads.", &WRITER_BEHIND_READERS, 10_000),
    script("A node refuses a reader where a writer holds.", &READER_BEHIND_WRITER, 10_000),
    placed("majority", "A grant takes a majority of all nodes.", Stands::Code, 10_000),
    placed("margin", "A lease is worth its ttl less one per cent and 2 ms.", Stands::Code, 10_000),
    placed("undo", "A vote that was lost is undone on all nodes.", Stands::Code, 10_000),
];

pub(super) const SAFEGUARDS: [Safeguard; 7] = alone(&ALL);
