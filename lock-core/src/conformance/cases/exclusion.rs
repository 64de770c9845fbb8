//! At most one holder, and who is next.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinSet;

use super::super::{
    client::CheckedClient,
    failure::{CaseResult, Failure, ensure},
    guards::CheckedGuard,
    limits::{eventually, within},
    run::CaseRun,
};
use super::waiting::in_line;
use crate::{BootInstant, Error, Feature, LockName, Loss};

/// How many wait in line for their turn.
const WAITERS: usize = 12;

pub(super) async fn at_most_one_of_100_contenders_holds_the_lock(run: Arc<CaseRun>) -> CaseResult {
    const CONTENDERS: usize = 100;
    const ROUNDS: usize = 3;
    /// How many grants may end by their time: a standstill of the machine meets the one holder that there is.
    const STANDSTILLS: usize = 3;
    let name = run.name();
    let clients = run.connect_several(5).await?;
    let counter = Arc::new(AtomicU32::new(0));
    let mut contenders = JoinSet::new();
    for contender in 0..CONTENDERS {
        let mutex = clients[contender % clients.len()].mutex(&name);
        let (counter, clock) = (Arc::clone(&counter), run.clock());
        contenders.spawn(async move {
            let mut times_held = Vec::new();
            for _ in 0..ROUNDS {
                let guard = match mutex.lock().await {
                    Err(Error::Lost { loss: Loss::Expired | Loss::Unreachable, .. }) => continue,
                    acquired => acquired?,
                };
                let granted = clock.now();
                increment(&counter).await;
                let until = clock.now();
                match guard.validity().loss() {
                    None => times_held.push((granted, until)),
                    Some(Loss::Expired | Loss::Unreachable) => {}
                    Some(loss) => return Err(Failure::new(format!("{guard:?} was lost while it was held: {loss}"))),
                }
                match guard.release().await {
                    // On a machine that stands still, a grant may end by its time before it is given back.
                    Ok(()) | Err(Error::Lost { loss: Loss::Expired | Loss::Unreachable, .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(times_held)
        });
    }
    // Here the whole case's limit applies: a hundred contenders take their time where nobody stands in line.
    let mut times_held = Vec::new();
    while let Some(contender) = contenders.join_next().await {
        times_held.extend(contender??);
    }
    let held = times_held.len();
    let lost = CONTENDERS * ROUNDS - held;
    ensure!(lost <= STANDSTILLS, "{lost} grants were lost while they were held");
    // What a holder did after its grant had ended may have met what its successor did.
    if lost == 0 {
        ensure!(
            counter.load(Ordering::Relaxed) == u32::try_from(held)?,
            "of {held} increments, some were lost: {counter:?}"
        );
    }
    none_overlap(times_held)
}

/// An increment that loses updates unless the lock keeps others out.
async fn increment(counter: &AtomicU32) {
    let before = counter.load(Ordering::Relaxed);
    tokio::task::yield_now().await;
    counter.store(before + 1, Ordering::Relaxed);
}

fn none_overlap(mut times_held: Vec<(BootInstant, BootInstant)>) -> CaseResult {
    times_held.sort();
    for pair in times_held.windows(2) {
        ensure!(pair[0].1 <= pair[1].0, "held from {:?} to {:?}, and from {:?}", pair[0].0, pair[0].1, pair[1].0);
    }
    Ok(())
}

pub(super) async fn two_acquisitions_of_one_connection_exclude_each_other(run: Arc<CaseRun>) -> CaseResult {
    let name = run.name();
    let client = run.connect().await?;
    let guard = client.lock(&name).await?;
    ensure!(client.try_lock(&name).await?.is_none(), "one connection was granted the lock twice");
    let next = tokio::spawn({
        let client = client.clone();
        let name = name.clone();
        async move { client.lock(&name).await }
    });
    guard.release().await?;
    next.await??.release().await?;
    Ok(())
}

pub(super) async fn every_waiter_is_granted_in_the_end(run: Arc<CaseRun>) -> CaseResult {
    let mut granted = granted_in_turn(&run, false).await?;
    granted.sort_unstable();
    ensure!(granted.iter().copied().eq(0..WAITERS), "granted were {granted:?}");
    Ok(())
}

pub(super) async fn waiters_are_granted_in_the_order_of_their_arrival(run: Arc<CaseRun>) -> CaseResult {
    let granted = granted_in_turn(&run, true).await?;
    ensure!(granted.iter().copied().eq(0..WAITERS), "the order of grants was {granted:?}");
    Ok(())
}

/// Lets waiters hold the lock one after the other, and gives the order in which they did. `one_by_one`: each comes only when
/// the one before it stands in line.
async fn granted_in_turn(run: &CaseRun, one_by_one: bool) -> CaseResult<Vec<usize>> {
    let name = run.name();
    let clients = run.connect_several(3).await?;
    let holder = clients[0].lock(&name).await?;
    let granted = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for waiter in 0..WAITERS {
        let client = clients[waiter % clients.len()].clone();
        waiters.spawn(hold_in_turn(client, name.clone(), waiter, Arc::clone(&granted)));
        if one_by_one {
            in_line(&clients[0], &name, waiter + 1).await?;
        }
    }
    holder.release().await?;
    while let Some(waiter) = waiters.join_next().await {
        waiter??;
    }
    let granted = granted.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(granted)
}

async fn hold_in_turn(
    client: CheckedClient,
    name: LockName,
    waiter: usize,
    granted: Arc<Mutex<Vec<usize>>>,
) -> CaseResult {
    let guard = client.lock(&name).await?;
    granted.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
    Ok(guard.release().await?)
}

pub(super) async fn one_client_holds_1000_locks_at_once(run: Arc<CaseRun>) -> CaseResult {
    const LOCKS: usize = 1_000;
    const AT_ONCE: usize = 50;
    let prefix = run.name();
    let client = run.connect().await?;
    // Short enough for renewals to be seen, where it can be chosen.
    let ttl = client.capabilities().ttl.map(|allowed| Duration::from_secs(10).min(*allowed.end()));
    let names: Vec<_> = (0..LOCKS).map(|n| LockName::new(format!("{prefix}/{n}"))).collect::<Result<_, _>>()?;
    let mut guards: Vec<CheckedGuard> = Vec::with_capacity(LOCKS);
    for names in names.chunks(AT_ONCE) {
        let mut acquisitions = JoinSet::new();
        for name in names {
            let mutex = match ttl {
                Some(ttl) => client.mutex(name).ttl(ttl),
                None => client.mutex(name),
            };
            acquisitions.spawn(async move { mutex.lock().await });
        }
        while let Some(guard) = within("an acquisition among many", acquisitions.join_next()).await? {
            guards.push(guard??);
        }
    }
    if client.supports(Feature::Expiry) {
        all_are_renewed(&guards).await?;
    }
    let other = run.connect().await?;
    for name in names.iter().step_by(100) {
        ensure!(other.try_lock(name).await?.is_none(), "{name:?} was granted twice");
    }
    if other.supports(Feature::Listing) {
        let sorted: BTreeSet<_> = names.iter().collect();
        let listed = within("a list of many locks", other.locks().list(format!("{prefix}/"))).await??;
        ensure!(listed.iter().eq(sorted), "{} of {LOCKS} locks are listed, or in another order", listed.len());
    }
    // Half are released one by one, the rest by dropping the guards.
    for guard in guards.drain(..LOCKS / 2) {
        guard.release().await?;
    }
    drop(guards);
    Ok(())
}

async fn all_are_renewed(guards: &[CheckedGuard]) -> CaseResult {
    let firsts: Vec<_> = guards.iter().map(|guard| guard.valid_until()).collect();
    for (guard, first) in guards.iter().zip(firsts) {
        ensure!(first.is_some(), "{guard:?} was lost among many");
        eventually("a lock among many is renewed", || async {
            ensure!(guard.is_valid(), "{guard:?} was lost among many");
            Ok((guard.valid_until() > first).then_some(()))
        })
        .await?;
    }
    Ok(())
}
