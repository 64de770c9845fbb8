//! Giving a lock back, and never another's.

use std::sync::Arc;

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{LIMIT, within},
    run::CaseRun,
};
use crate::{Error, LockName};

pub(super) async fn a_released_lock_goes_to_a_waiter(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for _ in 0..20 {
        let guard = first.lock(&name).await?;
        let waiter = spawn_waiter(&second, &name);
        guard.release().await?;
        waiter.await??.release().await?;
    }
    Ok(())
}

pub(super) async fn a_dropped_guard_releases_the_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for _ in 0..20 {
        let guard = first.lock(&name).await?;
        let waiter = spawn_waiter(&second, &name);
        let validity = guard.validity().clone();
        drop(guard);
        let next = waiter.await??;
        ensure!(!validity.is_valid(), "the validity of a dropped guard goes on");
        drop(next);
        run.nothing_left(&name).await?;
    }
    Ok(())
}

fn spawn_waiter(client: &CheckedClient, name: &LockName) -> tokio::task::JoinHandle<CaseResult<CheckedGuard>> {
    let (client, name) = (client.clone(), name.clone());
    tokio::spawn(async move { client.lock(&name).await })
}

pub(super) async fn a_release_after_the_lease_ended_never_removes_the_successors_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second, third] = [run.connect_severable().await?, run.connect().await?, run.connect().await?];
    let late = first.lock(&name).await?;
    first.hold().await?;
    let successor = second.lock(&name).await?;
    first.heal().await;
    reports_the_loss(within("a late release", late.release()).await?)?;
    still_holds(&run, &successor, &third).await?;
    // Whatever the late one still sends in the background has been sent by the time its connection is closed.
    first.close(LIMIT).await??;
    still_holds(&run, &successor, &third).await?;
    successor.release().await?;
    Ok(())
}

pub(super) async fn a_release_after_a_deletion_never_removes_the_successors_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second, third] = [run.connect_watchful().await?, run.connect().await?, run.connect().await?];
    let deleted = first.lock(&name).await?;
    run.delete(&name).await?;
    let successor = second.lock(&name).await?;
    reports_the_loss(within("a late release", deleted.release()).await?)?;
    still_holds(&run, &successor, &third).await?;
    successor.release().await?;
    Ok(())
}

pub(super) async fn a_guard_dropped_after_its_lease_ended_never_removes_the_successors_lock(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second, third] = [run.connect_severable().await?, run.connect().await?, run.connect().await?];
    let late = first.lock(&name).await?;
    first.cut().await?;
    let successor = second.lock(&name).await?;
    drop(late);
    first.heal().await;
    first.close(LIMIT).await??;
    still_holds(&run, &successor, &third).await?;
    successor.release().await?;
    Ok(())
}

pub(super) async fn a_release_that_does_not_reach_the_server_is_made_good(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    let validity = guard.validity().clone();
    first.hold().await?;
    let released = within("a release that cannot arrive", guard.release()).await?;
    ensure!(!validity.is_valid(), "the validity of a released guard goes on");
    match released {
        Err(Error::Unavailable { .. } | Error::Lost { .. }) => {}
        other => return Err(Failure::new(format!("a release that cannot have arrived came back as {other:?}"))),
    }
    first.heal().await;
    second.lock(&name).await?.release().await?;
    run.nothing_left(&name).await
}

fn reports_the_loss(released: Result<(), Error>) -> CaseResult {
    match released {
        Err(Error::Lost { .. }) => Ok(()),
        other => Err(Failure::new(format!("the release of a lost lock came back as {other:?}"))),
    }
}

async fn still_holds(run: &CaseRun, successor: &CheckedGuard, third: &CheckedClient) -> CaseResult {
    run.is_kept(successor).await?;
    ensure!(third.try_lock(successor.name()).await?.is_none(), "the successor's lock was removed");
    run.is_kept(successor).await
}
