//! What an acquisition costs, counted on the server.

use std::sync::Arc;

use crate::common::{
    connect,
    count::{Count, quiet_locks, watches},
    eventually, inspect, locks, queued, server, within,
};
use lock_core::{Backend, Locks};
use lock_lab::proxy::Proxy;

#[tokio::test]
async fn an_uncontended_acquisition_is_two_requests_and_a_release_is_one() {
    let server = server().await;
    let locks = quiet_locks(server.ports()[0]).await;
    locks.mutex("cost").lock().await.unwrap().release().await.unwrap();
    for _ in 0..10 {
        let count = Count::start(&server).await;
        let guard = locks.mutex("cost").lock().await.unwrap();
        guard.release().await.unwrap();
        let requests = count.requests().await;
        // Create, list, and the transaction; on a slow machine also the watch of a hold that took long.
        assert!((3..=4).contains(&requests), "{requests} requests");
    }
}

#[tokio::test]
async fn the_create_and_the_list_are_both_under_way_before_any_reply() {
    let server = server().await;
    let port = server.ports()[0];
    let proxy = Proxy::start(port).await.unwrap();
    let locks = quiet_locks(proxy.port()).await;
    locks.mutex("burst").lock().await.unwrap().release().await.unwrap();
    let count = Count::start(&server).await;
    proxy.hold_replies();
    let acquiring = tokio::spawn({
        let mutex = locks.mutex("burst");
        async move { mutex.lock().await }
    });
    eventually("both arrived without an answer", || async { count.requests().await == 2 }).await;
    proxy.heal();
    within("the grant", acquiring).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn each_waiter_watches_its_predecessor_and_itself_and_nobody_watches_the_directory() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let guard = Locks::new(zk.clone()).mutex("watches").lock().await.unwrap();
    eventually("the holder watches its node", || async { watches(&server).await == 1 }).await;
    let mut waiters = tokio::task::JoinSet::new();
    for count in 1..=20 {
        let mutex = locks(port).await.mutex("watches");
        waiters.spawn(async move { mutex.lock().await });
        queued(&zk, "watches", count).await;
        let expected = 1 + 2 * u64::try_from(count).unwrap();
        eventually("two watches per waiter", || async { watches(&server).await == expected }).await;
    }
    drop(guard);
}

#[tokio::test]
async fn a_release_wakes_exactly_one_waiter_which_holds_without_any_further_request() {
    let server = server().await;
    let port = server.ports()[0];
    let first = quiet_locks(port).await;
    let guard = first.mutex("herd").lock().await.unwrap();
    let viewer = connect(port).await;
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    let mut connections = Vec::new();
    for count in 1..=10 {
        let locks = quiet_locks(port).await;
        let (mutex, granted) = (locks.mutex("herd"), granted.clone());
        connections.push(locks);
        tokio::spawn(async move { granted.send(mutex.lock().await.unwrap()) });
        queued(&viewer, "herd", count).await;
    }
    eventually("all watches are set", || async { watches(&server).await == 21 }).await;
    end_viewer(viewer).await;
    let mut holder = guard;
    for left in (1..=10).rev() {
        let count = Count::start(&server).await;
        holder.release().await.unwrap();
        holder = within("the hand-off", grants.recv()).await.unwrap();
        assert_eq!(count.requests().await, 1, "only the release itself");
        assert!(grants.try_recv().is_err(), "one waiter is woken");
        // Its predecessor's watch and its predecessor's own went; all others stayed.
        assert_eq!(watches(&server).await, 2 * left - 1);
    }
}

/// Ends a connection whose heartbeat would be counted.
async fn end_viewer(viewer: Arc<lock_zk::ZooKeeper>) {
    assert_eq!(inspect(&viewer, "herd").await.holders.len(), 1);
    viewer.close(crate::common::LIMIT).await;
}
