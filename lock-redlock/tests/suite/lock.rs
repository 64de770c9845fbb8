//! Locking on real servers that all work.

use std::time::Duration;

use crate::{
    deployment::{command, connect, marked, until_free},
    simulation::simulated,
};
use lock_core::Loss;
use lock_redis::protocol::packed::pack;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_whose_counters_differ_agree_on_a_token_that_rises() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    let mut last = locks.mutex("count").lock().await.unwrap().token().number;
    for ahead in [0, 1, 2] {
        until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "count").await;
        command(&nodes.nodes()[ahead], &["INCRBY", "{lock:count}:token", "90000000"]).await;
        let guard = locks.mutex("count").lock().await.unwrap();
        assert!(guard.token().number > last);
        last = guard.token().number;
        let mut confirmed = 0;
        for node in nodes.nodes() {
            let mut connection = node.connection().await.unwrap();
            let counter: Option<u64> =
                redis::cmd("GET").arg("{lock:count}:token").query_async(&mut connection).await.unwrap();
            confirmed += usize::from(counter >= Some(last));
        }
        assert!(confirmed >= 2, "the token is on {confirmed} of 3 nodes");
        guard.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_behind_has_the_token_before_the_grant_is_reported() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    locks.mutex("count").lock().await.unwrap().release().await.unwrap();
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "count").await;
    let [ahead, behind, refuses] = nodes.nodes() else { panic!("three nodes") };
    command(ahead, &["INCRBY", "{lock:count}:token", "90000000"]).await;
    // So that these two are the majority, and nobody joins later.
    command(refuses, &["SET", "{lock:count}", "foreign"]).await;
    let guard = locks.mutex("count").lock().await.unwrap();
    let mut connection = behind.connection().await.unwrap();
    let counter: u64 = redis::cmd("GET").arg("{lock:count}:token").query_async(&mut connection).await.unwrap();
    assert_eq!(counter, guard.token().number);
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_of_five_are_not_enough() {
    let nodes = marked(5).await;
    let locks = connect(&nodes, &[]).await;
    for held in &nodes.nodes()[..3] {
        command(held, &["SET", "{lock:a}", "foreign"]).await;
    }
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    command(&nodes.nodes()[0], &["DEL", "{lock:a}"]).await;
    // A try does not wait for a node that is slower than the others.
    let _held = locks.mutex("a").timeout(Duration::from_secs(60)).lock().await.unwrap();
}

#[test]
fn a_key_that_is_deleted_on_a_majority_is_noticed_at_the_next_renewal() {
    simulated(5, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "3s")]).await;
        let guard = locks.mutex("gone").lock().await.unwrap();
        nodes.until("all nodes have joined", || nodes.count("gone") == 5).await;
        for node in 0..3 {
            nodes.command(node, &["DEL", "{lock:gone}"]);
        }
        assert_eq!(guard.lost().await, Loss::Revoked);
        drop(guard);
        nodes.until_nothing_is_left(0..5, "gone").await;
    });
}

#[test]
fn a_key_that_is_deleted_on_a_minority_is_taken_again() {
    simulated(5, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "3s")]).await;
        let guard = locks.mutex("part").lock().await.unwrap();
        nodes.until("all nodes have joined", || nodes.count("part") == 5).await;
        for node in 0..2 {
            nodes.command(node, &["DEL", "{lock:part}"]);
        }
        nodes.until("all nodes have joined again", || nodes.count("part") == 5).await;
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        nodes.until_nothing_is_left(0..5, "part").await;
    });
}

#[test]
fn a_renewal_does_not_take_another_holding_of_the_same_value_for_its_own() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "3s")]).await;
        let guard = locks.mutex("again").lock().await.unwrap();
        nodes.until("all nodes have joined", || nodes.count("again") == 3).await;
        // What a resent acquisition does that arrives after the first holding ended and another holder was granted.
        let number = pack(guard.token().number + 7);
        for node in 0..2 {
            nodes.command(node, &[&b"SETRANGE"[..], b"{lock:again}", b"9", &number]);
        }
        assert_eq!(guard.lost().await, Loss::Revoked);
    });
}

/// Where waiters that won no node come back every 100 ms, their votes stand in the way of the others for minutes.
#[test]
fn contenders_settle_their_votes_also_where_messages_are_slow_each_by_its_own_time() {
    simulated(5, &[], |nodes| async move {
        let mut clients = Vec::new();
        for client in 0..3 {
            clients.push(nodes.connect_from(client, &[("ttl", "60s")]).await);
        }
        nodes.delay_by(Duration::from_millis(20)..=Duration::from_millis(400)).await;
        let clock = nodes.clock();
        let holder = clients[0].mutex("far").lock().await.unwrap();
        let waiters: Vec<_> = (0..12)
            .map(|waiter| {
                let mutex = clients[waiter % 3].mutex("far");
                nodes.start(waiter % 3, async move { mutex.lock().await?.release().await })
            })
            .collect();
        let released = clock.now();
        holder.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().unwrap();
        }
        let took = clock.now().saturating_since(released);
        assert!(took < Duration::from_secs(90), "twelve grants took {took:?}");
    });
}
