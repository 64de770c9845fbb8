//! Limits of holding: a maximum time, and a lock that stays closed after a loss.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    failure::{CaseResult, ensure},
    guards::{AnyGuard, CheckedGuard},
    limits::within,
    run::CaseRun,
};
use super::lock_kinds::{LockKind, MutexKind, SinglePermitKind, WriterKind};
use crate::{BootInstant, Error, Guard, Loss};

/// Longer than a lease's end and its margin differ by far, shorter than a ttl.
const DELAY: Duration = Duration::from_secs(1);

pub(super) async fn a_lock_delay_keeps_the_lock_closed_after_its_holder_was_lost(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let mutex = first.mutex(&name).with(|mutex| mutex.lock_delay(DELAY));
    let guard = within("an acquisition", mutex.lock()).await??;
    first.hold().await?;
    opens_after_its_delay(&run, guard, MutexKind::wait(&second, &name)).await?;
    first.heal().await;
    run.nothing_left(&name).await
}

pub(super) async fn the_delay_of_a_reader_that_was_lost_keeps_writers_out(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let lock = first.rwlock(&name).with(|lock| lock.lock_delay(DELAY));
    let reader = within("an acquisition", lock.read()).await??;
    first.hold().await?;
    opens_after_its_delay(&run, reader, WriterKind::wait(&second, &name)).await?;
    first.heal().await;
    run.nothing_left(&name).await
}

pub(super) async fn the_delay_of_a_lost_permit_keeps_its_place_taken(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_severable().await?, run.connect().await?];
    let semaphore = first.semaphore(&name, 1).with(|(semaphore, of)| (semaphore.lock_delay(DELAY), of));
    let permit = within("an acquisition", semaphore.acquire()).await??;
    first.hold().await?;
    opens_after_its_delay(&run, permit, SinglePermitKind::wait(&second, &name)).await?;
    first.heal().await;
    run.nothing_left(&name).await
}

/// Follows a holder that is out of reach to its end, and the next one to its grant: which does not come before the delay
/// is over.
async fn opens_after_its_delay<G, H, F>(run: &CaseRun, lost: CheckedGuard<G>, next: F) -> CaseResult
where
    G: AnyGuard,
    H: AnyGuard,
    F: Future<Output = Result<CheckedGuard<H>, Error>> + Send + 'static,
{
    let clock = run.clock();
    let waiter = tokio::spawn(async move { (next.await, clock.now()) });
    // Nothing renews it but what was under way: the servers keep it at least until its last deadline.
    let mut ended = lost.valid_until();
    while let Some(until) = lost.valid_until() {
        ended = Some(until);
        clock.sleep_until(until).await;
    }
    let Some(ended) = ended else { return Err(Failure::new("the lock was lost at once")) };
    let (next, granted) = within("the next grant", waiter).await??;
    let next = next?;
    ensure!(
        granted >= ended.saturating_add(DELAY),
        "the lease ended at {ended:?} or later, and after a delay of {DELAY:?} the next was granted at {granted:?}"
    );
    run.is_kept(&next).await?;
    Ok(next.release().await?)
}

pub(super) async fn a_release_in_order_ends_a_lock_delay_at_once(run: Arc<CaseRun>) -> CaseResult {
    /// Longer than anything is waited for here.
    const LONG_DELAY: Duration = Duration::from_secs(600);
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mutex = first.mutex(&name).with(|mutex| mutex.lock_delay(LONG_DELAY));
    let guard = within("an acquisition", mutex.lock()).await??;
    guard.release().await?;
    let Some(next) = second.try_lock(&name).await? else {
        return Err(Failure::new("a lock that was released in order is still closed by its delay"));
    };
    next.release().await?;
    // To a waiter, and after a drop.
    let guard = within("an acquisition", mutex.lock()).await??;
    let waiter = tokio::spawn({
        let (client, name) = (second.clone(), name.clone());
        async move { client.lock(&name).await }
    });
    drop(guard);
    waiter.await??.release().await?;
    run.nothing_left(&name).await
}

/// A time that a guard is held for at most.
const AT_MOST: Duration = Duration::from_millis(300);

pub(super) async fn a_guard_ends_after_its_maximum_time_and_the_lock_is_free_for_the_next_one(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mutex = first.mutex(&name).with(|mutex| mutex.max_hold(AT_MOST));
    let asked = run.clock().now();
    let guard = within("an acquisition", mutex.lock()).await??;
    ends_by_its_clock(&guard, asked).await?;
    // The guard still lives, and holds up nobody.
    second.lock(&name).await?.release().await?;
    was_held_too_long(guard).await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_reader_ends_after_its_maximum_time(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let lock = first.rwlock(&name).with(|lock| lock.max_hold(AT_MOST));
    let asked = run.clock().now();
    let guard = within("an acquisition", lock.read()).await??;
    ends_by_its_clock(&guard, asked).await?;
    second.write(&name).await?.release().await?;
    was_held_too_long(guard).await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_permit_ends_after_its_maximum_time(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let semaphore = first.semaphore(&name, 1).with(|(semaphore, of)| (semaphore.max_hold(AT_MOST), of));
    let asked = run.clock().now();
    let permit = within("an acquisition", semaphore.acquire()).await??;
    ends_by_its_clock(&permit, asked).await?;
    second.permit(&name, 1).await?.release().await?;
    was_held_too_long(permit).await?;
    run.nothing_left(&name).await
}

/// It ends when its maximum time is over, and not before.
async fn ends_by_its_clock(guard: &Guard, asked: BootInstant) -> CaseResult {
    let clock = guard.validity().clock();
    let latest = clock.now().saturating_add(AT_MOST);
    ensure!(
        guard.valid_until().is_none_or(|until| until <= latest),
        "a guard to be held for {AT_MOST:?}, until {latest:?} at the latest, says {guard:?}"
    );
    let loss = within("the end of the maximum time", guard.lost()).await?;
    let ended = clock.now();
    ensure!(loss == Loss::MaxHoldExceeded, "a guard that was held for its maximum time ended because {loss}");
    ensure!(ended >= asked.saturating_add(AT_MOST), "asked for at {asked:?}, ended at {ended:?}");
    ensure!(!guard.is_valid(), "{guard:?} is valid after its end");
    Ok(())
}

async fn was_held_too_long<G: AnyGuard>(guard: CheckedGuard<G>) -> CaseResult {
    match within("a release", guard.release()).await? {
        Err(Error::Lost { loss: Loss::MaxHoldExceeded, .. }) => Ok(()),
        other => Err(Failure::new(format!("a release after the maximum time came back as {other:?}"))),
    }
}

pub(super) async fn a_release_before_the_maximum_time_is_an_ordinary_one(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mutex = first.mutex(&name).with(|mutex| mutex.max_hold(Duration::from_secs(600)));
    let guard = within("an acquisition", mutex.lock()).await??;
    let successor = tokio::spawn({
        let (client, name) = (second.clone(), name.clone());
        async move { client.lock(&name).await }
    });
    guard.release().await?;
    let successor = successor.await??;
    let soon = first.mutex(&name).with(|mutex| mutex.max_hold(AT_MOST).timeout(Duration::from_millis(100)));
    let waited = within("a limited wait", soon.lock()).await?;
    ensure!(matches!(waited, Err(Error::NotAcquired { .. })), "beside a holder a wait ended with {waited:?}");
    // The limits of those before do not end its hold.
    run.clock().sleep(AT_MOST * 2).await;
    run.is_kept(&successor).await?;
    successor.release().await?;
    run.nothing_left(&name).await
}
