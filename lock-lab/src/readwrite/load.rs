//! Readers and writers that keep one lock busy, and a prober that keeps trying to read.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock::Locks;
use lock_core::{Clock, Error, Guard};
use tokio::task::JoinSet;

use super::{
    Options,
    judge::{Hold, Refusal, Role},
};
use crate::LabError;

/// The holds and refusals that one client of the read-write load recorded.
#[derive(Debug, Default)]
pub(super) struct ClientRecord {
    pub(super) holds: Vec<Hold>,
    pub(super) refusals: Vec<Refusal>,
}

const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// The prober's pause: it is there to be refused, not to be a load.
const PROBE_PAUSE: Duration = Duration::from_millis(2);

/// Runs the load for as long as `options` say: what all clients saw.
pub(super) async fn run(url: &str, options: &Options) -> Result<ClientRecord, LabError> {
    let name = format!("readwrite/{:016x}", fastrand::u64(..));
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..options.readers + options.writers + 1 {
        let locks = lock::connect(url).await.map_err(LabError::lock("connecting"))?;
        let (name, stop) = (name.clone(), Arc::clone(&stop));
        let (readers, hold) = (options.readers, options.hold);
        clients.spawn(async move {
            let outcome = match client {
                client if client < readers => keep_holding(Role::Reader, &locks, &name, hold, &stop).await,
                client if client == readers => probe(&locks, &name, &stop).await,
                _ => keep_holding(Role::Writer, &locks, &name, hold, &stop).await,
            };
            let closed = locks.close(CLOSE_LIMIT).await;
            outcome.and_then(|record| closed.map(|()| record))
        });
    }
    let clock = Clock::boot();
    let mut record = ClientRecord::default();
    let mut failed = None;
    tokio::select! {
        () = clock.sleep(options.time) => {}
        // Nobody ends by itself, but with an error.
        Some(ended) = clients.join_next() => failed = LabError::joined(ended)?.err(),
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        match LabError::joined(ended)? {
            Ok(seen) => {
                record.holds.extend(seen.holds);
                record.refusals.extend(seen.refusals);
            }
            Err(error) => failed = Some(error),
        }
    }
    failed.map_or(Ok(record), |error| Err(LabError::lock("reading and writing")(error)))
}

async fn keep_holding(
    role: Role,
    locks: &Locks,
    name: &str,
    hold: Duration,
    stop: &AtomicBool,
) -> Result<ClientRecord, Error> {
    let (clock, lock) = (Clock::boot(), locks.rwlock(name));
    let mut record = ClientRecord::default();
    while !stop.load(Ordering::Relaxed) {
        let requested = clock.now();
        let guard = match role {
            Role::Reader => lock.read().await?,
            Role::Writer => lock.write().await?.into_guard(),
        };
        let granted = clock.now();
        let hold = hold.mul_f64(0.5 + fastrand::f64());
        clock.sleep(hold).await;
        let (ended, token) = (end_of(&guard, clock), guard.token());
        guard.release().await?;
        record.holds.push(Hold { role, requested, granted, ended, released: clock.now(), token });
        // Writers come now and then, one at a time for the most part: a lock that is full of them shares nothing.
        let pause = if role == Role::Writer { 8.0 } else { 0.5 };
        clock.sleep(hold.mul_f64(pause * fastrand::f64())).await;
    }
    Ok(record)
}

/// Now, or earlier if the lock was lost.
fn end_of(guard: &Guard, clock: Clock) -> lock_core::BootInstant {
    let now = clock.now();
    guard.valid_until().map_or(now, |until| until.min(now))
}

/// Tries to read again and again. What it gets counts as a reader's hold, what it does not get shows that a writer is there.
async fn probe(locks: &Locks, name: &str, stop: &AtomicBool) -> Result<ClientRecord, Error> {
    let (clock, lock) = (Clock::boot(), locks.rwlock(name));
    let mut record = ClientRecord::default();
    while !stop.load(Ordering::Relaxed) {
        let requested = clock.now();
        match lock.try_read().await? {
            None => record.refusals.push(Refusal { asked: requested, answered: clock.now() }),
            Some(guard) => {
                let granted = clock.now();
                let (ended, token) = (end_of(&guard, clock), guard.token());
                guard.release().await?;
                let role = Role::Reader;
                record.holds.push(Hold { role, requested, granted, ended, released: clock.now(), token });
            }
        }
        clock.sleep(PROBE_PAUSE).await;
    }
    Ok(record)
}
