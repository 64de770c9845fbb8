//! What a simulated algorithm has to say of itself.

use crate::{Missed, Time, Trace, missed};

/// One algorithm and the world around it.
pub trait Machine: Sync {
    /// What it is called on the command line.
    fn name(&self) -> &'static str;

    /// What it is, in one line.
    fn about(&self) -> &'static str;

    /// What can be taken out of it.
    fn safeguards(&self) -> &'static [Safeguard];

    /// What is violated without the safeguard of that name, and in which schedule.
    fn missed(&self, safeguard: &str) -> Option<Missed> {
        missed::missed(self.name(), safeguard)
    }

    /// How many schedules the tests of this crate play: fewer of a machine that runs a whole backend. Everything that it counts
    /// must come about in them.
    fn tested(&self) -> u64 {
        ENOUGH
    }

    /// What it counts, in the order of [`Counts`].
    fn facts(&self) -> &'static [Fact];

    /// Plays the schedule of `seed` to its end or to the first violation, `without` the safeguard at that place of
    /// [`Machine::safeguards`].
    ///
    /// What it does depends on nothing but the arguments, and not on whether the trace is kept.
    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome;
}

/// A part of an algorithm that something depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Safeguard {
    /// What it is called on the command line: words with hyphens.
    pub name: &'static str,
    /// What it says, in one sentence.
    pub about: &'static str,
    /// Among that many seeds one must violate the invariant that it stands for when it is taken out.
    pub seeds: u64,
}

/// Something that happens in schedules and is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fact {
    /// What it is called in the summary.
    pub name: &'static str,
    /// What kind of thing it is.
    pub sort: Sort,
}

/// What kind of thing is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// Something went wrong in the world.
    Fault,
    /// The algorithm came into a situation in which it could have failed. Many schedules without any such prove nothing: it
    /// is an error when a run of at least [`ENOUGH`] schedules has none.
    Coverage,
}

/// In that many schedules everything that is counted must happen.
pub const ENOUGH: u64 = 10_000;

/// How many kinds of things a machine may count.
pub const KINDS: usize = 32;

/// How often each fact happened in a schedule, by its place in [`Machine::facts`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts(pub [u32; KINDS]);

impl Counts {
    /// Counts one more of the fact at that place.
    pub fn add(&mut self, place: usize) {
        if let Some(count) = self.0.get_mut(place) {
            *count += 1;
        }
    }
}

/// What came of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The first violation, with which it ended.
    pub violation: Option<Violation>,
    /// How many grants there were.
    pub grants: u64,
    /// How many events were played.
    pub steps: u64,
    /// What else happened.
    pub counts: Counts,
}

/// An invariant does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Which one, as in docs/reliability.md: `M`, `F`, `L`, `P`, `O`, `T`.
    pub invariant: &'static str,
    /// What happened.
    pub text: String,
    /// When, in true time.
    pub at: Time,
}
