//! Waiting for events, with a limit that no working backend comes near.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use super::{Failure, failure::CaseResult};
use crate::{Backoff, Clock};

/// How long to wait for what happens at once, or after a short ttl. Far above both, and above the time for which a machine or its
/// disk stands still now and then: a case that reaches it hangs.
pub(super) const LIMIT: Duration = Duration::from_secs(50);

/// How long a whole case may take: thousands of grants on a busy machine.
pub(super) const CASE_LIMIT: Duration = Duration::from_secs(1800);

/// The pauses between two looks at a server: what comes at once is seen at once, and a long wait leaves the machine to others.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(3), Duration::from_millis(50));

/// What `future` gives, within [`LIMIT`].
#[track_caller]
pub(super) fn within<F: Future + Send>(what: &str, future: F) -> impl Future<Output = CaseResult<F::Output>> + Send {
    let late = Failure::new(format!("{what} took longer than {LIMIT:?}"));
    async move { Clock::runtime().timeout(LIMIT, future).await.ok_or(late) }
}

/// Looks again and again until there is something to see, within [`LIMIT`].
#[track_caller]
pub(super) fn eventually<T, L, A>(what: &str, mut look: L) -> impl Future<Output = CaseResult<T>> + Send
where
    T: Send,
    L: FnMut() -> A + Send,
    A: Future<Output = CaseResult<Option<T>>> + Send,
{
    let late = Failure::new(format!("within {LIMIT:?} it did not come to this: {what}"));
    async move {
        let (clock, mut pauses) = (Clock::runtime(), PAUSES);
        let seen = clock.timeout(LIMIT, async {
            loop {
                if let Some(seen) = look().await? {
                    return Ok(seen);
                }
                clock.sleep(pauses.pause()).await;
            }
        });
        seen.await.unwrap_or(Err(late))
    }
}

/// The moment at which [`PollAtMost`] drops its future, once that was polled often enough.
#[derive(Debug, Clone, Copy)]
pub(super) enum DropWhen {
    /// Right after its last poll: what that poll sent is under way.
    Polled,
    /// When it is woken for the next: what it waited for has happened, and it has not seen it.
    Woken,
}

/// A future that polls another one a limited number of times, then drops that one and resolves to `None`. Runs as a task
/// of its own, so that it is polled only when the future itself was woken.
pub(super) struct PollAtMost<F> {
    future: Option<Pin<Box<F>>>,
    left: usize,
    drop_when: DropWhen,
}

impl<F: Future> PollAtMost<F> {
    pub(super) fn new(polls: usize, drop_when: DropWhen, future: F) -> Self {
        Self { future: Some(Box::pin(future)), left: polls, drop_when }
    }
}

impl<F: Future> Future for PollAtMost<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let left = self.left;
        let Some(future) = self.future.as_mut().filter(|_| left > 0) else {
            self.future = None;
            return Poll::Ready(None);
        };
        let polled = future.as_mut().poll(cx);
        self.left -= 1;
        match (polled, self.drop_when) {
            (Poll::Ready(done), _) => Poll::Ready(Some(done)),
            (Poll::Pending, DropWhen::Polled) if self.left == 0 => {
                self.future = None;
                Poll::Ready(None)
            }
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}
