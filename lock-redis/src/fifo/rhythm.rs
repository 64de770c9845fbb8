//! How often one in line is heard of, and for how long that counts.

use std::time::Duration;

/// The longest time between two heartbeats, so that whoever died in line costs others seconds, not a long ttl.
const SLOWEST: Duration = Duration::from_secs(2);

/// The times of a waiter, which follow from the ttl that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rhythm {
    /// From one heartbeat to the next.
    pub(crate) beat: Duration,
    /// How long a lock that was handed over is its own before its first renewal: two heartbeats, so that a grant of which
    /// the message was missed is found in time by the next one.
    pub(crate) claim: Duration,
    /// How long it counts as alive without a heartbeat: three, so that one may fail.
    pub(crate) alive: Duration,
}

impl Rhythm {
    #[must_use]
    pub(crate) fn of(ttl: Duration) -> Self {
        let beat = (ttl / 4).min(SLOWEST);
        Self { beat, claim: beat * 2, alive: beat * 3 }
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{BootInstant, validity::deadline};
    use proptest::prelude::*;

    use super::*;
    use crate::config::settings::TTL;

    proptest! {
        #[test]
        fn nobody_who_is_dead_costs_more_than_a_ttl_or_a_few_seconds(ttl in TTL.range().start().as_millis()..=TTL.range().end().as_millis()) {
            let ttl = Duration::from_millis(u64::try_from(ttl).unwrap());
            let rhythm = Rhythm::of(ttl);
            prop_assert!(rhythm.claim < ttl && rhythm.alive < ttl);
            prop_assert!(rhythm.alive <= Duration::from_secs(6));
        }

        #[test]
        fn a_grant_that_the_next_heartbeat_finds_is_still_the_finders(ttl in TTL.range().start().as_millis()..=TTL.range().end().as_millis()) {
            let rhythm = Rhythm::of(Duration::from_millis(u64::try_from(ttl).unwrap()));
            let granted = BootInstant::from_nanos(7);
            prop_assert!(granted.saturating_add(rhythm.beat) < deadline(granted, rhythm.claim));
        }
    }
}
