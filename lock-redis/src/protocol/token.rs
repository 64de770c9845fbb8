//! The arithmetic of fencing tokens, as `acquire.lua` does it on the server.
//!
//! A number is a count that is kept at or above the server's clock in microseconds. While the server keeps the count, the
//! stored part makes it rise, whatever the clocks do. When the server lost it (an eviction, a flush), or has an older one
//! (a failover to a replica that lagged behind), its clock makes it rise, provided that this clock has passed the number
//! that was given out last: that of the server which gave it, or that of a client which was ahead of it, by [`MAX_LEAD`] at
//! most. A client whose clock is behind takes no part in that.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lock_core::Clock;

/// How far a client's clock may run ahead of the server's: one that is wrong by more cannot push the numbers away for
/// good.
pub const MAX_LEAD: Duration = Duration::from_secs(60);

/// How long after the time that it stands for a counter is kept.
pub const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The next token number: what the server answers to `proposal` when its clock shows `now` and it keeps `stored`.
#[must_use]
pub fn next(stored: Option<u64>, proposal: u64, now: u64) -> u64 {
    // What is stored may lag behind what was given out, so neither it nor a client whose clock is behind may keep a number
    // below the clock.
    let number = proposal.min(now.saturating_add(micros(MAX_LEAD))).max(now);
    stored.map_or(number, |stored| number.max(stored.saturating_add(1)))
}

/// When, in microseconds of the server's clock, a counter that stands at `number` may be forgotten: from then on the
/// clock alone is above it. `ttl` of the lock on top, because the holding is compared with its number until it ends.
#[must_use]
pub fn forgotten_at(number: u64, now: u64, ttl: Duration) -> u64 {
    number.max(now).saturating_add(micros(KEPT)).saturating_add(micros(ttl))
}

/// What a client proposes whose clock shows `now` and that has seen `last_seen`: above that, so that what was given to it is
/// not given again where it was forgotten, and never below its clock.
#[must_use]
pub fn proposal(now: u64, last_seen: u64) -> u64 {
    // Safeguard: a client proposes more than it has seen (Redis, Redlock)
    now.max(last_seen.saturating_add(1))
}

/// What a client proposes: above what it has seen, and never below its clock.
#[derive(Debug)]
pub struct Proposals {
    clock: Clock,
    last_seen: AtomicU64,
}

impl Proposals {
    /// Proposals by the wall clock beside `clock`.
    #[must_use]
    pub const fn new(clock: Clock) -> Self {
        Self { clock, last_seen: AtomicU64::new(0) }
    }

    /// The proposal for the next acquisition.
    #[must_use]
    pub fn next(&self) -> u64 {
        proposal(self.clock.wall_micros(), self.last_seen.load(Ordering::Relaxed))
    }

    /// Notes a number that was granted.
    pub fn seen(&self, number: u64) {
        self.last_seen.fetch_max(number, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Up to the year 2200; a double holds these exactly.
    const MICROS: std::ops::Range<u64> = 1_600_000_000_000_000..7_258_118_400_000_000;

    proptest! {
        #[test]
        fn it_rises_above_what_is_stored_whatever_the_clocks_show(stored in MICROS, proposal: u64, now in MICROS) {
            prop_assert!(next(Some(stored), proposal, now) > stored);
        }

        #[test]
        fn it_rises_by_the_clock_when_the_stored_part_was_lost_or_lags_behind(
            then in MICROS, lead in 0..59_000_000_u64, slow in 0..1_000_000_u64, margin in 1..1_000_000_u64, proposal: u64,
            lag in prop::option::of(1..600_000_000_u64),
        ) {
            // The grant that was lost: its client's clock led by `lead`. The new server's clock is behind by `slow`, and its
            // counter, if it has one, is older than that grant.
            let first = next(None, then + lead, then);
            let passed = lead + slow + margin;
            prop_assert!(next(lag.map(|lag| first - lag), proposal, then + passed - slow) > first);
        }

        #[test]
        fn it_is_never_below_the_clock(stored in prop::option::of(MICROS), proposal: u64, now in MICROS) {
            prop_assert!(next(stored, proposal, now) >= now);
        }

        #[test]
        fn a_client_with_a_wrong_clock_moves_it_by_a_minute_at_most(proposal: u64, now in MICROS) {
            prop_assert!(next(None, proposal, now) <= now + 60_000_000);
        }

        #[test]
        fn a_forgotten_counter_is_below_the_clock(stored in MICROS, proposal: u64, now in MICROS, ttl in 0..86_400_u64) {
            let number = next(Some(stored), proposal, now);
            let later = forgotten_at(number, now, Duration::from_secs(ttl));
            prop_assert!(next(None, 0, later) > number);
        }
    }

    #[test]
    fn a_client_proposes_more_than_it_has_seen() {
        let proposals = Proposals::new(Clock::boot());
        proposals.seen(u64::MAX - 1);
        proposals.seen(7);
        assert_eq!(proposals.next(), u64::MAX);
    }
}
