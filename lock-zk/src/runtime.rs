//! A thread with a runtime of its own, so that a program whose own runtime is starved does not lose its session.

use std::{future::Future, io, thread};

use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::sync::CancellationToken;

/// A runtime on a thread of its own. It ends, and its tasks with it, when it is told to.
#[derive(Debug)]
pub(crate) struct Thread {
    handle: Handle,
    end: CancellationToken,
}

impl Thread {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let (handle, end) = (runtime.handle().clone(), CancellationToken::new());
        let ended = end.clone();
        thread::Builder::new().name("lock-zk".to_owned()).spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(Self { handle, end })
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What ends it, when cancelled.
    pub(crate) const fn end(&self) -> &CancellationToken {
        &self.end
    }

    /// Runs `work` on the thread, to its end even if the returned future is dropped. `None` when the thread has ended.
    pub(crate) async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        self.handle.spawn(async move { drop(answer.send(work.await)) });
        answered.await.ok()
    }
}
