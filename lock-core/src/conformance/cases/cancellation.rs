//! Futures that are dropped half-way: after their first poll, their second, and so on until one completes.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    client::Client,
    failure::{Outcome, ensure},
    limits::{DropWhen, PollAtMost, within},
    run::Run,
};
use crate::{Clock, LockName};

/// More polls than any operation takes; one that takes more wakes itself in a loop.
const MOST_POLLS: usize = 500;

/// How long a waiter is left alone before the lock is released to it. Not waited on by any check: whenever the release
/// comes, the promise is the same, and with it the waiter gets to its later polls.
const LEFT_ALONE: Duration = Duration::from_millis(25);

pub(super) async fn an_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(run: Arc<Run>) -> Outcome {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 1.. {
            ensure!(polls < MOST_POLLS, "an uncontended acquisition was polled {polls} times and did not complete");
            let mutex = dropping.mutex(&name);
            let attempt = PollAtMost::new(polls, drop_when, async move { mutex.lock().await });
            let completed = within("a dropped acquisition", tokio::spawn(attempt)).await??;
            let done = completed.is_some();
            if let Some(guard) = completed {
                guard?.release().await?;
            }
            blocks_nobody(&run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

pub(super) async fn an_attempt_without_waiting_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for held in [false, true] {
            for polls in 1.. {
                ensure!(polls < MOST_POLLS, "an attempt was polled {polls} times and did not complete");
                let holder = if held { Some(probing.lock(&name).await?) } else { None };
                let mutex = dropping.mutex(&name);
                let attempt = PollAtMost::new(polls, drop_when, async move { mutex.try_lock().await });
                let completed = within("a dropped attempt", tokio::spawn(attempt)).await??;
                let done = completed.is_some();
                if let Some(guard) = completed.transpose()?.flatten() {
                    ensure!(!held, "{guard:?} was granted while another holds the lock");
                    guard.release().await?;
                }
                if let Some(holder) = holder {
                    run.is_kept(&holder).await?;
                    holder.release().await?;
                }
                blocks_nobody(&run, &probing, &name).await?;
                if done {
                    break;
                }
            }
        }
    }
    Ok(())
}

pub(super) async fn a_waiting_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_nobody(
    run: Arc<Run>,
) -> Outcome {
    let name = run.name();
    let [holding, dropping, probing] = [run.connect().await?, run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        for polls in 1.. {
            ensure!(polls < MOST_POLLS, "a waiting acquisition was polled {polls} times and did not complete");
            let holder = holding.lock(&name).await?;
            let mutex = dropping.mutex(&name);
            let attempt = PollAtMost::new(polls, drop_when, async move { mutex.lock().await });
            let mut attempt = tokio::spawn(attempt);
            let ended = Clock::boot().timeout(LEFT_ALONE, &mut attempt).await;
            holder.release().await?;
            let completed = match ended {
                Some(completed) => completed?,
                None => within("a dropped waiter", attempt).await??,
            };
            let done = completed.is_some();
            if let Some(guard) = completed {
                guard?.release().await?;
            }
            blocks_nobody(&run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

pub(super) async fn a_release_dropped_after_any_poll_releases_all_the_same(run: Arc<Run>) -> Outcome {
    let name = run.name();
    let [dropping, probing] = [run.connect().await?, run.connect().await?];
    for drop_when in [DropWhen::Polled, DropWhen::Woken] {
        // With no poll at all, too.
        for polls in 0.. {
            ensure!(polls < MOST_POLLS, "a release was polled {polls} times and did not complete");
            let guard = dropping.lock(&name).await?;
            let release = PollAtMost::new(polls, drop_when, async move { guard.release().await });
            let completed = within("a dropped release", tokio::spawn(release)).await??;
            let done = completed.is_some();
            if let Some(released) = completed {
                released?;
            }
            blocks_nobody(&run, &probing, &name).await?;
            if done {
                break;
            }
        }
    }
    Ok(())
}

/// Somebody else gets the lock, and then nothing is left.
async fn blocks_nobody(run: &Run, probing: &Client, name: &LockName) -> Outcome {
    let guard = probing.lock(name).await.map_err(|error| Failure::new(format!("the next one was blocked: {error}")))?;
    guard.release().await?;
    run.nothing_left(name).await
}
