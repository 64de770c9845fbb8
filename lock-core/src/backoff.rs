//! Retries: growing pauses with full jitter.

use std::time::Duration;

/// Pauses between tries. Each is chosen at random between nothing and a bound that doubles from `first` to `cap`, so that
/// clients that failed together do not try again together (M. Brooker, *Exponential Backoff and Jitter*, 2015).
#[derive(Debug, Clone)]
pub struct Backoff {
    bound: Duration,
    cap: Duration,
}

impl Backoff {
    /// Pauses that begin below `first` and never exceed `cap`.
    #[must_use]
    pub const fn new(first: Duration, cap: Duration) -> Self {
        Self { bound: first, cap }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let bound = self.bound.min(self.cap);
        self.bound = (bound * 2).min(self.cap);
        bound.mul_f64(fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_stay_below_a_bound_that_doubles_up_to_the_cap() {
        let mut backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(35));
        for bound in [10, 20, 35, 35] {
            assert!(backoff.pause() <= Duration::from_millis(bound));
        }
    }
}
