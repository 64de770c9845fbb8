//! Losing a lock: the holder knows before anybody else can hold it, and for good.

use std::{future::pending, sync::Arc};

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use crate::{BootInstant, Error, LockName, Loss};

pub(super) async fn a_lease_whose_traffic_is_held_up_ends_and_its_guard_knows_before_the_next_grant(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    first.hold().await?;
    ends_before_the_next_grant(&run, guard, &second, &name).await
}

pub(super) async fn a_lease_whose_connection_is_cut_ends_and_its_guard_knows_before_the_next_grant(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    first.cut().await?;
    ends_before_the_next_grant(&run, guard, &second, &name).await
}

async fn ends_before_the_next_grant(
    run: &CaseRun,
    guard: CheckedGuard,
    second: &CheckedClient,
    name: &LockName,
) -> CaseResult {
    let waiter = tokio::spawn({
        let (client, name, clock) = (second.clone(), name.clone(), run.clock());
        async move { (client.lock(&name).await, clock.now()) }
    });
    let deadline = last_deadline(&guard, || waiter.is_finished()).await?;
    let (next, granted) = within("the next grant", waiter).await??;
    let next = next?;
    ensure!(!guard.is_valid(), "{guard:?} is valid after the next grant");
    ensure!(deadline <= granted, "{guard:?} was valid until {deadline:?}, the next was granted at {granted:?}");
    run.is_kept(&next).await?;
    let loss = within("the news of the loss", guard.lost()).await?;
    unrenewed(loss)?;
    next.release().await?;
    Ok(())
}

/// Follows a guard until it is lost, or at the latest until the next is granted, and gives the last deadline that it
/// showed.
async fn last_deadline(guard: &CheckedGuard, succeeded: impl Fn() -> bool + Send + Sync) -> CaseResult<BootInstant> {
    let mut last = guard.valid_until();
    eventually("a lock that is not renewed is lost", || {
        let ended = succeeded();
        let until = guard.valid_until();
        last = until.or(last);
        let ended = ended || until.is_none();
        async move { Ok(ended.then_some(())) }
    })
    .await?;
    last.ok_or_else(|| Failure::new("the lock was lost at once"))
}

fn unrenewed(loss: Loss) -> CaseResult {
    ensure!(
        matches!(loss, Loss::Expired | Loss::Unreachable | Loss::SessionEnded),
        "a lock that could not be renewed was lost because {loss}"
    );
    Ok(())
}

pub(super) async fn a_deleted_lock_is_noticed_as_lost(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect_watchful().await?;
    let guard = client.lock(&name).await?;
    run.delete(&name).await?;
    let loss = within("the news that the lock was deleted", guard.lost()).await?;
    ensure!(loss == Loss::Revoked, "a deleted lock was lost because {loss}");
    ensure!(!guard.is_valid() && guard.valid_until().is_none(), "{guard:?} is lost and valid");
    match within("a release", guard.release()).await? {
        Err(Error::Lost { .. }) => {}
        other => return Err(Failure::new(format!("the release of a lost lock came back as {other:?}"))),
    }
    // Nobody is locked out by it.
    client.lock(&name).await?.release().await?;
    Ok(())
}

pub(super) async fn lost_is_final(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let old = first.lock(&name).await?;
    let kept = old.validity().clone();
    first.hold().await?;
    within("the news of the loss", old.lost()).await?;
    first.heal().await;
    // The connection works again, and is renewed again: for a new grant, never for the old one.
    let mut tries = 5;
    let new = loop {
        let new = first.lock(&name).await?;
        ensure!(new.token() > old.token(), "the token of the new grant is {}, of the old {}", new.token(), old.token());
        let deadline = new.valid_until();
        let is_renewed = eventually("the new grant is renewed, or lost", || async {
            ensure!(!old.is_valid(), "{old:?} was lost and is valid again");
            let until = new.valid_until();
            Ok((until.is_none() || until > deadline).then_some(until.is_some()))
        });
        if is_renewed.await? {
            break new;
        }
        // A machine that stands still may have lost it, too.
        tries -= 1;
        ensure!(tries > 0, "one new grant after another was lost");
    };
    ensure!(matches!(within("a release", old.release()).await?, Err(Error::Lost { .. })), "a lost lock was released");
    ensure!(!kept.is_valid(), "a lost validity is valid after the release");
    run.is_kept(&new).await?;
    ensure!(second.try_lock(&name).await?.is_none(), "the release of the old grant removed the new one");
    new.release().await?;
    Ok(())
}

pub(super) async fn an_operation_under_a_guard_is_cut_off_when_the_lock_is_lost(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect_watchful().await?;
    let guard = client.lock(&name).await?;
    let done = within("an operation", guard.run(async { 7 })).await??;
    ensure!(done == 7, "an operation gave {done}");
    run.delete(&name).await?;
    let endless = within("an endless operation", guard.run(pending::<()>())).await?;
    ensure!(matches!(endless, Err(Error::Lost { .. })), "an endless operation ended with {endless:?}");
    let late = within("an operation", guard.run(async { 8 })).await?;
    ensure!(matches!(late, Err(Error::Lost { .. })), "an operation ran under a lost lock: {late:?}");
    drop(guard);
    Ok(())
}

pub(super) async fn a_lock_is_renewed_for_as_long_as_it_is_held(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    // Well beyond what was granted: two leases on.
    let beyond = run.clock().now().saturating_add(guard.remaining() * 2);
    eventually("the lock is held for twice its ttl", || async {
        ensure!(guard.is_valid(), "{guard:?} was lost although it is renewed");
        Ok((run.clock().now() > beyond).then_some(()))
    })
    .await?;
    run.is_kept(&guard).await?;
    ensure!(second.try_lock(&name).await?.is_none(), "a lock that is renewed was granted to another");
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_broken_connection_that_is_mended_at_once_costs_no_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let first = run.connect_severable().await?;
    let guard = first.lock(&name).await?;
    let Some(deadline) = guard.valid_until() else { return Err(Failure::new("the lock was lost at once")) };
    first.cut().await?;
    first.heal().await;
    // Renewals go on over a new connection.
    eventually("the lock is renewed over a new connection", || async {
        ensure!(guard.is_valid(), "{guard:?} was lost to a short break");
        Ok(guard.valid_until().filter(|until| until.saturating_since(deadline) > guard.remaining() / 2))
    })
    .await?;
    run.is_kept(&guard).await?;
    guard.release().await?;
    Ok(())
}
