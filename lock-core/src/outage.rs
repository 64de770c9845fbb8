//! An outage of the lock service during an acquisition: what the backend reports of it, and how long it is bridged.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;

use crate::{Backoff, Clock, Error, observe::Observer};

/// The pauses between two tries, to connect or to acquire, while the service does not answer.
pub(crate) const fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(1))
}

/// What a backend reports to `lock-core` while an acquisition waits: whether the service answers. `lock-core` stops the
/// acquisition when an outage has lasted for longer than it is to be bridged, and then reports the outage instead of a wait
/// that was too short. Clones share the report.
///
/// An acquisition that returns [`Error::Unavailable`] need not report it: `lock-core` does, and asks again. A backend reports
/// by itself where it bridges an outage within an acquisition, so that the acquisition keeps its place in the queue.
#[derive(Clone, Default)]
pub struct Outage(Arc<OutageState>);

/// The state that the clones of an [`Outage`] share.
#[derive(Default)]
struct OutageState {
    /// How the service failed last; `None` while it answers.
    failure: Mutex<Option<Error>>,
    changed: Notify,
}

impl Outage {
    fn failure(&self) -> MutexGuard<'_, Option<Error>> {
        self.0.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports that the service does not answer, and how it failed last.
    pub fn failed(&self, error: Error) {
        if self.failure().replace(error).is_none() {
            self.0.changed.notify_one();
        }
    }

    /// Reports that the service answers.
    pub fn answered(&self) {
        if self.failure().take().is_some() {
            self.0.changed.notify_one();
        }
    }

    /// How the service failed last, unless it has answered since.
    pub(crate) fn take(&self) -> Option<Error> {
        self.failure().take()
    }

    /// Resolves when an outage has lasted for `limit`. Each outage is observed while it lasts. One caller at a time waits for that.
    pub(crate) async fn outlasts(&self, limit: Duration, clock: Clock, observer: &Observer) {
        loop {
            let is_failing = self.failure().is_some();
            if !is_failing {
                self.0.changed.notified().await;
                continue;
            }
            let _observed = observer.unanswered();
            if clock.timeout(limit, self.0.changed.notified()).await.is_none() {
                return;
            }
        }
    }
}

impl fmt::Debug for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Outage").field(&*self.failure()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(30);

    fn failure() -> Error {
        Error::no_answer("a test", "nobody answers")
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_counts_from_its_first_failure_and_ends_with_an_answer() {
        let (outage, clock) = (Outage::default(), Clock::runtime());
        let mut outlasted = tokio::spawn({
            let outage = outage.clone();
            async move { outage.outlasts(LIMIT, clock, &Observer::default()).await }
        });
        let begin = clock.now();
        outage.failed(failure());
        clock.sleep(LIMIT / 2).await;
        outage.failed(failure());
        clock.sleep(LIMIT / 4).await;
        outage.answered();
        assert!(
            clock.timeout(2 * LIMIT, &mut outlasted).await.is_none(),
            "an outage that is over has outlasted its limit"
        );
        assert!(outage.take().is_none());

        let second = clock.now();
        outage.failed(failure());
        clock.sleep(LIMIT / 2).await;
        outage.failed(failure());
        outlasted.await.unwrap();
        let lasted = clock.now().saturating_since(second);
        assert!(LIMIT <= lasted && lasted < LIMIT + LIMIT / 4, "{lasted:?} after {:?}", second.saturating_since(begin));
        assert!(matches!(outage.take(), Some(Error::Unavailable { .. })));
    }
}
