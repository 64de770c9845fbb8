//! Nodes that answer after the vote was won, or join later.

#![expect(clippy::future_not_send, reason = "a world is played on one thread")]

use std::time::Duration;

use lock_core::{Error, Locks, Loss};
use lock_sim::world::Way;

use crate::simulation::{Nodes, simulated};

/// Leases are renewed every two seconds; a request may be held for longer than a test takes.
const SETTINGS: &[(&str, &str)] = &[("ttl", "6s"), ("node_timeout", "60s")];
/// Longer than one renewal, shorter than two.
const TWO_RENEWALS: Duration = Duration::from_secs(3);
/// Longer than a decided vote waits for other answers.
const A_WHILE: Duration = Duration::from_millis(500);

/// A connection to all nodes, which have nothing to do any more.
async fn connect(nodes: &Nodes, settings: &[(&str, &str)]) -> Locks {
    let locks = nodes.connect(settings).await;
    let warm = locks.mutex("warm").lock().await.unwrap();
    nodes.until("all nodes are connected", || nodes.count("warm") == 3).await;
    warm.release().await.unwrap();
    nodes.until_nothing_is_left(0..3, "warm").await;
    locks
}

/// The number that a node shows beside the holder of `name`.
fn number(nodes: &Nodes, node: usize, name: &str) -> Option<u64> {
    nodes.writer(node, name).map(|writer| writer.number)
}

/// Raises a node's counter, as votes for other attempts do.
fn raise_counter(nodes: &Nodes, node: usize, name: &str, counter: u64) {
    nodes.command(node, &["SETRANGE", &format!("{{lock:{name}}}:token"), "0", &counter.to_string()]);
}

#[test]
fn a_holder_whose_lock_was_deleted_and_granted_to_another_hears_of_it_although_a_late_node_grants_to_it() {
    simulated(3, &[], |nodes| async move {
        let (locks, other) = (connect(&nodes, SETTINGS).await, nodes.connect_from(1, &[]).await);
        nodes.block(0, 2, Way::Up, true).await;
        // A bare majority: the third node's vote is on its way.
        let guard = locks.mutex("deleted").lock().await.unwrap();
        nodes.command(1, &["DEL", "{lock:deleted}"]);
        let between = other.mutex("deleted").try_lock().await.unwrap().expect("two nodes are free");
        assert!(between.token() > guard.token());
        between.release().await.unwrap();
        nodes.until("the third node is free", || nodes.get(2, "{lock:deleted}").is_none()).await;

        nodes.block(0, 2, Way::Up, false).await;
        nodes.until("the third node grants", || nodes.get(2, "{lock:deleted}").is_some()).await;
        assert_eq!(guard.lost().await, Loss::Revoked, "another holder was granted in between");
        drop(guard);
        nodes.until_nothing_is_left(0..3, "deleted").await;
    });
}

#[test]
fn a_late_node_whose_counter_is_ahead_joins_with_the_next_renewal_and_not_before() {
    simulated(3, &[], |nodes| async move {
        let locks = connect(&nodes, SETTINGS).await;
        nodes.block(0, 2, Way::Up, true).await;
        let guard = locks.mutex("ahead").lock().await.unwrap();
        let token = guard.token().number;
        raise_counter(&nodes, 2, "ahead", token + 1_000);
        let first = guard.valid_until().unwrap();
        nodes.block(0, 2, Way::Up, false).await;
        nodes.until("the third node has the token", || number(&nodes, 2, "ahead") == Some(token)).await;
        let renewed_twice = || guard.valid_until().expect("it is held") > first.saturating_add(TWO_RENEWALS);
        nodes.until("it was renewed twice", renewed_twice).await;
        // From then on the node does as well as any other.
        nodes.command(1, &["SET", "{lock:ahead}", "somebody", "PX", "3600000"]);
        let later = guard.valid_until().unwrap();
        let renewed = || guard.valid_until().expect("it is held") > later.saturating_add(TWO_RENEWALS);
        nodes.until("it was renewed without the second node", renewed).await;
        guard.release().await.unwrap();
        nodes.command(1, &["DEL", "{lock:ahead}"]);
        nodes.until_nothing_is_left(0..3, "ahead").await;
    });
}

#[test]
fn what_a_late_node_granted_that_did_not_join_is_given_back_with_the_lock() {
    simulated(3, &[("max_ttl", "1h")], |nodes| async move {
        let locks = connect(&nodes, &[("ttl", "1h"), ("node_timeout", "60s")]).await;
        nodes.block(0, 2, Way::Up, true).await;
        let guard = locks.mutex("back").lock().await.unwrap();
        raise_counter(&nodes, 2, "back", guard.token().number + 1_000);
        nodes.block(0, 2, Way::Up, false).await;
        nodes.until("the third node grants", || nodes.count("back") == 3).await;
        guard.release().await.unwrap();
        nodes.until_nothing_is_left(0..3, "back").await;
    });
}

#[test]
fn a_holder_that_nobody_can_tell_of_its_loss_does_not_go_on_with_a_node_that_joined_since() {
    simulated(3, &[], |nodes| async move {
        let (locks, other) = (connect(&nodes, SETTINGS).await, nodes.connect_from(1, &[]).await);
        nodes.command(2, &["SET", "{lock:silent}", "somebody", "PX", "3600000"]);
        // A bare majority, without the third node.
        let guard = locks.mutex("silent").lock().await.unwrap();
        // The third node's vote may still be on its way.
        nodes.settle().await;
        // The holder will not hear that the second node has lost the lock.
        nodes.block(0, 1, Way::Down, true).await;
        nodes.command(2, &["DEL", "{lock:silent}"]);
        nodes.command(1, &["DEL", "{lock:silent}"]);
        let between = other.mutex("silent").try_lock().await.unwrap().expect("two nodes are free");
        between.release().await.unwrap();

        nodes.until("the third node has joined", || nodes.get(2, "{lock:silent}").is_some()).await;
        // Another holder was granted in between.
        guard.lost().await;
        drop(guard);
        nodes.block(0, 1, Way::Down, false).await;
        nodes.until_nothing_is_left(0..3, "silent").await;
    });
}

#[test]
fn one_of_a_release_and_a_forced_release_is_told_that_it_ended_the_grant_however_late_the_node_answers_that_decides() {
    simulated(3, &[("max_ttl", "1h")], |nodes| async move {
        let locks = connect(&nodes, &[("ttl", "1h"), ("node_timeout", "60s")]).await;
        let operator = nodes.connect_from(1, &[]).await;
        let guard = locks.mutex("told").lock().await.unwrap();
        nodes.until("all nodes have granted", || nodes.count("told") == 3).await;
        let token = guard.token();
        // The operator ends it on two nodes, and the holder hears one of them.
        nodes.block(1, 0, Way::Up, true).await;
        let revoked = operator.revoke("told", token).await.unwrap().expect("it was ended on a majority");
        assert_eq!(revoked.token, Some(token.number));
        nodes.block(0, 2, Way::Down, true).await;
        let released = nodes.start(0, guard.release());
        nodes.until("no node has a holder", || nodes.count("told") == 0).await;
        nodes.clock().sleep(A_WHILE).await;
        nodes.block(0, 2, Way::Down, false).await;
        nodes.block(1, 0, Way::Up, false).await;
        match released.await.unwrap() {
            Err(Error::Lost { loss: Loss::Revoked, .. }) => {}
            other => panic!("both were told that they had ended it: {other:?}"),
        }
        nodes.until_nothing_is_left(0..3, "told").await;
    });
}
