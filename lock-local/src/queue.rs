//! The queue: who holds, by the order of arrival alone. No files here.

use std::num::NonZeroU32;

use lock_core::Mode;

/// Where a contender stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It holds.
    Holds,
    /// It waits; nothing changes for it before the contender of that number has changed or left. For a permit, anybody's
    /// leaving ahead of it counts.
    Behind(u64),
}

/// Where a contender stands that shares the lock in `mode`, from the live ones `ahead` of it, nearest first. Looks at no
/// more of them than it needs.
///
/// Those that come later never matter: so a grant is final, and whoever looks again after some ahead have left sees the
/// same or better.
///
/// # Errors
/// The first that `ahead` gives.
pub fn standing<E>(mode: Mode, ahead: impl IntoIterator<Item = Result<(u64, Mode), E>>) -> Result<Standing, E> {
    let mut room = permits(mode).map_or(1, NonZeroU32::get);
    for other in ahead {
        let (number, other) = other?;
        // Readers share. Everybody else ahead takes one place, of which all but a semaphore have one.
        room -= u32::from(!(mode == Mode::Read && other == Mode::Read));
        if room == 0 {
            return Ok(Standing::Behind(number));
        }
    }
    Ok(Standing::Holds)
}

/// How many permits a contender of a semaphore says that there are.
#[must_use]
pub fn permits(mode: Mode) -> Option<NonZeroU32> {
    if let Mode::Permit { of } = mode { Some(of) } else { None }
}
