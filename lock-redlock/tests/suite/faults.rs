//! Nodes that freeze, die, restart and forget.

use std::time::Duration;

use crate::deployment::{LIMIT, command, config, connect, connect_to, count, get, marked, undone, until, until_free};
use lock_core::{Clock, Error, Loss};
use lock_lab::{proxy::Proxy, servers::RedisNodes};
use lock_redlock::Redlock;

/// Far above what an answer takes here, so that only nodes that are down run into it.
const NODE_LIMIT: (&str, &str) = ("node_timeout", "2s");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_minority_keeps_nobody_waiting() {
    let nodes = marked(3).await;
    // Whoever waits for the frozen node waits for longer than this test may take.
    let locks = connect(&nodes, &[("ttl", "300ms"), ("node_timeout", "60s")]).await;
    nodes.nodes()[1].stop().unwrap();
    let rounds = async {
        let mut last = None;
        for _ in 0..50 {
            let guard = locks.mutex("frozen").lock().await.unwrap();
            assert!(last < Some(guard.token()));
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        last
    };
    let last = Clock::boot().timeout(LIMIT, rounds).await.expect("the frozen node is not waited for");

    // What was sent to the frozen node is undone there when it goes on.
    nodes.nodes()[1].cont().unwrap();
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "frozen").await;
    let guard = locks.mutex("frozen").lock().await.unwrap();
    assert!(last < Some(guard.token()));
    guard.release().await.unwrap();
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_beside_a_frozen_minority_listens_where_those_before_it_did() {
    let nodes = marked(3).await;
    // What was sent to the frozen node is waited for in the background, for longer than this test may take.
    let settings = [("node_timeout", "60s")];
    let (mut holder, mut waiter) = (connect(&nodes, &settings).await, connect(&nodes, &settings).await);
    nodes.nodes()[1].stop().unwrap();
    let node = &nodes.nodes()[0];
    let mut guard = holder.mutex("ears").lock().await.unwrap();
    for _ in 0..10 {
        let lock = waiter.mutex("ears");
        let next = tokio::spawn(async move { lock.lock().await });
        let waits = || async { command(node, &["EXISTS", "{lock:ears}:waiters"]).await == redis::Value::Int(1) };
        until("it waits", waits).await;
        guard.release().await.unwrap();
        guard = Clock::boot().timeout(LIMIT, next).await.expect("its turn comes").unwrap().unwrap();
        std::mem::swap(&mut holder, &mut waiter);
    }
    let channels = command(node, &["PUBSUB", "CHANNELS", "{lock:ears}:released:*"]).await;
    let redis::Value::Array(channels) = channels else { panic!("{channels:?}") };
    assert!(channels.len() <= 2, "two waited, one after the other, and {} channels are listened to", channels.len());
    guard.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_keeps_an_acquisition_out_that_a_silent_node_has_not_answered() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[NODE_LIMIT]).await;
    let silent = &nodes.nodes()[1];
    silent.stop().unwrap();
    let guard = locks.mutex("silent").lock().await.unwrap();
    let released = Clock::boot().timeout(LIMIT, guard.release());
    released.await.expect("the silent node is not waited for").unwrap();
    silent.cont().unwrap();
    // What was asked of it may have gone over a connection that is given up by now, and may come after its undo.
    let tombstones = |node| async move { undone(node, "silent").await };
    until("the undo is there, with a tombstone", || async { tombstones(silent).await > 0 }).await;
    // The others had answered, so nothing more can come to them.
    assert_eq!(tombstones(&nodes.nodes()[0]).await + tombstones(&nodes.nodes()[2]).await, 0);
    until_free(&[silent], "silent").await;
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_that_is_down_is_an_error_in_time_and_leaves_nothing() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[NODE_LIMIT]).await;
    nodes.nodes()[0].stop().unwrap();
    nodes.nodes()[1].stop().unwrap();
    let attempt = locks.mutex("down");
    let tried = Clock::boot().timeout(Duration::from_secs(4), attempt.lock()).await;
    let error = tried.expect("within twice the limit of a node").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains(&format!("127.0.0.1:{}", nodes.ports()[0])), "{error}");
    assert_eq!(get(&nodes.nodes()[2], "{lock:down}").await, None);

    nodes.nodes()[0].cont().unwrap();
    nodes.nodes()[1].cont().unwrap();
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "down").await;
    until("it works again", || async { locks.mutex("down").try_lock().await.is_ok_and(|guard| guard.is_some()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_without_a_majority_is_unavailable() {
    let mut nodes = marked(3).await;
    nodes.nodes_mut()[0].kill();
    Redlock::connect(config(&nodes.ports(), &[])).await.unwrap();
    nodes.nodes_mut()[1].kill();
    let error = Redlock::connect(config(&nodes.ports(), &[])).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_outlives_a_restart_of_each_node_in_turn() {
    let mut nodes = marked(3).await;
    let locks = connect(&nodes, &[("ttl", "2s")]).await;
    let guard = locks.mutex("rolling").lock().await.unwrap();
    until("all nodes have joined", || async { count(&nodes, "rolling").await == 3 }).await;
    for node in 0..3 {
        nodes.nodes_mut()[node].restart_empty().await.unwrap();
        until("the node has joined again", || async { count(&nodes, "rolling").await == 3 }).await;
        // Held without a gap on a majority before the next one goes.
        let next = guard.valid_until().unwrap().saturating_add(Duration::from_millis(1));
        until("it was renewed", || async { guard.valid_until().expect("it is still held") > next }).await;
    }
    guard.release().await.unwrap();
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "rolling").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_comes_back_empty_grants_nothing_that_another_may_hold() {
    let mut nodes = marked(3).await;
    let holder = connect(&nodes, &[("ttl", "1h")]).await;
    // The third node never has it: the lock stands on a majority of exactly two.
    nodes.nodes()[2].stop().unwrap();
    let guard = holder.mutex("exact").lock().await.unwrap();
    nodes.nodes_mut()[2].restart().await.unwrap();
    lift_quarantine(&nodes, 2).await;
    // One of the two forgets.
    nodes.nodes_mut()[0].restart_empty().await.unwrap();
    let other = connect(&nodes, &[]).await;
    let second = other.mutex("exact").try_lock().await;
    assert!(guard.is_valid());
    assert!(!matches!(second, Ok(Some(_))), "two holders");
}

/// As if its time had passed.
async fn lift_quarantine(nodes: &RedisNodes, node: usize) {
    // A connection has to be made first, for the node to be found out.
    let other = connect(nodes, &[]).await;
    let node = &nodes.nodes()[node];
    until("it is in quarantine", || async { get(node, "redlock:quarantine").await.is_some() }).await;
    command(node, &["DEL", "redlock:quarantine"]).await;
    other.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_cut_off_from_a_majority_knows_before_anybody_else_is_granted() {
    let nodes = marked(3).await;
    let mut proxies = Vec::new();
    for port in nodes.ports() {
        proxies.push(Proxy::start(port).await.unwrap());
    }
    let ports: Vec<u16> = proxies.iter().map(Proxy::port).collect();
    let cut_off = connect_to(&ports, &[("ttl", "1s")]).await;
    let other = connect(&nodes, &[("ttl", "1s")]).await;
    let guard = cut_off.mutex("cut").lock().await.unwrap();
    proxies[0].hold();
    proxies[2].hold();
    let second = other.mutex("cut").timeout(LIMIT).lock().await.unwrap();
    assert!(!guard.is_valid());
    assert_eq!(guard.lost().await, Loss::Unreachable);
    assert!(second.token() > guard.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_comes_too_late_to_be_of_use_is_none() {
    let nodes = marked(3).await;
    let mut proxies = Vec::new();
    for port in nodes.ports() {
        proxies.push(Proxy::start(port).await.unwrap());
    }
    let ports: Vec<u16> = proxies.iter().map(Proxy::port).collect();
    let locks = connect_to(&ports, &[("ttl", "2s"), ("node_timeout", "20s"), ("connect_timeout", "20s")]).await;
    locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
    for proxy in &proxies {
        // Both ways: there and back again takes three quarters of the ttl.
        proxy.delay(Duration::from_millis(750));
    }
    let error = locks.mutex("late").try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "late").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquisition_that_is_dropped_at_any_moment_leaves_nothing_on_any_node() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    let holder = connect(&nodes, &[]).await;
    for polls in 0..12 {
        // Free, then held by somebody else, so that it comes to waiting.
        for held in [false, true] {
            let guard = if held { Some(holder.mutex("drop").lock().await.unwrap()) } else { None };
            let mutex = locks.mutex("drop");
            let mut attempt = Box::pin(mutex.lock());
            for _ in 0..polls {
                let polled = Clock::boot().timeout(Duration::from_micros(300), &mut attempt).await;
                if polled.is_some() {
                    break;
                }
            }
            drop(attempt);
            drop(guard);
            until_free(&nodes.nodes().iter().collect::<Vec<_>>(), "drop").await;
            until("nobody waits", || async {
                for node in nodes.nodes() {
                    if command(node, &["EXISTS", "{lock:drop}:waiters"]).await != redis::Value::Int(0) {
                        return false;
                    }
                }
                true
            })
            .await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_minority_in_the_middle_of_contention_does_no_harm() {
    let mut nodes = marked(5).await;
    let mut contenders = Vec::new();
    for _ in 0..4 {
        let locks = connect(&nodes, &[]).await;
        contenders.push(tokio::spawn(async move {
            let mut tokens = Vec::new();
            for _ in 0..100 {
                let guard = locks.mutex("killed").timeout(LIMIT * 3).lock().await.unwrap();
                tokens.push((Clock::boot().now(), guard.token()));
                guard.release().await.unwrap();
            }
            tokens
        }));
    }
    nodes.nodes_mut()[0].kill();
    nodes.nodes_mut()[3].kill();
    let mut tokens = Vec::new();
    for contender in contenders {
        tokens.extend(contender.await.unwrap());
    }
    tokens.sort_unstable();
    assert!(tokens.is_sorted_by(|(_, earlier), (_, later)| earlier < later));
    assert_eq!(tokens.len(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_is_decided_by_the_nodes_that_answer_also_when_others_fail_before() {
    let mut nodes = marked(5).await;
    let proxy = Proxy::start(nodes.ports()[1]).await.unwrap();
    let mut ports = nodes.ports();
    ports[1] = proxy.port();
    let locks = connect_to(&ports, &[]).await;
    // Two nodes certainly never have it, so the majority is of exactly the others.
    for node in [2, 4] {
        command(&nodes.nodes()[node], &["SET", "{lock:exact}", "somebody", "PX", "60000"]).await;
    }
    let guard = locks.mutex("exact").lock().await.unwrap();
    // Behind the answers of all nodes to the acquisition.
    locks.inspect("exact").await.unwrap();
    nodes.nodes_mut()[0].kill();
    nodes.nodes_mut()[3].kill();
    proxy.delay(Duration::from_millis(50));
    guard.release().await.unwrap();
    assert_eq!(get(&nodes.nodes()[1], "{lock:exact}").await, None);
}
