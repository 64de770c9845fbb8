//! What a client does.

use std::{num::NonZeroU32, time::Duration};

use lock_core::{Clock, Error, FencingToken, Guard, Locks, Loss, Permit, Validity, WriteGuard};

use super::{New, Oracle};
use crate::{
    Chance, MS, Time,
    world::{HostId, true_time},
};

/// How a client behaves.
#[derive(Debug, Clone, Copy)]
pub struct Habits {
    /// How many of a hundred times it reads.
    pub reads: u64,
    /// How many of a hundred times it tries, and does not wait.
    pub tries: u64,
    /// How many of a hundred times it waits for a limited time only.
    pub limits: u64,
    /// How many of a hundred times it goes away while it waits.
    pub leaves: u64,
    /// How many of a hundred guards are dropped instead of released.
    pub drops: u64,
    /// How many of a hundred writers go on as readers.
    pub downgrades: u64,
    /// The ttl of its leases.
    pub ttl: Duration,
    /// The longest time between two acquisitions.
    pub pause: Time,
    /// The longest time for which it holds.
    pub hold: Time,
    /// From when on it begins nothing new, in true time.
    pub until: Time,
    /// Whether it uses a read-write lock, or a mutex.
    pub shares: bool,
    /// How many permits there are, where these are what it competes for instead of a lock.
    pub permits: Option<NonZeroU32>,
    /// The lock delay that it asks for.
    pub delay: Option<Duration>,
    /// How many of a hundred times its guard ends after a time that was set.
    pub ends: u64,
    /// How much of the ttl is left at the least of what it is granted.
    pub least: Duration,
    /// Whether, when all is well, it is one of a crowd of readers that comes and goes until a writer was there.
    pub crowds: bool,
    /// What is counted: a writer granted, a reader granted, a lease lost while it was held, a downgrade.
    pub counts: [usize; 4],
}

/// A guard of a simulated program, of whichever kind of lock.
enum HeldGuard {
    Alone(Guard),
    Writes(WriteGuard),
    Shares(Permit),
}

impl HeldGuard {
    fn validity(&self) -> &Validity {
        match self {
            Self::Alone(guard) => guard.validity(),
            Self::Writes(guard) => guard.validity(),
            Self::Shares(permit) => permit.validity(),
        }
    }

    /// A permit has none; the number of its attempt stands in.
    fn token(&self, attempt: u64) -> FencingToken {
        match self {
            Self::Alone(guard) => guard.token(),
            Self::Writes(guard) => guard.token(),
            Self::Shares(_) => FencingToken { era: 0, number: attempt },
        }
    }
}

const NAME: &str = "orders";

/// Acquires, holds and releases, until it is time to stop.
pub async fn compete(locks: Locks, clock: Clock, host: HostId, habits: Habits, oracle: Oracle, mut chance: Chance) {
    oracle.begins(host);
    let mut attempts = 0_u64;
    while true_time() < habits.until {
        clock.sleep(time(chance.mostly_short(habits.pause))).await;
        if true_time() >= habits.until {
            break;
        }
        let reads = habits.shares && chance.percent(habits.reads);
        let began = true_time();
        attempts += 1;
        let payload = format!("{}-{attempts}", host.place());
        let max_hold = chance.percent(habits.ends).then(|| time(1 + chance.mostly_short(2 * habits.hold)));
        let acquired = acquire(&locks, clock, &habits, reads, &payload, max_hold, &mut chance).await;
        match acquired {
            Ok(Some(held)) => {
                let (token, validity) = (held.token(host.place() as u64 * 1_000_000 + attempts), held.validity());
                let (ttl, least) = (habits.ttl, habits.least);
                let (payload, permits) = (payload.as_str(), habits.permits);
                let new = New { host, reads, permits, token, ttl, validity, began, payload, max_hold, least };
                let grant = oracle.granted(new);
                oracle.count(habits.counts[usize::from(reads)]);
                hold(clock, &habits, held, grant, &oracle, &mut chance).await;
            }
            Ok(None) => {}
            Err(error) => {
                oracle.note(format_args!("client {}", host.place()), format_args!("is granted nothing: {error}"));
                if matches!(error, Error::Closed | Error::Config { .. } | Error::InvalidName { .. }) {
                    oracle.violate("P", format!("client {} cannot go on: {error}", host.place()));
                }
            }
        }
    }
    if habits.crowds {
        crowd(&locks, clock, host, &habits, &oracle, &mut chance).await;
    }
    // What was dropped is given back before the program ends.
    let closed = locks.close(Duration::from_secs(30)).await;
    if let Err(error) = &closed {
        oracle.note(format_args!("client {}", host.place()), format_args!("closes: {error}"));
    }
    oracle.ends(host, closed.is_ok());
}

/// Acquires the lock once, and gives it back: it must be to be had within `limit`.
pub async fn probe(locks: Locks, clock: Clock, host: HostId, limit: Duration, oracle: Oracle) {
    oracle.begins(host);
    let began = true_time();
    let until = clock.now().saturating_add(limit);
    // Servers may find out only now that they have to be quiet for a while.
    let acquired = loop {
        let acquired = locks.mutex(NAME).payload(*b"probe").timeout(until.saturating_since(clock.now())).lock().await;
        if !matches!(acquired, Err(Error::Unavailable { .. })) || clock.now() > until {
            break acquired;
        }
        clock.sleep(Duration::from_millis(100)).await;
    };
    match acquired {
        Ok(guard) => {
            let (token, validity) = (guard.token(), guard.validity());
            let (ttl, max_hold, least, permits) = (Duration::ZERO, None, Duration::ZERO, None);
            let new =
                New { host, reads: false, permits, token, ttl, validity, began, payload: "probe", max_hold, least };
            let grant = oracle.granted(new);
            oracle.ended(grant);
            if let Err(error) = guard.release().await {
                oracle.note("probe", format_args!("releases: {error}"));
            }
        }
        Err(error) => oracle.violate("P", format!("nobody holds the lock, and it cannot be had: {error}")),
    }
    drop(locks.close(Duration::from_secs(10)).await);
    oracle.ends(host, true);
}

/// The first client would write, and must be let in within this time, while the others read, one beside the other, without
/// an end.
const PATIENCE: Duration = Duration::from_secs(20);

async fn crowd(locks: &Locks, clock: Clock, host: HostId, habits: &Habits, oracle: &Oracle, chance: &mut Chance) {
    let payload = format!("{}-crowd", host.place());
    let lock = locks.rwlock(NAME).payload(payload.as_bytes());
    let is_writer = host.place() == 0;
    // When there is a crowd.
    clock.sleep(Duration::from_millis(if is_writer { 500 } else { 0 })).await;
    while oracle.is_running(0) {
        let began = true_time();
        let acquired = match is_writer {
            true => lock.clone().timeout(PATIENCE).write().await.map(WriteGuard::into_guard),
            false => lock.clone().timeout(2 * PATIENCE).read().await,
        };
        match acquired {
            Ok(guard) => {
                let (token, ttl, validity, least) = (guard.token(), habits.ttl, guard.validity(), habits.least);
                let (reads, max_hold, permits, payload) = (!is_writer, None, None, payload.as_str());
                let new = New { host, reads, permits, token, ttl, validity, began, payload, max_hold, least };
                let grant = oracle.granted(new);
                clock.sleep(time(chance.between(100 * MS, 200 * MS))).await;
                oracle.ended(grant);
                if let Err(error) = guard.release().await {
                    oracle.failed(grant, "releases", &error);
                }
            }
            Err(Error::NotAcquired { .. }) if is_writer => {
                oracle.violate("P", "readers come and go, and a writer waits in vain".to_owned());
            }
            Err(error) => oracle.note(format_args!("client {}", host.place()), format_args!("in a crowd: {error}")),
        }
        if is_writer {
            return;
        }
        clock.sleep(time(chance.below(MS))).await;
    }
}

async fn acquire(
    locks: &Locks,
    clock: Clock,
    habits: &Habits,
    reads: bool,
    payload: &str,
    max_hold: Option<Duration>,
    chance: &mut Chance,
) -> Result<Option<HeldGuard>, Error> {
    let limit = time(1 + chance.mostly_short(4 * habits.hold));
    let (tries, is_limited) = (chance.percent(habits.tries), chance.percent(habits.limits));
    let leaves = chance.percent(habits.leaves).then(|| time(chance.mostly_short(2 * habits.hold)));
    let acquiring = async {
        if let Some(permits) = habits.permits {
            let semaphore = locks.semaphore(NAME, permits.get()).payload(payload.as_bytes());
            let semaphore = if is_limited { semaphore.timeout(limit) } else { semaphore };
            let semaphore = if let Some(delay) = habits.delay { semaphore.lock_delay(delay) } else { semaphore };
            let semaphore = if let Some(most) = max_hold { semaphore.max_hold(most) } else { semaphore };
            return if tries {
                Ok(semaphore.try_acquire().await?.map(HeldGuard::Shares))
            } else {
                Ok(Some(HeldGuard::Shares(semaphore.acquire().await?)))
            };
        }
        if !habits.shares {
            let mutex = locks.mutex(NAME).payload(payload.as_bytes());
            let mutex = if let Some(delay) = habits.delay { mutex.lock_delay(delay) } else { mutex };
            let mutex = if is_limited { mutex.timeout(limit) } else { mutex };
            let mutex = if let Some(most) = max_hold { mutex.max_hold(most) } else { mutex };
            return if tries {
                Ok(mutex.try_lock().await?.map(HeldGuard::Alone))
            } else {
                Ok(Some(HeldGuard::Alone(mutex.lock().await?)))
            };
        }
        let lock = locks.rwlock(NAME).payload(payload.as_bytes());
        let lock = if let Some(delay) = habits.delay { lock.lock_delay(delay) } else { lock };
        let lock = if is_limited { lock.timeout(limit) } else { lock };
        let lock = if let Some(most) = max_hold { lock.max_hold(most) } else { lock };
        match (reads, tries) {
            (true, true) => Ok(lock.try_read().await?.map(HeldGuard::Alone)),
            (true, false) => Ok(Some(HeldGuard::Alone(lock.read().await?))),
            (false, true) => Ok(lock.try_write().await?.map(HeldGuard::Writes)),
            (false, false) => Ok(Some(HeldGuard::Writes(lock.write().await?))),
        }
    };
    match leaves {
        Some(after) => clock.timeout(after, acquiring).await.unwrap_or(Ok(None)),
        None => acquiring.await,
    }
}

async fn hold(clock: Clock, habits: &Habits, held: HeldGuard, grant: usize, oracle: &Oracle, chance: &mut Chance) {
    let guard = match held {
        HeldGuard::Shares(permit) => {
            until_lost(clock, habits, permit.lost(), oracle, chance).await;
            oracle.ended(grant);
            if chance.percent(habits.drops) {
                return drop(permit);
            }
            if let Err(error) = permit.release().await {
                oracle.failed(grant, "releases", &error);
            }
            return;
        }
        HeldGuard::Alone(guard) => guard,
        HeldGuard::Writes(guard) if chance.percent(habits.downgrades) => {
            until_lost(clock, habits, guard.lost(), oracle, chance).await;
            // The servers may let others read before it hears that it is a reader.
            oracle.became_reader(grant);
            match guard.downgrade().await {
                Ok(guard) => {
                    oracle.count(habits.counts[3]);
                    guard
                }
                Err(error) => {
                    oracle.failed(grant, "downgrades", &error.into());
                    return oracle.ended(grant);
                }
            }
        }
        HeldGuard::Writes(guard) => guard.into_guard(),
    };
    until_lost(clock, habits, guard.lost(), oracle, chance).await;
    // Whoever gives it back acts no more from now on.
    oracle.ended(grant);
    if chance.percent(habits.drops) {
        return drop(guard);
    }
    if let Err(error) = guard.release().await {
        oracle.failed(grant, "releases", &error);
    }
}

async fn until_lost(
    clock: Clock,
    habits: &Habits,
    lost: impl Future<Output = Loss>,
    oracle: &Oracle,
    chance: &mut Chance,
) {
    let length = time(chance.mostly_short(habits.hold));
    if clock.timeout(length, lost).await.is_some() {
        oracle.count(habits.counts[2]);
    }
}

/// A length of time of the simulator as shipped code has it.
const fn time(length: Time) -> Duration {
    Duration::from_nanos(length)
}
