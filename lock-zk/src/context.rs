//! Stands in for `lock_core::Context` until that is there.

use lock_core::{Clock, Janitor};
use tokio::runtime::Handle;

/// Clock, tasks and ids.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    clock: Clock,
    handle: Handle,
    cleanup: Janitor,
}

impl Context {
    pub(crate) fn current() -> Self {
        let (clock, handle) = (Clock::boot(), Handle::current());
        Self { clock, cleanup: Janitor::new(clock, handle.clone()), handle }
    }

    pub(crate) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn spawn<F>(&self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    pub(crate) fn unique_id(&self) -> String {
        uuid::Uuid::new_v4().simple().to_string()
    }

    pub(crate) const fn cleanup(&self) -> &Janitor {
        &self.cleanup
    }
}
