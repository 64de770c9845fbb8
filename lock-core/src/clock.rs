//! Time: the boot-time clock that validity is counted on, and the one place that reads a wall clock.

use std::{
    fmt,
    pin::pin,
    sync::OnceLock,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use futures_util::future::BoxFuture;
use rustix::time::{ClockId, clock_gettime};

/// A point on the boot-time clock of this machine (`CLOCK_BOOTTIME`, see `clock_gettime(2)`), which never jumps and runs on
/// through a suspend. Instants of one machine can be compared across processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// The instant `nanos` nanoseconds after the machine was booted.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the machine was booted.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This instant and `by`, or the last instant there is.
    #[must_use]
    pub fn saturating_add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// This instant less `by`, or the moment of booting.
    #[must_use]
    pub fn saturating_sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }

    /// How long after `earlier` this instant is; zero when it is not after it.
    #[must_use]
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Debug for BootInstant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "boot+{:?}", Duration::from_nanos(self.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Which clock a backend counts on: the machine's, or in tests the runtime's own, which can be paused and advanced, or any
/// other.
#[derive(Debug, Clone, Copy, Default)]
pub struct Clock(ClockSource);

/// Where a [`Clock`] reads the time: the machine's boot-time clock, the clock of the tokio runtime, or a custom
/// [`TimeSource`].
#[derive(Debug, Clone, Copy, Default)]
enum ClockSource {
    #[default]
    Boot,
    Runtime,
    Custom(&'static dyn TimeSource),
}

/// A clock of one's own, as a simulator has it.
pub trait TimeSource: fmt::Debug + Send + Sync {
    /// The present moment. It never runs backwards.
    fn now(&self) -> BootInstant;

    /// The wall clock in microseconds since 1970, which may jump.
    fn wall_micros(&self) -> u64;

    /// Resolves when [`TimeSource::now`] is `deadline` or later.
    fn sleep_until(&self, deadline: BootInstant) -> BoxFuture<'static, ()>;
}

/// Timers stand still in a suspend, so a longer sleep is cut into slices and the clock is read again after each.
const SLICE: Duration = Duration::from_millis(250);

/// Who wakes up later than this did not run for a while: its process, its runtime or its machine stood still. Timers and a busy
/// scheduler are late by a few milliseconds.
const STANDSTILL: Duration = Duration::from_millis(50);

/// Where the runtime's clock is put on the scale of `BootInstant`: far enough from zero that two paused runtimes in one
/// process, whose clocks disagree, both stay above it.
const RUNTIME_ORIGIN: Duration = Duration::from_secs(1 << 28);

impl Clock {
    /// The boot-time clock of this machine.
    #[must_use]
    pub const fn boot() -> Self {
        Self(ClockSource::Boot)
    }

    /// The clock of the current tokio runtime: virtual time in a test that pauses it.
    #[must_use]
    pub const fn runtime() -> Self {
        Self(ClockSource::Runtime)
    }

    /// A clock that shows the time of `source`.
    #[must_use]
    pub const fn custom(source: &'static dyn TimeSource) -> Self {
        Self(ClockSource::Custom(source))
    }

    /// The present moment.
    #[must_use]
    pub fn now(self) -> BootInstant {
        match self.0 {
            ClockSource::Boot => {
                let now = clock_gettime(ClockId::Boottime);
                let nanos = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
                BootInstant(nanos)
            }
            ClockSource::Runtime => runtime_now(),
            ClockSource::Custom(source) => source.now(),
        }
    }

    /// The wall clock in microseconds since 1970. It may jump: it proposes fencing tokens and tells people when something
    /// was, and never decides validity.
    #[must_use]
    pub fn wall_micros(self) -> u64 {
        match self.0 {
            ClockSource::Custom(source) => source.wall_micros(),
            ClockSource::Boot | ClockSource::Runtime => wall_micros(),
        }
    }

    /// Sleeps until `deadline`, also across a suspend of the machine (late by at most a quarter of a second after it).
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn sleep_until(self, deadline: BootInstant) {
        loop {
            let left = deadline.saturating_since(self.now());
            if left.is_zero() {
                return;
            }
            let slice = match self.0 {
                ClockSource::Boot => left.min(SLICE),
                ClockSource::Runtime => left,
                ClockSource::Custom(source) => {
                    source.sleep_until(deadline).await;
                    continue;
                }
            };
            sleep_on_runtime(slice).await;
        }
    }

    /// Sleeps for `duration`; see [`Clock::sleep_until`].
    ///
    /// # Cancel safety
    /// Nothing is lost when the future is dropped.
    pub async fn sleep(self, duration: Duration) {
        self.sleep_until(self.now().saturating_add(duration)).await;
    }

    /// Whether this program did not run as that time passed.
    pub(crate) fn stood_still(self, due: BootInstant) -> bool {
        self.now().saturating_since(due) >= STANDSTILL
    }

    /// Runs `future` for at most `limit`; `None` when it took longer and was dropped.
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub async fn timeout<F: Future>(self, limit: Duration, future: F) -> Option<F::Output> {
        tokio::select! {
            biased;
            done = future => Some(done),
            () = self.sleep(limit) => None,
        }
    }

    /// As [`Clock::timeout`], for a `future` that waits for an answer: it has `limit` once more when this program stood still as
    /// that passed. What has arrived meanwhile is seen only now, and a server that stood still as well has not had that time.
    ///
    /// # Cancel safety
    /// As that of `future`.
    pub async fn answer_timeout<F: Future>(self, limit: Duration, future: F) -> Option<F::Output> {
        let mut future = pin!(future);
        let passes_at = self.now().saturating_add(limit);
        let done = self.timeout(limit, future.as_mut()).await;
        // Safeguard: an answer is waited for again after a standstill
        if done.is_none() && self.stood_still(passes_at) {
            return self.timeout(limit, future).await;
        }
        done
    }
}

#[allow(clippy::disallowed_methods)] // This module is the one that the lint sends everybody to.
async fn sleep_on_runtime(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[allow(clippy::disallowed_methods)] // As above.
fn runtime_now() -> BootInstant {
    static ORIGIN: OnceLock<tokio::time::Instant> = OnceLock::new();
    let now = tokio::time::Instant::now();
    let origin = *ORIGIN.get_or_init(|| now);
    let scale = BootInstant(nanos(RUNTIME_ORIGIN));
    if now >= origin { scale.saturating_add(now - origin) } else { scale.saturating_sub(origin - now) }
}

/// The wall clock in microseconds since 1970. It may jump: it proposes fencing tokens and tells people when something
/// was, and never decides validity.
#[must_use]
#[allow(clippy::disallowed_methods)] // The one place that reads the wall clock.
pub fn wall_micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_clock_does_not_run_backwards() {
        let first = Clock::boot().now();
        assert!(Clock::boot().now() >= first);
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtime_clock_is_virtual_in_a_paused_runtime() {
        let before = Clock::runtime().now();
        Clock::runtime().sleep(Duration::from_secs(3600)).await;
        assert!(Clock::runtime().now().saturating_since(before) >= Duration::from_secs(3600));
    }
}
