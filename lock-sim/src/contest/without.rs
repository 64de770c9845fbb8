//! What is taken out of a contest.

use crate::{Safeguard, redis::Removal, world::Wires};

/// A part of what a safeguard stands on.
#[derive(Debug, Clone, Copy)]
pub enum Stands {
    /// In scripts.
    Script(&'static Removal),
    /// In shipped code, behind `lock_core::safeguard` with the name of the safeguard.
    Code,
    /// In what a socket does that was ended.
    Ending,
    /// In what a kernel does that hears nothing.
    Kernel,
    /// In what a server has on its disk.
    Disk,
}

/// A safeguard, and where it stands.
pub type Placed = (Safeguard, Stands);

/// One safeguard is taken out of what this thread plays, until this is dropped.
#[derive(Debug)]
pub struct Without(Option<Placed>);

impl Without {
    /// The safeguard at that place, or none.
    #[must_use]
    pub fn taking_out(safeguards: &'static [Placed], place: Option<usize>) -> Self {
        let placed = place.and_then(|place| safeguards.get(place)).copied();
        if let Some((safeguard, Stands::Code)) = placed {
            lock_core::take_out(Some(safeguard.name));
        }
        Self(placed)
    }

    /// What scripts run without.
    #[must_use]
    pub const fn removal(&self) -> Option<&'static Removal> {
        match self.0 {
            Some((_, Stands::Script(removal))) => Some(removal),
            _ => None,
        }
    }

    /// Whether servers have the newest on their disks of what they must not forget.
    #[must_use]
    pub const fn keeps_disks(&self) -> bool {
        !matches!(self.0, Some((_, Stands::Disk)))
    }

    /// Has the network do without it.
    pub const fn change(&self, wires: &mut Wires) {
        match self.0 {
            Some((_, Stands::Ending)) => wires.ends_at_once = false,
            Some((_, Stands::Kernel)) => wires.unacknowledged = None,
            _ => {}
        }
    }
}

impl Drop for Without {
    fn drop(&mut self) {
        lock_core::take_out(None);
    }
}

/// A safeguard of scripts, to be found among so many seeds.
#[must_use]
pub const fn script(about: &'static str, removal: &'static Removal, seeds: u64) -> Placed {
    (Safeguard { name: removal.name, about, seeds }, Stands::Script(removal))
}

/// A safeguard that stands elsewhere.
#[must_use]
pub const fn placed(name: &'static str, about: &'static str, stands: Stands, seeds: u64) -> Placed {
    (Safeguard { name, about, seeds }, stands)
}

/// The safeguards alone, in the same order.
#[must_use]
pub const fn alone<const N: usize>(all: &[Placed; N]) -> [Safeguard; N] {
    let mut safeguards = [all[0].0; N];
    let mut place = 0;
    while place < N {
        safeguards[place] = all[place].0;
        place += 1;
    }
    safeguards
}
