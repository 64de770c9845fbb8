//! Readers and writers that give up, die, or lose their lock.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::super::{
    Failure, Kept,
    failure::{CaseResult, ensure},
    limits::{LIMIT, eventually, within},
    run::CaseRun,
};
use super::rwlock::{spawn_reader, spawn_writer, writer_waits};
use crate::{Error, Loss};

pub(super) async fn a_writer_that_gives_up_lets_the_readers_behind_it_in(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    let first = clients[0].read(&name).await?;
    for turn in 0..3 {
        // It is dropped in the middle of its wait.
        let writer = spawn_writer(&clients[1], &name);
        writer_waits(&clients[2], &name).await?;
        let behind = [spawn_reader(&clients[2], &name), spawn_reader(&clients[0], &name)];
        writer.abort();
        ensure!(writer.await.is_err(), "a writer was granted beside {first:?}");
        for reader in behind {
            reader.await??.release().await?;
        }
        run.is_kept(&first).await?;
        // Its wait limit passes.
        let limit = Duration::from_millis(50 << (2 * turn));
        let limited = clients[1].rwlock(&name).with(|lock| lock.timeout(limit));
        let writer = tokio::spawn(async move { limited.write().await });
        let behind = spawn_reader(&clients[2], &name);
        match within("a limited wait", writer).await?? {
            Err(Error::NotAcquired { .. }) => {}
            other => return Err(Failure::new(format!("beside a reader a limited wait to write ended with {other:?}"))),
        }
        behind.await??.release().await?;
    }
    run.is_kept(&first).await?;
    first.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn writers_are_granted_although_readers_never_stop_coming(run: Arc<CaseRun>) -> CaseResult {
    const READERS: usize = 4;
    let name = run.name();
    let clients = run.connect_several(2).await?;
    let over = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (client, name, over) = (clients[reader % clients.len()].clone(), name.clone(), Arc::clone(&over));
        readers.spawn(async move {
            // The next one is asked for before the last one goes: on their own they would never leave a gap.
            let mut held = client.read(&name).await?;
            while !over.load(Ordering::Relaxed) {
                let next = spawn_reader(&client, &name);
                tokio::task::yield_now().await;
                held.release().await?;
                held = next.await??;
            }
            CaseResult::Ok(held.release().await?)
        });
    }
    for turn in 0..4 {
        clients[turn % clients.len()].write(&name).await?.release().await?;
    }
    over.store(true, Ordering::Relaxed);
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    run.nothing_left(&name).await
}

pub(super) async fn a_reader_that_died_holds_up_a_writer_no_longer_than_its_lease(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [dying, second] = [run.connect_severable().await?, run.connect().await?];
    let dead = dying.read(&name).await?;
    dying.hold().await?;
    let writer = second.write(&name).await?;
    ensure!(!dead.is_valid(), "{dead:?} is valid beside a writer");
    run.is_kept(&writer).await?;
    let loss = within("the news of the loss", dead.lost()).await?;
    ensure!(
        matches!(loss, Loss::Expired | Loss::Unreachable | Loss::SessionEnded),
        "a reader that could not be renewed was lost because {loss}"
    );
    // Nor does it come back, or take anything with it when it goes.
    dying.heal().await;
    match within("a late release", dead.release()).await? {
        Err(Error::Lost { .. }) => {}
        other => return Err(Failure::new(format!("the release of a lost reader came back as {other:?}"))),
    }
    dying.close(LIMIT).await??;
    run.is_kept(&writer).await?;
    ensure!(second.try_read(&name).await?.is_none(), "a late release by a reader let another in beside a writer");
    writer.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn each_readers_lease_is_its_own(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [dying, living, third] = [run.connect_severable().await?, run.connect_severable().await?, run.connect().await?];
    let dead = dying.read(&name).await?;
    let alive = living.read(&name).await?;
    dying.hold().await?;
    let writer = spawn_writer(&third, &name);
    // The renewals of the one do not keep the other.
    eventually("a dead reader's lease ends beside one that is renewed", || async {
        ensure!(alive.is_valid(), "{alive:?} was lost with another reader");
        Ok((run.kept(&dead).await? == Kept::Gone).then_some(()))
    })
    .await?;
    ensure!(!dead.is_valid(), "{dead:?} is valid after its end on the servers");
    // The end of the one does not take the other along, in more than its ttl.
    let beyond = alive.valid_until();
    eventually("the reader that lives is renewed", || async {
        ensure!(alive.is_valid(), "{alive:?} was lost after another reader");
        Ok((alive.valid_until() > beyond).then_some(()))
    })
    .await?;
    run.is_kept(&alive).await?;
    ensure!(!writer.is_finished(), "a writer was granted beside {alive:?}");
    alive.release().await?;
    writer.await??.release().await?;
    drop(dead);
    dying.heal().await;
    run.nothing_left(&name).await
}

pub(super) async fn a_writer_that_died_while_it_waited_does_not_keep_readers_out(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, dying, third] = [run.connect().await?, run.connect_severable().await?, run.connect().await?];
    let reader = first.read(&name).await?;
    let writer = spawn_writer(&dying, &name);
    writer_waits(&third, &name).await?;
    dying.hold().await?;
    // Nobody gives anything back: the next reader comes in because the dead writer's place has ended.
    let behind = third.read(&name).await?;
    run.is_kept(&reader).await?;
    reader.release().await?;
    behind.release().await?;
    dying.heal().await;
    match within("the end of the dying writer", writer).await? {
        // It may have come back in time to be granted, or found out that it was out of reach.
        Ok(Ok(granted)) => drop(granted),
        Ok(Err(_)) => {}
        Err(error) => return Err(error.into()),
    }
    run.nothing_left(&name).await
}

pub(super) async fn a_deleted_reader_is_noticed_as_lost(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect_watchful().await?, run.connect_watchful().await?];
    let readers = [first.read(&name).await?, second.read(&name).await?, second.read(&name).await?];
    run.delete(&name).await?;
    for reader in &readers {
        let loss = within("the news that the lock was deleted", reader.lost()).await?;
        ensure!(loss == Loss::Revoked, "a deleted reader was lost because {loss}");
    }
    for reader in readers {
        match within("a release", reader.release()).await? {
            Err(Error::Lost { .. }) => {}
            other => return Err(Failure::new(format!("the release of a lost reader came back as {other:?}"))),
        }
    }
    first.write(&name).await?.release().await?;
    run.nothing_left(&name).await
}
