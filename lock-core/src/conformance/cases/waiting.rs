//! Waiting: not at all, for a while, and what others see of it.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use crate::{Error, Feature, LockName};

/// A wait limit that passes while the lock is held.
const SHORT: Duration = Duration::from_millis(150);

/// That this acquisition was not granted in time.
pub(super) fn not_in_time(result: Result<CheckedGuard, Error>) -> CaseResult {
    match result {
        Err(Error::NotAcquired { .. }) => Ok(()),
        Err(other) => Err(Failure::new(format!("expected not to acquire in time, got: {other}"))),
        Ok(guard) => Err(Failure::new(format!("{guard:?} was granted while another holds the lock"))),
    }
}

/// Waits until nobody stands in line.
async fn nobody_in_line(client: &CheckedClient, name: &LockName) -> CaseResult {
    eventually("nobody stands in line", || async { Ok(client.inspect(name).await?.queue.is_empty().then_some(())) })
        .await
}

pub(super) async fn an_attempt_without_waiting_takes_a_free_lock_and_leaves_a_held_one_alone(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for _ in 0..20 {
        let guard = first.try_lock(&name).await?;
        let Some(guard) = guard else { return Err(Failure::new("a free lock was not granted")) };
        // It came back while the lock was held: it cannot have waited for it.
        ensure!(second.try_lock(&name).await?.is_none(), "a held lock was granted");
        ensure!(guard.is_valid(), "{guard:?} was lost to an attempt without waiting");
        nobody_in_line(&first, &name).await?;
        guard.release().await?;
    }
    Ok(())
}

pub(super) async fn a_wait_limit_ends_and_leaves_nothing_on_the_server(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let guard = first.lock(&name).await?;
    for _ in 0..3 {
        not_in_time(within("a limited wait", second.mutex(&name).timeout(SHORT).lock()).await?)?;
        nobody_in_line(&first, &name).await?;
    }
    run.is_kept(&guard).await?;
    guard.release().await?;
    run.nothing_left(&name).await?;
    // A limit that does not pass changes nothing.
    let guard = within("an acquisition", second.mutex(&name).timeout(Duration::from_secs(20)).lock()).await??;
    guard.release().await?;
    Ok(())
}

pub(super) async fn a_wait_limit_of_zero_takes_a_free_lock_or_leaves_nothing(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    match within("a wait of no time", first.mutex(&name).timeout(Duration::ZERO).lock()).await? {
        Ok(guard) => guard.release().await?,
        Err(error) => not_in_time(Err(error))?,
    }
    run.nothing_left(&name).await?;
    let guard = first.lock(&name).await?;
    not_in_time(within("a wait of no time", second.mutex(&name).timeout(Duration::ZERO).lock()).await?)?;
    guard.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_waiter_that_gave_up_does_not_hold_up_those_behind_it(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    let shown = clients[0].supports(Feature::Queue);
    let guard = clients[0].lock(&name).await?;
    // It waits without a limit and is dropped once the next one stands behind it.
    let quitter = tokio::spawn({
        let mutex = clients[1].mutex(&name);
        async move { mutex.lock().await }
    });
    if shown {
        in_line(&clients[0], &name, 1).await?;
    }
    let patient = tokio::spawn({
        let (client, name) = (clients[2].clone(), name.clone());
        async move { client.lock(&name).await }
    });
    if shown {
        in_line(&clients[0], &name, 2).await?;
    }
    quitter.abort();
    let _ = quitter.await;
    if shown {
        in_line(&clients[0], &name, 1).await?;
    }
    guard.release().await?;
    patient.await??.release().await?;
    Ok(())
}

/// Waits until so many stand in line.
pub(super) async fn in_line(client: &CheckedClient, name: &LockName, waiters: usize) -> CaseResult {
    eventually("so many stand in line", || async {
        Ok((client.inspect(name).await?.queue.len() == waiters).then_some(()))
    })
    .await
}

pub(super) async fn a_look_at_a_lock_shows_its_holder_and_its_payload(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    ensure!(second.inspect(&name).await?.holders.is_empty(), "a free lock shows a holder");
    let payload = "host-7 \u{1F512} \0\n\"quoted\"".as_bytes();
    let guard = within("an acquisition", first.mutex(&name).payload(payload).lock()).await??;
    let seen = second.inspect(&name).await?;
    let [holder] = seen.holders.as_slice() else {
        return Err(Failure::new(format!("a held lock shows as {seen:?}")));
    };
    ensure!(!holder.id.is_empty(), "the holder has no identity");
    ensure!(holder.payload == payload, "the holder's payload shows as {:?}", String::from_utf8_lossy(&holder.payload));
    ensure!(holder.token.is_none_or(|token| token == guard.token().number), "the token shows as {:?}", holder.token);
    ensure!(seen.queue.is_empty(), "nobody waits, and the queue shows as {:?}", seen.queue);
    guard.release().await?;
    ensure!(second.inspect(&name).await?.holders.is_empty(), "a released lock shows a holder");
    Ok(())
}
