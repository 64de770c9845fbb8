//! The janitor: removes from the server what cancelled or failed attempts left there.

use std::{future::Future, time::Duration};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::{Backoff, BootInstant, Clock, Error};

/// Keeps trying until what was left is gone, or has certainly ended by itself. One per connection; clones share it.
#[derive(Debug, Clone)]
pub struct Janitor {
    clock: Clock,
    runtime: Handle,
    tasks: TaskTracker,
}

impl Janitor {
    /// A janitor whose work runs on `runtime`.
    #[must_use]
    pub fn new(clock: Clock, runtime: Handle) -> Self {
        Self { clock, runtime, tasks: TaskTracker::new() }
    }

    /// Calls `attempt` until it succeeds or `until` has passed (when what was left has ended by its ttl), with growing
    /// pauses. May be called from any thread.
    pub fn clean<F, A>(&self, what: &'static str, until: BootInstant, mut attempt: F)
    where
        F: FnMut() -> A + Send + 'static,
        A: Future<Output = Result<(), Error>> + Send,
    {
        let clock = self.clock;
        let work = async move {
            let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
            while let Err(error) = attempt().await {
                if clock.now() >= until {
                    tracing::debug!(what, %error, "left to its ttl");
                    return;
                }
                tracing::debug!(what, %error, "not cleaned yet");
                clock.sleep(backoff.pause()).await;
            }
        };
        self.tasks.spawn_on(work, &self.runtime);
    }

    /// Runs `work` in the background, once.
    pub fn spawn<F>(&self, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn_on(work, &self.runtime);
    }

    /// Waits until everything is clean, for at most `limit`. Returns whether it is.
    pub async fn drain(&self, limit: Duration) -> bool {
        self.tasks.close();
        let drained = self.clock.timeout(limit, self.tasks.wait()).await.is_some();
        self.tasks.reopen();
        drained
    }
}
