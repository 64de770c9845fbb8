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

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Whole,
    Held,
    Cut,
    Slow(Duration),
}

/// One link. Clones are the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct SqliteLink(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl SqliteLink {
    /// What the backend's thread passes before each request and before its answer.
    pub(crate) fn failpoint(&self) -> Failpoint {
        let link = self.clone();
        Arc::new(move || link.pass())
    }

    fn pass(&self) -> io::Result<()> {
        let held = self.0.changed.wait_while(self.state(), |state| *state == State::Held);
        let mut state = held.unwrap_or_else(PoisonError::into_inner);
        if let State::Slow(delay) = *state {
            let slow = self.0.changed.wait_timeout_while(state, delay, |state| *state == State::Slow(delay));
            state = slow.unwrap_or_else(PoisonError::into_inner).0;
        }
        match *state {
            State::Cut => Err(io::Error::other("the link was cut")),
            State::Whole | State::Held | State::Slow(_) => Ok(()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, state: State) {
        *self.state() = state;
        self.0.changed.notify_all();
    }
}

#[async_trait]
impl Link for SqliteLink {
    async fn hold(&self) {
        self.set(State::Held);
    }

    async fn cut(&self) {
        self.set(State::Cut);
    }

    async fn slow_down(&self, delay: Duration) {
        self.set(State::Slow(delay));
    }

    async fn heal(&self) {
        self.set(State::Whole);
    }
}
