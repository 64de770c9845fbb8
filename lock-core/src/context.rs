//! What a connection takes from the world around it: time, tasks, unique ids; and the cleanup that belongs to it.

use std::{
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::runtime::Handle;
use uuid::{Builder, Uuid};

use crate::{
    Cleanup, Clock, RenewalOutcome,
    observe::Observer,
    tasks::{Executor, Task, TaskSpawner},
};

/// What `lock-core` gives a connection. One per connection; clones belong to the same connection.
///
/// A backend reads no other clock, starts no task in another way, and makes no unique id by itself. So the same backend runs
/// on a machine and in a simulator, where one seed decides everything. A backend that has to block its thread, as by a call
/// of a file system, does so in `tokio::task::spawn_blocking` or on a thread of its own, and cannot be simulated.
#[derive(Debug, Clone)]
pub struct Context {
    clock: Clock,
    tasks: TaskSpawner,
    ids: Arc<IdSource>,
    cleanup: Cleanup,
    observer: Observer,
}

/// Where a [`Context`] takes its unique ids from: the operating system's random numbers, or a seeded generator.
#[derive(Debug)]
enum IdSource {
    /// The operating system's random numbers.
    System,
    Seeded(Mutex<fastrand::Rng>),
}

impl Context {
    /// The machine's boot-time clock, the present tokio runtime, and the operating system's random numbers.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self::on(Handle::current())
    }

    /// As [`Context::current`], with tasks on `runtime`.
    #[must_use]
    pub fn on(runtime: Handle) -> Self {
        Self::new(Clock::boot(), TaskSpawner::Runtime(runtime), IdSource::System)
    }

    /// A world of one's own, as in a simulator: another clock, another executor, and ids that follow from `seed`.
    #[must_use]
    pub fn custom(clock: Clock, executor: Arc<dyn Executor>, seed: u64) -> Self {
        Self::new(clock, TaskSpawner::Custom(executor), IdSource::Seeded(Mutex::new(fastrand::Rng::with_seed(seed))))
    }

    fn new(clock: Clock, tasks: TaskSpawner, ids: IdSource) -> Self {
        Self {
            clock,
            cleanup: Cleanup::new(clock, tasks.clone()),
            tasks,
            ids: Arc::new(ids),
            observer: Observer::default(),
        }
    }

    /// The same with another clock, and a cleanup of its own.
    #[must_use]
    pub fn with_clock(self, clock: Clock) -> Self {
        Self { clock, cleanup: Cleanup::new(clock, self.tasks.clone()), ..self }
    }

    /// The same with a cleanup that runs on `runtime`, if the context is of this machine: for a backend with a thread of
    /// its own.
    #[must_use]
    pub fn with_cleanup_on(self, runtime: Handle) -> Self {
        match self.tasks {
            TaskSpawner::Custom(_) => self,
            TaskSpawner::Runtime(_) => {
                Self { cleanup: Cleanup::new(self.clock, TaskSpawner::Runtime(runtime)), ..self }
            }
        }
    }

    /// The same connection for tasks on `runtime`, if the context is of this machine: for a backend's thread of its own.
    #[must_use]
    pub fn moved_to(self, runtime: Handle) -> Self {
        match self.tasks {
            TaskSpawner::Custom(_) => self,
            TaskSpawner::Runtime(_) => Self { tasks: TaskSpawner::Runtime(runtime), ..self },
        }
    }

    /// Whether tasks run on an executor of one's own instead of a tokio runtime.
    #[must_use]
    pub const fn is_custom(&self) -> bool {
        matches!(self.tasks, TaskSpawner::Custom(_))
    }

    /// The clock that validity and every limit in time is counted on.
    #[must_use]
    pub const fn clock(&self) -> Clock {
        self.clock
    }

    /// Removes in the background what attempts left on the servers.
    #[must_use]
    pub const fn cleanup(&self) -> &Cleanup {
        &self.cleanup
    }

    /// Runs `future` in the background. It goes on when the returned [`Task`] is dropped.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tasks.spawn(future)
    }

    /// Counts a renewal that took `took`, from its sending until it was answered or given up: for a backend that renews
    /// without a [`Renewer`](crate::Renewer), whose renewals are counted by themselves. Does nothing without the feature
    /// `metrics`.
    pub fn count_renewal(&self, outcome: RenewalOutcome, took: Duration) {
        self.observer.renewed(took);
        self.observer.renewal_outcome(outcome);
    }

    /// Shows how many nodes of a quorum answer and how many are silent, as `count` says in that order: for a backend of
    /// several servers that do not know of each other. Without the feature `metrics` it is not asked.
    pub fn show_quorum(&self, count: impl FnOnce() -> (usize, usize)) {
        self.observer.quorum(count);
    }

    pub(crate) const fn observer(&self) -> &Observer {
        &self.observer
    }

    /// 32 hexadecimal digits that no other connection of any program has.
    #[must_use]
    pub fn unique_id(&self) -> String {
        let id = match self.ids.as_ref() {
            IdSource::System => Uuid::new_v4(),
            IdSource::Seeded(random) => {
                let number = random.lock().unwrap_or_else(PoisonError::into_inner).u128(..);
                Builder::from_random_bytes(number.to_be_bytes()).into_uuid()
            }
        };
        id.simple().to_string()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;

    #[tokio::test]
    async fn a_task_gives_its_result_and_one_that_is_aborted_gives_none() {
        let context = Context::current();
        assert_eq!(context.spawn(async { 7 }).await, Some(7));
        let task = context.spawn(std::future::pending::<()>());
        task.abort();
        assert_eq!(task.await, None);
    }

    #[tokio::test]
    async fn ids_follow_from_the_seed_and_differ_without_one() {
        /// An executor that drops every task instead of running it.
        #[derive(Debug)]
        struct DiscardingExecutor;
        impl Executor for DiscardingExecutor {
            fn spawn(&self, _: BoxFuture<'static, ()>) {}
        }
        let seeded = || Context::custom(Clock::boot(), Arc::new(DiscardingExecutor), 7);
        let (one, other) = (seeded(), seeded());
        let first = one.unique_id();
        assert_eq!((first.len(), &first), (32, &other.unique_id()));
        assert_ne!(first, one.unique_id());
        assert_ne!(Context::current().unique_id(), Context::current().unique_id());
    }
}
