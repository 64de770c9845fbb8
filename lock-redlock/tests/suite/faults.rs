//! Nodes that freeze, die, restart and forget.

use std::time::Duration;

use crate::{
    deployment::{LIMIT, command, config, connect, connect_to, eventually, get, marked, proxied},
    simulation::simulated,
};
use lock_core::{Clock, Context, Driver, Error, Locks, LocksOptions, Loss, Settings};
use lock_lab::{
    proxy::{Proxy, answered_in_a_standstill},
    servers::RedisNodes,
};
use lock_redlock::{NodeState, Redlock, RedlockDriver};
use lock_sim::{redis::Reply, world::Way};

/// Far above what an answer takes, so that only nodes that are down run into it.
const NODE_LIMIT: &[(&str, &str)] = &[("node_timeout", "2s")];

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
        eventually("it waits", waits).await;
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
async fn connecting_without_a_majority_is_unavailable() {
    let mut nodes = marked(3).await;
    nodes.nodes_mut()[0].kill();
    Redlock::connect(config(&nodes.ports(), &[])).await.unwrap();
    nodes.nodes_mut()[1].kill();
    let error = Redlock::connect(config(&nodes.ports(), &[])).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
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

#[tokio::test]
async fn nodes_that_answer_in_a_standstill_are_connected_to() {
    let nodes = marked(3).await;
    let ways = proxied(&nodes).await;
    let limits = [("node_timeout", "20s"), ("connect_timeout", "20s")];
    let config = config(&ways.iter().map(Proxy::port).collect::<Vec<_>>(), &limits);
    let context = Context::current().with_clock(Clock::runtime());
    answered_in_a_standstill(&ways, Duration::from_secs(20), Redlock::connect_in(config, context)).await.unwrap();
}

#[tokio::test]
async fn nodes_that_answer_the_doctor_in_a_standstill_are_not_told_as_silent() {
    let nodes = marked(3).await;
    let ways = proxied(&nodes).await;
    let mut settings = Settings::new("redlock");
    settings.hosts = ways.iter().map(|way| ("127.0.0.1".to_owned(), Some(way.port()))).collect();
    for limit in ["connect_timeout", "node_timeout"] {
        settings.values.insert(limit.to_owned(), "20s".to_owned());
    }
    let context = Context::current().with_clock(Clock::runtime());
    let looking = async move { RedlockDriver.diagnose(settings, context).await };
    let diagnosis = answered_in_a_standstill(&ways, LIMIT, looking).await.unwrap();
    let voting = diagnosis.facts.iter().filter(|fact| fact.value == NodeState::Votes.to_string()).count();
    let is_silent = diagnosis.findings.iter().any(|finding| finding.key == "unreachable");
    assert!(voting == 3 && !is_silent, "{diagnosis:?}");
}

/// As if its time had passed.
async fn lift_quarantine(nodes: &RedisNodes, node: usize) {
    // A connection has to be made first, for the node to be found out.
    let other = connect(nodes, &[]).await;
    let node = &nodes.nodes()[node];
    eventually("it is in quarantine", || async { get(node, "redlock:quarantine").await.is_some() }).await;
    command(node, &["DEL", "redlock:quarantine"]).await;
    other.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_minority_in_the_middle_of_contention_does_no_harm() {
    let mut nodes = marked(5).await;
    let mut contenders = Vec::new();
    for _ in 0..4 {
        // A release needs all three nodes that are left.
        let locks = connect(&nodes, &[("node_timeout", "20s")]).await;
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

#[test]
fn a_frozen_minority_keeps_nobody_waiting() {
    simulated(3, &[], |nodes| async move {
        // A client that waits for the frozen node waits for longer than the test may take.
        let locks = nodes.connect(&[("ttl", "300ms"), ("node_timeout", "60s")]).await;
        nodes.stop(1).await;
        let began = nodes.clock().now();
        let mut last = None;
        for _ in 0..50 {
            let guard = locks.mutex("frozen").lock().await.unwrap();
            assert!(last < Some(guard.token()));
            last = Some(guard.token());
            guard.release().await.unwrap();
        }
        assert!(nodes.clock().now().saturating_since(began) < Duration::from_secs(20), "the frozen node is waited for");
        // What was sent to the frozen node is undone there when it goes on.
        nodes.cont(1).await;
        nodes.until_nothing_is_left(0..3, "frozen").await;
        let guard = locks.mutex("frozen").lock().await.unwrap();
        assert!(last < Some(guard.token()));
        guard.release().await.unwrap();
    });
}

#[test]
fn a_release_keeps_an_acquisition_out_that_a_silent_node_has_not_answered() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(NODE_LIMIT).await;
        nodes.stop(1).await;
        let guard = locks.mutex("silent").lock().await.unwrap();
        guard.release().await.unwrap();
        assert!(nodes.keys(1, "silent").is_empty(), "the silent node is not waited for");
        nodes.cont(1).await;
        // A request to the silent node may have gone down a connection that was given up since, and may arrive after its undo.
        let tombstones = |node| nodes.keys(node, "silent").iter().filter(|key| key.contains(":undone:")).count();
        nodes.until("the undo is there, with a tombstone", || tombstones(1) > 0).await;
        // The other nodes had answered, so nothing more can come to them.
        assert_eq!(tombstones(0) + tombstones(2), 0);
        nodes.until_nothing_is_left(0..3, "silent").await;
    });
}

#[test]
fn a_release_keeps_out_a_vote_that_is_sent_again_with_its_script() {
    simulated(3, &[], |nodes| async move {
        let (locks, other) = (nodes.connect(NODE_LIMIT).await, nodes.connect_from(1, NODE_LIMIT).await);
        locks.mutex("early").lock().await.unwrap().release().await.unwrap();
        nodes.settle().await;
        // The node knows the script of a release, by a reader's, and not that of a writer's vote.
        nodes.forget_scripts(2);
        other.rwlock("other").read().await.unwrap().release().await.unwrap();
        nodes.settle().await;
        nodes.block(0, 2, Way::Down, true).await;
        let guard = locks.mutex("again").try_lock().await.unwrap().expect("nobody else takes it");
        guard.release().await.unwrap();
        nodes.settle().await;
        // The release has been there, and the vote is sent again only now.
        nodes.block(0, 2, Way::Down, false).await;
        nodes.settle().await;
        assert_eq!(nodes.residue(2, "again"), Vec::<String>::new());
    });
}

#[test]
fn a_majority_that_is_down_is_an_error_in_time_and_leaves_nothing() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(NODE_LIMIT).await;
        nodes.stop(0).await;
        nodes.stop(1).await;
        let began = nodes.clock().now();
        let error = locks.mutex("down").try_lock().await.unwrap_err();
        assert!(nodes.clock().now().saturating_since(began) < Duration::from_secs(4), "twice the limit of a node");
        assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("server:7000"), "{error}");
        assert_eq!(nodes.get(2, "{lock:down}"), None);

        nodes.cont(0).await;
        nodes.cont(1).await;
        nodes.until_nothing_is_left(0..3, "down").await;
        let guard = locks.mutex("down").lock().await.unwrap();
        guard.release().await.unwrap();
    });
}

#[test]
fn who_waits_and_is_not_to_bridge_an_outage_learns_of_one_within_the_limit_of_a_node() {
    simulated(3, &[], |nodes| async move {
        let backend = Redlock::connect_in(nodes.config(0, NODE_LIMIT), nodes.context(0)).await.unwrap();
        let options = LocksOptions::default().with_outage_timeout(Duration::ZERO);
        let locks = Locks::with_options(backend, options);
        locks.mutex("down").lock().await.unwrap().release().await.unwrap();
        nodes.stop(0).await;
        nodes.stop(1).await;
        let began = nodes.clock().now();
        let error = locks.mutex("down").lock().await.unwrap_err();
        let took = nodes.clock().now().saturating_since(began);
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        // Leaving the line of the silent nodes is left to the background.
        assert!(took < Duration::from_millis(2200), "{took:?}");
        nodes.cont(0).await;
        nodes.cont(1).await;
        nodes.until_nothing_is_left(0..3, "down").await;
    });
}

#[test]
fn a_lock_outlives_a_restart_of_each_node_in_turn() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "2s")]).await;
        let guard = locks.mutex("rolling").lock().await.unwrap();
        nodes.until("all nodes have joined", || nodes.count("rolling") == 3).await;
        nodes.settle().await;
        for node in 0..3 {
            nodes.restart_empty(node).await;
            nodes.until("the node has joined again", || nodes.count("rolling") == 3).await;
            nodes.settle().await;
            // A majority keeps the lock without a gap before the next node goes.
            let next = guard.valid_until().unwrap().saturating_add(Duration::from_millis(1));
            nodes.until("it was renewed", || guard.valid_until().expect("it is still held") > next).await;
        }
        guard.release().await.unwrap();
        nodes.until_nothing_is_left(0..3, "rolling").await;
    });
}

#[test]
fn a_holder_that_is_cut_off_from_a_majority_knows_before_anybody_else_is_granted() {
    simulated(3, &[], |nodes| async move {
        let (cut_off, other) = (nodes.connect(&[("ttl", "1s")]).await, nodes.connect_from(1, &[("ttl", "1s")]).await);
        let guard = cut_off.mutex("cut").lock().await.unwrap();
        for (node, way) in [(0, Way::Up), (0, Way::Down), (2, Way::Up), (2, Way::Down)] {
            nodes.block(0, node, way, true).await;
        }
        let second = other.mutex("cut").lock().await.unwrap();
        assert!(!guard.is_valid());
        assert_eq!(guard.lost().await, Loss::Unreachable);
        assert!(second.token() > guard.token());
    });
}

#[test]
fn a_grant_that_comes_too_late_to_be_of_use_is_none() {
    simulated(3, &[], |nodes| async move {
        let settings = [("ttl", "2s"), ("node_timeout", "20s"), ("connect_timeout", "20s")];
        let locks = nodes.connect(&settings).await;
        locks.mutex("warm").lock().await.unwrap().release().await.unwrap();
        // There and back again takes three quarters of the ttl.
        nodes.delay(Duration::from_millis(750)).await;
        let error = locks.mutex("late").try_lock().await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        nodes.until_nothing_is_left(0..3, "late").await;
    });
}

#[test]
fn an_undo_goes_on_for_as_long_as_what_it_undoes_may_arrive() {
    // Shorter than the time for which a vote may be under way, which is that of a tombstone.
    const TTL: Duration = Duration::from_secs(2);
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "2s"), ("node_timeout", "200ms"), ("connect_timeout", "200ms")]).await;
        // All nodes know the scripts by then.
        locks.mutex("early").lock().await.unwrap().release().await.unwrap();
        nodes.settle().await;
        nodes.hold_late(0, 2).await;
        let guard = locks.mutex("late").lock().await.unwrap();
        nodes.block(0, 2, Way::Up, true).await;
        guard.release().await.unwrap();
        nodes.clock().sleep(TTL + Duration::from_millis(500)).await;
        assert_eq!(nodes.get(2, "{lock:late}"), None, "the vote is still under way");
        nodes.block(0, 2, Way::Up, false).await;
        nodes.let_go().await;
        let arrived = nodes.clock().now();
        nodes.until("the vote has come", || nodes.get(2, "{lock:late}").is_some()).await;
        nodes.until_nothing_is_left(0..3, "late").await;
        let took = nodes.clock().now().saturating_since(arrived);
        assert!(took < TTL / 2, "it was left to its ttl: {took:?}");
    });
}

#[test]
fn an_undo_goes_on_for_as_long_as_a_renewal_may_arrive_that_extends_what_it_undoes() {
    const TTL: Duration = Duration::from_secs(6);
    const SETTINGS: &[(&str, &str)] = &[("ttl", "6s"), ("node_timeout", "300ms"), ("connect_timeout", "300ms")];
    simulated(3, &[], |nodes| async move {
        let clock = nodes.clock();
        let locks = nodes.connect(SETTINGS).await;
        locks.mutex("early").lock().await.unwrap().release().await.unwrap();
        nodes.settle().await;
        // A new connection takes longer than a test that looks.
        nodes.delay(Duration::from_millis(20)).await;
        let guard = locks.mutex("late").lock().await.unwrap();
        nodes.until("all nodes have it", || nodes.count("late") == 3).await;
        nodes.hold_late(0, 2).await;
        let left = || match nodes.command(2, &["PTTL", "{lock:late}"]) {
            Reply::Int(left) => left,
            other => panic!("{other:?}"),
        };
        nodes.until("the grant is of some time ago", || left() < 5_000).await;
        nodes.until("the renewal that is held was repeated over another connection", || left() > 5_900).await;
        nodes.block(0, 2, Way::Up, true).await;
        guard.release().await.unwrap();

        // It arrives long after the release, while what it extends is still there.
        clock.sleep(TTL / 2).await;
        nodes.block(0, 2, Way::Up, false).await;
        nodes.let_go().await;
        nodes.until("the renewal that was held has come", || left() > 5_900).await;
        let extended = clock.now();
        nodes.block(0, 2, Way::Up, true).await;
        // One ttl after the release, when the holding would have ended without the renewal.
        clock.sleep(TTL * 2 / 3).await;
        nodes.block(0, 2, Way::Up, false).await;
        nodes.until_nothing_is_left(0..3, "late").await;
        let took = clock.now().saturating_since(extended);
        assert!(took < TTL * 11 / 12, "it was left to its ttl: {took:?}");
    });
}
