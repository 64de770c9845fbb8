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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_fast_shows_a_moment_earlier() {
        let fast = LocalClock::new(500, 10_000);
        assert_eq!(fast.at(1_000_000), 1_010_500);
        assert_eq!(fast.when(1_010_500), 1_000_000);
    }

    #[test]
    fn when_is_the_first_moment_at_which_it_shows_that_much() {
        for drift in [-4_321, -1, 0, 1, 3_333] {
            let clock = LocalClock::new(17, drift);
            for shows in [18, 1_000, 999_999, 123_456_789] {
                let when = clock.when(shows);
                assert!(clock.at(when) >= shows && clock.at(when - 1) < shows, "{drift} {shows}");
            }
        }
    }

    #[test]
    fn a_jump_changes_what_it_shows_and_not_how_fast_it_runs() {
        let mut clock = LocalClock::new(0, 0);
        clock.jump(100, 30);
        assert_eq!((clock.at(100), clock.at(150)), (130, 180));
        clock.jump(150, -100);
        assert_eq!((clock.at(160), clock.when(100)), (90, 170));
    }
}
