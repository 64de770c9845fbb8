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
    validity.end(Loss::Revoked);
    validity.end(Loss::Closed);
    assert_eq!(waiting.await.unwrap(), Loss::Revoked);
    assert_eq!(validity.loss(), Some(Loss::Revoked));
}

#[tokio::test(start_paused = true)]
async fn a_suspicion_is_the_reason_when_the_deadline_passes_unless_a_renewal_clears_it() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    validity.set_expiry_cause(Loss::Unreachable);
    assert_eq!(validity.lost().await, Loss::Unreachable);

    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    validity.set_expiry_cause(Loss::Unreachable);
    validity.advance(validity.observe().unwrap(), in_future(2 * SECOND));
    assert_eq!(validity.lost().await, Loss::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_limit_ends_it_by_the_clock_alone_however_often_it_is_renewed() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    let limit = in_future(5 * SECOND / 2);
    validity.limit(limit);
    validity.limit(in_future(10 * SECOND));
    for _ in 0..2 {
        Clock::runtime().sleep(SECOND / 2).await;
        assert!(validity.advance(validity.observe().unwrap(), in_future(2 * SECOND)));
        assert!(validity.valid_until().unwrap() <= limit);
    }
    assert_eq!(validity.remaining(), 3 * SECOND / 2);
    let observed = validity.observe().unwrap();
    Clock::runtime().sleep(3 * SECOND / 2).await;
    assert!(!validity.advance(observed, in_future(2 * SECOND)), "renewed beyond its limit");
    assert_eq!(validity.loss(), Some(Loss::MaxHoldExceeded));
}

/// Two renewals under way at once: the later answer counts, although the deadline that it was sent under has passed.
#[tokio::test(start_paused = true)]
async fn a_renewal_counts_although_another_came_between() {
    let validity = Validity::new(Clock::runtime(), in_future(SECOND));
    let (first, second) = (validity.observe().unwrap(), validity.observe().unwrap());
    assert!(validity.advance(first, in_future(2 * SECOND)));
    tokio::time::advance(SECOND).await;
    let until = in_future(5 * SECOND);
    assert!(validity.advance(second, until));
    assert_eq!(validity.valid_until(), Some(until));
}

#[tokio::test(start_paused = true)]
async fn a_limit_wakes_those_who_wait_for_a_later_end() {
    let validity = Validity::new(Clock::runtime(), in_future(100 * SECOND));
    let waiting = tokio::spawn({
        let validity = validity.clone();
        async move {
            let loss = validity.lost().await;
            (loss, Clock::runtime().now())
        }
    });
    tokio::task::yield_now().await;
    let limit = in_future(SECOND);
    validity.limit(limit);
    let (loss, at) = waiting.await.unwrap();
    assert_eq!(loss, Loss::MaxHoldExceeded);
    assert!(at < limit.saturating_add(SECOND));
}

/// What may happen to a validity, with times in milliseconds from then.
#[derive(Debug, Clone)]
enum Step {
    Pass(u64),
    Observe,
    Renew(u64),
    Limit(u64),
    Look,
    Take,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1_u64..50).prop_map(Step::Pass),
        Just(Step::Observe),
        (0_u64..100).prop_map(Step::Renew),
        (0_u64..200).prop_map(Step::Limit),
        Just(Step::Look),
        Just(Step::Take),
    ];
    prop::collection::vec(step, 1..40)
}

/// The same in plain numbers.
struct Model {
    until: BootInstant,
    limit: Option<BootInstant>,
    ended: Option<Loss>,
}

impl Model {
    /// Whoever looks makes the end final, so a renewal that nobody looked before is judged like a look.
    fn look(&mut self, now: BootInstant) {
        let limit = self.limit.filter(|limit| *limit < self.until);
        if self.ended.is_none() && now >= limit.unwrap_or(self.until) {
            self.ended = Some(limit.map_or(Loss::Expired, |_| Loss::MaxHoldExceeded));
        }
    }

    fn renew(&mut self, now: BootInstant, until: BootInstant) {
        // The deadline and the limit are looked at before it, the limit again after it.
        self.look(now);
        self.until = self.until.max(until);
    }
}

proptest! {
    #[test]
    fn it_is_held_until_its_deadline_or_its_limit_and_never_again(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let clock = Clock::runtime();
            let in_millis = |millis| in_future(Duration::from_millis(millis));
            let validity = Validity::new(clock, in_millis(100));
            let mut model = Model { until: in_millis(100), limit: None, ended: None };
            let mut observed = validity.observe();
            for step in steps {
                match step {
                    Step::Pass(millis) => tokio::time::advance(Duration::from_millis(millis)).await,
                    Step::Observe => {
                        model.look(clock.now());
                        observed = validity.observe();
                        prop_assert_eq!(observed.is_some(), model.ended.is_none());
                    }
                    Step::Renew(millis) => {
                        let Some(from) = observed else { continue };
                        model.renew(clock.now(), in_millis(millis));
                        prop_assert_eq!(validity.advance(from, in_millis(millis)), model.ended.is_none());
                    }
                    Step::Limit(millis) => {
                        // A holder sees it only later: a limit that comes when it has run out finds it so.
                        model.look(clock.now());
                        let _ = validity.loss();
                        let limit = in_millis(millis);
                        validity.limit(limit);
                        model.limit = Some(model.limit.map_or(limit, |earlier| earlier.min(limit)));
                    }
                    Step::Look => {
                        model.look(clock.now());
                        prop_assert_eq!(validity.loss(), model.ended);
                        let until = model.limit.map_or(model.until, |limit| limit.min(model.until));
                        prop_assert_eq!(validity.valid_until(), model.ended.is_none().then_some(until));
                    }
                    Step::Take => {
                        model.look(clock.now());
                        model.ended.get_or_insert(Loss::Revoked);
                        validity.end(Loss::Revoked);
                        prop_assert_eq!(validity.loss(), model.ended);
                    }
                }
            }
            Ok(())
        })?;
    }
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
