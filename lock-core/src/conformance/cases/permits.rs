//! Permits of those that give up, die, or lose them; and who is next.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinSet;

use super::super::{
    Failure, Kept,
    failure::{CaseResult, ensure},
    limits::{LIMIT, eventually, within},
    run::CaseRun,
};
use super::{semaphore::spawn_contender, waiting::in_line};
use crate::{Error, Feature, Loss};

pub(super) async fn as_many_waiters_are_granted_as_permits_are_given_back(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 3;
    let name = run.name();
    let clients = run.connect_several(3).await?;
    for _ in 0..5 {
        let mut held = Vec::new();
        for client in &clients {
            held.push(client.permit(&name, OF).await?);
        }
        let waiting: Vec<_> = clients.iter().map(|client| spawn_contender(client, &name, OF)).collect();
        // All at once: no wake-up may stand for two.
        drop(held);
        let mut granted = Vec::new();
        for waiter in waiting {
            granted.push(waiter.await??);
        }
        for permit in granted {
            run.is_kept(&permit).await?;
            permit.release().await?;
        }
        run.nothing_left(&name).await?;
    }
    Ok(())
}

pub(super) async fn a_permit_that_is_freed_while_the_first_waiter_gives_up_goes_to_the_next(
    run: Arc<CaseRun>,
) -> CaseResult {
    const OF: u32 = 2;
    let name = run.name();
    let clients = run.connect_several(3).await?;
    let shown = clients[0].supports(Feature::Queue);
    let kept = clients[0].permit(&name, OF).await?;
    for turn in 0..10 {
        let held = clients[0].permit(&name, OF).await?;
        let quitter = spawn_contender(&clients[1], &name, OF);
        if shown {
            in_line(&clients[0], &name, 1).await?;
        }
        let patient = spawn_contender(&clients[2], &name, OF);
        if shown {
            in_line(&clients[0], &name, 2).await?;
        }
        // In one moment, by turns the one or the other first.
        if turn % 2 == 0 {
            quitter.abort();
            drop(held);
        } else {
            drop(held);
            quitter.abort();
        }
        // The first waiter may have been granted before it went: then its permit comes back at once.
        if let Ok(granted) = quitter.await {
            granted?.release().await?;
        }
        patient.await??.release().await?;
        run.is_kept(&kept).await?;
    }
    kept.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn permits_go_to_waiters_in_the_order_of_their_arrival(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 2;
    const WAITERS: usize = 6;
    let name = run.name();
    let clients = run.connect_several(3).await?;
    // One permit stays where it is; the other goes through all hands.
    let [kept, passing] = [clients[0].permit(&name, OF).await?, clients[1].permit(&name, OF).await?];
    let granted = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for waiter in 0..WAITERS {
        let (client, name, granted) = (clients[waiter % clients.len()].clone(), name.clone(), Arc::clone(&granted));
        waiters.spawn({
            let name = name.clone();
            async move {
                let permit = client.permit(&name, OF).await?;
                granted.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
                CaseResult::Ok(permit.release().await?)
            }
        });
        in_line(&clients[0], &name, waiter + 1).await?;
    }
    // Who comes without waiting does not come before them.
    ensure!(clients[2].try_permit(&name, OF).await?.is_none(), "one permit too many was granted");
    passing.release().await?;
    while let Some(waiter) = waiters.join_next().await {
        waiter??;
    }
    let granted = granted.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure!(granted.iter().copied().eq(0..WAITERS), "the order of grants was {granted:?}");
    kept.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn the_semaphore_and_the_lock_of_one_name_have_nothing_to_do_with_each_other(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let permit = first.permit(&name, 1).await?;
    let guard = second.lock(&name).await?;
    ensure!(first.try_lock(&name).await?.is_none(), "the lock was granted twice");
    ensure!(second.try_permit(&name, 1).await?.is_none(), "the permit was granted twice");
    permit.release().await?;
    ensure!(guard.is_valid(), "the release of a permit cost the lock");
    ensure!(first.try_lock(&name).await?.is_none(), "the release of a permit let go of the lock");
    let permit = second.permit(&name, 1).await?;
    guard.release().await?;
    ensure!(permit.is_valid(), "the release of the lock cost the permit");
    ensure!(first.try_permit(&name, 1).await?.is_none(), "the release of the lock let go of the permit");
    if first.supports(Feature::ReadWrite) {
        let reader = first.read(&name).await?;
        permit.release().await?;
        ensure!(second.try_write(&name).await?.is_none(), "the release of a permit let go of a reader");
        reader.release().await?;
    } else {
        permit.release().await?;
    }
    run.nothing_left(&name).await
}

pub(super) async fn the_permit_of_a_dead_holder_comes_back_and_only_that(run: Arc<CaseRun>) -> CaseResult {
    const OF: u32 = 2;
    let name = run.name();
    let [dying, living, third] = [run.connect_severable().await?, run.connect_severable().await?, run.connect().await?];
    let dead = dying.permit(&name, OF).await?;
    let alive = living.permit(&name, OF).await?;
    dying.hold().await?;
    let next = third.permit(&name, OF).await?;
    ensure!(!dead.is_valid(), "{dead:?} is valid after the next grant");
    ensure!(run.kept(&dead).await? == Kept::Gone, "the servers have {dead:?} beside {alive:?} and {next:?}");
    let beyond = alive.valid_until();
    eventually("the holder that lives is renewed", || async {
        ensure!(alive.is_valid(), "{alive:?} was lost after another holder");
        Ok((alive.valid_until() > beyond).then_some(()))
    })
    .await?;
    // The dead one comes back, and takes nobody's permit along when it goes.
    dying.heal().await;
    match within("a late release", dead.release()).await? {
        Err(Error::Lost { .. }) => {}
        other => return Err(Failure::new(format!("the release of a lost permit came back as {other:?}"))),
    }
    dying.close(LIMIT).await??;
    for permit in [&alive, &next] {
        run.is_kept(permit).await?;
    }
    ensure!(third.try_permit(&name, OF).await?.is_none(), "a late release let go of another's permit");
    alive.release().await?;
    next.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_contender_that_died_does_not_hold_up_those_who_wait_for_a_permit_behind_it(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, dying, third] = [run.connect().await?, run.connect_severable().await?, run.connect().await?];
    let shown = first.supports(Feature::Queue);
    let permit = first.permit(&name, 1).await?;
    let dead = spawn_contender(&dying, &name, 1);
    if shown {
        in_line(&first, &name, 1).await?;
    }
    dying.hold().await?;
    let patient = spawn_contender(&third, &name, 1);
    permit.release().await?;
    patient.await??.release().await?;
    dying.heal().await;
    match within("the end of the dying contender", dead).await? {
        // It may have been granted out of reach, and lost before it was let through.
        Ok(Ok(granted)) => drop(granted),
        Ok(Err(_)) => {}
        Err(error) => return Err(error.into()),
    }
    run.nothing_left(&name).await
}

pub(super) async fn a_deleted_permit_is_noticed_as_lost(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect_watchful().await?;
    let permits = [client.permit(&name, 2).await?, client.permit(&name, 2).await?];
    run.delete(&name).await?;
    for permit in permits {
        let loss = within("the news that the permit was deleted", permit.lost()).await?;
        ensure!(loss == Loss::Revoked, "a deleted permit was lost because {loss}");
        match within("a release", permit.release()).await? {
            Err(Error::Lost { .. }) => {}
            other => return Err(Failure::new(format!("the release of a lost permit came back as {other:?}"))),
        }
    }
    // All are free again, and another number is fine.
    run.nothing_left(&name).await?;
    client.permit(&name, 1).await?.release().await?;
    Ok(())
}
