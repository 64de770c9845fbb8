//! Connections that break, and what must be as before when they are back.

use std::time::Duration;

use lock::Error;
use lock_lab::proxy::Proxy;

use crate::catalogue::world::{LONG, Service, on_each, within};

on_each! {
    a_release_during_an_outage_is_made_up_for: zookeeper, redis, redlock;
    after_an_outage_locks_are_acquired_again: zookeeper, redis, redlock;
    renewal_goes_on_after_one_has_failed: zookeeper, redis, redlock;
}

/// The request to release is lost with its connection. The program does not hold the lock any more, and neither may the
/// server go on keeping it for the program.
async fn a_release_during_an_outage_is_made_up_for(service: Service) {
    let locks = service.connect_impatiently(LONG, Duration::from_millis(300)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    service.on_the_way(Proxy::hold);
    let validity = guard.validity().clone();
    let error = within("the release", guard.release()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(!validity.is_valid());
    assert!(!service.things("a").await.is_empty(), "the request was held up");
    service.on_the_way(Proxy::cut);
    service.on_the_way(Proxy::heal);
    service.until_only("a", &[]).await;
    // The same client, which once knew that lock as its own.
    within("the next grant", locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

/// The connection is lost for longer than a lease, with a lock that is held and another one that is asked for; the server
/// is killed and started again, on Redis without its memory. (Nodes of Redlock would be in quarantine after that.)
async fn after_an_outage_locks_are_acquired_again(mut service: Service) {
    // Of a session, ZooKeeper's client library waits for two fifths for an answer.
    let locks = service.connect_through(Duration::from_secs(10)).await;
    let held = locks.mutex("a").lock().await.unwrap();
    service.on_the_way(Proxy::cut);
    let mutex = locks.mutex("b");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    service.until_only("a", &[]).await;
    service.running.recover(0).await.unwrap();
    service.on_the_way(Proxy::heal);
    // In the middle of the outage it may be refused, as the server is unavailable. It must not hang.
    match within("what was asked for", waiting).await.unwrap() {
        Ok(guard) => guard.release().await.unwrap(),
        Err(Error::Unavailable { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    assert!(!held.is_valid());
    within("the lock that was held", locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

/// The answer to a renewal is lost with its connection, twice while the lock is held.
async fn renewal_goes_on_after_one_has_failed(service: Service) {
    let lease = Duration::from_secs(5);
    let locks = service.connect_through(lease).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    for _ in 0..2 {
        let before = guard.valid_until().expect("it is held");
        service.on_the_way(|proxy| proxy.cut_at_reply(0));
        let beyond = before.saturating_add(lease / 4);
        within("a renewal after the one that failed", async {
            while guard.valid_until().expect("it is still held") < beyond {
                lock::Clock::boot().sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    service.on_the_way(Proxy::heal);
    assert!(guard.is_valid());
}
