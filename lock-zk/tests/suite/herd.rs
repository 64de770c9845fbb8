//! The strategy `herd`, on a real server.

use std::{sync::Arc, time::Duration};

use crate::common::{
    config,
    count::{Count, quiet, watches},
    eventually, held, inspect, outsider, server, within,
};
use lock_core::{Backend, Error, Feature, Locks, Loss};
use lock_lab::proxy::Proxy;
use lock_zk::{Config, Strategy, ZooKeeper};
use tokio::sync::mpsc;
use zookeeper_client::{Acls, Client, CreateMode};

async fn connect(config: Config) -> (Arc<ZooKeeper>, Locks) {
    let zk = ZooKeeper::connect(config.with_strategy(Strategy::Herd)).await.expect("a connection");
    (zk.clone(), Locks::new(zk))
}

/// Waits until a lock's node is gone.
async fn gone(client: &Client, path: &str) {
    eventually("nothing is left", || async { client.check_stat(path).await.unwrap().is_none() }).await;
}

#[tokio::test]
async fn a_release_wakes_the_whole_herd_where_the_queue_wakes_one() {
    let server = server().await;
    let port = server.ports()[0];
    let (_, first) = connect(quiet(port)).await;
    let guard = first.mutex("herd").lock().await.unwrap();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut connections = Vec::new();
    for _ in 0..10 {
        let (_, locks) = connect(quiet(port)).await;
        let (mutex, granted) = (locks.mutex("herd"), granted.clone());
        connections.push(locks);
        tokio::spawn(async move { granted.send(mutex.lock().await.unwrap()) });
    }
    // The holder's and each waiter's, on the one node.
    eventually("all watch the node", || async { watches(&server).await == 11 }).await;
    let mut holder = guard;
    for left in (1..=10).rev() {
        let count = Count::start(&server).await;
        holder.release().await.unwrap();
        holder = within("the next grant", grants.recv()).await.unwrap();
        // The release, and of each waiter a create and a watch: of the new holder on its own node.
        eventually("all of them try, and watch again", || async { count.requests().await > 2 * left }).await;
        eventually("all watch the node", || async { watches(&server).await == left }).await;
        assert!(grants.try_recv().is_err());
    }
}

#[tokio::test]
async fn an_uncontended_acquisition_is_one_request() {
    let server = server().await;
    let (_, locks) = connect(quiet(server.ports()[0])).await;
    locks.mutex("cost").lock().await.unwrap().release().await.unwrap();
    let count = Count::start(&server).await;
    let guard = locks.mutex("cost").lock().await.unwrap();
    eventually("the create and the watch", || async { count.requests().await == 2 }).await;
    guard.release().await.unwrap();
    assert_eq!(count.requests().await, 3, "and the deletion");
}

#[tokio::test]
async fn a_release_before_the_answer_to_the_watch_costs_no_more_than_one_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let proxy = Proxy::start(port).await.unwrap();
    let (_, locks) = connect(quiet(proxy.port())).await;
    locks.mutex("at once").lock().await.unwrap().release().await.unwrap();
    let count = Count::start(&server).await;
    // So that the watch is certainly under way when the release begins.
    proxy.delay_each(Duration::ZERO, Duration::from_millis(50));
    locks.mutex("at once").lock().await.unwrap().release().await.unwrap();
    assert_eq!(count.requests().await, 3, "create, watch, deletion");
}

#[tokio::test]
async fn the_two_strategies_never_hold_one_name_side_by_side_and_the_second_is_told() {
    let server = server().await;
    let port = server.ports()[0];
    let ((viewer, herd), zk) = (connect(config(port)).await, crate::common::connect(port).await);
    let queue = Locks::new(zk.clone());
    let refused = |error: Error| match error {
        Error::Config { key, value, allowed } => (key, value, allowed),
        other => panic!("{other}"),
    };
    let guard = herd.mutex("first herd").lock().await.unwrap();
    for result in [queue.mutex("first herd").lock().await.map(Some), queue.mutex("first herd").try_lock().await] {
        let (key, value, allowed) = refused(result.unwrap_err());
        assert_eq!((key.as_str(), value.as_str()), ("strategy", "queue"));
        assert!(allowed.starts_with("herd") && allowed.contains("first herd"), "{allowed}");
    }
    assert!(guard.is_valid());
    assert_eq!(inspect(&zk, "first herd").await.holders[0].token, Some(guard.token().number));
    guard.release().await.unwrap();

    let guard = queue.mutex("first queue").lock().await.unwrap();
    for result in [herd.mutex("first queue").lock().await.map(Some), herd.mutex("first queue").try_lock().await] {
        let (key, value, allowed) = refused(result.unwrap_err());
        assert_eq!((key.as_str(), value.as_str()), ("strategy", "herd"));
        assert!(allowed.starts_with("queue"), "{allowed}");
    }
    assert!(guard.is_valid());
    assert_eq!(inspect(&viewer, "first queue").await.holders[0].token, Some(guard.token().number));
    guard.release().await.unwrap();
    drop(queue.mutex("first herd").try_lock().await.unwrap().expect("it is free and in nobody's use"));
}

#[tokio::test]
async fn what_it_does_not_promise_is_refused_by_its_name() {
    let server = server().await;
    let (zk, locks) = connect(config(server.ports()[0])).await;
    for feature in [Feature::Fifo, Feature::Queue, Feature::ReadWrite, Feature::Downgrade, Feature::Semaphore] {
        assert!(!zk.capabilities().supports(feature), "{feature}");
    }
    for error in [locks.rwlock("a").read().await.unwrap_err(), locks.semaphore("a", 2).acquire().await.unwrap_err()] {
        assert!(matches!(error, Error::Unsupported { backend: "zk", .. }), "{error}");
    }
}

#[tokio::test]
async fn a_connection_cut_at_any_reply_leaves_one_node_while_held_and_none_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let (viewer, rival) = connect(config(port)).await;
    for reply in 0..8 {
        let (_, locks) = connect(config(proxy.port())).await;
        let name = format!("cut-{reply}");
        let first = rival.mutex(&name).lock().await.unwrap();
        eventually("its node is watched", || async { watches(&server).await == 1 }).await;
        proxy.cut_at_reply(reply);
        let acquiring = tokio::spawn({
            let mutex = locks.mutex(&name);
            async move { mutex.lock().await }
        });
        eventually("it waits", || async { watches(&server).await == 2 }).await;
        first.release().await.unwrap();
        let guard = within("the grant", acquiring).await.unwrap().unwrap();
        let holder = inspect(&viewer, &name).await.holders.remove(0);
        assert_eq!(holder.token, Some(guard.token().number), "cut at reply {reply}");
        match guard.release().await {
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            Err(other) => panic!("cut at reply {reply}: {other}"),
        }
        gone(&client, &format!("/locks/{name}")).await;
        proxy.heal();
        locks.close(crate::common::LIMIT).await.unwrap();
    }
}

#[tokio::test]
async fn a_create_whose_reply_is_lost_is_found_again_by_its_unique_id() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let (_, locks) = connect(config(proxy.port())).await;
    locks.mutex("lost").lock().await.unwrap().release().await.unwrap();
    proxy.cut_at_reply(0);
    let guard = within("the grant", locks.mutex("lost").lock()).await.unwrap();
    // Another contender of the same session does not take the node for its own.
    assert!(locks.mutex("lost").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    gone(&client, "/locks/lost").await;
}

#[tokio::test]
async fn a_release_whose_node_was_taken_away_leaves_the_successors_alone() {
    let server = server().await;
    let port = server.ports()[0];
    let ((zk, first), (_, second)) = (connect(config(port)).await, connect(config(port)).await);
    let client = outsider(port).await;
    let guard = first.mutex("taken").lock().await.unwrap();
    held(&zk, "taken", 1).await;
    client.delete("/locks/taken", None).await.unwrap();
    let other = second.mutex("taken").lock().await.unwrap();
    assert_eq!(within("the loss", guard.lost()).await, Loss::Revoked);
    assert!(matches!(guard.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
    assert!(second.mutex("taken").try_lock().await.unwrap().is_none());
    assert!(other.is_valid());
}

#[tokio::test]
async fn a_waiter_that_gives_up_while_disconnected_leaves_no_ghost() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let (_, locks) = connect(config(proxy.port())).await;
    locks.mutex("ghost").lock().await.unwrap().release().await.unwrap();
    proxy.hold();
    for _ in 0..3 {
        let error = locks.mutex("ghost").timeout(Duration::from_millis(50)).lock().await.unwrap_err();
        assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    }
    proxy.cut_once();
    proxy.heal();
    drop(within("the grant", locks.mutex("ghost").lock()).await.unwrap());
    gone(&client, "/locks/ghost").await;
}

#[tokio::test]
async fn a_plain_node_in_the_place_of_a_lock_is_not_taken_for_a_holder() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks) = connect(config(port)).await;
    let client = outsider(port).await;
    locks.mutex("other").lock().await.unwrap().release().await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create("/locks/plain", b"", &options).await.unwrap();
    assert!(matches!(locks.mutex("plain").lock().await, Err(Error::Config { .. })));
    assert!(inspect(&zk, "plain").await.holders.is_empty());
}
