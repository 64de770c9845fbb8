//! Futures that are dropped half-way: after their first poll, their second, and so on until one completes.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    client::Client,
    failure::{Outcome, ensure},
    held::Checked,
    limits::{DropWhen, PollAtMost, within},
    run::Run,
};
use super::ways::{Locking, OnlyPermit, Reading, Way, Writing};
use crate::LockName;

/// More polls than any operation takes; one that takes more wakes itself in a loop.
const MOST_POLLS: usize = 500;

/// How long a waiter is left alone before the lock is released to it. Not waited on by any check: whenever the release
/// comes, the promise is the same, and with it the waiter gets to its later polls.
const LEFT_ALONE: Duration = Duration::from_millis(25);

pub(super) async fn an_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(run: Arc<Run>) -> Outcome {
    uncontended::<Locking, Locking>(&run).await
}

pub(super) async fn an_attempt_without_waiting_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    without_waiting::<Locking, Locking>(&run, false).await?;
    without_waiting::<Locking, Locking>(&run, true).await
}

pub(super) async fn a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    behind::<Locking, Locking>(&run).await
}

pub(super) async fn a_release_dropped_after_any_poll_releases_all_the_same(run: Arc<Run>) -> Outcome {
    released::<Locking, Locking>(&run).await
}

pub(super) async fn an_acquisition_for_reading_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    uncontended::<Reading, Writing>(&run).await?;
    without_waiting::<Reading, Writing>(&run, false).await?;
    without_waiting::<Reading, Writing>(&run, true).await?;
    behind::<Reading, Writing>(&run).await
}

pub(super) async fn an_acquisition_for_writing_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    uncontended::<Writing, Reading>(&run).await?;
    without_waiting::<Writing, Reading>(&run, true).await?;
    behind::<Writing, Reading>(&run).await
}

pub(super) async fn the_acquisition_of_a_permit_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    uncontended::<OnlyPermit, OnlyPermit>(&run).await?;
    without_waiting::<OnlyPermit, OnlyPermit>(&run, false).await?;
    without_waiting::<OnlyPermit, OnlyPermit>(&run, true).await?;
    behind::<OnlyPermit, OnlyPermit>(&run).await
}

pub(super) async fn a_release_by_a_reader_dropped_after_any_poll_releases_all_the_same(run: Arc<Run>) -> Outcome {
    released::<Reading, Writing>(&run).await
}

pub(super) async fn a_release_of_a_permit_dropped_after_any_poll_releases_all_the_same(run: Arc<Run>) -> Outcome {
    released::<OnlyPermit, OnlyPermit>(&run).await
}

/// Drops an acquisition of something that is free; then somebody gets in who could not beside it.
async fn uncontended<W: Way, Probe: Way>(run: &Run) -> Outcome {
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
async fn without_waiting<W: Way, Holder: Way>(run: &Run, held: bool) -> Outcome {
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
async fn behind<W: Way, Holder: Way>(run: &Run) -> Outcome {
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
async fn released<W: Way, Probe: Way>(run: &Run) -> Outcome {
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

pub(super) async fn a_downgrade_dropped_after_any_poll_releases_the_lock(run: Arc<Run>) -> Outcome {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 0.. {
            ensure!(polls < MOST_POLLS, "a downgrade was polled {polls} times and did not complete");
            let writer = hold::<Writing>(&dropping, &name).await?;
            let downgrade = PollAtMost::new(polls, drop_when, writer.downgrade());
            let completed = within("a dropped downgrade", tokio::spawn(downgrade)).await??;
            let done = completed.is_some();
            if let Some(reader) = completed {
                reader?.release().await?;
            }
            blocks_nobody::<Writing>(&run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

async fn hold<W: Way>(client: &Client, name: &LockName) -> Outcome<Checked<W::Guard>> {
    Ok(within("an acquisition", W::wait(client, name)).await??)
}

/// Somebody else gets in, and then nothing is left.
async fn blocks_nobody<Probe: Way>(run: &Run, probing: &Client, name: &LockName) -> Outcome {
    let next = hold::<Probe>(probing, name).await;
    next.map_err(|error| Failure::new(format!("the next one was blocked: {error}")))?.release().await?;
    run.nothing_left(name).await
}
