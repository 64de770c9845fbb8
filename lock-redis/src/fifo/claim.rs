//! What a grant that was handed over is worth: the new holder has sent nothing for it.

use std::{sync::Arc, time::Duration};

use lock_core::{BootInstant, Lease, Request, Validity, safeguard, validity::deadline};

use super::{
    board::{End, News, Place, Seen},
    rhythm::Rhythm,
};
use crate::{Redis, attempt::Granted, node::NodeError, scripts::held};

/// How long a lock that was handed over is held before its first renewal. One that is given back before spares it.
const FIRST_RENEWAL: Duration = Duration::from_millis(20);

/// Until when a lock that was handed over with this number is its new holder's; `None` when that cannot be told, or is not
/// enough to go on with.
#[must_use]
fn claimed_until(seen: Seen, number: u64, rhythm: Rhythm, now: BootInstant) -> Option<BootInstant> {
    // The number was not given out yet when the server worked on that request, so the lock was handed over after it, and
    // the server keeps it for longer than this.
    // Safeguard: a message about an earlier grant does not count (Redis, queue)
    let came_later = number > seen.newest || !safeguard("newer-number");
    // Safeguard: a lock that was handed over counts from before it was (Redis, queue)
    // Safeguard: catalogue: a hand-over counts from before it (Redis, queue)
    let counted_from = if safeguard("from-heartbeat") { seen.sent_at } else { now };
    let until = deadline(counted_from, rhythm.claim);
    (came_later && until.saturating_since(now) >= rhythm.beat / 2).then_some(until)
}

impl Redis {
    /// Makes a lease of what came at the end of a wait; `None` when there is nothing (any more).
    pub(super) async fn take_turn(
        self: &Arc<Self>,
        request: &Request,
        place: &Place,
        news: News,
        end: End,
    ) -> Result<Option<Box<dyn Lease>>, NodeError> {
        let holding = &place.holding;
        let granted = |number, sent_at| Granted { holding: holding.clone(), number, sent_at, resent: false };
        // What others wrote is acknowledged to nobody here: where that has to be, it is delivered once it is renewed.
        // Safeguard: a lock that is handed over is delivered when enough replicas have it (Redis)
        let is_enough = self.servers().config().replicas.is_none();
        let number = match end {
            End::HandedOver(number) => number,
            End::Found { number, .. } if !is_enough => number,
            End::Found { number, sent_at } => return Ok(Some(self.grant(request, granted(number, sent_at)))),
            End::Gone => return Ok(None),
        };
        let now = self.clock().now();
        let rhythm = Rhythm::of(holding.ttl);
        if is_enough && let Some(until) = news.in_line.and_then(|seen| claimed_until(seen, number, rhythm, now)) {
            self.proposals().seen(number);
            let lease = self.hold(request.name.clone(), holding.clone(), number, Validity::new(self.clock(), until));
            lease.kept.renew_by(now.saturating_add(FIRST_RENEWAL.min(rhythm.beat / 8)));
            return Ok(Some(Box::new(lease)));
        }
        // Too little is left of it: it is delivered once it is renewed, and counts from that.
        // By its number: an acquisition that was sent twice may have taken the lock anew, after others, and the message would
        // give that grant the token of the first.
        let number_asked = safeguard("claim-number").then_some(number);
        let renewal = holding.attempt.renew(holding.ttl, holding.delay, number_asked);
        let sent = self.servers().call_relied(renewal).await;
        let renewed = sent.answer.and_then(|answer| held(&answer));
        match renewed.and_then(|is_held| if is_held { sent.acknowledged.map(|()| true) } else { Ok(false) }) {
            Ok(true) => Ok(Some(self.grant(request, granted(number, now)))),
            Ok(false) => Ok(None),
            Err(error) => {
                self.undo(holding, None);
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_message_counts_only_with_a_number_that_was_not_given_out_before() {
        let at = BootInstant::from_nanos(1 << 40);
        let until =
            |number| claimed_until(Seen { sent_at: at, newest: 5 }, number, Rhythm::of(Duration::from_secs(30)), at);
        assert_eq!([4, 5, 6].map(|number| until(number).is_some()), [false, false, true]);
    }

    proptest! {
        #[test]
        fn a_claim_never_counts_beyond_what_the_server_keeps(
            ttl in 100..86_400_000_u64, sent in 0..1_000_000_u64, travelled in 0..10_000_u64, waited in 0..10_000_u64,
            read in 0..10_000_u64, newest in 0..5_u64, number in 0..5_u64,
        ) {
            let rhythm = Rhythm::of(Duration::from_millis(ttl));
            let ms = |ms| BootInstant::from_nanos(1 << 40).saturating_add(Duration::from_millis(ms));
            // The heartbeat was worked on after its sending, and the grant came after that.
            let granted = sent + travelled + waited;
            let seen = Seen { sent_at: ms(sent), newest };
            if let Some(until) = claimed_until(seen, number, rhythm, ms(granted + read)) {
                prop_assert!(number > newest, "a message about an earlier grant");
                prop_assert!(until < ms(granted).saturating_add(rhythm.claim));
                prop_assert!(until.saturating_since(ms(granted + read)) >= rhythm.beat / 2);
            }
        }
    }
}
