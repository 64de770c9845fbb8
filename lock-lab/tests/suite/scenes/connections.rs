//! Faults of connections strike one side, and leave the other alone.

use std::time::Duration;

use lock_core::Clock;
use lock_lab::{
    failover::{fault::Fault, scene::Side},
    servers::connect_to_redis,
};

use crate::scenes::stage::{LIMIT, Stage, ask, eventually, first_port, is_silent};

/// For how long a request is left without an answer.
const SILENCE: Duration = Duration::from_millis(500);

async fn takes_writes(stage: &Stage, side: Side) -> bool {
    let port = first_port(&stage.scene.url(side, stage.lease));
    ask::<()>(port, &["SET", "probe", "1"]).await.is_ok()
}

#[tokio::test]
async fn a_partition_cuts_the_holder_off_and_nobody_else() {
    let mut stage = Stage::of("redis", Fault::PartitionHolder).await.with_lease(Duration::from_secs(4));
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.scene.inject().await.unwrap();
    assert!(is_silent(first_port(&stage.scene.url(Side::Victim, stage.lease))).await);
    assert!(takes_writes(&stage, Side::Others).await);
    // Cut off, it does not renew.
    guard.lost().await;
    stage.until_held_by_victim(0).await;
    stage.hold(&stage.connect(Side::Others).await).await.release().await.unwrap();
    stage.heal().await;
    assert!(takes_writes(&stage, Side::Victim).await);
}

#[tokio::test]
async fn requests_that_are_held_are_not_carried_out_and_requests_of_held_replies_are() {
    for (fault, carried_out) in [(Fault::HolderRequestsLost, false), (Fault::HolderRepliesLost, true)] {
        let mut stage = Stage::of("redis", fault).await;
        let victim = first_port(&stage.scene.url(Side::Victim, stage.lease));
        let others = first_port(&stage.scene.url(Side::Others, stage.lease));
        let mut connection = connect_to_redis(&format!("redis://127.0.0.1:{victim}")).await.unwrap();
        stage.scene.inject().await.unwrap();
        let mut set = redis::cmd("SET");
        let mut request = Box::pin(set.arg("key").arg("value").exec_async(&mut connection));
        let read = async || ask::<Option<String>>(others, &["GET", "key"]).await.unwrap().is_some();
        if carried_out {
            tokio::select! {
                // Its client gives up, or still waits.
                outcome = &mut request => assert!(outcome.is_err()),
                () = eventually("the request was carried out", read) => {}
            }
        } else {
            let outcome = Clock::boot().timeout(SILENCE, &mut request).await;
            assert!(outcome.is_none_or(|outcome| outcome.is_err()));
            assert!(!read().await);
        }
        stage.heal().await;
        eventually("it arrives at last, as it would by a resend", read).await;
    }
}

#[tokio::test]
async fn a_cut_reply_leaves_its_request_carried_out() {
    let mut stage = Stage::of("redis", Fault::ReplyCut).await;
    let victim = first_port(&stage.scene.url(Side::Victim, stage.lease));
    let others = first_port(&stage.scene.url(Side::Others, stage.lease));
    let mut connection = connect_to_redis(&format!("redis://127.0.0.1:{victim}")).await.unwrap();
    stage.scene.inject().await.unwrap();
    redis::cmd("SET").arg("key").arg("value").exec_async(&mut connection).await.unwrap_err();
    // The other side loses its second reply.
    stage.heal().await;
    assert_eq!(ask::<String>(others, &["GET", "key"]).await.unwrap(), "value");
    ask::<()>(victim, &["PING"]).await.unwrap();
}

#[tokio::test]
async fn a_delay_lengthens_each_round_trip_of_both_sides() {
    let mut stage = Stage::of("redis", Fault::Delay).await;
    stage.scene.inject().await.unwrap();
    let clock = Clock::boot();
    for side in Side::ALL {
        let began = clock.now();
        assert!(takes_writes(&stage, side).await);
        assert!(clock.now().saturating_since(began) >= Duration::from_millis(60));
    }
    stage.heal().await;
}

#[tokio::test]
async fn clients_that_servers_tell_where_to_go_come_by_the_proxies_of_their_side() {
    for deployment in ["sentinel", "cluster"] {
        let mut stage = Stage::of(deployment, Fault::PartitionHolder).await;
        let [victim, others] = [stage.connect(Side::Victim).await, stage.connect(Side::Others).await];
        for locks in [&victim, &others] {
            locks.mutex("before").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
        }
        stage.scene.inject().await.unwrap();
        others.mutex("other").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
        let cut_off = victim.mutex("other").timeout(Duration::from_millis(500)).lock().await;
        assert!(cut_off.is_err(), "{deployment}");
        stage.heal().await;
        victim.mutex("other").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
    }
}
