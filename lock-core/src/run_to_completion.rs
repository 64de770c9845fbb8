//! Cancel-safety, written once.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::Context as World;

/// A future that is never dropped half-way: when its caller drops it, it is told to stop and moves to the runtime, where it
/// ends in order. [`TaskTracker`] lets a closing program wait for that. On the normal path there is no task and no
/// channel: polling it polls the future itself.
pub(crate) struct RunToCompletion<T: Send + 'static> {
    running: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    stop: CancellationToken,
    tracker: TaskTracker,
    world: World,
}

impl<T: Send + 'static> RunToCompletion<T> {
    /// Wraps `future`, which ends soon after `stop` is cancelled.
    pub(crate) fn new<F>(stop: CancellationToken, tracker: TaskTracker, world: World, future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Self { running: Some(Box::pin(future)), stop, tracker, world }
    }
}

impl<T: Send + 'static> Future for RunToCompletion<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Out of its place while it is polled, so that one that panics is not polled again in the background.
        let mut running = self.running.take().expect("a finished future is not polled again");
        let polled = running.as_mut().poll(cx);
        if polled.is_pending() {
            self.running = Some(running);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for RunToCompletion<T> {
    fn drop(&mut self) {
        let Some(rest) = self.running.take() else { return };
        self.stop.cancel();
        // What it still returns is dropped there; a guard releases itself.
        let rest = self.tracker.track_future(async move { drop(rest.await) });
        drop(self.world.spawn(rest));
    }
}

impl<T: Send + 'static> fmt::Debug for RunToCompletion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunToCompletion").field("running", &self.running.is_some()).finish_non_exhaustive()
    }
}
