//! The renewer: one task, batches, and no renewal of what is not kept.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{Clock, Context, Loss, Renew, Renewer, Validity};

const EVERY: Duration = Duration::from_secs(10);
const TTL: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Lease {
    id: u64,
    validity: Validity,
}

/// Records each batch, and answers as it is told.
#[derive(Debug, Default)]
struct Recorder {
    batches: Mutex<Vec<Vec<u64>>>,
    silent: Mutex<bool>,
}

impl Recorder {
    fn batches(&self) -> Vec<Vec<u64>> {
        self.batches.lock().unwrap().clone()
    }
}

#[async_trait]
impl Renew for Recorder {
    type Lease = Lease;

    async fn renew(&self, batch: &[Arc<Lease>]) {
        self.batches.lock().unwrap().push(batch.iter().map(|lease| lease.id).collect());
        for lease in batch {
            let Some(observed) = lease.validity.observe() else { continue };
            if *self.silent.lock().unwrap() {
                lease.validity.set_expiry_cause(Loss::Unreachable);
            } else {
                lease.validity.advance(observed, Clock::runtime().now().saturating_add(TTL));
            }
        }
    }
}

fn lease(id: u64) -> Arc<Lease> {
    let validity = Validity::new(Clock::runtime(), Clock::runtime().now().saturating_add(TTL));
    Arc::new(Lease { id, validity })
}

#[tokio::test(start_paused = true)]
async fn leases_taken_together_are_renewed_together_until_they_are_let_go() {
    let recorder = Arc::new(Recorder::default());
    let renewer = Renewer::new(&Context::current().with_clock(Clock::runtime()), Arc::clone(&recorder));
    let leases: Vec<_> = (0..3).map(lease).collect();
    let mut kept: Vec<_> = leases.iter().map(|l| renewer.keep(Arc::clone(l), l.validity.clone(), EVERY)).collect();

    Clock::runtime().sleep(EVERY + Duration::from_secs(1)).await;
    assert_eq!(recorder.batches(), [[0, 1, 2]]);

    kept.remove(1);
    Clock::runtime().sleep(EVERY).await;
    assert_eq!(recorder.batches()[1], [0, 2], "what was let go is not renewed any more");

    Clock::runtime().sleep(20 * EVERY).await;
    assert!(leases[0].validity.is_valid(), "renewed for as long as it is kept");
    assert_eq!(leases[1].validity.loss(), Some(Loss::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_without_an_answer_is_repeated_until_the_lease_has_ended() {
    let recorder = Arc::new(Recorder::default());
    *recorder.silent.lock().unwrap() = true;
    let renewer = Renewer::new(&Context::current().with_clock(Clock::runtime()), Arc::clone(&recorder));
    let lease = lease(7);
    let _kept = renewer.keep(Arc::clone(&lease), lease.validity.clone(), EVERY);

    assert_eq!(lease.validity.lost().await, Loss::Unreachable);
    Clock::runtime().sleep(EVERY).await;
    let tries = recorder.batches().len();
    assert!(tries > 5, "{tries} tries");
    Clock::runtime().sleep(10 * EVERY).await;
    assert_eq!(recorder.batches().len(), tries, "a lost lease is not renewed");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_leases_go_out_in_chunks() {
    let recorder = Arc::new(Recorder::default());
    let renewer = Renewer::new(&Context::current().with_clock(Clock::runtime()), Arc::clone(&recorder));
    let leases: Vec<_> = (0..10_000).map(lease).collect();
    let kept: Vec<_> = leases.iter().map(|l| renewer.keep(Arc::clone(l), l.validity.clone(), EVERY)).collect();

    Clock::runtime().sleep(EVERY + Duration::from_secs(1)).await;
    let batches = recorder.batches();
    assert_eq!(batches.iter().map(Vec::len).sum::<usize>(), kept.len());
    assert!(batches.iter().all(|batch| batch.len() <= 256));
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_due_before_all_others_is_renewed_in_time() {
    let recorder = Arc::new(Recorder::default());
    let renewer = Renewer::new(&Context::current().with_clock(Clock::runtime()), Arc::clone(&recorder));
    let leases = [lease(0), lease(1)];
    let _kept = renewer.keep(Arc::clone(&leases[0]), leases[0].validity.clone(), EVERY);
    // The task sleeps until that one is due.
    Clock::runtime().sleep(Duration::from_secs(1)).await;
    let _earlier = renewer.keep(Arc::clone(&leases[1]), leases[1].validity.clone(), EVERY / 4);
    Clock::runtime().sleep(EVERY / 3).await;
    assert_eq!(recorder.batches(), [[1]]);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_wanted_earlier_goes_out_earlier_and_the_next_one_as_ever() {
    let recorder = Arc::new(Recorder::default());
    let renewer = Renewer::new(&Context::current().with_clock(Clock::runtime()), Arc::clone(&recorder));
    let lease = lease(7);
    let kept = renewer.keep(Arc::clone(&lease), lease.validity.clone(), EVERY);
    kept.renew_by(Clock::runtime().now().saturating_add(Duration::from_secs(1)));
    kept.renew_by(Clock::runtime().now().saturating_add(Duration::from_secs(5)));
    Clock::runtime().sleep(Duration::from_secs(2)).await;
    assert_eq!(recorder.batches().len(), 1);
    Clock::runtime().sleep(EVERY / 2).await;
    assert_eq!(recorder.batches().len(), 1, "the later wish is met by the earlier one");
    Clock::runtime().sleep(EVERY / 2).await;
    assert_eq!(recorder.batches().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_which_little_is_left_is_tried_again_before_it_ends_however_seldom_it_is_renewed() {
    let recorder = Arc::new(Recorder::default());
    *recorder.silent.lock().unwrap() = true;
    let renewer = Renewer::new(&Context::current().with_clock(Clock::runtime()), Arc::clone(&recorder));
    let lease = lease(7);
    let kept = renewer.keep(Arc::clone(&lease), lease.validity.clone(), 1_000 * EVERY);
    kept.renew_by(Clock::runtime().now());
    Clock::runtime().sleep(Duration::from_secs(1)).await;
    *recorder.silent.lock().unwrap() = false;
    Clock::runtime().sleep(TTL).await;
    assert!(lease.validity.is_valid(), "one answer that was lost cost the lease");
}
