//! Two faults at once: what of them concerns the servers strikes the places that it should.

use lock_lab::failover::{fault::Fault, scene::Side};

use crate::scenes::stage::{Stage, first_port, is_silent};

#[tokio::test]
async fn a_frozen_minority_leaves_the_majority_that_serves() {
    let mut stage = Stage::of("redlock5", Fault::HolderStoppedServersFrozen).await;
    // Connected to all, as whoever is struck in the middle of its work.
    let locks = stage.connect(Side::Others).await;
    stage.hold(&locks).await.release().await.unwrap();
    stage.scene.inject().await.unwrap();
    stage.until_answered_by(3).await;
    stage.hold(&locks).await.release().await.unwrap();
    stage.heal().await;
    stage.until_answered_by(5).await;
}

#[tokio::test]
async fn a_frozen_follower_leaves_the_ensemble_that_commits() {
    let mut stage = Stage::of("zk3", Fault::HolderStoppedServersFrozen).await;
    stage.scene.inject().await.unwrap();
    stage.observer.served_again().await.unwrap();
    stage.heal().await;
}

#[tokio::test]
async fn one_node_is_killed_and_another_one_frozen_until_both_are_back() {
    let mut stage = Stage::of("redlock5", Fault::ServerKilledAnotherFrozen).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(5).await;
    stage.scene.inject().await.unwrap();
    stage.until_answered_by(3).await;
    assert!(guard.is_valid());
    stage.heal().await;
    stage.until_answered_by(5).await;
}

#[tokio::test]
async fn a_holder_is_cut_off_and_as_many_nodes_as_may_fail_have_forgotten_it() {
    let mut stage = Stage::of("redlock5", Fault::PartitionHolderServersRestarted).await;
    let (_locks, _guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(5).await;
    stage.scene.inject().await.unwrap();
    stage.until_held_by_victim(3).await;
    assert!(is_silent(first_port(&stage.scene.url(Side::Victim, stage.lease))).await);
    stage.heal().await;
}
