//! A host: a machine on which programs run, with a clock of its own. It can stand still, and it can die.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures::future::BoxFuture;
use lock_core::{BootInstant, Executor, TimeSource};

use super::{
    id::HostId,
    shared::{HostClocks, SleepKey, TaskRequest, shared},
};
use crate::Time;

/// How many hosts a schedule may have.
pub const HOSTS: usize = 16;

/// The boot-time clock and the wall clock of one host of the schedule that this thread plays.
///
/// A [`Clock`](lock_core::Clock) wants a source for ever, so there is one of these for each number, for all schedules.
#[derive(Debug)]
pub struct HostClock(HostId);

static CLOCKS: [HostClock; HOSTS] = {
    let mut clocks = [const { HostClock(HostId(0)) }; HOSTS];
    let mut place: u8 = 0;
    while (place as usize) < HOSTS {
        clocks[place as usize] = HostClock(HostId(place));
        place += 1;
    }
    clocks
};

impl HostClock {
    /// That of this host.
    #[must_use]
    pub fn of(host: HostId) -> &'static Self {
        &CLOCKS[host.place()]
    }

    fn clocks(&self) -> Option<(HostClocks, Time)> {
        shared(|shared| shared.hosts.get(self.0.place()).map(|host| (host.clocks, shared.now)))
    }
}

impl TimeSource for HostClock {
    /// After the end of the schedule it stands for ever.
    fn now(&self) -> BootInstant {
        self.clocks().map_or(BootInstant::from_nanos(0), |(clocks, now)| BootInstant::from_nanos(clocks.boot.at(now)))
    }

    fn wall_micros(&self) -> u64 {
        self.clocks().map_or(0, |(clocks, now)| clocks.wall.at(now) / 1_000)
    }

    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()> {
        Box::pin(HostSleep { host: self.0, deadline, key: None })
    }
}

/// The future of a sleep on a host's simulated boot-time clock.
struct HostSleep {
    host: HostId,
    deadline: BootInstant,
    key: Option<SleepKey>,
}

impl Future for HostSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Self { host, deadline, key } = &mut *self;
        shared(|shared| {
            let Some(state) = shared.hosts.get(host.place()) else { return Poll::Pending };
            if state.clocks.boot.at(shared.now) >= deadline.as_nanos() {
                return Poll::Ready(());
            }
            if !key.is_some_and(|key| shared.sleeps.renew(key, context.waker())) {
                let sleep = shared.sleeps.add(context.waker().clone());
                let at = state.clocks.boot.when(deadline.as_nanos());
                shared.requests.push_back(TaskRequest::Wake { at, sleep });
                *key = Some(sleep);
            }
            Poll::Pending
        })
    }
}

impl Drop for HostSleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            drop(shared(|shared| shared.sleeps.take(key)));
        }
    }
}

/// Runs tasks on one host.
#[derive(Debug, Clone, Copy)]
pub struct HostExecutor(HostId);

impl HostExecutor {
    /// That of this host.
    #[must_use]
    pub const fn of(host: HostId) -> Self {
        Self(host)
    }
}

impl Executor for HostExecutor {
    /// Nothing runs after the end of the schedule.
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let refused = shared(|shared| {
            if !shared.is_live {
                return Some(task);
            }
            shared.requests.push_back(TaskRequest::Spawn(self.0, task));
            None
        });
        drop(refused);
    }
}
