//! Closing a connection.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    failure::{CaseResult, ensure},
    guards::{AnyGuard, CheckedGuard},
    limits::{LIMIT, within},
    run::CaseRun,
};
use super::waiting::in_line;
use crate::{Error, Feature, Loss};

pub(super) async fn close_releases_what_is_held_and_what_was_dropped(run: Arc<CaseRun>) -> CaseResult {
    let [held, dropped] = [run.name(), run.name()];
    let [first, second] = [run.connect().await?, run.connect().await?];
    let guard = first.lock(&held).await?;
    drop(first.lock(&dropped).await?);
    first.close(LIMIT).await??;
    ended_by_closing(&guard).await?;
    // Not only in the end: by the time that close has come back.
    for name in [&held, &dropped] {
        let Some(next) = second.try_lock(name).await? else {
            return Err(Failure::new(format!("{name:?} is still locked after its connection was closed")));
        };
        next.release().await?;
    }
    drop(guard);
    Ok(())
}

pub(super) async fn close_ends_a_waiting_acquisition_and_refuses_new_ones(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    let waiter = tokio::spawn({
        let mutex = second.mutex(&name);
        async move { mutex.lock().await }
    });
    if first.supports(Feature::Queue) {
        in_line(&first, &name, 1).await?;
    }
    second.close(LIMIT).await??;
    let waited = within("a wait on a closed connection", waiter).await??;
    ensure!(matches!(waited, Err(Error::Closed)), "a wait on a closed connection ended with {waited:?}");
    let refused = within("an acquisition", second.mutex(&name).lock()).await?;
    ensure!(matches!(refused, Err(Error::Closed)), "an acquisition on a closed connection ended with {refused:?}");
    let refused = within("a look", second.locks().inspect(name.as_str())).await?;
    ensure!(matches!(refused, Err(Error::Closed)), "a look on a closed connection ended with {refused:?}");
    guard.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn close_releases_what_readers_hold(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let [closing, staying] = [first.read(&name).await?, second.read(&name).await?];
    first.close(LIMIT).await??;
    ended_by_closing(&closing).await?;
    run.is_kept(&staying).await?;
    staying.release().await?;
    let Some(writer) = second.try_write(&name).await? else {
        return Err(Failure::new(format!("{closing:?} is still in the way after its connection was closed")));
    };
    writer.release().await?;
    Ok(())
}

pub(super) async fn close_gives_permits_back(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let [closing, staying] = [first.permit(&name, 2).await?, second.permit(&name, 2).await?];
    first.close(LIMIT).await??;
    ended_by_closing(&closing).await?;
    run.is_kept(&staying).await?;
    let Some(next) = second.try_permit(&name, 2).await? else {
        return Err(Failure::new(format!("{closing:?} is still in the way after its connection was closed")));
    };
    staying.release().await?;
    next.release().await?;
    Ok(())
}

pub(super) async fn drain_lets_holders_finish_and_nothing_begin(run: Arc<CaseRun>) -> CaseResult {
    let [held, awaited] = [run.name(), run.name()];
    let [first, second] = [run.connect().await?, run.connect().await?];
    let (guard, before) = (first.lock(&held).await?, second.lock(&awaited).await?);
    let waiter = tokio::spawn({
        let mutex = first.mutex(&awaited);
        async move { mutex.lock().await }
    });
    if second.supports(Feature::Queue) {
        in_line(&second, &awaited, 1).await?;
    }
    let draining = tokio::spawn({
        let locks = first.locks().clone();
        async move { locks.drain(LIMIT).await }
    });
    let waited = within("a wait on a connection that is drained", waiter).await??;
    ensure!(matches!(waited, Err(Error::Closed)), "a wait on a connection that is drained ended with {waited:?}");
    let refused = within("an acquisition", first.mutex(&run.name()).try_lock()).await?;
    ensure!(matches!(refused, Err(Error::Closed)), "an acquisition ended with {refused:?} while it was drained");
    // Not ended by the drain, and renewed.
    run.is_kept(&guard).await?;
    ensure!(!draining.is_finished(), "a drain ended while {guard:?} was held");
    guard.release().await?;
    let cut_off = within("a drain", draining).await??;
    ensure!(cut_off == 0, "{cut_off} guards were ended by a drain although their holders had released all");
    before.release().await?;
    first.close(LIMIT).await??;
    run.nothing_left(&held).await?;
    run.nothing_left(&awaited).await
}

pub(super) async fn drain_ends_what_is_held_at_its_limit(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    let cut_off = within("a drain", first.locks().drain(Duration::from_millis(50))).await?;
    ensure!(cut_off == 1, "{cut_off} guards were ended by a drain of one that is held");
    ended_by_closing(&guard).await?;
    first.close(LIMIT).await??;
    let Some(next) = second.try_lock(&name).await? else {
        return Err(Failure::new(format!("{guard:?} is still in the way after its connection was drained and closed")));
    };
    next.release().await?;
    Ok(())
}

async fn ended_by_closing<G: AnyGuard>(guard: &CheckedGuard<G>) -> CaseResult {
    ensure!(!guard.is_valid(), "{guard:?} is valid after its connection was closed");
    let loss = within("the news of the end", guard.lost()).await?;
    ensure!(loss == Loss::Closed, "a guard of a closed connection ended because {loss}");
    Ok(())
}
