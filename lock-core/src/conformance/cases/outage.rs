//! Servers out of reach: an answer within a limit, and order once they are back.

use std::{sync::Arc, time::Duration};

use super::super::{
    Down, Failure,
    failure::{CaseResult, ensure},
    limits::{eventually, within},
    run::CaseRun,
};
use super::waiting::in_line;
use crate::{Error, Feature};

pub(super) async fn a_backend_that_refuses_connections_is_unavailable_within_the_connect_limit(
    run: Arc<CaseRun>,
) -> CaseResult {
    unavailable_when(&run, Down::Refusing).await
}

pub(super) async fn a_backend_that_never_answers_is_unavailable_within_the_connect_limit(
    run: Arc<CaseRun>,
) -> CaseResult {
    unavailable_when(&run, Down::Silent).await
}

async fn unavailable_when(run: &CaseRun, down: Down) -> CaseResult {
    let name = run.name();
    let error = match run.connect_to_down(down).await? {
        Err(error) => error,
        // Connecting may be lazy; then the first acquisition finds out.
        Ok(locks) => {
            let acquired =
                within("an acquisition from servers that are down", locks.mutex(name.as_str()).lock()).await?;
            let closed = within("closing", locks.close(Duration::from_secs(1))).await?;
            ensure!(!matches!(closed, Err(Error::Lost { .. })), "closing found a lock lost");
            match acquired {
                Err(error) => error,
                Ok(guard) => return Err(Failure::new(format!("servers that are down granted {guard:?}"))),
            }
        }
    };
    ensure!(matches!(error, Error::Unavailable { .. }), "servers that are down were reported as: {error}");
    ensure!(error.is_temporary(), "an outage does not count as temporary: {error}");
    Ok(())
}

pub(super) async fn a_wait_that_outlasts_the_connect_limit_out_of_reach_ends_as_unavailable(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect_severable().await?];
    let guard = first.lock(&name).await?;
    let waiter = tokio::spawn({
        let mutex = second.mutex(&name);
        async move { mutex.lock().await }
    });
    if first.supports(Feature::Queue) {
        in_line(&first, &name, 1).await?;
    }
    second.cut().await?;
    match within("a wait without its servers", waiter).await?? {
        Err(Error::Unavailable { .. }) => {}
        other => return Err(Failure::new(format!("a wait without its servers ended with {other:?}"))),
    }
    second.heal().await;
    guard.release().await?;
    let again = eventually("the connection is of use again", || async {
        match within("an acquisition", second.mutex(&name).lock()).await? {
            Ok(guard) => Ok(Some(guard)),
            // It has not noticed yet.
            Err(Error::Unavailable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    });
    again.await?.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_wait_goes_on_when_the_backend_was_out_of_reach_for_a_moment(run: Arc<CaseRun>) -> CaseResult {
    /// Shorter than any outage that ends a wait.
    const MOMENT: Duration = Duration::from_millis(300);
    /// Longer than the outages that severable connections bridge.
    const AFTERWARDS: Duration = Duration::from_secs(12);
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect_severable().await?];
    let guard = first.lock(&name).await?;
    let waiter = tokio::spawn({
        let (client, name) = (second.clone(), name.clone());
        async move { client.lock(&name).await }
    });
    if first.supports(Feature::Queue) {
        in_line(&first, &name, 1).await?;
    }
    second.cut().await?;
    run.clock().sleep(MOMENT).await;
    second.heal().await;
    run.clock().sleep(AFTERWARDS).await;
    ensure!(!waiter.is_finished(), "a wait ended long after its servers were back: {:?}", waiter.await?);
    guard.release().await?;
    within("a wait whose servers are back", waiter).await???.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_wait_limit_ends_while_the_backend_cannot_be_reached(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect_severable().await?];
    let guard = first.lock(&name).await?;
    second.hold().await?;
    let waited = within("a limited wait", second.mutex(&name).timeout(Duration::from_millis(300)).lock()).await?;
    ensure!(
        matches!(waited, Err(Error::NotAcquired { .. } | Error::Unavailable { .. })),
        "a limited wait without its servers ended with {waited:?}"
    );
    guard.release().await?;
    second.heal().await;
    first.lock(&name).await?.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_waiter_that_died_does_not_hold_up_those_behind_it(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second, third] = [run.connect().await?, run.connect_severable().await?, run.connect().await?];
    let shown = first.supports(Feature::Queue);
    let guard = first.lock(&name).await?;
    let dying = tokio::spawn({
        let mutex = second.mutex(&name);
        async move { mutex.lock().await }
    });
    if shown {
        in_line(&first, &name, 1).await?;
    }
    // As good as dead: nothing that it sends arrives any more.
    second.hold().await?;
    let patient = tokio::spawn({
        let (client, name) = (third.clone(), name.clone());
        async move { client.lock(&name).await }
    });
    guard.release().await?;
    within("a wait behind a dead waiter", patient).await???.release().await?;
    second.heal().await;
    match within("the end of the dying waiter", dying).await?? {
        // It may have been granted out of reach, and lost before it was let through.
        Ok(guard) => drop(guard),
        Err(Error::Unavailable { .. } | Error::Lost { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    run.nothing_left(&name).await
}

pub(super) async fn close_ends_within_its_limit_while_the_backend_cannot_be_reached(run: Arc<CaseRun>) -> CaseResult {
    let [held, dropped] = [run.name(), run.name()];
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let guard = first.lock(&held).await?;
    let other = first.lock(&dropped).await?;
    first.hold().await?;
    drop(other);
    let closed = first.close(Duration::from_millis(200)).await?;
    ensure!(
        matches!(closed, Err(Error::Unavailable { .. })),
        "closing came back as {closed:?}, although a release cannot have arrived"
    );
    ensure!(!guard.is_valid(), "{guard:?} is valid after its connection was closed");
    drop(guard);
    first.heal().await;
    // What could not be released ends with its ttl at the latest.
    for name in [&held, &dropped] {
        second.lock(name).await?.release().await?;
        run.nothing_left(name).await?;
    }
    Ok(())
}
