//! A connection that is drained before it is closed, on the memory backend in virtual time.

use std::time::Duration;

use lock_core::{Clock, Error, Locks, Loss, testing::TestService};
use tokio::task::JoinHandle;

const TTL: Duration = Duration::from_secs(30);

fn drain(locks: &Locks, limit: Duration) -> JoinHandle<usize> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.drain(limit).await })
}

#[tokio::test(start_paused = true)]
async fn holders_finish_while_nothing_begins() {
    let service = TestService::new();
    let (locks, other) = (service.connect().unwrap().locks(), service.connect().unwrap());
    let guard = locks.mutex("a").lock().await.unwrap();
    let _theirs = other.mutex("b").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = locks.mutex("b");
        async move { mutex.lock().await }
    });
    Clock::runtime().sleep(TTL).await;
    let drained = drain(&locks, 100 * TTL);
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(locks.mutex("c").lock().await, Err(Error::Closed)));
    assert!(matches!(locks.mutex("c").try_lock().await, Err(Error::Closed)));
    assert!(matches!(locks.multi(["c", "d"]).lock().await, Err(Error::Closed)));
    // Far beyond its ttl: renewals go on.
    Clock::runtime().sleep(10 * TTL).await;
    assert!(guard.is_valid() && !drained.is_finished());
    assert_eq!(locks.inspect("a").await.unwrap().holders.len(), 1, "looking goes on");
    guard.release().await.unwrap();
    let released = Clock::runtime().now();
    assert_eq!((drained.await.unwrap(), Clock::runtime().now()), (0, released));
    locks.close(TTL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_held_at_the_limit_is_ended_and_released() {
    let service = TestService::new();
    let (locks, other) = (service.connect().unwrap().locks(), service.connect().unwrap());
    let (guard, reader) = (locks.mutex("a").lock().await.unwrap(), locks.rwlock("b").read().await.unwrap());
    let started = Clock::runtime().now();
    assert_eq!(locks.drain(TTL).await, 2);
    assert_eq!(Clock::runtime().now().saturating_since(started), TTL);
    assert_eq!((guard.lost().await, reader.lost().await), (Loss::Closed, Loss::Closed));
    locks.close(TTL).await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
    assert!(other.rwlock("b").try_write().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_drain_that_is_given_up_leaves_holders_alone_and_acquisitions_refused() {
    let service = TestService::new();
    let locks = service.connect().unwrap().locks();
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(Clock::runtime().timeout(TTL, locks.drain(100 * TTL)).await.is_none());
    assert!(guard.is_valid());
    assert!(matches!(locks.mutex("b").lock().await, Err(Error::Closed)));
    guard.release().await.unwrap();
    assert_eq!(locks.drain(TTL).await, 0);
}

/// The request is on its way when the drain begins, and its grant comes: it is stopped, and nothing stays on the server.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_under_way_is_not_left_behind() {
    let service = TestService::new();
    let (locks, other) = (service.connect().unwrap().locks(), service.connect().unwrap());
    service.delay(Duration::from_secs(1));
    let acquiring = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    Clock::runtime().sleep(Duration::from_millis(500)).await;
    assert_eq!(locks.drain(TTL).await, 0);
    assert!(matches!(acquiring.await.unwrap(), Err(Error::Closed)));
    service.delay(Duration::ZERO);
    locks.close(TTL).await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn with_nothing_held_it_ends_at_once_and_a_close_ends_it_as_well() {
    let service = TestService::new();
    let locks = service.connect().unwrap().locks();
    let started = Clock::runtime().now();
    assert_eq!(locks.drain(TTL).await, 0);
    assert_eq!(Clock::runtime().now(), started);

    let locks = service.connect().unwrap().locks();
    let guard = locks.mutex("a").lock().await.unwrap();
    let drained = drain(&locks, 100 * TTL);
    Clock::runtime().sleep(TTL).await;
    locks.close(TTL).await.unwrap();
    assert_eq!(drained.await.unwrap(), 0, "the close has ended what was held");
    assert_eq!(guard.lost().await, Loss::Closed);
}
