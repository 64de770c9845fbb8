//! How often one who waits is heard of, and what a grant that was handed over is worth: its holder has sent nothing for it.

use std::time::Duration;

use lock_core::{BootInstant, safeguard, validity::deadline};

/// The longest time between two beats, so that a waiter that died costs others seconds, not a long ttl.
const SLOWEST: Duration = Duration::from_secs(2);

/// The times of a waiter, which follow from the ttl that it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rhythm {
    /// From one beat to the next.
    pub beat: Duration,
    /// How long a grant that was handed over lasts before its first renewal: two beats, so that a grant whose message was
    /// missed is found in time by the next one.
    pub claim: Duration,
    /// How long a waiter counts as alive without a beat: three, so that one may fail.
    pub alive: Duration,
}

impl Rhythm {
    /// The times of one who asks for this ttl.
    #[must_use]
    pub fn of(ttl: Duration) -> Self {
        let beat = (ttl / 4).min(SLOWEST);
        Self { beat, claim: beat * 2, alive: beat * 3 }
    }
}

/// The newest request that was answered *still in line*.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// When the request was sent.
    pub sent_at: BootInstant,
    /// The newest number that was given out when the server worked on it.
    pub newest: u64,
    /// What the server noted of the waiter by this request, and by no other one.
    pub stamp: u64,
}

/// A message about a grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandedOver {
    /// The number of the grant.
    pub number: u64,
    /// The stamp of the newest request of the waiter on which the server had worked.
    pub stamp: u64,
    /// More could be granted than one script grants.
    pub more: bool,
}

/// Until when a grant that was handed over is its new holder's; `None` when that cannot be told, or is not enough to go on
/// with.
#[must_use]
pub fn claimed_until(seen: Seen, grant: HandedOver, rhythm: Rhythm, now: BootInstant) -> Option<BootInstant> {
    // Whoever granted it had worked on that very request, and the number was not given out by then: so the grant came after
    // the request, on a server that knows of it, and lasts for longer than this.
    // Safeguard: a message about an earlier grant does not count (Redis, queue)
    let came_later = grant.number > seen.newest || !safeguard("newer-number");
    // Safeguard: a message counts only from a server that knows of the request (Redis)
    let is_known_there = grant.stamp == seen.stamp || !safeguard("stamp");
    // Safeguard: a lock that was handed over counts from before it was (Redis, queue)
    // Safeguard: catalogue: a hand-over counts from before it (Redis, queue)
    let counted_from = if safeguard("from-heartbeat") { seen.sent_at } else { now };
    let until = deadline(counted_from, rhythm.claim);
    (came_later && is_known_there && until.saturating_since(now) >= rhythm.beat / 2).then_some(until)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::settings::TTL;

    const SEEN: Seen = Seen { sent_at: BootInstant::from_nanos(1 << 40), newest: 5, stamp: 9 };

    fn claimed(number: u64, stamp: u64) -> bool {
        let rhythm = Rhythm::of(Duration::from_secs(30));
        claimed_until(SEEN, HandedOver { number, stamp, more: false }, rhythm, SEEN.sent_at).is_some()
    }

    #[test]
    fn a_message_counts_only_with_a_number_that_was_not_given_out_before() {
        assert_eq!([4, 5, 6].map(|number| claimed(number, 9)), [false, false, true]);
    }

    #[test]
    fn a_message_counts_only_from_a_server_that_knows_of_the_request() {
        assert_eq!([8, 9, 10].map(|stamp| claimed(6, stamp)), [false, true, false]);
    }

    proptest! {
        #[test]
        fn a_claim_never_counts_beyond_what_the_server_keeps(
            ttl in 100..86_400_000_u64, sent in 0..1_000_000_u64, travelled in 0..10_000_u64, waited in 0..10_000_u64,
            read in 0..10_000_u64, newest in 0..5_u64, number in 0..5_u64,
        ) {
            let rhythm = Rhythm::of(Duration::from_millis(ttl));
            let ms = |ms| BootInstant::from_nanos(1 << 40).saturating_add(Duration::from_millis(ms));
            // The beat was worked on after its sending, and the grant came after that.
            let granted = sent + travelled + waited;
            let seen = Seen { sent_at: ms(sent), newest, stamp: 1 };
            let grant = HandedOver { number, stamp: 1, more: false };
            if let Some(until) = claimed_until(seen, grant, rhythm, ms(granted + read)) {
                prop_assert!(number > newest, "a message about an earlier grant");
                prop_assert!(until < ms(granted).saturating_add(rhythm.claim));
                prop_assert!(until.saturating_since(ms(granted + read)) >= rhythm.beat / 2);
            }
        }

        #[test]
        fn nobody_who_is_dead_costs_more_than_a_ttl_or_a_few_seconds(ttl in TTL.range().start().as_millis()..=TTL.range().end().as_millis()) {
            let ttl = Duration::from_millis(u64::try_from(ttl).unwrap());
            let rhythm = Rhythm::of(ttl);
            prop_assert!(rhythm.claim < ttl && rhythm.alive < ttl);
            prop_assert!(rhythm.alive <= Duration::from_secs(6));
        }

        #[test]
        fn a_grant_that_the_next_beat_finds_is_still_the_finders(ttl in TTL.range().start().as_millis()..=TTL.range().end().as_millis()) {
            let rhythm = Rhythm::of(Duration::from_millis(u64::try_from(ttl).unwrap()));
            let granted = BootInstant::from_nanos(7);
            prop_assert!(granted.saturating_add(rhythm.beat) < deadline(granted, rhythm.claim));
        }
    }
}
