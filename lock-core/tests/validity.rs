//! Validity: what a holder may believe, and when.

use std::{sync::Arc, time::Duration};

use lock_core::{BootInstant, Clock, Loss, Validity, validity::deadline};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);

fn in_future(by: Duration) -> BootInstant {
    Clock::runtime().now().saturating_add(by)
}

proptest! {
    /// The margin's reason: the server counts the same ttl from a later moment, but its clock may run faster by up to
    /// one per cent, and Redis counts whole milliseconds.
    #[test]
    fn a_server_whose_clock_runs_one_percent_fast_never_ends_a_lease_before_its_holder(
        sent in 0_u64..=u64::MAX / 4,
        ttl_ms in 100_u64..=86_400_000,
        delay_us in 0_u64..=1_000_000,
    ) {
        let sent = BootInstant::from_nanos(sent);
        let ttl = Duration::from_millis(ttl_ms);
        let received = sent.saturating_add(Duration::from_micros(delay_us));
        let server_keeps = ttl.mul_f64(1.0 / 1.01).saturating_sub(Duration::from_millis(1));
        prop_assert!(deadline(sent, ttl) <= received.saturating_add(server_keeps));
    }
}

#[tokio::test(start_paused = true)]
async fn it_ends_at_its_deadline_and_stays_ended() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    assert!(validity.is_valid());
    let observed = validity.observe().unwrap();
    assert_eq!(validity.lost().await, Loss::Expired);
    assert!(!validity.advance(observed, in_future(SECOND)), "a renewal that comes too late resurrects nothing");
    assert!(!validity.is_valid());
    assert_eq!(validity.valid_until(), None);
    assert_eq!(validity.remaining(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_comes_too_late_is_refused_even_if_nobody_had_looked() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    let observed = validity.observe().unwrap();
    Clock::runtime().sleep(2 * SECOND).await;
    assert!(!validity.advance(observed, in_future(SECOND)));
    assert_eq!(validity.loss(), Some(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn it_never_moves_backwards() {
    let until = in_future(3 * SECOND);
    let validity = Validity::new(Clock::runtime(), until);
    assert!(validity.advance(validity.observe().unwrap(), in_future(SECOND)));
    assert_eq!(validity.valid_until(), Some(until));
}

#[tokio::test(start_paused = true)]
async fn an_advance_is_seen_by_those_who_wait_for_the_loss() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    let waiting = tokio::spawn({
        let validity = validity.clone();
        async move {
            let loss = validity.lost().await;
            (loss, Clock::runtime().now())
        }
    });
    let until = in_future(5 * SECOND);
    assert!(validity.advance(validity.observe().unwrap(), until));
    let (loss, at) = waiting.await.unwrap();
    assert_eq!(loss, Loss::Expired);
    assert!(at >= until);
}

#[tokio::test(start_paused = true)]
async fn the_first_reason_stays_and_wakes_those_who_wait() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    let waiting = tokio::spawn({
        let validity = validity.clone();
        async move { validity.lost().await }
    });
    tokio::task::yield_now().await;
    validity.end(Loss::TakenAway);
    validity.end(Loss::Closed);
    assert_eq!(waiting.await.unwrap(), Loss::TakenAway);
    assert_eq!(validity.loss(), Some(Loss::TakenAway));
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_is_the_reason_when_the_deadline_passes_unless_a_renewal_clears_it() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    validity.suspect(Loss::Unreachable);
    assert_eq!(validity.lost().await, Loss::Unreachable);

    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    validity.suspect(Loss::Unreachable);
    validity.advance(validity.observe().unwrap(), in_future(2 * SECOND));
    assert_eq!(validity.lost().await, Loss::Expired);
}

/// Readers race a renewer that is always a little late: whoever saw it lost must never see it valid again.
#[test]
fn no_reader_that_saw_it_lost_sees_it_valid_again() {
    for round in 0..200_u64 {
        let clock = Clock::boot();
        let until = clock.now().saturating_add(Duration::from_micros(50 + round));
        let validity = Arc::new(Validity::new(clock, until));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while validity.is_valid() {}
                    for _ in 0..1000 {
                        assert!(!validity.is_valid(), "valid again after it was seen lost");
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..50 {
                    let Some(observed) = validity.observe() else { return };
                    validity.advance(observed, clock.now().saturating_add(Duration::from_micros(60)));
                }
            });
        });
    }
}

#[test]
fn it_is_asked_without_a_runtime() {
    let clock = Clock::boot();
    let validity = Validity::new(clock, clock.now().saturating_add(Duration::from_secs(60)));
    assert!(validity.is_valid());
    validity.end(Loss::Released);
    assert!(!validity.is_valid());
}
