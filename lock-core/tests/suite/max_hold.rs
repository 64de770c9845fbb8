//! The maximum holding time, on the memory backend in virtual time.

use std::time::Duration;

use lock_core::{Clock, Error, Loss, Owner};

use crate::world::{TTL, World, starve};

/// Beyond several renewals.
const LIMIT: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn it_ends_by_the_clock_even_when_no_task_runs() {
    let world = World::new();
    let guard = world.locks.mutex("a").max_hold(TTL / 2).lock().await.unwrap();
    let until = guard.valid_until().unwrap();
    assert!(guard.remaining() <= TTL / 2);
    starve(TTL / 2).await;
    assert!(Clock::runtime().now() >= until);
    assert!(!guard.is_valid());
    assert_eq!(guard.validity().loss(), Some(Loss::MaxHoldExceeded));
    assert_eq!(world.holders("a"), 1, "no task has run that could have released it");
    world.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn renewals_keep_it_until_the_limit_and_not_beyond() {
    let world = World::new();
    let granted = Clock::runtime().now();
    let guard = world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap();
    Clock::runtime().sleep(LIMIT - Duration::from_millis(1)).await;
    assert!(guard.is_valid());
    assert_eq!(guard.lost().await, Loss::MaxHoldExceeded);
    assert_eq!(Clock::runtime().now().saturating_since(granted), LIMIT);
}

#[tokio::test(start_paused = true)]
async fn it_is_released_on_the_server_while_the_guard_still_lives_and_the_release_says_why() {
    let world = World::new();
    let guard = world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap();
    let started = Clock::runtime().now();
    let next = world.locks.mutex("a").lock().await.unwrap();
    assert_eq!(Clock::runtime().now().saturating_since(started), LIMIT, "not only when its lease has ended");
    assert!(next.token() > guard.token());
    let released = guard.release().await;
    assert!(matches!(released, Err(Error::Lost { loss: Loss::MaxHoldExceeded, .. })));
    assert!(next.is_valid());
    assert_eq!(world.holders("a"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_never_dropped_is_released_all_the_same() {
    let world = World::new();
    std::mem::forget(world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap());
    drop(world.locks.mutex("a").timeout(2 * LIMIT).lock().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn the_time_counts_from_the_grant_and_not_from_the_wait() {
    let world = World::new();
    let held = world.locks.mutex("a").lock().await.unwrap();
    tokio::spawn(async move {
        Clock::runtime().sleep(2 * LIMIT).await;
        drop(held);
    });
    let guard = world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap();
    Clock::runtime().sleep(LIMIT / 2).await;
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_was_released_before_leaves_no_later_holder_a_limit() {
    let world = World::new();
    world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap().release().await.unwrap();
    let next = world.locks.mutex("a").lock().await.unwrap();
    Clock::runtime().sleep(3 * LIMIT).await;
    assert!(next.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_before_is_lost_for_its_own_reason() {
    let world = World::new();
    let guard = world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap();
    world.delete("a");
    assert_eq!(guard.lost().await, Loss::Revoked);
    Clock::runtime().sleep(2 * LIMIT).await;
    assert_eq!(guard.validity().loss(), Some(Loss::Revoked));
}

#[tokio::test(start_paused = true)]
async fn the_release_at_the_limit_is_repeated_when_the_server_is_out_of_reach() {
    let world = World::new();
    let _guard = world.locks.mutex("a").max_hold(TTL / 2).lock().await.unwrap();
    Clock::runtime().sleep(TTL / 4).await;
    world.memory.set_connected(false);
    Clock::runtime().sleep(TTL / 4 + Duration::from_secs(1)).await;
    assert_eq!(world.holders("a"), 1);
    world.memory.set_connected(true);
    let started = Clock::runtime().now();
    world.until_free("a").await;
    assert!(Clock::runtime().now().saturating_since(started) < TTL / 4);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_it_at_once_and_does_not_wait_for_the_limit() {
    let world = World::new();
    let guard = world.locks.mutex("a").max_hold(LIMIT).lock().await.unwrap();
    let started = Clock::runtime().now();
    world.locks.close(10 * LIMIT).await.unwrap();
    assert!(Clock::runtime().now().saturating_since(started) < LIMIT);
    assert_eq!(guard.validity().loss(), Some(Loss::Closed));
    assert_eq!(world.holders("a"), 0);
    let late = world.other().mutex("a").max_hold(LIMIT).lock().await.unwrap();
    Clock::runtime().sleep(2 * LIMIT).await;
    assert_eq!(late.validity().loss(), Some(Loss::MaxHoldExceeded));
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_keeps_the_limit() {
    let world = World::new();
    let writer = world.locks.rwlock("a").max_hold(LIMIT).write().await.unwrap();
    Clock::runtime().sleep(LIMIT / 2).await;
    let reader = writer.downgrade().await.unwrap();
    let started = Clock::runtime().now();
    let next = world.locks.rwlock("a").write().await.unwrap();
    assert_eq!(Clock::runtime().now().saturating_since(started), LIMIT / 2);
    assert_eq!(reader.validity().loss(), Some(Loss::MaxHoldExceeded));
    drop(next);
    // And one that passed before is not carried over.
    let writer = world.locks.rwlock("a").max_hold(TTL / 2).write().await.unwrap();
    starve(TTL / 2).await;
    let failed = writer.downgrade().await.unwrap_err();
    assert!(matches!(failed.error, Error::Lost { loss: Loss::MaxHoldExceeded, .. }));
    assert!(failed.guard.is_none());
    world.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn permits_terms_and_owners_have_it_too() {
    let world = World::new();
    let permit = world.locks.semaphore("a", 1).max_hold(LIMIT).acquire().await.unwrap();
    let term = world.locks.election("b").max_hold(LIMIT).campaign(*b"me").await.unwrap();
    let mutex = world.locks.mutex("c").max_hold(LIMIT).reentrant(&Owner::new());
    let outer = mutex.lock().await.unwrap();
    Clock::runtime().sleep(LIMIT / 2).await;
    let inner = mutex.lock().await.unwrap();
    Clock::runtime().sleep(LIMIT / 2).await;
    assert_eq!(permit.validity().loss(), Some(Loss::MaxHoldExceeded));
    assert_eq!(term.validity().loss(), Some(Loss::MaxHoldExceeded));
    assert_eq!(outer.validity().loss(), Some(Loss::MaxHoldExceeded));
    assert!(!inner.is_valid(), "a nested guard does not begin anew");
    for name in ["a", "b", "c"] {
        world.until_free(name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_time_at_all_is_refused() {
    let world = World::new();
    let refused = world.locks.mutex("a").max_hold(Duration::ZERO).lock().await.unwrap_err();
    assert!(matches!(&refused, Error::Config { key, .. } if key == "max_hold"), "{refused}");
    assert_eq!(world.holders("a"), 0);
}
