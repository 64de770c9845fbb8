//! The strategy `herd`.

use std::{sync::Arc, time::Duration};

use lock_core::{Backend, Error, Feature, Locks, Loss};
use lock_lab::proxy::Proxy;
use lock_sim::zookeeper::deployment::{Cut, Deployment};
use lock_zk::{Strategy, ZooKeeper};
use tokio::sync::mpsc;

use crate::{
    common::{config, eventually, outsider, server, watches, within},
    simulation::{connect_with, directory, inspect, lock, quiet, simulated},
};

/// A connection of its own, on that host, of which the servers hear nothing but what is asked of it here.
async fn connect(servers: &Deployment, host: usize) -> (Arc<ZooKeeper>, Locks) {
    let zk = connect_with(servers, host, quiet(servers.config(host)).with_strategy(Strategy::Herd)).await;
    (zk.clone(), Locks::new(zk))
}

/// Waits until a lock's node is gone.
async fn gone(servers: &Deployment, name: &str) {
    servers.until("nothing is left", async || !servers.exists(&directory(name)).await).await;
}

#[test]
fn a_release_wakes_the_whole_herd_where_the_queue_wakes_one() {
    simulated(async |servers| {
        let (_, first) = connect(&servers, 1).await;
        let mut holder = first.mutex("herd").lock().await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let mut connections = Vec::new();
        for _ in 0..10 {
            let (_, locks) = connect(&servers, 2).await;
            let (mutex, granted) = (locks.mutex("herd"), granted.clone());
            connections.push(locks);
            drop(servers.start(2, async move { granted.send(mutex.lock().await.unwrap()).unwrap() }));
        }
        // The holder's and each waiter's, on the one node.
        servers.until("all watch the node", async || servers.watches().await == 11).await;
        for left in (1..=10).rev() {
            let before = servers.requests().await;
            holder.release().await.unwrap();
            holder = grants.recv().await.unwrap();
            servers.settle().await;
            assert_eq!(servers.watches().await, usize::try_from(left).unwrap());
            // The release, and of each waiter a create and a watch: of the new holder on its own node.
            let requests = servers.requests().await - before;
            assert!(requests > 2 * left, "{requests} requests of {left} waiters");
            assert!(grants.try_recv().is_err());
        }
    });
}

#[test]
fn an_uncontended_acquisition_is_one_request() {
    simulated(async |servers| {
        let (_, locks) = connect(&servers, 1).await;
        locks.mutex("cost").lock().await.unwrap().release().await.unwrap();
        let before = servers.requests().await;
        let guard = locks.mutex("cost").lock().await.unwrap();
        servers.settle().await;
        assert_eq!(servers.requests().await - before, 2, "the create and the watch");
        guard.release().await.unwrap();
        assert_eq!(servers.requests().await - before, 3, "and the deletion");
    });
}

#[test]
fn a_release_before_the_answer_to_the_watch_costs_no_more_than_one_after_it() {
    simulated(async |servers| {
        let (_, locks) = connect(&servers, 1).await;
        locks.mutex("at once").lock().await.unwrap().release().await.unwrap();
        let before = servers.requests().await;
        let guard = locks.mutex("at once").lock().await.unwrap();
        // So that the watch is certainly under way when the release begins.
        servers.hold_answers(1, Duration::from_millis(500)).await;
        guard.release().await.unwrap();
        servers.settle().await;
        assert_eq!(servers.requests().await - before, 3, "create, watch, deletion");
    });
}

#[test]
fn the_two_strategies_never_hold_one_name_side_by_side_and_the_second_is_told() {
    simulated(async |servers| {
        let ((viewer, herd), zk) = (connect(&servers, 1).await, crate::simulation::connect(&servers, 2).await);
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
    });
}

#[test]
fn what_it_does_not_promise_is_refused_by_its_name() {
    simulated(async |servers| {
        let (zk, locks) = connect(&servers, 1).await;
        for feature in [Feature::Fifo, Feature::Queue, Feature::ReadWrite, Feature::Downgrade, Feature::Semaphore] {
            assert!(!zk.capabilities().supports(feature), "{feature}");
        }
        for error in [locks.rwlock("a").read().await.unwrap_err(), locks.semaphore("a", 2).acquire().await.unwrap_err()]
        {
            assert!(matches!(error, Error::Unsupported { backend: "zk", .. }), "{error}");
        }
    });
}

/// On the client library and a real server.
#[tokio::test]
async fn a_connection_cut_at_any_reply_leaves_one_node_while_held_and_none_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let on = async |port| ZooKeeper::connect(config(port).with_strategy(Strategy::Herd)).await.expect("a connection");
    let viewer = on(port).await;
    let rival = Locks::new(viewer.clone());
    for reply in 0..8 {
        let locks = Locks::new(on(proxy.port()).await);
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
        let holder = crate::common::inspect(&viewer, &name).await.holders.remove(0);
        assert_eq!(holder.token, Some(guard.token().number), "cut at reply {reply}");
        match guard.release().await {
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            Err(other) => panic!("cut at reply {reply}: {other}"),
        }
        let path = directory(&name);
        eventually("nothing is left", || async { client.check_stat(&path).await.unwrap().is_none() }).await;
        proxy.heal();
        locks.close(crate::common::LIMIT).await.unwrap();
    }
}

#[test]
fn a_create_whose_answer_is_lost_is_found_again_by_its_unique_id() {
    simulated(async |servers| {
        let (_, locks) = connect(&servers, 1).await;
        locks.mutex("lost").lock().await.unwrap().release().await.unwrap();
        servers.cut(1, Cut::Answers).await;
        let acquiring = lock(&servers, 1, &locks, "lost");
        servers.until("it was created", async || servers.exists(&directory("lost")).await).await;
        servers.reset(1).await;
        servers.heal(1).await;
        let guard = acquiring.await.unwrap().unwrap();
        // Another contender of the same session does not take the node for its own.
        assert!(locks.mutex("lost").try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
        gone(&servers, "lost").await;
    });
}

#[test]
fn a_release_whose_node_was_taken_away_leaves_the_successors_alone() {
    simulated(async |servers| {
        let ((_, first), (_, second)) = (connect(&servers, 1).await, connect(&servers, 2).await);
        let guard = first.mutex("taken").lock().await.unwrap();
        servers.until("its node is watched", async || servers.watches().await == 1).await;
        servers.delete(&directory("taken")).await;
        let other = second.mutex("taken").lock().await.unwrap();
        assert_eq!(guard.lost().await, Loss::Revoked);
        assert!(matches!(guard.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
        assert!(second.mutex("taken").try_lock().await.unwrap().is_none());
        assert!(other.is_valid());
    });
}

#[test]
fn a_waiter_that_gives_up_while_disconnected_leaves_no_ghost() {
    simulated(async |servers| {
        let (_, locks) = connect(&servers, 1).await;
        locks.mutex("ghost").lock().await.unwrap().release().await.unwrap();
        servers.cut(1, Cut::Both).await;
        for _ in 0..3 {
            let error = locks.mutex("ghost").timeout(Duration::from_millis(50)).lock().await.unwrap_err();
            assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
        }
        servers.reset(1).await;
        servers.heal(1).await;
        drop(locks.mutex("ghost").lock().await.unwrap());
        gone(&servers, "ghost").await;
    });
}

#[test]
fn a_plain_node_in_the_place_of_a_lock_is_not_taken_for_a_holder() {
    simulated(async |servers| {
        let (zk, locks) = connect(&servers, 1).await;
        locks.mutex("other").lock().await.unwrap().release().await.unwrap();
        servers.create(&directory("plain")).await;
        assert!(matches!(locks.mutex("plain").lock().await, Err(Error::Config { .. })));
        assert!(inspect(&zk, "plain").await.holders.is_empty());
    });
}
