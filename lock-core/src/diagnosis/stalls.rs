//! For how long this host, or the runtime of the program, stands still.

use std::time::Duration;

use crate::Clock;

/// How long to look for stalls.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// The pause between two looks at the clock.
const PAUSE: Duration = Duration::from_millis(2);

/// The longest time within a second for which a task that was due did not run.
pub(crate) async fn longest_stall(clock: Clock) -> Duration {
    let begin = clock.now();
    let (mut before, mut longest) = (begin, Duration::ZERO);
    while before.saturating_since(begin) < LOOK {
        clock.sleep(PAUSE).await;
        let now = clock.now();
        longest = longest.max(now.saturating_since(before).saturating_sub(PAUSE));
        before = now;
    }
    longest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_run_for_a_while_is_noticed() {
        let clock = Clock::runtime();
        assert_eq!(longest_stall(clock).await, Duration::ZERO);
        let late = async {
            clock.sleep(LOOK / 2).await;
            tokio::time::advance(LOOK * 2).await;
        };
        let (longest, ()) = tokio::join!(longest_stall(clock), late);
        assert!(longest > LOOK, "{longest:?}");
    }
}
