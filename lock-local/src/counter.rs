//! The counter behind the fencing token, as it stands in a file.

/// How long the record is: two slots, each a number and its complement.
pub const RECORD: usize = 2 * SLOT;

const SLOT: usize = 16;

/// The number after the one in `record`, and not below `floor`; and what to write where for it.
///
/// Only the slot that does not hold the newest number is written, so a writer that dies in the middle leaves the newest
/// one as it was: the number is then either taken or not, and never lower than before. A half-written slot does not match
/// its complement and counts as empty.
#[must_use]
pub fn next(record: &[u8; RECORD], floor: u64) -> (u64, u64, [u8; SLOT]) {
    let [first, second] = [slot(&record[..SLOT]), slot(&record[SLOT..])];
    let stored = first.max(second);
    let number = stored.map_or(floor, |stored| stored.saturating_add(1).max(floor));
    // Safeguard: a number is written beside the newest one (local)
    let offset = if first == stored { SLOT as u64 } else { 0 };
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&number.to_le_bytes());
    slot[8..].copy_from_slice(&(!number).to_le_bytes());
    (number, offset, slot)
}

fn slot(bytes: &[u8]) -> Option<u64> {
    let [number, check] = [&bytes[..8], &bytes[8..]].map(|half| half.try_into().ok().map(u64::from_le_bytes));
    number.filter(|number| check == Some(!number))
}
