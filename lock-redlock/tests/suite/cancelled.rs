//! Acquisitions that are cancelled while they wait, and what may come to a node afterwards.

use crate::deployment;
use crate::deployment::{LIMIT, command, connect, connect_to, eventually, marked, scripts_run, until_nothing_is_left};
use lock_core::{Guard, Locks};
use lock_lab::{proxy::Proxy, servers::Redis};
use tokio::task::JoinHandle;

/// Longer than any of these tests takes: nothing ends by itself, and no holder has to be renewed.
const HOLDER: &[(&str, &str)] = &[("ttl", "1h")];
const WAITER: &[(&str, &str)] = &[("ttl", "1h"), ("node_timeout", "1s")];

fn wait_for(locks: &Locks, name: &'static str) -> JoinHandle<Guard> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.mutex(name).lock().await.unwrap() })
}

/// Waits until a waiter stands in line on each of these nodes.
async fn until_in_line(nodes: &[&Redis], name: &str) {
    until_lines_exist(nodes, name, 1).await;
}

/// Waits until nobody stands in line on any of these nodes.
async fn until_out_of_line(nodes: &[&Redis], name: &str) {
    until_lines_exist(nodes, name, 0).await;
}

async fn until_lines_exist(nodes: &[&Redis], name: &str, expected: i64) {
    let line = format!("{{lock:{name}}}:waiters");
    eventually(&format!("lines at each node: {expected}"), || async {
        for node in nodes {
            if command(node, &["EXISTS", &line]).await != redis::Value::Int(expected) {
                return false;
            }
        }
        true
    })
    .await;
}

/// Waits until a node knows that a waiter is gone whose requests may come yet.
async fn until_noted_as_gone(node: &Redis, name: &str) {
    let connection = node.connection().await.unwrap();
    let pattern = format!("{{lock:{name}}}:undone:*@*");
    eventually("the node knows that it is gone", || {
        let (mut connection, pattern) = (connection.clone(), pattern.clone());
        async move {
            let notes: Vec<String> = redis::cmd("KEYS").arg(pattern).query_async(&mut connection).await.unwrap();
            !notes.is_empty()
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vote_that_waits_for_a_connection_is_not_sent_when_its_round_is_over() {
    let nodes = marked(3).await;
    let [slow, others @ ..] = nodes.nodes() else { unreachable!("three were started") };
    let holder = connect(&nodes, HOLDER).await;
    let guard = holder.mutex("unsent").lock().await.unwrap();
    eventually("all have it", || async { deployment::count(&nodes, "unsent").await == 3 }).await;
    // The connection to one node breaks, and then the node takes connections without a word.
    let proxy = Proxy::start(slow.port()).await.unwrap();
    let mut ports = nodes.ports();
    ports[0] = proxy.port();
    let locks = connect_to(&ports, &[("node_timeout", "20s"), ("connect_timeout", "20s")]).await;
    proxy.cut();
    let before = scripts_run(slow).await;
    proxy.heal();
    proxy.hold();
    let attempt = wait_for(&locks, "unsent");
    until_in_line(&others.iter().collect::<Vec<_>>(), "unsent").await;
    attempt.abort();
    assert!(attempt.await.is_err());
    proxy.heal();
    locks.close(LIMIT).await.unwrap();
    // The undo, which a round that the waiter has begun since does not need: it sent nothing there.
    assert!(scripts_run(slow).await - before <= 1, "a vote was sent before its undo, or behind it");
    let line = command(slow, &["EXISTS", "{lock:unsent}:waiters", "{lock:unsent}:writers"]).await;
    assert_eq!(line, redis::Value::Int(0), "a vote of a round that is over has lined the waiter up");
    guard.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "unsent").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_leaves_keeps_out_what_a_silent_node_has_not_answered() {
    let nodes = marked(3).await;
    let [first, silent, last] = nodes.nodes() else { unreachable!("three were started") };
    let (holder, locks) = (connect(&nodes, HOLDER).await, connect(&nodes, WAITER).await);
    let guard = holder.mutex("late").lock().await.unwrap();
    silent.stop().unwrap();
    let attempt = wait_for(&locks, "late");
    until_in_line(&[first, last], "late").await;
    attempt.abort();
    assert!(attempt.await.is_err());
    // It leaves all nodes at once, so the silent one was told by now, before it could answer the vote, that this may come yet.
    until_out_of_line(&[first, last], "late").await;
    silent.cont().unwrap();
    until_noted_as_gone(silent, "late").await;
    guard.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "late").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_is_granted_leaves_the_line_of_a_node_that_does_not_answer() {
    let nodes = marked(3).await;
    let [first, silent, last] = nodes.nodes() else { unreachable!("three were started") };
    let proxy = Proxy::start(silent.port()).await.unwrap();
    let mut ports = nodes.ports();
    ports[1] = proxy.port();
    let (holder, locks) = (connect(&nodes, HOLDER).await, connect_to(&ports, WAITER).await);
    let guard = holder.mutex("granted").lock().await.unwrap();
    eventually("all have it", || async { deployment::count(&nodes, "granted").await == 3 }).await;
    let attempt = wait_for(&locks, "granted");
    until_in_line(&[first, silent, last], "granted").await;
    // The vote that is granted by the others does not come to the node, and is never answered.
    proxy.hold_requests();
    guard.release().await.unwrap();
    let guard = attempt.await.unwrap();
    proxy.cut_once();
    proxy.heal();
    until_noted_as_gone(silent, "granted").await;
    guard.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "granted").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_leaves_while_a_node_is_away_leaves_its_line_when_it_is_back() {
    let nodes = marked(3).await;
    let [first, away, last] = nodes.nodes() else { unreachable!("three were started") };
    let proxy = Proxy::start(away.port()).await.unwrap();
    let mut ports = nodes.ports();
    ports[1] = proxy.port();
    let (holder, locks) = (connect(&nodes, HOLDER).await, connect_to(&ports, WAITER).await);
    let guard = holder.mutex("away").lock().await.unwrap();
    eventually("all have it", || async { deployment::count(&nodes, "away").await == 3 }).await;
    let attempt = wait_for(&locks, "away");
    until_in_line(&[first, away, last], "away").await;
    eventually("it listens, between two rounds", || async {
        command(first, &["PUBSUB", "CHANNELS", "{lock:away}:released:*"]).await != redis::Value::Array(Vec::new())
    })
    .await;
    proxy.cut();
    attempt.abort();
    assert!(attempt.await.is_err());
    eventually("the others know", || async {
        command(first, &["EXISTS", "{lock:away}:writers"]).await == redis::Value::Int(0)
            && command(last, &["EXISTS", "{lock:away}:writers"]).await == redis::Value::Int(0)
    })
    .await;
    proxy.heal();
    locks.close(LIMIT).await.unwrap();
    assert_eq!(command(away, &["EXISTS", "{lock:away}:writers"]).await, redis::Value::Int(0));
    guard.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "away").await;
}
