//! Where tasks run, and a task that runs.

use std::{
    fmt::Debug,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
};

use futures_util::future::{AbortHandle, Abortable, BoxFuture};
use tokio::{runtime::Handle, sync::oneshot};

/// Runs the tasks of a [`Context`](crate::Context) that is not of this machine's runtime.
pub trait Executor: Debug + Send + Sync {
    /// Runs `task` to its end, without anybody who waits for it.
    fn spawn(&self, task: BoxFuture<'static, ()>);
}

/// What runs the tasks of a context: a tokio runtime, or a custom [`Executor`].
#[derive(Debug, Clone)]
pub(crate) enum TaskSpawner {
    Runtime(Handle),
    Custom(Arc<dyn Executor>),
}

impl TaskSpawner {
    pub(crate) fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (abort, registration) = AbortHandle::new_pair();
        let (done, result) = oneshot::channel();
        let task = async move {
            if let Ok(output) = Abortable::new(future, registration).await {
                let _ = done.send(output);
            }
        };
        match self {
            Self::Runtime(handle) => drop(handle.spawn(task)),
            Self::Custom(executor) => executor.spawn(Box::pin(task)),
        }
        Task { abort, result }
    }
}

/// A background task. As a future it gives what the task returned, or `None` when it was aborted, panicked, or its runtime
/// ended.
#[derive(Debug)]
pub struct Task<T> {
    abort: AbortHandle,
    result: oneshot::Receiver<T>,
}

impl<T> Task<T> {
    /// Has the task dropped as soon as it is not running.
    pub fn abort(&self) {
        self.abort.abort();
    }

    /// The means to abort it, for whoever does not wait for it.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        self.abort.clone()
    }
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut std::task::Context<'_>) -> Poll<Option<T>> {
        Poll::Ready(ready!(Pin::new(&mut self.result).poll(context)).ok())
    }
}
