//! The programs: contenders that use the shipped backend as anybody would.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures::future::{self, Either};
use lock_core::{Clock, Context, Error, Executor, FencingToken, Guard, Locks, Permit, Validity, WriteGuard};
use lock_zk::{Config, ZooKeeper};
use tokio::sync::watch;

use super::{
    report::{Ended, Kind, Report, Stage},
    wire::{Call, call},
};
use crate::{
    Chance, Time,
    world::{HostClock, HostExecutor, HostId},
};

/// What the programs of one host are like.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) id: HostId,
    pub(super) config: Config,
    pub(super) seed: u64,
    /// The first contender of this host, and how many there are.
    pub(super) slots: std::ops::Range<usize>,
    pub(super) habits: Habits,
    pub(super) stage: watch::Receiver<Stage>,
}

/// How contenders behave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habits {
    pub(super) tick: Time,
    pub(super) timeout: Time,
    /// The longest pause between two attempts.
    pub(super) pause: Time,
    /// One of that many holds may be long, and how long.
    pub(super) long_holds: u64,
    pub(super) longest_hold: Time,
    /// How many writers, readers and permits are asked for.
    pub(super) mix: (u64, u64, u64),
    /// The permits that most believe in; and one in how many believes in which other number.
    pub(super) permits: (u32, u64, u32),
    pub(super) is_herd: bool,
}

/// The lock of a schedule.
pub(super) const NAME: &str = "lock";

/// A held lock.
enum Held {
    Guard(Guard),
    Writer(WriteGuard),
    Permit(Permit),
}

impl Held {
    fn facts(&self) -> (Option<FencingToken>, Validity) {
        match self {
            Self::Guard(guard) => (Some(guard.token()), guard.validity().clone()),
            Self::Writer(guard) => (Some(guard.token()), guard.validity().clone()),
            Self::Permit(permit) => (None, permit.validity().clone()),
        }
    }

    async fn release(self) -> Result<(), Error> {
        match self {
            Self::Guard(guard) => guard.release().await,
            Self::Writer(guard) => guard.release().await,
            Self::Permit(permit) => permit.release().await,
        }
    }
}

/// One contender.
struct Contender {
    slot: usize,
    attempt: u32,
    locks: Locks,
    clock: Clock,
    chance: Chance,
    habits: Habits,
    stage: watch::Receiver<Stage>,
}

/// The main program of a host: connects, starts its contenders, and closes the connection in the end.
pub(super) async fn host(mut plan: Plan) {
    let clock = Clock::custom(HostClock::of(plan.id));
    let executor = Arc::new(HostExecutor::of(plan.id));
    let mut chance = Chance::new(plan.seed);
    let locks = loop {
        let context = Context::custom(clock, executor.clone(), chance.below(u64::MAX));
        match ZooKeeper::connect_in(plan.config.clone(), context).await {
            Ok(zk) => break Locks::new(zk),
            Err(_) if *plan.stage.borrow() != Stage::Active => {
                // It does not matter any more.
                plan.slots.for_each(|slot| report(Report::Closed { slot, failure: None }));
                return;
            }
            Err(_) => clock.sleep(Duration::from_nanos(chance.between(1, plan.habits.tick))).await,
        }
    };
    for slot in plan.slots.clone() {
        let contender = Contender {
            slot,
            attempt: 0,
            locks: locks.clone(),
            clock,
            chance: Chance::new(chance.below(u64::MAX)),
            habits: plan.habits,
            stage: plan.stage.clone(),
        };
        executor.spawn(Box::pin(contender.run()));
    }
    if plan.stage.wait_for(|stage| *stage >= Stage::Closing).await.is_ok() {
        let closed = locks.close(Duration::from_nanos(plan.habits.timeout * 4)).await;
        let failure = closed.err().map(|error| error.to_string());
        plan.slots.for_each(|slot| report(Report::Closed { slot, failure: failure.clone() }));
    }
}

fn report(report: Report) {
    call(Call::Report(report));
}

impl Contender {
    async fn run(mut self) {
        loop {
            let pause = self.chance.mostly_short(self.habits.pause);
            self.sleep(pause).await;
            if *self.stage.borrow() != Stage::Active {
                return;
            }
            self.attempt += 1;
            let kind = self.draw();
            let (slot, attempt) = (self.slot, self.attempt);
            report(Report::Asks { slot, attempt, kind });
            let why = match self.acquire(kind).await {
                Ok(Some(held)) => {
                    let (token, validity) = held.facts();
                    report(Report::Granted { slot, token, validity });
                    self.hold(held).await
                }
                Ok(None) => Ended::GaveUp,
                Err(error) => Ended::Failed(error),
            };
            report(Report::Ends { slot, why });
        }
    }

    async fn sleep(&self, time: Time) {
        self.clock.sleep(Duration::from_nanos(time)).await;
    }

    fn draw(&mut self) -> Kind {
        let (writers, readers, permits) = self.habits.mix;
        let drawn = self.chance.below(writers + readers + permits);
        if drawn < writers || self.habits.is_herd {
            return Kind::Writer;
        }
        if drawn < writers + readers {
            return Kind::Reader;
        }
        let (most, odd, other) = self.habits.permits;
        let of = if self.chance.one_in(odd) { other } else { most };
        NonZeroU32::new(of).map_or(Kind::Writer, Kind::Permit)
    }

    /// Asks for it: waits for as long as it takes, or up to a limit, or not at all, or goes away.
    async fn acquire(&mut self, kind: Kind) -> Result<Option<Held>, Error> {
        let payload = format!("{}.{}", self.slot, self.attempt).into_bytes();
        let limit = Duration::from_nanos(self.chance.below(self.habits.timeout * 2));
        let way = self.chance.below(20);
        let locks = self.locks.clone();
        let is_lock = way.is_multiple_of(2) || self.habits.is_herd;
        let asked = async move {
            let within = if way < 2 { limit } else { Duration::from_secs(3600) };
            match kind {
                Kind::Writer if is_lock => {
                    let mutex = locks.mutex(NAME).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(mutex.try_lock().await?.map(Held::Guard));
                    }
                    mutex.lock().await.map(Held::Guard).map(Some)
                }
                Kind::Writer => {
                    let lock = locks.rwlock(NAME).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(lock.try_write().await?.map(Held::Writer));
                    }
                    lock.write().await.map(Held::Writer).map(Some)
                }
                Kind::Reader => {
                    let lock = locks.rwlock(NAME).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(lock.try_read().await?.map(Held::Guard));
                    }
                    lock.read().await.map(Held::Guard).map(Some)
                }
                Kind::Permit(of) => {
                    let semaphore = locks.semaphore(NAME, of.get()).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(semaphore.try_acquire().await?.map(Held::Permit));
                    }
                    semaphore.acquire().await.map(Held::Permit).map(Some)
                }
            }
        };
        // Whoever goes away drops the future.
        let goes_away = (2..4).contains(&way);
        let limit = if goes_away { limit } else { Duration::from_secs(3600) };
        let acquired = match future::select(Box::pin(asked), Box::pin(self.clock.sleep(limit))).await {
            Either::Left((acquired, _)) => acquired,
            Either::Right(_) => return Ok(None),
        };
        match acquired {
            Err(Error::NotAcquired { .. }) => Ok(None),
            other => other,
        }
    }

    /// Holds it, and lets go.
    async fn hold(&mut self, mut held: Held) -> Ended {
        self.keep().await;
        if self.chance.one_in(3)
            && let Held::Writer(guard) = held
        {
            if !guard.is_valid() {
                return Self::let_go(Held::Writer(guard), false).await;
            }
            report(Report::Downgrades { slot: self.slot });
            held = match guard.downgrade().await {
                Ok(guard) => Held::Guard(guard),
                Err(failed) => return Ended::Failed(failed.error),
            };
            self.keep().await;
        }
        let drops = self.chance.one_in(4);
        Self::let_go(held, drops).await
    }

    async fn let_go(held: Held, drops: bool) -> Ended {
        let (_, validity) = held.facts();
        if drops {
            let lost = validity.loss();
            drop(held);
            return lost.map_or(Ended::Dropped, Ended::Lost);
        }
        match held.release().await {
            Ok(()) => Ended::Released,
            Err(Error::Lost { loss, .. }) => Ended::Lost(loss),
            Err(error) => Ended::Failed(error),
        }
    }

    /// Holds for a while; and when all is to become quiet, until it is said that holders let go.
    async fn keep(&mut self) {
        let Habits { long_holds, longest_hold, tick, .. } = self.habits;
        let long = if self.chance.one_in(long_holds) { longest_hold } else { tick / 2 };
        let hold = self.chance.mostly_short(long);
        let mut stage = self.stage.clone();
        let ending = stage.wait_for(|stage| *stage >= Stage::Ending);
        let _ = future::select(Box::pin(self.sleep(hold)), Box::pin(ending)).await;
        let _ = self.stage.wait_for(|stage| *stage != Stage::Calm).await;
    }
}
