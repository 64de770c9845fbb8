//! Where the tasks of a connection run: on a thread of their own, so that a program whose own runtime is starved does not
//! lose its session; or in a world that is not of this machine.

use std::{future::Future, io, thread};

use lock_core::Context;
use tokio_util::sync::CancellationToken;

/// Where the tasks of a connection's sessions run: the runtime of the context, or a thread of their own. A thread of
/// their own ends, and they with it, when it is told to.
#[derive(Debug)]
pub(crate) struct SessionThread {
    context: Context,
    end: CancellationToken,
}

impl SessionThread {
    /// A thread with a runtime of its own, unless `context` is not of this machine; and the context with its cleanup there.
    pub(crate) fn start(context: Context) -> io::Result<(Context, Self)> {
        let end = CancellationToken::new();
        if context.is_custom() {
            return Ok((context.clone(), Self { context, end }));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        let context = context.with_cleanup_on(runtime.handle().clone());
        let here = context.clone().moved_to(runtime.handle().clone());
        let ended = end.clone();
        thread::Builder::new().name("lock-zk".to_owned()).spawn(move || runtime.block_on(ended.cancelled()))?;
        Ok((context, Self { context: here, end }))
    }

    /// The connection's context, with tasks there.
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
        self.context.spawn(work).await
    }
}
