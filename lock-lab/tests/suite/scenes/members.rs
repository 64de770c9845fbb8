//! Another server in the place of a member, and clients that do not know the deployment right.

use std::time::Duration;

use lock_core::{Clock, Error};
use lock_lab::failover::{
    events::Lock,
    fault::{Disagreement, Fault},
    scene::Side,
};

use crate::scenes::stage::{LIMIT, Stage, eventually};

/// Long enough that a lock is renewed in it on a machine that stands still for a while.
const QUARANTINE: Duration = Duration::from_secs(8);

#[tokio::test]
async fn a_new_member_has_the_place_of_the_old_one_for_clients_and_observer() {
    for deployment in ["redlock3", "redlock5-durable"] {
        let mut stage = Stage::for_leases(deployment, Fault::MemberReplaced, QUARANTINE).await;
        let voters = stage.scene.deployment().voters();
        let (locks, guard) = stage.hold_as_victim().await;
        stage.until_held_by_victim(voters).await;
        let before: Vec<String> = stage.samples_of(voters).await.into_iter().map(|sample| sample.server).collect();
        stage.scene.inject().await.unwrap();
        // As many as may fail stand still: without the new member the others would be no majority.
        stage.until_held_by_victim(voters / 2 + 1).await;
        assert!(guard.is_valid());
        locks.mutex("other").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
        let others = stage.connect(Side::Others).await;
        others.mutex("other").timeout(LIMIT).lock().await.unwrap().release().await.unwrap();
        stage.heal().await;
        stage.until_held_by_victim(voters).await;
        let after: Vec<String> = stage.samples_of(voters).await.into_iter().map(|sample| sample.server).collect();
        assert!(after[0] != before[0] && after[1..] == before[1..], "{before:?} {after:?}");
        guard.release().await.unwrap();
        for locks in [locks, others] {
            locks.close(LIMIT).await.unwrap();
        }
        eventually("nothing is left", async || stage.observer.residue().await.is_nothing()).await;
    }
}

#[tokio::test]
async fn a_new_member_is_closed_until_the_lease_has_ended_that_the_old_one_kept() {
    let mut stage = Stage::for_leases("redlock3", Fault::MemberReplacedMinimalQuorum, QUARANTINE).await;
    let (_locks, guard) = stage.hold_as_victim().await;
    stage.until_held_by_victim(2).await;
    stage.scene.inject().await.unwrap();
    assert!(guard.is_valid());
    let closed = async || stage.truth().await.iter().filter(|sample| sample.closed_nanos.is_some()).count() == 1;
    eventually("the new member is closed", closed).await;
    let others = stage.connect(Side::Others).await;
    let taken = async {
        loop {
            let taken = others.mutex(Lock::Kept.name()).try_lock().await;
            assert!(!(guard.is_valid() && matches!(taken, Ok(Some(_)))), "two hold it");
            if let Ok(Some(taken)) = taken {
                return taken;
            }
        }
    };
    let taken = Clock::boot().timeout(LIMIT, taken).await.expect("the lock goes on");
    assert!(guard.token() < taken.token());
    // The one that was replaced runs, and is looked at in the end, too.
    let on = |residue: &lock_lab::failover::events::Residue| {
        residue.left.iter().filter(|what| what.contains("failover")).count()
    };
    eventually("both are seen to have it", async || on(&stage.observer.residue().await) >= 2).await;
    stage.heal().await;
}

#[tokio::test]
async fn clients_that_disagree_are_refused_with_what_differs() {
    let stage = Stage::of("redlock3", Fault::ClientsDisagree).await;
    for (disagreement, named) in
        [(Disagreement::Servers, "the members of the deployment"), (Disagreement::MaxTtl, "max_ttl")]
    {
        let url = stage.scene.strange_url(disagreement, stage.lease).unwrap();
        let refused = lock::connect(&url).await.unwrap_err();
        assert!(matches!(refused, Error::Config { .. }) && refused.to_string().contains(named), "{refused}");
    }
    // It is the setting that was refused, and not the way there.
    let url = stage.scene.strange_url(Disagreement::MaxTtl, stage.lease).unwrap();
    let agreed = url.split("&max_ttl").next().unwrap();
    lock::connect(agreed).await.unwrap().mutex("other").lock().await.unwrap().release().await.unwrap();

    let others = Stage::of("redlock3", Fault::MemberReplaced).await;
    others.scene.strange_url(Disagreement::Servers, others.lease).unwrap_err();
    let alone = Stage::of("redis", Fault::Delay).await;
    alone.scene.strange_url(Disagreement::MaxTtl, alone.lease).unwrap_err();
}
