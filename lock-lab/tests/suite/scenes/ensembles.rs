//! Faults of ZooKeeper.

use lock_lab::failover::{fault::Fault, scene::Side};

use crate::scenes::stage::Stage;

#[tokio::test]
async fn a_killed_leader_is_replaced_and_sessions_go_on() {
    let mut stage = Stage::of("zk3", Fault::ServerKilled).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(1).await;
    stage.scene.inject().await.unwrap();
    stage.observer.served_again().await.unwrap();
    stage.until_held_by_victim(1).await;
    assert!(guard.is_valid());
    stage.heal().await;
}

#[tokio::test]
async fn without_a_majority_an_ensemble_commits_nothing() {
    let mut stage = Stage::of("zk3", Fault::MajorityFrozen).await;
    let (_locks, _guard) = stage.hold_as_victim().await;
    stage.scene.inject().await.unwrap();
    assert!(stage.truth().await.is_empty());
    stage.heal().await;
    stage.observer.served_again().await.unwrap();
}

#[tokio::test]
async fn a_leader_that_lost_its_data_rejoins_and_the_lock_stands() {
    let mut stage = Stage::of("zk3", Fault::ServerRestartedEmpty).await;
    let (_locks, _guard) = stage.hold_as_victim().await;
    stage.scene.inject().await.unwrap();
    stage.until_held_by_victim(1).await;
    stage.heal().await;
}

#[tokio::test]
async fn a_deleted_node_and_a_session_taken_over_end_the_hold() {
    for fault in [Fault::KeyDeleted, Fault::SessionTakenOver] {
        let mut stage = Stage::of("zk1", fault).await;
        let (_locks, guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(1).await;
        stage.scene.inject().await.unwrap();
        stage.until_held_by_victim(0).await;
        guard.lost().await;
        let others = stage.connect(Side::Others).await;
        stage.hold(&others).await.release().await.unwrap();
        stage.heal().await;
    }
}

#[tokio::test]
async fn a_single_server_comes_back_with_its_sessions() {
    let mut stage = Stage::of("zk1", Fault::ServerRestartedDurable).await;
    let (_locks, _guard) = stage.hold_as_victim().await;
    stage.scene.inject().await.unwrap();
    stage.observer.served_again().await.unwrap();
    stage.until_held_by_victim(1).await;
    stage.heal().await;
}
