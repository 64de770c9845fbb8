//! Locks that are lost, and how their holders know.

use std::time::Duration;

use lock::{Clock, Error};
use lock_lab::proxy::Proxy;

use crate::catalogue::world::{LIMIT, LONG, Service, ask, eventually, key, on_each, within};

on_each! {
    a_holder_knows_of_its_loss_when_the_servers_fall_silent: zookeeper, redis, redlock;
    a_renewal_that_is_answered_too_late_makes_nothing_valid_again: redis, redlock;
    a_renewal_does_not_bring_back_a_lock_that_is_gone: redis, redlock;
    a_grant_counts_from_the_try_that_brought_it: redis, redlock;
    a_grant_that_arrives_after_its_lease_is_none: redis, redlock;
}

/// The servers are frozen: the connection stays open, and nobody says anything.
async fn a_holder_knows_of_its_loss_when_the_servers_fall_silent(service: Service) {
    let locks = service.connect(Duration::from_secs(6)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(guard.is_valid());
    service.freeze();
    // Nobody else looks meanwhile: the news come by themselves.
    within("the loss", guard.lost()).await;
    assert!(!guard.is_valid());
    assert!(guard.run(async {}).await.is_err());
}

/// The server has extended the lease, and says so when it has ended by the holder's clock. Nobody has looked at it since.
async fn a_renewal_that_is_answered_too_late_makes_nothing_valid_again(service: Service) {
    let locks = service.connect_through(Duration::from_secs(3)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let until = guard.valid_until().expect("it is held");
    service.on_the_way(Proxy::hold_replies);
    Clock::boot().sleep_until(until).await;
    service.on_the_way(Proxy::heal);
    // Down the same connection: what is answered before this has been heard when it is.
    for _ in 0..3 {
        within("a look", locks.inspect("a")).await.unwrap();
    }
    assert!(!guard.is_valid());
    assert!(matches!(guard.release().await, Err(Error::Lost { .. })));
}

/// Somebody deletes the key, as a server that loses its memory does. The holder's next renewal must find that, and not set
/// the key again: somebody else may have held the lock meanwhile.
async fn a_renewal_does_not_bring_back_a_lock_that_is_gone(service: Service) {
    let locks = service.connect(Duration::from_secs(6)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    service.delete("a").await;
    within("the loss", guard.lost()).await;
    for node in service.nodes() {
        let there: u32 = ask(node, &["EXISTS", &key("a")]).await;
        assert_eq!(there, 0, "the key is back");
    }
    assert!(!guard.is_valid());
}

/// It waits for longer than its own lease. What counts is the try that was granted, not the first one.
async fn a_grant_counts_from_the_try_that_brought_it(service: Service) {
    let lease = Duration::from_secs(8);
    let (first, second) = (service.connect(LONG).await, service.connect(lease).await);
    let held = first.mutex("a").lock().await.unwrap();
    let began = Clock::boot().now();
    let waiting = tokio::spawn(async move { second.mutex("a").lock().await });
    Clock::boot().sleep_until(began.saturating_add(lease + lease / 8)).await;
    let released = Clock::boot().now();
    held.release().await.unwrap();
    let guard = within("the grant", waiting).await.unwrap().unwrap();
    // The try that was granted was sent about when the lock was released, or later. What Redis hands over is a claim, which
    // counts from the newest beat, until the first renewal a moment later.
    let counts = || guard.valid_until().expect("it is held") > released.saturating_add(lease / 2);
    eventually("it counts from the release", || async { counts() }).await;
}

/// The server grants at once, and the answer takes longer than the lease.
async fn a_grant_that_arrives_after_its_lease_is_none(service: Service) {
    let lease = Duration::from_secs(4);
    let locks = service.connect_through(lease).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.on_the_way(|proxy| proxy.delay_each(Duration::ZERO, lease + lease / 2));
    let late = within("the answer", locks.mutex("a").try_lock()).await;
    assert!(!matches!(late, Ok(Some(_))), "{late:?}");
    service.on_the_way(Proxy::heal);
    drop(late);
    // Comes behind the answers that are still under way, which would take a part of the next lease with them.
    within("the last of the late answers", locks.inspect("a")).await.unwrap();
    within("a grant in time", locks.mutex("a").timeout(LIMIT).lock()).await.unwrap().release().await.unwrap();
    if service.running.deployment().is_quorum() {
        service.until_only("a", &[]).await;
    }
}
