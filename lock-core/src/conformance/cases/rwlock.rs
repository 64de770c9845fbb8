//! Readers beside each other, writers alone, and neither left out.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicI64, Ordering},
};

use tokio::task::{JoinHandle, JoinSet};

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use crate::{Feature, LockName, WriteGuard};

pub(super) async fn readers_share_the_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mut readers = vec![first.read(&name).await?, first.read(&name).await?, second.read(&name).await?];
    let Some(another) = second.try_read(&name).await? else {
        return Err(Failure::new("readers were refused beside readers"));
    };
    readers.push(another);
    for reader in &readers {
        run.is_kept(reader).await?;
    }
    // One that goes leaves the others their lock: released, and dropped.
    readers.remove(0).release().await?;
    drop(readers.remove(0));
    for reader in &readers {
        run.is_kept(reader).await?;
    }
    ensure!(first.try_write(&name).await?.is_none(), "a writer was granted beside readers");
    for reader in readers {
        reader.release().await?;
    }
    run.nothing_left(&name).await
}

pub(super) async fn a_writer_excludes_readers_and_other_writers(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    for _ in 0..5 {
        let writer = first.write(&name).await?;
        for client in [&first, &second] {
            ensure!(client.try_write(&name).await?.is_none(), "a writer was granted beside a writer");
            ensure!(client.try_read(&name).await?.is_none(), "a reader was granted beside a writer");
        }
        let waiting = [spawn_reader(&first, &name), spawn_reader(&second, &name)];
        run.is_kept(&writer).await?;
        writer.release().await?;
        for reader in waiting {
            reader.await??.release().await?;
        }
        run.nothing_left(&name).await?;
    }
    Ok(())
}

pub(super) async fn the_mutex_and_the_write_side_of_one_name_are_the_same_lock(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let writer = first.write(&name).await?;
    ensure!(second.try_lock(&name).await?.is_none(), "the mutex was granted beside a writer");
    writer.release().await?;
    let reader = first.read(&name).await?;
    ensure!(second.try_lock(&name).await?.is_none(), "the mutex was granted beside a reader");
    // It waits as a writer does.
    let waiter = tokio::spawn({
        let mutex = second.mutex(&name);
        async move { mutex.lock().await }
    });
    writer_waits(&first, &name).await?;
    reader.release().await?;
    let guard = within("the mutex behind a reader", waiter).await???;
    ensure!(first.try_read(&name).await?.is_none(), "a reader was granted beside the mutex");
    ensure!(first.try_write(&name).await?.is_none(), "a writer was granted beside the mutex");
    guard.release().await?;
    Ok(())
}

pub(super) async fn no_reader_is_beside_a_writer_among_8_readers_and_2_writers(run: Arc<CaseRun>) -> CaseResult {
    const READERS: usize = 8;
    const WRITERS: usize = 2;
    const ROUNDS: usize = 25;
    let name = run.name();
    let clients = run.connect_several(3).await?;
    // Readers inside, or -1 for a writer: the servers' promise, seen without them.
    let inside = Arc::new(AtomicI64::new(0));
    let mut contenders = JoinSet::new();
    for contender in 0..READERS + WRITERS {
        let (client, name, inside) = (clients[contender % clients.len()].clone(), name.clone(), Arc::clone(&inside));
        contenders.spawn(async move {
            for _ in 0..ROUNDS {
                let reads = contender < READERS;
                let held =
                    if reads { read(&client, &name, &inside).await } else { write(&client, &name, &inside).await };
                held?;
                for _ in 0..fastrand::usize(..4) {
                    tokio::task::yield_now().await;
                }
            }
            CaseResult::Ok(())
        });
    }
    while let Some(contender) = contenders.join_next().await {
        contender??;
    }
    Ok(())
}

async fn read(client: &CheckedClient, name: &LockName, inside: &AtomicI64) -> CaseResult {
    // Without the limit of a single wait: among many it may take its time.
    let reader = client.rwlock(name).read().await?;
    let before = inside.fetch_add(1, Ordering::SeqCst);
    tokio::task::yield_now().await;
    ensure!(before >= 0 && reader.is_valid(), "{reader:?} came in where {before} were");
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(reader.release().await?)
}

async fn write(client: &CheckedClient, name: &LockName, inside: &AtomicI64) -> CaseResult {
    let writer = client.rwlock(name).write().await?;
    let before = inside.fetch_sub(1, Ordering::SeqCst);
    tokio::task::yield_now().await;
    ensure!(before == 0 && writer.is_valid(), "{writer:?} came in where {before} were");
    inside.fetch_add(1, Ordering::SeqCst);
    Ok(writer.release().await?)
}

pub(super) async fn a_hundred_readers_hold_the_lock_at_once_and_a_writer_waits_for_all_of_them(
    run: Arc<CaseRun>,
) -> CaseResult {
    const READERS: usize = 100;
    let name = run.name();
    let clients = run.connect_several(4).await?;
    let mut reading = JoinSet::new();
    for reader in 0..READERS {
        let lock = clients[reader % clients.len()].rwlock(&name);
        reading.spawn(async move { lock.read().await });
    }
    let mut readers = Vec::with_capacity(READERS);
    while let Some(reader) = within("one reader of many", reading.join_next()).await? {
        readers.push(reader??);
    }
    // Without the limit of a single wait: it waits for as long as the readers are looked at one after the other.
    let waiting = clients[0].rwlock(&name);
    let mut writer = tokio::spawn(async move { waiting.write().await });
    writer_waits(&clients[1], &name).await?;
    for reader in readers {
        ensure!(!writer.is_finished(), "the writer got {:?} beside {reader:?}", (&mut writer).await);
        run.is_kept(&reader).await?;
        reader.release().await?;
    }
    within("a writer behind many readers", writer).await???.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_waiting_writer_is_granted_before_a_reader_that_came_later(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    for _ in 0..5 {
        let granted = Arc::new(Mutex::new(Vec::new()));
        let note = |who: &'static str| {
            let granted = Arc::clone(&granted);
            move || granted.lock().unwrap_or_else(PoisonError::into_inner).push(who)
        };
        let reader = clients[0].read(&name).await?;
        let writer = tokio::spawn({
            let (client, name, note) = (clients[1].clone(), name.clone(), note("the writer"));
            async move {
                let writer = client.write(&name).await?;
                note();
                CaseResult::Ok(writer.release().await?)
            }
        });
        writer_waits(&clients[0], &name).await?;
        let later = tokio::spawn({
            let (client, name, note) = (clients[2].clone(), name.clone(), note("the reader"));
            async move {
                let reader = client.read(&name).await?;
                note();
                CaseResult::Ok(reader.release().await?)
            }
        });
        // The reader has every chance to overtake while the first one still reads.
        if clients[0].supports(Feature::Queue) {
            eventually("the later reader waits, or was granted", || async {
                let waiting = clients[0].inspect(&name).await?.queue.len();
                Ok((waiting == 2 || later.is_finished()).then_some(()))
            })
            .await?;
        }
        for _ in 0..5 {
            ensure!(clients[2].try_read(&name).await?.is_none(), "an attempt to read overtook the waiting writer");
        }
        ensure!(!later.is_finished(), "a reader was granted although a writer waited before it came");
        reader.release().await?;
        writer.await??;
        later.await??;
        let order = granted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        ensure!(order == ["the writer", "the reader"], "granted were {order:?}");
    }
    Ok(())
}

pub(super) async fn an_attempt_to_read_behind_a_waiting_writer_is_refused_and_leaves_nothing(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    let reader = clients[0].read(&name).await?;
    let writer = spawn_writer(&clients[1], &name);
    writer_waits(&clients[2], &name).await?;
    for client in &clients {
        ensure!(client.try_read(&name).await?.is_none(), "an attempt to read overtook a waiting writer");
        ensure!(client.try_write(&name).await?.is_none(), "an attempt to write came in beside a reader");
    }
    run.is_kept(&reader).await?;
    reader.release().await?;
    let writer = writer.await??;
    // Had an attempt left anything, it would be there beside the writer.
    writer.release().await?;
    run.nothing_left(&name).await
}

pub(super) async fn a_readers_token_lies_between_those_of_the_writers_around_it(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    let mut last_writer = None;
    for _ in 0..20 {
        let writer = first.write(&name).await?;
        let before = writer.token();
        ensure!(last_writer < Some(before), "the writer's token {before} came after {last_writer:?}");
        writer.release().await?;
        let readers = [first.read(&name).await?, second.read(&name).await?];
        let tokens = readers.each_ref().map(|reader| reader.token());
        ensure!(tokens.iter().all(|token| *token > before), "readers got {tokens:?} after the writer's {before}");
        for reader in readers {
            reader.release().await?;
        }
        let writer = second.write(&name).await?;
        let after = writer.token();
        ensure!(tokens.iter().all(|token| *token < after), "readers got {tokens:?} before the writer's {after}");
        last_writer = Some(after);
        writer.release().await?;
    }
    Ok(())
}

/// Waits until a writer waits behind the readers that hold the lock: then nobody reads any more without waiting.
pub(super) async fn writer_waits(client: &CheckedClient, name: &LockName) -> CaseResult {
    eventually("a writer waits behind the readers", || async {
        match client.try_read(name).await? {
            Some(reader) => reader.release().await.map(|()| None).map_err(Failure::from),
            None => Ok(Some(())),
        }
    })
    .await
}

pub(super) fn spawn_reader(client: &CheckedClient, name: &LockName) -> JoinHandle<CaseResult<CheckedGuard>> {
    let (client, name) = (client.clone(), name.clone());
    tokio::spawn(async move { client.read(&name).await })
}

pub(super) fn spawn_writer(
    client: &CheckedClient,
    name: &LockName,
) -> JoinHandle<CaseResult<CheckedGuard<WriteGuard>>> {
    let (client, name) = (client.clone(), name.clone());
    tokio::spawn(async move { client.write(&name).await })
}
