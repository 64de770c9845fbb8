//! The programs: contenders that use the shipped backend as anybody would.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures::future::{self, Either};
use lock_core::{
    Clock, Context, Error, Executor, FencingToken, Guard, Locks, LocksOptions, Permit, Validity, WriteGuard,
};
use lock_zk::{Config, ZooKeeper};
use tokio::sync::watch;

use super::{
    report::{AttemptEnd, ContenderReport, RequestMode, ScheduleStage},
    wire::{WireCall, call},
};
use crate::{
    Chance, Time,
    world::{HostClock, HostExecutor, HostId},
};

/// What the programs of one simulated host do: their configuration, their contenders and their seed.
#[derive(Debug, Clone)]
pub(super) struct HostPlan {
    pub(super) id: HostId,
    pub(super) config: Config,
    pub(super) seed: u64,
    /// The first contender of this host, and how many there are.
    pub(super) slots: std::ops::Range<usize>,
    pub(super) habits: ContenderHabits,
    pub(super) stage: watch::Receiver<ScheduleStage>,
}

/// How the contenders of a schedule behave: how often they ask, for which mode, and how long they hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct ContenderHabits {
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

/// The guard of a lock that a simulated contender holds, of any mode.
enum HeldGuard {
    Guard(Guard),
    Writer(WriteGuard),
    Permit(Permit),
}

impl HeldGuard {
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

/// The program of one simulated contender, which acquires and releases the lock through the shipped backend.
struct Contender {
    slot: usize,
    attempt: u32,
    locks: Locks,
    clock: Clock,
    chance: Chance,
    habits: ContenderHabits,
    stage: watch::Receiver<ScheduleStage>,
}

/// The main program of a host: connects, starts its contenders, and closes the connection in the end.
pub(super) async fn host(mut plan: HostPlan) {
    let clock = Clock::custom(HostClock::of(plan.id));
    let executor = Arc::new(HostExecutor::of(plan.id));
    let mut chance = Chance::new(plan.seed);
    let locks = loop {
        let context = Context::custom(clock, executor.clone(), chance.below(u64::MAX));
        match ZooKeeper::connect_in(plan.config.clone(), context).await {
            Ok(zk) => {
                let options = LocksOptions::default().with_outage_timeout(plan.config.connect_timeout);
                break Locks::with_options(zk, options);
            }
            Err(_) if *plan.stage.borrow() != ScheduleStage::Active => {
                // It does not matter any more.
                plan.slots.for_each(|slot| report(ContenderReport::Closed { slot, failure: None }));
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
    if plan.stage.wait_for(|stage| *stage >= ScheduleStage::Closing).await.is_ok() {
        let closed = locks.close(Duration::from_nanos(plan.habits.timeout * 4)).await;
        let failure = closed.err().map(|error| error.to_string());
        plan.slots.for_each(|slot| report(ContenderReport::Closed { slot, failure: failure.clone() }));
    }
}

fn report(report: ContenderReport) {
    call(WireCall::Report(report));
}

impl Contender {
    async fn run(mut self) {
        loop {
            let pause = self.chance.mostly_short(self.habits.pause);
            self.sleep(pause).await;
            if *self.stage.borrow() != ScheduleStage::Active {
                return;
            }
            self.attempt += 1;
            let kind = self.draw();
            let (slot, attempt) = (self.slot, self.attempt);
            report(ContenderReport::Asks { slot, attempt, kind });
            let why = match self.acquire(kind).await {
                Ok(Some(held)) => {
                    let (token, validity) = held.facts();
                    report(ContenderReport::Granted { slot, token, validity });
                    self.hold(held).await
                }
                Ok(None) => AttemptEnd::GaveUp,
                Err(error) => AttemptEnd::Failed(error),
            };
            report(ContenderReport::Ends { slot, why });
        }
    }

    async fn sleep(&self, time: Time) {
        self.clock.sleep(Duration::from_nanos(time)).await;
    }

    fn draw(&mut self) -> RequestMode {
        let (writers, readers, permits) = self.habits.mix;
        let drawn = self.chance.below(writers + readers + permits);
        if drawn < writers || self.habits.is_herd {
            return RequestMode::Writer;
        }
        if drawn < writers + readers {
            return RequestMode::Reader;
        }
        let (most, odd, other) = self.habits.permits;
        let of = if self.chance.one_in(odd) { other } else { most };
        NonZeroU32::new(of).map_or(RequestMode::Writer, RequestMode::Permit)
    }

    /// Asks for it: waits for as long as it takes, or up to a limit, or not at all, or goes away.
    async fn acquire(&mut self, kind: RequestMode) -> Result<Option<HeldGuard>, Error> {
        let payload = format!("{}.{}", self.slot, self.attempt).into_bytes();
        let limit = Duration::from_nanos(self.chance.below(self.habits.timeout * 2));
        let way = self.chance.below(20);
        let locks = self.locks.clone();
        let is_lock = way.is_multiple_of(2) || self.habits.is_herd;
        let asked = async move {
            let within = if way < 2 { limit } else { Duration::from_secs(3600) };
            match kind {
                RequestMode::Writer if is_lock => {
                    let mutex = locks.mutex(NAME).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(mutex.try_lock().await?.map(HeldGuard::Guard));
                    }
                    mutex.lock().await.map(HeldGuard::Guard).map(Some)
                }
                RequestMode::Writer => {
                    let lock = locks.rwlock(NAME).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(lock.try_write().await?.map(HeldGuard::Writer));
                    }
                    lock.write().await.map(HeldGuard::Writer).map(Some)
                }
                RequestMode::Reader => {
                    let lock = locks.rwlock(NAME).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(lock.try_read().await?.map(HeldGuard::Guard));
                    }
                    lock.read().await.map(HeldGuard::Guard).map(Some)
                }
                RequestMode::Permit(of) => {
                    let semaphore = locks.semaphore(NAME, of.get()).payload(payload).timeout(within);
                    if way >= 18 {
                        return Ok(semaphore.try_acquire().await?.map(HeldGuard::Permit));
                    }
                    semaphore.acquire().await.map(HeldGuard::Permit).map(Some)
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
    async fn hold(&mut self, mut held: HeldGuard) -> AttemptEnd {
        self.keep().await;
        if self.chance.one_in(3)
            && let HeldGuard::Writer(guard) = held
        {
            if !guard.is_valid() {
                return Self::let_go(HeldGuard::Writer(guard), false).await;
            }
            report(ContenderReport::Downgrades { slot: self.slot });
            held = match guard.downgrade().await {
                Ok(guard) => HeldGuard::Guard(guard),
                Err(failed) => return AttemptEnd::Failed(failed.error),
            };
            self.keep().await;
        }
        let drops = self.chance.one_in(4);
        Self::let_go(held, drops).await
    }

    async fn let_go(held: HeldGuard, drops: bool) -> AttemptEnd {
        let (_, validity) = held.facts();
        if drops {
            let lost = validity.loss();
            drop(held);
            return lost.map_or(AttemptEnd::Dropped, AttemptEnd::Lost);
        }
        match held.release().await {
            Ok(()) => AttemptEnd::Released,
            Err(Error::Lost { loss, .. }) => AttemptEnd::Lost(loss),
            Err(error) => AttemptEnd::Failed(error),
        }
    }

    /// Holds for a while; and when all is to become quiet, until it is said that holders let go.
    async fn keep(&mut self) {
        let ContenderHabits { long_holds, longest_hold, tick, .. } = self.habits;
        let long = if self.chance.one_in(long_holds) { longest_hold } else { tick / 2 };
        let hold = self.chance.mostly_short(long);
        let mut stage = self.stage.clone();
        let ending = stage.wait_for(|stage| *stage >= ScheduleStage::Ending);
        let _ = future::select(Box::pin(self.sleep(hold)), Box::pin(ending)).await;
        let _ = self.stage.wait_for(|stage| *stage != ScheduleStage::Calm).await;
    }
}
