//! The time limits of requests, most of which are answered long before.

use std::{
    collections::HashMap,
    fmt,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    BootInstant, Clock, Context,
    due::{DueTimes, wait},
};

/// Limits futures in time with one timer for all of them, as [`Clock::timeout`] does with a timer for each: setting a timer
/// that is due before all others wakes the thread that waits for timers. Here that happens once in a limit, however many
/// requests there are.
pub struct TimeLimits {
    shared: Arc<Shared>,
}

/// What the limits and the task share that watches them.
struct Shared {
    clock: Clock,
    book: Mutex<Book>,
    changed: Notify,
}

/// The futures that have a limit.
#[derive(Default)]
struct Book {
    due: DueTimes,
    /// Whom to tell that its time is over.
    limited: HashMap<u64, Arc<Notify>>,
    next_id: u64,
    closed: bool,
}

/// One future that has a limit.
struct Limited<'a> {
    shared: &'a Shared,
    until: BootInstant,
    id: u64,
    over: Arc<Notify>,
}

impl TimeLimits {
    /// Limits by the clock of `context`, in which their task runs.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let shared = Arc::new(Shared { clock: context.clock(), book: Mutex::default(), changed: Notify::new() });
        drop(context.spawn(run(Arc::clone(&shared))));
        Self { shared }
    }

    /// Runs `future` for at most `limit`; `None` when it took longer and was dropped.
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub async fn timeout<F: Future>(&self, limit: Duration, future: F) -> Option<F::Output> {
        let limited = self.shared.limit(limit);
        tokio::select! {
            biased;
            done = future => Some(done),
            () = limited.over.notified() => None,
        }
    }
}

impl Drop for TimeLimits {
    fn drop(&mut self) {
        self.shared.book(|book| book.closed = true);
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn book<T>(&self, work: impl FnOnce(&mut Book) -> T) -> T {
        work(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn limit(&self, limit: Duration) -> Limited<'_> {
        let until = self.clock.now().saturating_add(limit);
        let over = Arc::new(Notify::new());
        let (id, wakes) = self.book(|book| {
            let id = book.next_id;
            book.next_id += 1;
            book.limited.insert(id, Arc::clone(&over));
            (id, book.due.add(until, id))
        });
        if wakes {
            self.changed.notify_one();
        }
        Limited { shared: self, until, id, over }
    }
}

impl Drop for Limited<'_> {
    fn drop(&mut self) {
        self.shared.book(|book| {
            book.due.remove(self.until, self.id);
            book.limited.remove(&self.id);
        });
    }
}

async fn run(shared: Arc<Shared>) {
    loop {
        let now = shared.clock.now();
        let (closed, over) = shared.book(|book| {
            let ids = book.due.take(now);
            (book.closed, ids.filter_map(|id| book.limited.remove(&id)).collect::<Vec<_>>())
        });
        for limited in over {
            limited.notify_one();
        }
        if closed {
            return;
        }
        let first = shared.book(|book| book.due.sleep());
        wait(shared.clock, first, &shared.changed).await;
    }
}

impl fmt::Debug for TimeLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limited = self.shared.book(|book| book.limited.len());
        f.debug_struct("TimeLimits").field("limited", &limited).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn each_future_ends_at_its_own_limit_whatever_the_others_do() {
        let clock = Clock::runtime();
        let limits = TimeLimits::new(&Context::current().with_clock(clock));
        let ended_after = |limit| {
            let limits = &limits;
            async move {
                let started = clock.now();
                assert_eq!(limits.timeout(limit, pending::<()>()).await, None);
                clock.now().saturating_since(started)
            }
        };
        for _ in 0..3 {
            // The task sleeps until the long one is over when the short one comes.
            let short = async {
                clock.sleep(SHORT).await;
                ended_after(SHORT).await
            };
            let (long, answered, short) =
                tokio::join!(ended_after(LONG), limits.timeout(SHORT, clock.sleep(SHORT / 2)), short);
            assert_eq!(answered, Some(()));
            for (ended, limit) in [(long, LONG), (short, SHORT)] {
                assert!(ended >= limit && ended < 2 * limit, "{ended:?} instead of {limit:?}");
            }
            clock.sleep(LONG).await;
        }
        assert_eq!(limits.shared.book(|book| (book.limited.len(), book.due.first())), (0, None));
    }
}
