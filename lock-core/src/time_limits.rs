//! The time limits of requests, most of which are answered long before.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{
    BootInstant, Clock, Context,
    due::{DueTimes, wait},
};

/// Time limits with one timer for all of them, where [`Clock::timeout`] has a timer for each: setting a timer that is due
/// before all others wakes the thread that waits for timers. Here that happens once in a limit, however many requests there
/// are. A limit that passes while this program stands still starts again, once, as that of [`Clock::answer_timeout`] does.
pub struct TimeLimits {
    shared: Arc<LimitsState>,
}

/// One time limit that was started with [`TimeLimits::start`]. Nothing is left of it when it is dropped.
pub struct TimeLimit<'a> {
    shared: &'a LimitsState,
    id: u64,
    passed: Arc<Notify>,
}

/// The state that a [`TimeLimits`], its limits and its task share.
struct LimitsState {
    clock: Clock,
    running: Mutex<RunningLimits>,
    changed: Notify,
}

/// The limits that were started and have not passed, and when each of them does.
#[derive(Default)]
struct RunningLimits {
    due: DueTimes,
    /// By the numbers of the limits.
    limits: HashMap<u64, RunningLimit>,
    next_id: u64,
    closed: bool,
}

/// One of the [`RunningLimits`].
struct RunningLimit {
    until: BootInstant,
    /// How long it takes when it starts again. `None` when it has.
    again: Option<Duration>,
    passed: Arc<Notify>,
}

impl TimeLimits {
    /// Limits by the clock of `context`, in which their task runs.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        let (running, changed) = (Mutex::default(), Notify::new());
        let shared = Arc::new(LimitsState { clock: context.clock(), running, changed });
        drop(context.spawn(run(Arc::clone(&shared))));
        Self { shared }
    }

    /// Starts a limit that passes after `limit`.
    #[must_use]
    pub fn start(&self, limit: Duration) -> TimeLimit<'_> {
        let until = self.shared.clock.now().saturating_add(limit);
        let passed = Arc::new(Notify::new());
        let (id, wakes) = self.shared.running(|running| {
            let id = running.next_id;
            running.next_id += 1;
            running.limits.insert(id, RunningLimit { until, again: Some(limit), passed: Arc::clone(&passed) });
            (id, running.due.add(until, id))
        });
        if wakes {
            self.shared.changed.notify_one();
        }
        TimeLimit { shared: &self.shared, id, passed }
    }
}

impl TimeLimit<'_> {
    /// Resolves when the limit has passed, once.
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn passed(&self) {
        self.passed.notified().await;
    }
}

impl Drop for TimeLimits {
    fn drop(&mut self) {
        self.shared.running(|running| running.closed = true);
        self.shared.changed.notify_one();
    }
}

impl LimitsState {
    fn running<T>(&self, work: impl FnOnce(&mut RunningLimits) -> T) -> T {
        work(&mut self.running.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl RunningLimits {
    /// The signal of a limit that is due; `None` when it starts again.
    fn pass(&mut self, id: u64, clock: Clock) -> Option<Arc<Notify>> {
        let limit = self.limits.get_mut(&id)?;
        // Safeguard: the limit of a request that passes in a standstill starts again
        if let Some(length) = limit.again.take().filter(|_| clock.stood_still(limit.until)) {
            limit.until = clock.now().saturating_add(length);
            let wakes = self.due.add(limit.until, id);
            debug_assert!(!wakes, "the task that is to be woken runs this");
            return None;
        }
        self.limits.remove(&id).map(|limit| limit.passed)
    }
}

impl Drop for TimeLimit<'_> {
    fn drop(&mut self) {
        self.shared.running(|running| {
            if let Some(limit) = running.limits.remove(&self.id) {
                running.due.remove(limit.until, self.id);
            }
        });
    }
}

async fn run(shared: Arc<LimitsState>) {
    loop {
        let now = shared.clock.now();
        let (closed, passed) = shared.running(|running| {
            let ids = running.due.take(now);
            (running.closed, ids.filter_map(|id| running.pass(id, shared.clock)).collect::<Vec<_>>())
        });
        for signal in passed {
            signal.notify_one();
        }
        if closed {
            return;
        }
        let first = shared.running(|running| running.due.sleep());
        wait(shared.clock, first, &shared.changed).await;
    }
}

impl fmt::Debug for TimeLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let running = self.shared.running(|running| running.limits.len());
        f.debug_struct("TimeLimits").field("running", &running).finish_non_exhaustive()
    }
}

impl fmt::Debug for TimeLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimeLimit").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future,
        pin::{Pin, pin},
    };

    use futures_util::FutureExt as _;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn each_limit_passes_at_its_own_time_whatever_the_others_do() {
        let clock = Clock::runtime();
        let limits = TimeLimits::new(&Context::current().with_clock(clock));
        let ended_after = |limit| {
            let limits = &limits;
            async move {
                let started = clock.now();
                limits.start(limit).passed().await;
                clock.now().saturating_since(started)
            }
        };
        for _ in 0..3 {
            // The task sleeps until the long one is over when the short one comes.
            let short = async {
                clock.sleep(SHORT).await;
                ended_after(SHORT).await
            };
            let answered = async {
                let limit = limits.start(SHORT);
                tokio::select! {
                    biased;
                    () = limit.passed() => panic!("it passed before its time"),
                    () = clock.sleep(SHORT / 2) => {}
                }
            };
            let (long, (), short) = tokio::join!(ended_after(LONG), answered, short);
            for (ended, limit) in [(long, LONG), (short, SHORT)] {
                assert!(ended >= limit && ended < 2 * limit, "{ended:?} instead of {limit:?}");
            }
            clock.sleep(LONG).await;
        }
        assert_eq!(limits.shared.running(|running| (running.limits.len(), running.due.first())), (0, None));
    }

    /// Stands still for long, and says whether that limit has passed shortly after.
    async fn stand_still(clock: Clock, mut limit: Pin<&mut (dyn Future<Output = ()> + Send)>) -> bool {
        assert!(limit.as_mut().now_or_never().is_none(), "it runs");
        tokio::time::advance(LONG).await;
        clock.timeout(SHORT / 2, limit).await.is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn a_limit_that_passes_in_a_standstill_starts_again_once() {
        let clock = Clock::runtime();
        let limits = TimeLimits::new(&Context::current().with_clock(clock));
        let mut timeout =
            pin!(clock.answer_timeout(SHORT, future::pending()).map(|never: Option<()>| assert_eq!(never, None)));
        let mut limited = pin!(async { limits.start(SHORT).passed().await });
        for mut limit in [timeout.as_mut() as Pin<&mut (dyn Future<Output = ()> + Send)>, limited.as_mut()] {
            assert!(!stand_still(clock, limit.as_mut()).await);
            assert!(stand_still(clock, limit).await);
        }
    }
}
