//! Nodes that grant when the vote has been won already, or join later.

use std::time::Duration;

use crate::deployment::{LIMIT, command, connect, connect_to, count, get, marked, until, until_nothing_is_left};
use lock_core::{Clock, Locks, Loss};
use lock_lab::{
    proxy::Proxy,
    servers::{Redis, RedisNodes},
};

/// Long enough for a request that a proxy holds.
const NODE_LIMIT: (&str, &str) = ("node_timeout", "60s");

/// Of a lease of 6 s, which is renewed every 2 s.
const TWO_RENEWALS: Duration = Duration::from_secs(3);

/// Connected, with a proxy before the third node.
async fn connect_with_proxy(nodes: &RedisNodes, ttl: &str) -> (Locks, Proxy) {
    connect_with_proxy_before(nodes, 2, ttl).await
}

async fn connect_with_proxy_before(nodes: &RedisNodes, node: usize, ttl: &str) -> (Locks, Proxy) {
    let proxy = Proxy::start(nodes.ports()[node]).await.unwrap();
    let mut ports = nodes.ports();
    ports[node] = proxy.port();
    let locks = connect_to(&ports, &[("ttl", ttl), NODE_LIMIT]).await;
    let warm = locks.mutex("warm").lock().await.unwrap();
    until("all nodes are connected", || async { count(nodes, "warm").await == 3 }).await;
    warm.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "warm").await;
    (locks, proxy)
}

/// The number that a node shows beside the holder of `name`.
async fn number(node: &Redis, name: &str) -> Option<u64> {
    let token = format!("{{lock:{name}}}:token");
    match command(node, &["HGET", &token, "held"]).await {
        redis::Value::BulkString(number) => String::from_utf8(number).unwrap().parse().ok(),
        _ => None,
    }
}

/// As votes for other attempts leave it.
async fn raise_counter(node: &Redis, name: &str, counter: u64) {
    let token = format!("{{lock:{name}}}:token");
    command(node, &["HSET", &token, "counter", &counter.to_string()]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_lock_was_deleted_and_granted_to_another_hears_of_it_although_a_late_node_grants_to_it() {
    let nodes = marked(3).await;
    let (locks, proxy) = connect_with_proxy(&nodes, "6s").await;
    let other = connect(&nodes, &[]).await;
    proxy.hold_requests();
    // A bare majority. The third node's vote is on its way.
    let guard = locks.mutex("deleted").lock().await.unwrap();
    command(&nodes.nodes()[1], &["DEL", "{lock:deleted}"]).await;
    let between = other.mutex("deleted").try_lock().await.unwrap().expect("two nodes are free");
    assert!(between.token() > guard.token());
    between.release().await.unwrap();
    until("the third node is free", || async { get(&nodes.nodes()[2], "{lock:deleted}").await.is_none() }).await;

    proxy.heal();
    until("the third node grants", || async { get(&nodes.nodes()[2], "{lock:deleted}").await.is_some() }).await;
    let lost = Clock::boot().timeout(LIMIT, guard.lost()).await;
    assert_eq!(lost, Some(Loss::Revoked), "another held in between");
    drop(guard);
    until_nothing_is_left(nodes.nodes(), "deleted").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_node_whose_counter_is_ahead_joins_with_the_next_renewal_and_not_before() {
    let nodes = marked(3).await;
    let (locks, proxy) = connect_with_proxy(&nodes, "6s").await;
    proxy.hold_requests();
    let guard = locks.mutex("ahead").lock().await.unwrap();
    let token = guard.token().number;
    raise_counter(&nodes.nodes()[2], "ahead", token + 1_000).await;
    let first = guard.valid_until().unwrap();
    proxy.heal();
    until("the third node has the token", || async { number(&nodes.nodes()[2], "ahead").await == Some(token) }).await;
    until("it was renewed twice", || async {
        guard.valid_until().expect("it is held") > first.saturating_add(TWO_RENEWALS)
    })
    .await;
    // From then on it does as well as any other.
    command(&nodes.nodes()[1], &["SET", "{lock:ahead}", "somebody", "PX", "3600000"]).await;
    let later = guard.valid_until().unwrap();
    until("it was renewed without the second node", || async {
        guard.valid_until().expect("it is held") > later.saturating_add(TWO_RENEWALS)
    })
    .await;
    guard.release().await.unwrap();
    command(&nodes.nodes()[1], &["DEL", "{lock:ahead}"]).await;
    until_nothing_is_left(nodes.nodes(), "ahead").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_late_node_granted_that_did_not_join_is_given_back_with_the_lock() {
    let nodes = marked(3).await;
    let (locks, proxy) = connect_with_proxy(&nodes, "1h").await;
    proxy.hold_requests();
    let guard = locks.mutex("back").lock().await.unwrap();
    raise_counter(&nodes.nodes()[2], "back", guard.token().number + 1_000).await;
    proxy.heal();
    until("the third node grants", || async { count(&nodes, "back").await == 3 }).await;
    guard.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "back").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_nobody_can_tell_of_its_loss_does_not_go_on_with_a_node_that_joined_since() {
    let nodes = marked(3).await;
    let (locks, proxy) = connect_with_proxy_before(&nodes, 1, "6s").await;
    let other = connect(&nodes, &[]).await;
    let third = &nodes.nodes()[2];
    command(third, &["SET", "{lock:silent}", "somebody", "PX", "3600000"]).await;
    // A bare majority, without the third node.
    let guard = locks.mutex("silent").lock().await.unwrap();
    // The second node will not be heard to have lost the lock.
    proxy.hold_replies();
    command(third, &["DEL", "{lock:silent}"]).await;
    command(&nodes.nodes()[1], &["DEL", "{lock:silent}"]).await;
    let between = other.mutex("silent").try_lock().await.unwrap().expect("two nodes are free");
    between.release().await.unwrap();

    until("the third node has joined", || async { get(third, "{lock:silent}").await.is_some() }).await;
    assert!(Clock::boot().timeout(LIMIT, guard.lost()).await.is_some(), "another held in between");
    drop(guard);
    proxy.heal();
    until_nothing_is_left(nodes.nodes(), "silent").await;
}
