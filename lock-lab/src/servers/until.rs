//! Waiting for a state of servers.

use std::time::Duration;

use lock_core::Clock;

use crate::LabError;

/// How long several servers may take to agree on something. Seconds are usual; more on a machine that is busy with other
/// tests.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Asks again and again until the answer is `Ok`; the last other answer goes into the error.
pub(super) async fn until<T>(what: &str, ask: impl AsyncFn() -> Result<T, String>) -> Result<T, LabError> {
    let clock = Clock::boot();
    let deadline = clock.now().saturating_add(LIMIT);
    loop {
        match ask().await {
            Ok(answer) => return Ok(answer),
            Err(reason) if clock.now() >= deadline => {
                let reason = format!("not within {LIMIT:?}: {reason}");
                return Err(LabError::NotStarted { server: what.to_owned(), reason, log: String::new() });
            }
            Err(_) => clock.sleep(PAUSE).await,
        }
    }
}
