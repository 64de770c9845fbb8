//! Restarts of all servers, one after the other.

use std::time::Duration;

use lock_core::Clock;
use lock_lab::failover::{
    events::Lock,
    fault::{Act, Awaited, Fault, Place, Step},
    scene::Side,
};

use crate::scenes::stage::{LIMIT, Stage, eventually, process_of};

/// As long as the lease of a deployment: long enough that it is seen on a machine that stands still for a while.
const QUARANTINE: Duration = Duration::from_secs(4);

/// The process of each server, by the ports that the truth names.
async fn processes(stage: &Stage) -> Vec<String> {
    let samples = stage.samples_of(5).await;
    let mut all = Vec::new();
    for sample in samples {
        let port = sample.server.rsplit(':').next().unwrap().parse().unwrap();
        all.push(process_of(port).await);
    }
    all
}

#[tokio::test]
async fn an_ensemble_whose_servers_all_restart_in_turn_keeps_its_sessions_and_a_held_lock() {
    // The client library doubles its pauses between tries to connect, so an election that takes half the session time-out
    // can end the session. On a slow machine an election takes seconds.
    let mut stage = Stage::for_leases("zk3", Fault::RollingRestart, Duration::from_secs(60)).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.scene.inject().await.unwrap();
    stage.until_held_by_victim(1).await;
    assert!(guard.is_valid());
    stage.heal().await;
}

#[tokio::test]
async fn nodes_with_their_data_that_all_restart_in_turn_keep_a_held_lock() {
    for fault in [Fault::RollingRestart, Fault::RollingRestartQuick] {
        let mut stage = Stage::of("redlock5-durable", fault).await;
        let (_locks, guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(5).await;
        let before = processes(&stage).await;
        stage.scene.inject().await.unwrap();
        stage.until_held_by_victim(5).await;
        assert!(guard.is_valid());
        let after = processes(&stage).await;
        assert!(before.iter().all(|process| !after.contains(process)), "{before:?} {after:?}");
        stage.heal().await;
    }
}

/// How many nodes grant nothing to anybody.
async fn closed(stage: &Stage) -> usize {
    stage.truth().await.iter().filter(|sample| sample.closed_nanos.is_some()).count()
}

#[tokio::test]
async fn nodes_that_restart_without_waiting_grant_nothing_until_their_quarantines_are_over() {
    let mut stage = Stage::for_leases("redlock3", Fault::RollingRestartQuick, QUARANTINE).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(3).await;
    stage.scene.inject().await.unwrap();
    eventually("a majority is closed", async || closed(&stage).await >= 2).await;
    // A majority has lost all its data, and what it was a member of: that is for an operator to say.
    stage.heal().await;
    let others = stage.connect(Side::Others).await;
    let taken = async {
        loop {
            // While a majority is in quarantine an attempt ends in an error; none may be granted.
            if let Ok(taken) = others.mutex(Lock::Kept.name()).timeout(LIMIT).lock().await {
                return taken;
            }
        }
    };
    let taken = Clock::boot().timeout(LIMIT, taken).await.expect("the lock goes on");
    assert!(!guard.is_valid() && guard.token() < taken.token());
    assert!(closed(&stage).await < 2);
}

#[tokio::test]
async fn a_node_that_was_restarted_is_waited_for_until_its_quarantine_is_over() {
    let mut stage = Stage::for_leases("redlock3", Fault::RollingRestart, QUARANTINE).await;
    let (locks, guard) = stage.hold_as_victim().await;
    stage.scene.step(Step::Server(Act::Kill, Place::Number(1))).await.unwrap();
    stage.scene.step(Step::Server(Act::Start, Place::Number(1))).await.unwrap();
    eventually("the node is closed", async || closed(&stage).await == 1).await;
    // Somebody must find it, so that its quarantine begins.
    let busy = async {
        loop {
            if let Ok(guard) = locks.mutex("other").lock().await {
                let _ = guard.release().await;
            }
            Clock::boot().sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = busy => unreachable!("it never ends"),
        waited = stage.scene.step(Step::Until(Awaited::TakesPart(1))) => waited.unwrap(),
    }
    assert_eq!(closed(&stage).await, 0);
    drop(guard);
    stage.heal().await;
}
