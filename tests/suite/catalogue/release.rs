//! Giving a lock back, and who hears of it.

use std::{panic, time::Duration};

use lock::Error;
use lock_lab::proxy::Proxy;

use crate::catalogue::world::{LONG, Service, on_each, within};

on_each! {
    a_dropped_guard_gives_the_lock_back: zookeeper, redis, redlock;
    the_release_of_an_old_holder_leaves_the_next_ones_lock_alone: zookeeper, redis, redlock;
    a_release_between_a_refusal_and_the_wait_is_not_missed: zookeeper, redis, redlock;
}

/// Whether its scope ends, its task panics or is aborted.
async fn a_dropped_guard_gives_the_lock_back(service: Service) {
    let (locks, others) = (service.connect(LONG).await, service.connect(LONG).await);
    drop(locks.mutex("a").lock().await.unwrap());
    let guard = within("after a drop", others.mutex("a").lock()).await.unwrap();
    let panicking = tokio::spawn(async move {
        let _guard = guard;
        panic::resume_unwind(Box::new("the work failed"));
    });
    assert!(panicking.await.unwrap_err().is_panic());
    let guard = within("after a panic", locks.mutex("a").lock()).await.unwrap();
    let aborted = tokio::spawn(async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    aborted.abort();
    assert!(aborted.await.unwrap_err().is_cancelled());
    drop(within("after an abort", others.mutex("a").lock()).await.unwrap());
    service.until_only("a", &[]).await;
}

/// The first holder's lock was deleted, and the second one holds it by now: on the same connection, where a value that is
/// the connection's own would not tell the two apart.
async fn the_release_of_an_old_holder_leaves_the_next_ones_lock_alone(service: Service) {
    let (locks, others) = (service.connect(LONG).await, service.connect(LONG).await);
    let old = locks.mutex("a").lock().await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none(), "another object is another contender");
    service.delete("a").await;
    let new = within("the next grant", locks.mutex("a").lock()).await.unwrap();
    assert!(new.token() > old.token());
    let there = service.held_everywhere("a").await;
    assert!(matches!(old.release().await, Err(Error::Lost { .. })));
    service.until_only("a", &there).await;
    assert!(new.is_valid());
    assert!(others.mutex("a").try_lock().await.unwrap().is_none(), "the second one's lock is gone");
    new.release().await.unwrap();
}

/// The waiter was refused, and the lock is released before the waiter's request to be told of that arrives.
async fn a_release_between_a_refusal_and_the_wait_is_not_missed(service: Service) {
    let (locks, others) = (service.connect(LONG).await, service.connect_through(LONG).await);
    others.mutex("a").lock().await.unwrap().release().await.unwrap();
    let held = locks.mutex("a").lock().await.unwrap();
    let before = service.tries("a").await;
    service.on_the_way(|proxy| proxy.delay_each(Duration::from_millis(150), Duration::ZERO));
    let waiting = tokio::spawn(async move { others.mutex("a").lock().await });
    service.until_tried("a", before).await;
    held.release().await.unwrap();
    let guard = within("the wake-up", waiting).await.unwrap().unwrap();
    service.on_the_way(Proxy::heal);
    guard.release().await.unwrap();
}
