//! Faults of a primary whose place a replica takes.

use std::time::Duration;

use lock_lab::failover::{fault::Fault, scene::Side};

use crate::scenes::stage::{Stage, eventually};

#[tokio::test]
async fn a_failover_before_replication_loses_an_acknowledged_lock() {
    // The holder is told by its next renewal: not before the next one is granted, however long the Sentinels take.
    let lease = Duration::from_secs(120);
    let mut stage = Stage::for_leases("sentinel", Fault::FailoverBeforeReplication, lease).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(1).await;
    let others = stage.connect(Side::Others).await;
    stage.scene.inject().await.unwrap();
    stage.observer.served_again().await.unwrap();
    stage.until_held_by_victim(0).await;
    // The next one is granted although this one is valid: what the fault is there to show.
    let second = stage.hold(&others).await;
    assert!(guard.is_valid() && guard.token() < second.token());
    stage.heal().await;
}

#[tokio::test]
async fn a_primary_that_was_killed_or_frozen_is_replaced_and_comes_back_as_a_replica() {
    for (deployment, fault) in [("sentinel", Fault::ServerFrozen), ("cluster", Fault::FailoverBeforeReplication)] {
        let mut stage = Stage::of(deployment, fault).await;
        stage.scene.prepare().await.unwrap();
        let before = stage.the_sample().await;
        stage.scene.inject().await.unwrap();
        stage.observer.served_again().await.unwrap();
        let after = stage.the_sample().await;
        assert_ne!(before.server, after.server, "{deployment} {fault}");
        stage.heal().await;
        stage.until_answered_by(1).await;
    }
}

#[tokio::test]
async fn a_read_only_primary_is_one_whose_place_was_taken_in_order() {
    for deployment in ["sentinel", "cluster"] {
        let mut stage = Stage::of(deployment, Fault::ReadOnly).await;
        let before = stage.the_sample().await;
        stage.scene.inject().await.unwrap();
        eventually("another primary", async || {
            let samples = stage.truth().await;
            samples.len() == 1 && samples[0].server != before.server
        })
        .await;
        stage.heal().await;
    }
}

#[tokio::test]
async fn a_primary_whose_clock_jumps_goes_on_as_the_primary() {
    let mut stage = Stage::of("sentinel", Fault::ClockJump).await;
    let (_locks, _guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(1).await;
    stage.scene.inject().await.unwrap();
    stage.until_held_by_victim(0).await;
    stage.heal().await;
}
