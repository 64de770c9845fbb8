//! Faults of one server of Redis, and of the nodes of Redlock.

use std::time::Duration;

use lock_core::Clock;
use lock_lab::failover::{
    events::Lock,
    fault::Fault,
    scene::{Scene, Side},
};

use crate::scenes::stage::{LEASE, LIMIT, Stage, ask, first_port};

#[tokio::test]
async fn what_a_restart_leaves_of_a_lock_depends_on_the_disk() {
    for (deployment, fault, left) in [
        ("redis", Fault::ServerRestartedEmpty, 0),
        ("redis-durable", Fault::ServerRestartedEmpty, 0),
        ("redis-durable", Fault::ServerRestartedDurable, 1),
        ("redlock3", Fault::ServerRestartedEmpty, 2),
        ("redlock5-durable", Fault::ServerRestartedDurable, 5),
    ] {
        let mut stage = Stage::of(deployment, fault).await;
        let (_locks, _guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(stage.scene.deployment().voters()).await;
        stage.scene.inject().await.unwrap();
        // The truth was asked over connections that the restart broke.
        stage.until_held_by_victim(left).await;
        stage.heal().await;
    }
}

#[tokio::test]
async fn a_killed_server_is_silent_until_it_is_healed() {
    for deployment in ["redis-durable", "redlock3"] {
        let mut stage = Stage::of(deployment, Fault::ServerKilled).await;
        let (_locks, _guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(stage.scene.deployment().voters()).await;
        stage.scene.inject().await.unwrap();
        stage.until_answered_by(stage.scene.deployment().voters() - 1).await;
        stage.scene.healthy().await.unwrap_err();
        stage.heal().await;
        stage.until_answered_by(stage.scene.deployment().voters()).await;
    }
}

#[tokio::test]
async fn a_frozen_minority_lets_others_acquire_and_a_frozen_majority_does_not() {
    for (fault, silent) in [(Fault::ServerFrozen, 1), (Fault::MajorityFrozen, 2)] {
        let mut stage = Stage::of("redlock3", fault).await;
        let locks = stage.connect(Side::Others).await;
        // Connected to all, as whoever is struck in the middle of its work.
        locks.mutex("before").lock().await.unwrap().release().await.unwrap();
        stage.scene.inject().await.unwrap();
        stage.until_answered_by(3 - silent).await;
        // What does not come is not waited for so long.
        let limit = if silent == 1 { LIMIT } else { Duration::from_secs(3) };
        let taken = locks.mutex("other").timeout(limit).lock().await;
        assert_eq!(taken.is_ok(), silent == 1, "{taken:?}");
        if let Ok(guard) = taken {
            guard.release().await.unwrap();
        }
        stage.heal().await;
        locks.mutex("other").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_clock_that_jumps_ends_the_lease_on_that_server_at_once() {
    for (deployment, left) in [("redis", 0), ("redlock3", 2)] {
        let mut stage = Stage::of(deployment, Fault::ClockJump).await;
        let (_locks, _guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(stage.scene.deployment().voters()).await;
        stage.scene.inject().await.unwrap();
        stage.until_held_by_victim(left).await;
        stage.heal().await;
    }
}

#[tokio::test]
async fn at_a_bare_majority_a_jump_leaves_a_minority() {
    let mut stage = Stage::of("redlock5", Fault::ClockJumpMinimalQuorum).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(3).await;
    stage.scene.inject().await.unwrap();
    stage.until_held_by_victim(2).await;
    // Others may be granted although this one is valid: what the fault is there to show.
    let others = stage.connect(Side::Others).await;
    let taken = others.mutex(Lock::Kept.name()).try_lock().await.unwrap();
    assert!(taken.is_some() && guard.is_valid());
    stage.heal().await;
}

#[tokio::test]
async fn a_deleted_key_is_gone_from_every_node() {
    for deployment in ["redis", "redlock3"] {
        let mut stage = Stage::of(deployment, Fault::KeyDeleted).await;
        let (_locks, _guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(stage.scene.deployment().voters()).await;
        stage.scene.inject().await.unwrap();
        stage.until_held_by_victim(0).await;
        stage.heal().await;
    }
}

#[tokio::test]
async fn flushed_scripts_are_gone_and_sent_again() {
    let mut stage = Stage::of("redis", Fault::ScriptFlush).await;
    let (locks, guard) = stage.hold_as_victim().await;
    guard.release().await.unwrap();
    let port = first_port(&stage.scene.url(Side::Others, stage.lease));
    let cached = async || -> bool {
        let memory: String = ask(port, &["INFO", "memory"]).await.unwrap();
        !memory.contains("number_of_cached_scripts:0")
    };
    assert!(cached().await);
    stage.scene.inject().await.unwrap();
    assert!(!cached().await);
    stage.hold(&locks).await.release().await.unwrap();
    assert!(cached().await);
}

#[tokio::test]
async fn a_read_only_server_refuses_writes_and_keeps_what_it_has() {
    let mut stage = Stage::of("redis", Fault::ReadOnly).await;
    let port = first_port(&stage.scene.url(Side::Others, stage.lease));
    ask::<()>(port, &["SET", "key", "value"]).await.unwrap();
    stage.scene.inject().await.unwrap();
    let refused = ask::<()>(port, &["SET", "key", "other"]).await.unwrap_err();
    assert_eq!(refused.code(), Some("READONLY"));
    stage.heal().await;
    assert_eq!(ask::<String>(port, &["GET", "key"]).await.unwrap(), "value");
    ask::<()>(port, &["SET", "key", "other"]).await.unwrap();
}

#[tokio::test]
async fn what_the_servers_hold_is_told_with_the_time_around_the_look() {
    let mut stage = Stage::of("redlock3", Fault::ScriptFlush).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(3).await;
    let before = Clock::boot().now();
    let samples = stage.samples_of(3).await;
    let after = Clock::boot().now();
    for sample in &samples {
        let kept = sample.held.as_ref().unwrap();
        assert!(before <= sample.asked && sample.asked <= sample.answered && sample.answered <= after);
        assert_eq!(kept.token, Some(guard.token().number));
        assert!(kept.remaining_nanos.unwrap() <= u64::try_from(stage.lease.as_nanos()).unwrap());
    }
    assert_eq!((stage.observer.quorum().servers, stage.observer.quorum().needed), (3, 2));
    assert!(stage.observer.truth(Lock::Busy, 1).await.iter().all(|sample| sample.held.is_none()));
}

#[tokio::test]
async fn what_stands_beside_the_lock_is_not_told_of_another_holder() {
    for (deployment, lock) in [("redis", "{lock:failover/kept}"), ("redis-plain", "lock:failover/kept")] {
        let mut stage = Stage::of(deployment, Fault::ScriptFlush).await;
        let (_locks, _guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(1).await;
        let port = first_port(&stage.scene.url(Side::Others, stage.lease));
        // As another library does, which knows nothing of payloads and numbers.
        ask::<()>(port, &["SET", lock, "foreign", "PX", "10000"]).await.unwrap();
        let sample = stage.the_sample().await;
        let kept = sample.held.as_ref().unwrap();
        assert_eq!((&kept.payload, kept.token, kept.remaining_nanos.is_some()), (&None, None, true), "{deployment}");
    }
}

#[tokio::test]
async fn a_fault_that_makes_no_sense_is_refused_with_the_reason() {
    let name = lock_core::LockName::new("a").unwrap();
    let refused = Scene::start("redis".parse().unwrap(), Fault::MajorityFrozen, name, LEASE).await.unwrap_err();
    assert!(refused.to_string().contains("majority"), "{refused}");
}
