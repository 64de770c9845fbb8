//! What lies between a connection and its database: nothing that could be pulled out, so the backend's failpoint stands in
//! for a disk that stands still, that fails, or that is slow.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::conformance::Link;
use lock_sqlite_example::Failpoint;

/// The state of a connection's link to the database: whole, held up, cut or slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum LinkState {
    #[default]
    Whole,
    Held,
    Cut,
    Slow(Duration),
}

/// The [`Link`] of one connection to the database, which conformance cases can hold up or cut. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SqliteLink(Arc<LinkShared>);

/// The state that the clones of a [`SqliteLink`] share.
#[derive(Debug, Default)]
struct LinkShared {
    state: Mutex<LinkState>,
    changed: Condvar,
}

impl SqliteLink {
    /// What the backend's thread passes before each request and before its answer.
    pub(crate) fn failpoint(&self) -> Failpoint {
        let link = self.clone();
        Arc::new(move || link.pass())
    }

    fn pass(&self) -> io::Result<()> {
        let held = self.0.changed.wait_while(self.state(), |state| *state == LinkState::Held);
        let mut state = held.unwrap_or_else(PoisonError::into_inner);
        if let LinkState::Slow(delay) = *state {
            let slow = self.0.changed.wait_timeout_while(state, delay, |state| *state == LinkState::Slow(delay));
            state = slow.unwrap_or_else(PoisonError::into_inner).0;
        }
        match *state {
            LinkState::Cut => Err(io::Error::other("the link was cut")),
            LinkState::Whole | LinkState::Held | LinkState::Slow(_) => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, LinkState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: LinkState) {
        *self.state() = state;
        self.0.changed.notify_all();
    }
}

#[async_trait]
impl Link for SqliteLink {
    async fn hold(&self) {
        self.set(LinkState::Held);
    }

    async fn cut(&self) {
        self.set(LinkState::Cut);
    }

    async fn slow_down(&self, delay: Duration) {
        self.set(LinkState::Slow(delay));
    }

    async fn heal(&self) {
        self.set(LinkState::Whole);
    }
}
