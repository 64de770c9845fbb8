//! Clocks that are not true.

use crate::Time;

const MILLION: i128 = 1_000_000;
const MILLION_U64: u64 = 1_000_000;

/// A participant's clock: it runs too fast or too slow, and may jump.
#[derive(Debug, Clone, Copy)]
pub struct LocalClock {
    /// When it was last set, in true time.
    set_at: Time,
    /// What it showed then.
    showed: i128,
    /// How much too fast it runs, in millionths.
    drift: i64,
}

impl LocalClock {
    /// A clock that shows `shows` when the schedule begins, and runs too fast by `drift` millionths (too slow when that
    /// is negative).
    #[must_use]
    pub fn new(shows: Time, drift: i64) -> Self {
        Self { set_at: 0, showed: shows.into(), drift }
    }

    /// What it shows at the true time `at`, in nanoseconds of its own.
    #[must_use]
    pub fn at(&self, at: Time) -> Time {
        // Most clocks have never jumped, and show what 64 bits hold.
        if let (Some(passed), Ok(showed)) = (at.checked_sub(self.set_at), u64::try_from(self.showed))
            && let Some(product) = passed.checked_mul(MILLION_U64.wrapping_add_signed(self.drift))
        {
            return showed.saturating_add(product / MILLION_U64);
        }
        let passed = i128::from(at) - i128::from(self.set_at);
        let shows = self.showed + passed * (MILLION + i128::from(self.drift)) / MILLION;
        Time::try_from(shows.max(0)).unwrap_or(Time::MAX)
    }

    /// The earliest true time, not before it was last set, at which it shows at least `shows`. As long as it does not jump.
    #[must_use]
    pub fn when(&self, shows: Time) -> Time {
        let left = (i128::from(shows) - self.showed).max(0);
        let rate = MILLION + i128::from(self.drift);
        let passed = (left * MILLION + rate - 1) / rate;
        self.set_at.saturating_add(Time::try_from(passed).unwrap_or(Time::MAX))
    }

    /// Puts it forward by that much at the true time `at`, or back when that is negative.
    pub fn jump(&mut self, at: Time, by: i64) {
        self.showed = i128::from(self.at(at)) + i128::from(by);
        self.set_at = at;
    }
}
