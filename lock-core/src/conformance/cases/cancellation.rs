//! Futures that are dropped half-way: after their first poll, their second, and so on until one completes.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{DropWhen, PollAtMost, within},
    run::CaseRun,
};
use super::lock_kinds::{LockKind, MutexKind, ReaderKind, SinglePermitKind, WriterKind};
use crate::LockName;

/// More polls than any operation takes; one that takes more wakes itself in a loop.
const MOST_POLLS: usize = 500;

/// How long a waiter is left alone before the lock is released to it. Not waited on by any check: whenever the release
/// comes, the promise is the same, and with it the waiter gets to its later polls.
const LEFT_ALONE: Duration = Duration::from_millis(25);

pub(super) async fn an_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<CaseRun>,
) -> CaseResult {
    uncontended::<MutexKind, MutexKind>(&run).await
}

pub(super) async fn an_attempt_without_waiting_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<CaseRun>,
) -> CaseResult {
    without_waiting::<MutexKind, MutexKind>(&run, false).await?;
    without_waiting::<MutexKind, MutexKind>(&run, true).await
}

pub(super) async fn a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<CaseRun>,
) -> CaseResult {
    behind::<MutexKind, MutexKind>(&run).await
}

pub(super) async fn a_release_dropped_after_any_poll_releases_all_the_same(run: Arc<CaseRun>) -> CaseResult {
    released::<MutexKind, MutexKind>(&run).await
}

pub(super) async fn an_acquisition_for_reading_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<CaseRun>,
) -> CaseResult {
    uncontended::<ReaderKind, WriterKind>(&run).await?;
    without_waiting::<ReaderKind, WriterKind>(&run, false).await?;
    without_waiting::<ReaderKind, WriterKind>(&run, true).await?;
    behind::<ReaderKind, WriterKind>(&run).await
}

pub(super) async fn an_acquisition_for_writing_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<CaseRun>,
) -> CaseResult {
    uncontended::<WriterKind, ReaderKind>(&run).await?;
    without_waiting::<WriterKind, ReaderKind>(&run, true).await?;
    behind::<WriterKind, ReaderKind>(&run).await
}

pub(super) async fn the_acquisition_of_a_permit_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<CaseRun>,
) -> CaseResult {
    uncontended::<SinglePermitKind, SinglePermitKind>(&run).await?;
    without_waiting::<SinglePermitKind, SinglePermitKind>(&run, false).await?;
    without_waiting::<SinglePermitKind, SinglePermitKind>(&run, true).await?;
    behind::<SinglePermitKind, SinglePermitKind>(&run).await
}

pub(super) async fn a_release_by_a_reader_dropped_after_any_poll_releases_all_the_same(
    run: Arc<CaseRun>,
) -> CaseResult {
    released::<ReaderKind, WriterKind>(&run).await
}

pub(super) async fn a_release_of_a_permit_dropped_after_any_poll_releases_all_the_same(
    run: Arc<CaseRun>,
) -> CaseResult {
    released::<SinglePermitKind, SinglePermitKind>(&run).await
}

/// Drops an acquisition of something that is free; then somebody gets in who could not beside it.
async fn uncontended<W: LockKind, Probe: LockKind>(run: &CaseRun) -> CaseResult {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 1.. {
            ensure!(polls < MOST_POLLS, "an uncontended acquisition was polled {polls} times and did not complete");
            let attempt = PollAtMost::new(polls, drop_when, W::wait(&dropping, &name));
            let completed = within("a dropped acquisition", tokio::spawn(attempt)).await??;
            let done = completed.is_some();
            if let Some(guard) = completed {
                guard?.release().await?;
            }
            blocks_nobody::<Probe>(run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

/// Drops an attempt without waiting, on something that is free or held.
async fn without_waiting<W: LockKind, Holder: LockKind>(run: &CaseRun, held: bool) -> CaseResult {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 1.. {
            ensure!(polls < MOST_POLLS, "an attempt was polled {polls} times and did not complete");
            let holder = if held { Some(hold::<Holder>(&probing, &name).await?) } else { None };
            let attempt = PollAtMost::new(polls, drop_when, W::attempt(&dropping, &name));
            let completed = within("a dropped attempt", tokio::spawn(attempt)).await??;
            let done = completed.is_some();
            if let Some(guard) = completed.transpose()?.flatten() {
                ensure!(!held, "{guard:?} was granted beside another");
                guard.release().await?;
            }
            if let Some(holder) = holder {
                run.is_kept(&holder).await?;
                holder.release().await?;
            }
            blocks_nobody::<Holder>(run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

/// Drops an acquisition that waits behind a holder, who goes meanwhile.
async fn behind<W: LockKind, Holder: LockKind>(run: &CaseRun) -> CaseResult {
    let name = run.name();
    let [holding, dropping, probing] = [run.connect().await?, run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 1.. {
            ensure!(polls < MOST_POLLS, "a waiting acquisition was polled {polls} times and did not complete");
            let holder = hold::<Holder>(&holding, &name).await?;
            let attempt = PollAtMost::new(polls, drop_when, W::wait(&dropping, &name));
            let mut attempt = tokio::spawn(attempt);
            let ended = run.clock().timeout(LEFT_ALONE, &mut attempt).await;
            run.is_kept(&holder).await?;
            holder.release().await?;
            let completed = match ended {
                Some(completed) => completed?,
                None => within("a dropped waiter", attempt).await??,
            };
            let done = completed.is_some();
            if let Some(guard) = completed {
                guard?.release().await?;
            }
            blocks_nobody::<Holder>(run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

/// Drops a release.
async fn released<W: LockKind, Probe: LockKind>(run: &CaseRun) -> CaseResult {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        // With no poll at all, too.
        for polls in 0.. {
            ensure!(polls < MOST_POLLS, "a release was polled {polls} times and did not complete");
            let guard = hold::<W>(&dropping, &name).await?;
            let release = PollAtMost::new(polls, drop_when, guard.release());
            let completed = within("a dropped release", tokio::spawn(release)).await??;
            let done = completed.is_some();
            if let Some(released) = completed {
                released?;
            }
            blocks_nobody::<Probe>(run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

pub(super) async fn a_downgrade_dropped_after_any_poll_releases_the_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 0.. {
            ensure!(polls < MOST_POLLS, "a downgrade was polled {polls} times and did not complete");
            let writer = hold::<WriterKind>(&dropping, &name).await?;
            let downgrade = PollAtMost::new(polls, drop_when, writer.downgrade());
            let completed = within("a dropped downgrade", tokio::spawn(downgrade)).await??;
            let done = completed.is_some();
            if let Some(reader) = completed {
                reader?.release().await?;
            }
            blocks_nobody::<WriterKind>(&run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

async fn hold<W: LockKind>(client: &CheckedClient, name: &LockName) -> CaseResult<CheckedGuard<W::Guard>> {
    Ok(within("an acquisition", W::wait(client, name)).await??)
}

/// Somebody else gets in, and then nothing is left.
async fn blocks_nobody<Probe: LockKind>(run: &CaseRun, probing: &CheckedClient, name: &LockName) -> CaseResult {
    let next = hold::<Probe>(probing, name).await;
    next.map_err(|error| Failure::new(format!("the next one was blocked: {error}")))?.release().await?;
    run.nothing_left(name).await
}
