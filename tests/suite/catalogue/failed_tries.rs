//! Contenders that give up, and what they leave behind.

use lock::Error;
use lock_lab::proxy::Proxy;

use crate::catalogue::world::{LONG, Service, on_each, within};

on_each! {
    a_waiter_that_is_interrupted_leaves_no_contender: zookeeper, redis, redlock;
    a_try_that_fails_over_a_broken_connection_leaves_no_contender: zookeeper, redis, redlock;
}

/// Once on a connection that works, once on one that has just been lost.
async fn a_waiter_that_is_interrupted_leaves_no_contender(service: Service) {
    let (locks, others) = (service.connect(LONG).await, service.connect_through(LONG).await);
    let held = locks.mutex("a").lock().await.unwrap();
    let there = service.held_everywhere("a").await;
    for lost in [false, true] {
        let before = service.tries("a").await;
        let mutex = others.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        service.until_tried("a", before).await;
        if lost {
            service.on_the_way(Proxy::cut_once);
        }
        waiting.abort();
        assert!(waiting.await.unwrap_err().is_cancelled());
        service.until_only("a", &there).await;
    }
    held.release().await.unwrap();
    // Nobody stands before the next one.
    within("the next grant", locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
    service.until_only("a", &[]).await;
}

/// The lock is held; the answer to the try, or to what takes its contender away again, is lost with the connection.
async fn a_try_that_fails_over_a_broken_connection_leaves_no_contender(service: Service) {
    let (locks, others) = (service.connect(LONG).await, service.connect_through(LONG).await);
    others.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.until_only("a", &[]).await;
    let held = locks.mutex("a").lock().await.unwrap();
    let there = service.held_everywhere("a").await;
    for reply in 0..4 {
        service.on_the_way(|proxy| proxy.cut_at_reply(reply));
        match within("the refusal", others.mutex("a").try_lock()).await {
            Ok(None) | Err(Error::Unavailable { .. }) => {}
            other => panic!("cut at reply {reply}: {other:?}"),
        }
        service.on_the_way(Proxy::heal);
        service.until_only("a", &there).await;
    }
    held.release().await.unwrap();
    service.until_only("a", &[]).await;
}
