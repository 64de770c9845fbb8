//! Everything random in a schedule.

use fastrand::Rng;

use crate::Time;

/// The one source of randomness of a schedule, from its seed. Draws 64 bits at a time, so it is the same on every platform.
#[derive(Debug, Clone)]
pub struct Chance(Rng);

impl Chance {
    /// The randomness of that seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Seeds that follow each other must not make schedules that are alike.
        let mut mixer = Rng::with_seed(seed ^ 0x9e37_79b9_7f4a_7c15);
        mixer.u64(..);
        Self(Rng::with_seed(mixer.u64(..)))
    }

    /// A number from 0 to `bound` - 1; 0 when there is none.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.u64(..bound) }
    }

    /// A number from `from` to `to`, both included.
    pub fn between(&mut self, from: Time, to: Time) -> Time {
        from.saturating_add(self.below(to.saturating_sub(from).saturating_add(1)))
    }

    /// A number from `from` to `to`, both included.
    pub fn signed(&mut self, from: i64, to: i64) -> i64 {
        from.saturating_add_unsigned(self.between(0, to.abs_diff(from)))
    }

    /// A length of time below `most`, a short one mostly: half of all are below an eighth of it.
    pub fn mostly_short(&mut self, most: Time) -> Time {
        let long = self.below(most);
        if self.one_in(2) { long } else { long / 8 }
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// True in that many of a hundred.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// True in that many of a thousand.
    pub fn per_mille(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// A place in something that has `length` of them; 0 when it has none.
    pub fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// One of `all`.
    ///
    /// # Panics
    /// When there is none.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.place(all.len())]
    }
}
