//! The service that programs are tested with.

use std::time::Duration;

use lock_core::{Clock, Error, Locks, Loss, Registry, Settings, memory::MemoryDriver, testing::TestService};

const TTL: Duration = Duration::from_secs(30);

#[tokio::test(start_paused = true)]
async fn a_wait_limit_passes_on_paused_time() {
    let service = TestService::new();
    let (first, second) = (service.connect().unwrap(), service.connect().unwrap());
    let _held = first.mutex("a").lock().await.unwrap();
    let started = Clock::runtime().now();
    let refused = second.mutex("a").timeout(Duration::from_millis(200)).lock().await;
    assert!(matches!(refused, Err(Error::NotAcquired { .. })));
    assert_eq!(Clock::runtime().now().saturating_since(started), Duration::from_millis(200));
}

#[tokio::test(start_paused = true)]
async fn no_service_knows_the_locks_of_another() {
    let (one, other) = (TestService::new(), TestService::new());
    let (first, second) = (one.connect().unwrap(), other.connect().unwrap());
    let _held = first.mutex("a").lock().await.unwrap();
    assert!(second.mutex("a").try_lock().await.unwrap().is_some());
    assert_ne!(one.url(), other.url());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_let_run_out_is_lost_and_granted_to_who_waits() {
    let service = TestService::new();
    let (first, second) = (service.connect().unwrap(), service.connect().unwrap());
    let guard = first.mutex("a").lock().await.unwrap();
    let other = first.mutex("b").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = second.mutex("a");
        async move { mutex.lock().await }
    });
    Clock::runtime().sleep(10 * TTL).await;
    assert!(guard.is_valid() && !waiter.is_finished());
    let expired = Clock::runtime().timeout(TTL, service.expire("a")).await;
    expired.expect("within its ttl").unwrap();
    assert!(!guard.is_valid() && other.is_valid());
    assert_eq!(guard.lost().await, Loss::Expired);
    let next = waiter.await.unwrap().unwrap();
    // It is the holder's renewals that were lost, not those of the name.
    Clock::runtime().sleep(10 * TTL).await;
    assert!(next.is_valid());
    let again = first.mutex("b");
    other.release().await.unwrap();
    let again = again.lock().await.unwrap();
    Clock::runtime().sleep(10 * TTL).await;
    assert!(again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_revoked_is_lost_by_the_next_renewal() {
    let service = TestService::new();
    let (first, second) = (service.connect().unwrap(), service.connect().unwrap());
    let guard = first.mutex("a").lock().await.unwrap();
    service.revoke("a").unwrap();
    let next = second.mutex("a").try_lock().await.unwrap().expect("it is free");
    assert!(guard.is_valid(), "the holder does not know yet");
    assert!(next.token() > guard.token());
    assert_eq!(guard.lost().await, Loss::Revoked);
    assert!(matches!(service.revoke(""), Err(Error::InvalidName { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_is_cut_off_loses_what_it_holds_and_others_go_on() {
    let service = TestService::new();
    let (first, second) = (service.connect().unwrap(), service.connect().unwrap());
    let guard = first.mutex("a").lock().await.unwrap();
    let kept = second.mutex("b").lock().await.unwrap();
    first.cut_off();
    assert!(matches!(first.inspect("a").await, Err(Error::Unavailable { .. })));
    assert_eq!(guard.lost().await, Loss::Unreachable);
    first.restore();
    assert!(!guard.is_valid(), "lost is final");
    assert!(kept.is_valid());
    let again = first.mutex("a").lock().await.unwrap();
    assert!(again.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_cut_off_refuses_and_comes_back_with_what_it_kept() {
    let service = TestService::new();
    let locks = service.connect().unwrap();
    let guard = locks.mutex("a").lock().await.unwrap();
    service.cut_off();
    assert!(matches!(service.connect(), Err(Error::Unavailable { .. })));
    Clock::runtime().sleep(TTL / 2).await;
    service.restore();
    Clock::runtime().sleep(10 * TTL).await;
    assert!(guard.is_valid(), "shorter than its ttl");
}

#[tokio::test(start_paused = true)]
async fn what_is_delayed_takes_its_time_and_a_wait_limit_still_holds() {
    let service = TestService::new();
    let locks = service.connect().unwrap();
    let delay = Duration::from_secs(3);
    service.delay(delay);
    let started = Clock::runtime().now();
    let since = |earlier| Clock::runtime().now().saturating_since(earlier);
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(since(started), delay);
    let waiting = Clock::runtime().now();
    let refused = locks.mutex("b").timeout(Duration::from_secs(1)).lock().await;
    assert!(matches!(refused, Err(Error::NotAcquired { .. })));
    assert_eq!(since(waiting), Duration::from_secs(1));
    Clock::runtime().sleep(10 * TTL).await;
    assert!(guard.is_valid(), "renewals are late, and in time");
    // A renewal is worth what it was when it was sent.
    assert!(guard.remaining() <= TTL - delay);
    service.delay(2 * TTL);
    assert_eq!(guard.lost().await, Loss::Expired);
    service.delay(Duration::ZERO);
    assert!(locks.mutex("c").try_lock().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_program_connects_to_it_by_its_url() {
    let service = TestService::new();
    let registry = Registry::new().with(MemoryDriver);
    let mut settings = Settings::new("memory");
    settings.hosts = vec![(service.url().replace("memory://", ""), None)];
    let locks = Locks::new(registry.connect(settings).await.unwrap());
    let _held = service.connect().unwrap().mutex("a").lock().await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
}
