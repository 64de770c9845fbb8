//! Semaphores: never more holders than permits, and none left out.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::task::{JoinHandle, JoinSet};

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::within,
    run::CaseRun,
};
use crate::{Error, LockName, Permit};

/// A wait limit that passes while all permits are held.
const SHORT: Duration = Duration::from_millis(150);

pub(super) async fn never_more_holders_than_permits_among_many_contenders(run: Arc<CaseRun>) -> CaseResult {
    contend(&run, 3, 24, 6).await
}

pub(super) async fn a_semaphore_of_one_permit_is_exclusive(run: Arc<CaseRun>) -> CaseResult {
    contend(&run, 1, 12, 5).await
}

/// Lets so many contenders each hold a permit so many times.
async fn contend(run: &CaseRun, permits: u32, contenders: usize, rounds: usize) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(4).await?;
    let most = usize::try_from(permits)?;
    // How many hold one: the servers' promise, seen without them.
    let inside = Arc::new(AtomicUsize::new(0));
    let mut contending = JoinSet::new();
    for contender in 0..contenders {
        let semaphore = clients[contender % clients.len()].semaphore(&name, permits);
        let inside = Arc::clone(&inside);
        contending.spawn(async move {
            for _ in 0..rounds {
                let permit = semaphore.acquire().await?;
                let beside = inside.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                ensure!(beside < most && permit.is_valid(), "{permit:?} was granted beside {beside} others");
                inside.fetch_sub(1, Ordering::SeqCst);
                permit.release().await?;
            }
            CaseResult::Ok(())
        });
    }
    while let Some(contender) = contending.join_next().await {
        contender??;
    }
    run.nothing_left(&name).await
}

pub(super) async fn a_permit_given_back_goes_to_a_waiter(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 2;
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let kept = first.permit(&name, OF).await?;
    for turn in 0..10 {
        let held = first.permit(&name, OF).await?;
        let waiter = spawn_contender(&second, &name, OF);
        // Released, or dropped.
        if turn % 2 == 0 {
            held.release().await?;
        } else {
            drop(held);
        }
        waiter.await??.release().await?;
        run.is_kept(&kept).await?;
    }
    kept.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn an_attempt_at_a_permit_takes_what_is_free_and_no_more(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 3;
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mut held = Vec::new();
    for turn in 0..OF {
        let client = if turn % 2 == 0 { &first } else { &second };
        let Some(permit) = client.try_permit(&name, OF).await? else {
            return Err(Failure::new(format!("with {turn} permits of {OF} held, none was free")));
        };
        held.push(permit);
    }
    for _ in 0..3 {
        ensure!(first.try_permit(&name, OF).await?.is_none(), "one permit too many was granted");
        ensure!(second.try_permit(&name, OF).await?.is_none(), "one permit too many was granted");
    }
    for permit in &held {
        run.is_kept(permit).await?;
    }
    held.remove(1).release().await?;
    let Some(permit) = second.try_permit(&name, OF).await? else {
        return Err(Failure::new("a permit that was given back is not free"));
    };
    held.push(permit);
    ensure!(first.try_permit(&name, OF).await?.is_none(), "one permit too many was granted");
    for permit in held {
        permit.release().await?;
    }
    run.nothing_left(&name).await
}

pub(super) async fn a_limited_wait_for_a_permit_ends_and_leaves_nothing(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let held = [first.permit(&name, 2).await?, first.permit(&name, 2).await?];
    for limit in [SHORT, Duration::ZERO, SHORT] {
        let semaphore = second.semaphore(&name, 2).with(|(semaphore, of)| (semaphore.timeout(limit), of));
        match within("a limited wait", semaphore.acquire()).await? {
            Err(Error::NotAcquired { .. }) => {}
            other => return Err(Failure::new(format!("a wait of {limit:?} for a permit ended with {other:?}"))),
        }
    }
    for permit in held {
        run.is_kept(&permit).await?;
        permit.release().await?;
    }
    run.nothing_left(&name).await
}

pub(super) async fn contenders_that_name_different_numbers_of_permits_are_refused_with_both(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for (there, asked) in [(17, 23), (23, 17)] {
        let permit = first.permit(&name, there).await?;
        // Some are free by either number: it is the disagreement that is refused.
        let refused = [
            within("an acquisition", second.semaphore(&name, asked).acquire()).await?.err(),
            within("an attempt", second.semaphore(&name, asked).try_acquire()).await?.err(),
            within("an acquisition", first.semaphore(&name, asked).acquire()).await?.err(),
        ];
        for error in refused {
            names_both(error.as_ref(), there, asked)?;
        }
        run.is_kept(&permit).await?;
        // Who agrees is let in.
        second.permit(&name, there).await?.release().await?;
        permit.release().await?;
        // Nobody is left: the next round begins with the other number.
        run.nothing_left(&name).await?;
    }
    Ok(())
}

fn names_both(error: Option<&Error>, there: u32, asked: u32) -> CaseResult {
    let said = error.map(ToString::to_string).unwrap_or_default();
    ensure!(
        matches!(error, Some(Error::Config { .. }))
            && [there, asked].iter().all(|number| said.contains(&number.to_string())),
        "beside a contender that names {there} permits, one that names {asked} got {error:?}"
    );
    Ok(())
}

pub(super) async fn a_semaphore_of_no_permits_is_refused(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect().await?;
    let refused = [
        within("an acquisition", client.semaphore(&name, 0).acquire()).await?.err(),
        within("an attempt", client.semaphore(&name, 0).try_acquire()).await?.err(),
    ];
    for error in refused {
        ensure!(matches!(error, Some(Error::Config { .. })), "a permit of none came back as {error:?}");
    }
    run.nothing_left(&name).await
}

pub(super) fn spawn_contender(
    client: &CheckedClient,
    name: &LockName,
    of: u32,
) -> JoinHandle<CaseResult<CheckedGuard<Permit>>> {
    let (client, name) = (client.clone(), name.clone());
    tokio::spawn(async move { client.permit(&name, of).await })
}
