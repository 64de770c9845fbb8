//! What is made of locks without the servers' knowledge: locks that their owner takes again, several at once, and
//! operations that count only under a lock.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::task::JoinSet;

use super::super::{
    Failure,
    failure::{CaseResult, ensure},
    limits::within,
    run::CaseRun,
};
use crate::{Cause, Error, FencingToken, Guard, LockName, Operation, Owner};

pub(super) async fn an_owner_takes_its_lock_again_and_the_last_of_its_guards_releases_it(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let [first, second] = [run.connect().await?, run.connect().await?];
    first.uses(&name);
    let (owner, other) = (Owner::new(), Owner::new());
    let lock = first.locks().mutex(name.as_str()).reentrant(&owner);
    let outer = within("an acquisition", lock.lock()).await??;
    let inner = within("a nested acquisition", lock.lock()).await??;
    ensure!(inner.token() == outer.token(), "the nested guard has token {}, not {}", inner.token(), outer.token());
    let others = first.locks().mutex(name.as_str()).reentrant(&other);
    for guard in [outer, inner] {
        ensure!(guard.is_valid(), "{guard:?} is lost");
        ensure!(within("an attempt", others.try_lock()).await??.is_none(), "another owner was let in");
        ensure!(second.try_lock(&name).await?.is_none(), "another connection was let in");
        guard.release().await?;
    }
    run.nothing_left(&name).await?;
    second.lock(&name).await?.release().await?;
    Ok(())
}

pub(super) async fn several_locks_are_taken_all_or_none(run: Arc<CaseRun>) -> CaseResult {
    let mut names = [run.name(), run.name(), run.name()];
    names.sort();
    let [first, second] = [run.connect().await?, run.connect().await?];
    names.iter().for_each(|name| first.uses(name));
    // Given in no order.
    let all = first.locks().multi([&names[2], &names[0], &names[1]].map(LockName::as_str));
    // The last one is held: those before it are given back.
    let held = second.lock(&names[2]).await?;
    ensure!(within("an attempt", all.try_lock()).await??.is_none(), "all were granted, and one is held by another");
    for name in &names[..2] {
        run.nothing_left(name).await?;
    }
    let waited = within("a limited wait", all.clone().timeout(Duration::from_millis(150)).lock()).await?;
    ensure!(matches!(waited, Err(Error::NotAcquired { .. })), "a wait for all of them ended with {waited:?}");
    for name in &names[..2] {
        run.nothing_left(name).await?;
    }
    run.is_kept(&held).await?;
    let waiting = tokio::spawn(async move { all.lock().await });
    held.release().await?;
    let guard = within("all of them", waiting).await???;
    for name in &names {
        ensure!(second.try_lock(name).await?.is_none(), "{name:?} was granted to another beside {guard:?}");
    }
    // Read in this order: what is read later can only be later.
    let whole = guard.valid_until();
    let each: Vec<_> = names.iter().filter_map(|name| guard.guard(name.as_str())).map(Guard::valid_until).collect();
    ensure!(
        each.len() == 3 && each.iter().all(|one| *one >= whole),
        "valid until {whole:?} in all, until {each:?} each"
    );
    guard.release().await?;
    for name in &names {
        run.nothing_left(name).await?;
    }
    Ok(())
}

pub(super) async fn contenders_for_the_same_locks_in_any_order_do_not_wait_for_each_other(
    run: Arc<CaseRun>,
) -> CaseResult {
    const ROUNDS: usize = 10;
    let names = [run.name(), run.name(), run.name()];
    let clients = run.connect_several(2).await?;
    let mut contenders = JoinSet::new();
    for contender in 0..6 {
        let client = clients[contender % clients.len()].clone();
        let mut names = names.clone();
        names.rotate_left(contender % 3);
        contenders.spawn(async move {
            names.iter().for_each(|name| client.uses(name));
            let two = client.locks().multi(names[..2].iter().map(LockName::as_str));
            for _ in 0..ROUNDS {
                within("two locks", two.lock()).await??.release().await?;
            }
            CaseResult::Ok(())
        });
    }
    while let Some(contender) = contenders.join_next().await {
        contender??;
    }
    Ok(())
}

pub(super) async fn an_operation_counts_under_a_lock_and_is_undone_when_the_lock_is_lost(
    run: Arc<CaseRun>,
) -> CaseResult {
    let name = run.name();
    let client = run.connect_watchful().await?;
    let state = Arc::new(Mutex::new(String::from("before")));
    let seen = |state: &Mutex<String>| state.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let guard = client.lock(&name).await?;
    let work = TextUpdate { state: Arc::clone(&state), becomes: "after", endless: false };
    let committed = within("an operation", guard.transact(work)).await?;
    ensure!(committed.as_ref().is_ok_and(|done| done.late.is_none()), "an operation came to {committed:?}");
    ensure!(seen(&state) == "after", "an operation that counts left {:?}", seen(&state));
    // It is cut off in the middle, and its traces are gone.
    let work = TextUpdate { state: Arc::clone(&state), becomes: "in vain", endless: true };
    let (abandoned, deleted) = tokio::join!(within("an operation", guard.transact(work)), run.delete(&name));
    deleted?;
    is_lost(&abandoned?)?;
    ensure!(seen(&state) == "after", "an operation that was undone left {:?}", seen(&state));
    // And none is begun any more.
    let work = TextUpdate { state: Arc::clone(&state), becomes: "too late", endless: false };
    is_lost(&within("an operation", guard.transact(work)).await?)?;
    ensure!(seen(&state) == "after", "an operation that was not begun left {:?}", seen(&state));
    drop(guard);
    run.nothing_left(&name).await
}

fn is_lost<T: std::fmt::Debug>(done: &Result<T, crate::Abandoned<Infallible>>) -> CaseResult {
    match done {
        Err(abandoned) if matches!(abandoned.cause, Cause::Lock(Error::Lost { .. })) && abandoned.is_as_before() => {
            Ok(())
        }
        other => Err(Failure::new(format!("an operation under a lost lock came to {other:?}"))),
    }
}

/// A guarded [`Operation`] that changes a text in the process, and then commits the change or never ends.
struct TextUpdate {
    state: Arc<Mutex<String>>,
    becomes: &'static str,
    endless: bool,
}

impl TextUpdate {
    fn state(&self) -> std::sync::MutexGuard<'_, String> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operation for TextUpdate {
    type Snapshot = String;
    type Output = ();
    type Error = Infallible;

    async fn snapshot(&mut self) -> Result<String, Infallible> {
        Ok(self.state().clone())
    }

    async fn apply(&mut self, _token: FencingToken) -> Result<(), Infallible> {
        self.becomes.clone_into(&mut self.state());
        if self.endless {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    async fn commit(&mut self, _token: FencingToken) -> Result<(), Infallible> {
        Ok(())
    }

    async fn restore(&mut self, snapshot: String, _token: FencingToken) -> Result<(), Infallible> {
        *self.state() = snapshot;
        Ok(())
    }
}
