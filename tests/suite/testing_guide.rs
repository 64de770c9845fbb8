//! The code of docs/testing.md: a program, and its tests.
#![allow(clippy::disallowed_methods)] // A program and its tests sleep as any other does.

use std::time::Duration;

use lock::{Error, Locks, Loss, testing::TestService};

/// The program: a job that must run once at a time, of so many steps of a minute each.
async fn nightly(locks: &Locks, steps: u32) -> Result<u32, Error> {
    let guard = locks.mutex("nightly").timeout(Duration::from_secs(90)).lock().await?;
    let work = async {
        for _ in 0..steps {
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        steps
    };
    let done = guard.run(work).await?; // dropped as soon as the lock is lost
    guard.release().await?;
    Ok(done)
}

#[tokio::test(start_paused = true)]
async fn an_hour_of_work_takes_no_time() {
    let service = TestService::new();
    let locks = service.connect().unwrap();
    assert_eq!(nightly(&locks, 60).await.unwrap(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_second_instance_waits_for_its_turn_and_then_gives_up() {
    let service = TestService::new();
    let (first, second) = (service.connect().unwrap(), service.connect().unwrap());
    let (short, long) = (nightly(&first, 1), nightly(&second, 2));
    let (short, long) = tokio::join!(short, long);
    assert_eq!((short.unwrap(), long.unwrap()), (1, 2)); // a minute each is within the limit

    let held = first.mutex("nightly").lock().await.unwrap();
    let refused = nightly(&second, 1).await;
    assert!(matches!(refused, Err(Error::NotAcquired { .. })), "{refused:?}");
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_work_is_dropped_when_the_lease_runs_out() {
    let service = TestService::new();
    let locks = service.connect().unwrap();
    let (work, ()) = tokio::join!(nightly(&locks, 60), async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        service.expire("nightly").await.unwrap();
    });
    assert!(matches!(work, Err(Error::Lost { loss: Loss::Expired, .. })), "{work:?}");
}

#[tokio::test(start_paused = true)]
async fn a_holder_does_not_know_at_once_that_its_lock_was_revoked() {
    let service = TestService::new();
    let (old, new) = (service.connect().unwrap(), service.connect().unwrap());
    let guard = old.mutex("nightly").lock().await.unwrap();
    service.revoke("nightly").unwrap();
    let next = new.mutex("nightly").try_lock().await.unwrap().expect("it is free");

    // Both believe that they hold it: the moment for which there are fencing tokens.
    assert!(guard.is_valid() && next.is_valid());
    let store = lock::Fence::new();
    store.check("report", next.token()).unwrap();
    store.check("report", guard.token()).unwrap_err();

    assert_eq!(guard.lost().await, Loss::Revoked); // by its next renewal
}

#[tokio::test(start_paused = true)]
async fn the_work_ends_when_the_network_does() {
    let service = TestService::new();
    let (ours, theirs) = (service.connect().unwrap(), service.connect().unwrap());
    let (work, next) = tokio::join!(nightly(&ours, 60), async {
        tokio::time::sleep(Duration::from_secs(600)).await;
        ours.cut_off(); // `theirs` is not
        theirs.mutex("nightly").lock().await
    });
    assert!(matches!(work, Err(Error::Lost { loss: Loss::Unreachable, .. })), "{work:?}");
    next.unwrap().release().await.unwrap();

    ours.restore();
    assert_eq!(nightly(&ours, 1).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_service_is_no_lost_lock() {
    let service = TestService::new();
    let locks = service.connect().unwrap();
    service.delay(Duration::from_secs(5)); // each request
    assert_eq!(nightly(&locks, 60).await.unwrap(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_lets_the_work_come_to_its_end() {
    let service = TestService::new();
    let locks = service.connect().unwrap();
    let (work, cut_off) = tokio::join!(nightly(&locks, 10), async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        locks.drain(Duration::from_secs(3600)).await
    });
    assert_eq!((work.unwrap(), cut_off), (10, 0));
    locks.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_program_that_reads_its_configuration_is_given_a_url() {
    let service = TestService::new();
    let locks = lock::connect(&service.url()).await.unwrap(); // as the program does with LOCK_URL
    assert_eq!(nightly(&locks, 60).await.unwrap(), 60);
}
