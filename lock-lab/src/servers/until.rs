//! Waiting for a state of servers.

use std::time::Duration;

use lock_core::{BootInstant, Clock};

use crate::LabError;

/// How long several servers may take to agree on something. Seconds are usual; more on a machine that is busy with other
/// tests.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// The time limit for a condition of servers that is checked again and again.
#[derive(Debug)]
pub(crate) struct RetryLimit {
    what: &'static str,
    deadline: BootInstant,
}

impl RetryLimit {
    /// What is waited for is named in the error.
    pub(crate) fn with(what: &'static str) -> Self {
        Self { what, deadline: Clock::boot().now().saturating_add(LIMIT) }
    }

    /// Waits for the next time to ask; the last reason goes into the error.
    pub(crate) async fn again(&self, reason: String) -> Result<(), LabError> {
        let clock = Clock::boot();
        if clock.now() >= self.deadline {
            let reason = format!("not within {LIMIT:?}: {reason}");
            return Err(LabError::NotStarted { server: self.what.to_owned(), reason, log: String::new() });
        }
        clock.sleep(PAUSE).await;
        Ok(())
    }
}
