//! Locking on real servers that all work.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::{
    deployment::{LIMIT, command, connect, count, get, marked, until, until_free},
    simulation::{simulated, simulated_once},
};
use lock_core::{Clock, Error, Loss};
use lock_redis::protocol::packed::pack;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_held_by_one_at_a_time_and_released_on_all_nodes() {
    let nodes = marked(5).await;
    let (one, two) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    let guard = one.mutex("a").lock().await.unwrap();
    until("all nodes have joined", || async { count(&nodes, "a").await == 5 }).await;
    assert!(two.mutex("a").try_lock().await.unwrap().is_none());
    let error = two.mutex("a").timeout(Duration::from_millis(50)).lock().await.unwrap_err();
    assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    let seen = two.inspect("a").await.unwrap();
    assert_eq!(seen.holders[0].token, Some(guard.token().number));
    let first = guard.token();
    guard.release().await.unwrap();
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "a").await;
    let guard = two.mutex("a").try_lock().await.unwrap().unwrap();
    assert!(guard.token() > first);
    drop(guard);
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "a").await;
    one.close(LIMIT).await.unwrap();
    two.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixteen_contenders_on_five_nodes_exclude_each_other_and_all_get_their_turn() {
    let nodes = marked(5).await;
    let inside = Arc::new(AtomicBool::new(false));
    let grants = Arc::new(AtomicUsize::new(0));
    let mut contenders = Vec::new();
    for _ in 0..16 {
        let locks = connect(&nodes, &[]).await;
        let (inside, grants) = (Arc::clone(&inside), Arc::clone(&grants));
        contenders.push(tokio::spawn(async move {
            let mut last = None;
            for _ in 0..25 {
                let guard = locks.mutex("turn").timeout(LIMIT * 3).lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                assert!(last < Some(guard.token()));
                last = Some(guard.token());
                Clock::boot().sleep(Duration::from_millis(1)).await;
                inside.store(false, Ordering::SeqCst);
                grants.fetch_add(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
            locks.close(LIMIT).await.unwrap();
        }));
    }
    for contender in contenders {
        contender.await.unwrap();
    }
    assert_eq!(grants.load(Ordering::SeqCst), 16 * 25);
}

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
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_gives_back_what_is_still_held() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    let guard = locks.mutex("left").lock().await.unwrap();
    locks.close(LIMIT).await.unwrap();
    assert_eq!(guard.lost().await, Loss::Closed);
    assert_eq!(count(&nodes, "left").await, 0);
    assert!(get(&nodes.nodes()[0], "redlock:member").await.is_some());
}

#[test]
fn a_lock_outlives_many_times_a_short_ttl_while_it_is_renewed() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "300ms")]).await;
        let guard = locks.mutex("short").lock().await.unwrap();
        let renewed = guard.valid_until().unwrap().saturating_add(Duration::from_secs(2));
        nodes.until("it was renewed", || guard.valid_until().expect("it is still held") > renewed).await;
        guard.release().await.unwrap();
    });
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

#[test]
fn a_thousand_locks_are_held_at_once() {
    simulated_once(5, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "5s")]).await;
        let mutexes: Vec<_> = (0..1000).map(|number| locks.mutex(format!("n{number}"))).collect();
        let mut guards = Vec::new();
        for some in mutexes.chunks(50) {
            let some = futures::future::join_all(some.iter().map(lock_core::Mutex::lock)).await;
            guards.extend(some.into_iter().map(Result::unwrap));
        }
        let renewed = nodes.clock().now().saturating_add(Duration::from_secs(8));
        let all_renewed = || guards.iter().all(|guard| guard.valid_until().expect("held") > renewed);
        nodes.until("all were renewed", all_renewed).await;
        drop(guards);
        locks.close(Duration::from_secs(20)).await.unwrap();
        assert_eq!(nodes.count("n999"), 0);
    });
}
