//! The cleanup: removes from the server what cancelled or failed attempts left there.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{Backoff, BootInstant, Clock, Error, tasks::TaskSpawner};

/// Keeps trying until what was left is gone, or has certainly ended by itself. One per connection; clones share it.
#[derive(Debug, Clone)]
pub struct Cleanup {
    clock: Clock,
    tasks: TaskSpawner,
    tracker: TaskTracker,
    given_up: CancellationToken,
}

impl Cleanup {
    pub(crate) fn new(clock: Clock, tasks: TaskSpawner) -> Self {
        Self { clock, tasks, tracker: TaskTracker::new(), given_up: CancellationToken::new() }
    }

    /// Calls `attempt` until it succeeds, the connection is closed ([`Error::Closed`]), or `until` has passed (when what was
    /// left has ended by its ttl), with growing pauses. May be called from any thread.
    pub fn clean<F, A>(&self, what: &'static str, until: BootInstant, mut attempt: F)
    where
        F: FnMut() -> A + Send + 'static,
        A: Future<Output = Result<(), Error>> + Send,
    {
        let clock = self.clock;
        self.spawn(async move {
            let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
            while let Err(error) = attempt().await {
                if matches!(error, Error::Closed) || clock.now() >= until {
                    tracing::debug!(what, %error, "left to its ttl");
                    return;
                }
                tracing::debug!(what, %error, "not cleaned yet");
                clock.sleep(backoff.pause()).await;
            }
        });
    }

    /// Runs `work` in the background, once.
    pub fn spawn<F>(&self, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let given_up = self.given_up.clone();
        let work = async move {
            given_up.run_until_cancelled(work).await;
        };
        drop(self.tasks.spawn(self.tracker.track_future(work)));
    }

    /// Waits until everything is clean, for at most `limit`, and gives up what is not, for the connection ends. Returns
    /// whether all was clean.
    ///
    /// # Cancel safety
    /// When the future is dropped, the work goes on.
    pub async fn close(&self, limit: Duration) -> bool {
        self.tracker.close();
        let clean = self.clock.timeout(limit, self.tracker.wait()).await.is_some();
        if !clean {
            self.given_up.cancel();
        }
        self.tracker.reopen();
        clean
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicU32, Ordering},
        },
    };

    use super::*;
    use crate::Context;

    #[tokio::test(start_paused = true)]
    async fn what_is_not_clean_in_time_is_given_up() {
        let clock = Clock::runtime();
        let cleanup = Context::current().with_clock(clock).cleanup().clone();
        let (tried, until) = (Arc::new(AtomicU32::new(0)), clock.now().saturating_add(Duration::from_secs(3600)));
        let attempts = Arc::clone(&tried);
        cleanup.clean("a test", until, move || {
            attempts.fetch_add(1, Ordering::Relaxed);
            async { Err(Error::no_answer("a test", "nobody answers")) }
        });
        cleanup.spawn(pending());
        let limit = Duration::from_secs(1);
        assert!(clock.timeout(limit / 2, cleanup.close(limit)).await.is_none(), "it waits");
        assert!(!cleanup.close(limit).await);
        let before = tried.load(Ordering::Relaxed);
        assert!(before > 1, "it was tried again although the first one that closed was not patient");
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(tried.load(Ordering::Relaxed), before);
        assert!(cleanup.close(limit).await, "nothing is left");
    }
}
