//! Cancel-safety, written once.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::Context as World;

/// Where a connection runs what its callers do not wait for any more.
pub(crate) struct Background {
    pub(crate) context: World,
    /// A closing program waits for what is tracked here.
    pub(crate) tasks: TaskTracker,
}

/// A future that is never dropped half-way: when its caller drops it, it is told to stop and moves to the background, where
/// it ends in order. On the normal path there is no task and no channel: polling it polls the future itself.
pub(crate) struct RunToCompletion<T: Send + 'static> {
    running: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    /// `None` for a future that ends by itself.
    stop: Option<CancellationToken>,
    background: Arc<Background>,
}

impl Background {
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        drop(self.context.spawn(self.tasks.track_future(future)));
    }
}

impl<T: Send + 'static> RunToCompletion<T> {
    /// Wraps `future`, which ends soon after `stop` is cancelled, or soon by itself.
    pub(crate) fn new<F>(stop: Option<CancellationToken>, background: &Arc<Background>, future: F) -> Self
    where
        F: Future<Output = T> + Send + 'static,
    {
        Self { running: Some(Box::pin(future)), stop, background: Arc::clone(background) }
    }

    /// Has it end soon.
    pub(crate) fn stop(&self) {
        self.stop.iter().for_each(CancellationToken::cancel);
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
        self.stop();
        // What it still returns is dropped there; a guard releases itself.
        self.background.spawn(async move { drop(rest.await) });
    }
}

impl<T: Send + 'static> fmt::Debug for RunToCompletion<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunToCompletion").field("running", &self.running.is_some()).finish_non_exhaustive()
    }
}
