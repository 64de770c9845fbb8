//! What is left on the servers is found, and what is meant to stay is told apart.

use std::time::Duration;

use lock_core::Clock;
use lock_lab::failover::{events::Residue, fault::Fault, scene::Side};

use crate::scenes::stage::{Stage, ask, eventually, first_port};

const LOCK_KEY: &str = "{lock:failover/kept}";

/// A look at which each server has answered: on a busy machine one may take its time.
async fn residue(stage: &Stage) -> Residue {
    let look = async {
        loop {
            let residue = stage.observer.residue().await;
            if residue.silent.is_empty() {
                return residue;
            }
        }
    };
    Clock::boot().timeout(crate::scenes::stage::LIMIT, look).await.expect("every server answers")
}

#[tokio::test]
async fn a_lock_that_is_held_is_found_on_each_arrangement_and_nothing_when_it_was_given_back() {
    for deployment in ["zk3", "etcd1", "redis", "cluster", "redlock3"] {
        let mut stage = Stage::of(deployment, Fault::Delay).await;
        assert!(residue(&stage).await.is_nothing(), "{deployment}");
        let (locks, guard) = stage.hold_as_victim().await;
        let servers = if stage.scene.deployment().is_quorum() { stage.scene.deployment().voters() } else { 1 };
        stage.until_held_by_victim(servers).await;
        let found = residue(&stage).await.left;
        let of_lock = found.iter().filter(|what| what.contains("failover")).count();
        assert_eq!(of_lock, servers, "{deployment}: {found:?}");
        guard.release().await.unwrap();
        locks.close(Duration::from_secs(20)).await.unwrap();
        eventually("nothing is left", async || stage.observer.residue().await.is_nothing()).await;
    }
}

#[tokio::test]
async fn a_tombstone_and_a_counter_are_not_left_behind_and_a_key_of_the_lock_is() {
    let stage = Stage::of("redis", Fault::Delay).await;
    let port = first_port(&stage.scene.url(Side::Others, stage.lease));
    let set = async |part: &str| {
        ask::<()>(port, &["SET", &format!("{LOCK_KEY}{part}"), "", "PX", "60000"]).await.unwrap();
    };
    set(":token").await;
    set(":undone:0a1b").await;
    assert_eq!(residue(&stage).await.left, Vec::<String>::new());
    set(":queue").await;
    let found = residue(&stage).await.left;
    assert!(found.len() == 1 && found[0].contains("{lock:failover/kept}:queue"), "{found:?}");
}

#[tokio::test]
async fn a_server_that_stands_still_is_not_taken_for_an_empty_one() {
    for deployment in ["redis", "zk1", "redlock3"] {
        let mut stage = Stage::of(deployment, Fault::ServerFrozen).await;
        stage.scene.inject().await.unwrap();
        let found = stage.observer.residue().await;
        assert!(!found.silent.is_empty() && !found.is_nothing(), "{deployment}: {found:?}");
        stage.heal().await;
        assert!(residue(&stage).await.is_nothing(), "{deployment}");
    }
}
