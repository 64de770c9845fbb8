//! Where the tasks of a connection run: on a thread of their own, so that a program whose own runtime is starved does not
//! lose its session; or in a given context.

use std::{future::Future, io, thread};

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::context::Context;

/// Where the tasks of a connection run. A thread of their own ends, and they with it, when it is told to.
#[derive(Debug)]
pub(crate) struct SessionThread {
    context: Context,
    end: CancellationToken,
}

impl SessionThread {
    /// A thread with a runtime of its own.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let context = {
            let _entered = runtime.enter();
            Context::current()
        };
        let this = Self::within(context);
        let ended = this.end.clone();
        thread::Builder::new().name("lock-zk".to_owned()).spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok(this)
    }

    /// No thread: the tasks run in `context`.
    pub(crate) fn within(context: Context) -> Self {
        Self { context, end: CancellationToken::new() }
    }

    pub(crate) const fn context(&self) -> &Context {
        &self.context
    }

    /// What ends it, when cancelled.
    pub(crate) const fn end(&self) -> &CancellationToken {
        &self.end
    }

    /// Runs `work` there, to its end even if the returned future is dropped. `None` when the thread has ended.
    pub(crate) async fn run<F>(&self, work: F) -> Option<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        drop(self.context.spawn(async move { drop(answer.send(work.await)) }));
        answered.await.ok()
    }
}
