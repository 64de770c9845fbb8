//! The thread behind all blocking connections, and how a caller waits for what it does.

use std::{
    pin::pin,
    sync::{Arc, Condvar, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

use tokio::runtime::{Builder, Runtime};

use crate::Error;

/// Drives sockets, timers and background tasks. It lives as long as the process, so that no guard outlives it.
static RUNTIME: OnceLock<Runtime> = OnceLock::new();

/// Starts the thread, if it does not run yet.
pub(super) fn start() -> Result<(), Error> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if RUNTIME.get().is_none() {
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("lock-blocking").enable_all().build();
        let runtime =
            runtime.map_err(|error| Error::unavailable("lock::blocking", "its thread cannot be started", error))?;
        // Nobody else has set it meanwhile.
        let _ = RUNTIME.set(runtime);
    }
    Ok(())
}

/// What `future` gives. It is polled on the caller's thread, which sleeps until something has happened. That thread may be
/// one of a runtime: `Runtime::block_on` would panic there.
pub(super) fn wait<F: Future>(future: F) -> F::Output {
    let _timers_and_sockets = RUNTIME.get().map(Runtime::enter);
    let signal = Arc::new(Signal::default());
    let waker = Waker::from(Arc::clone(&signal));
    // Safeguard: a wait in a task of a runtime does not use up that task's share of polls, which would never end
    let mut future = pin!(tokio::task::unconstrained(future));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => signal.wait(),
        }
    }
}

/// Wakes a thread that waits when there is something to look at.
#[derive(Default)]
struct Signal {
    given: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn wait(&self) {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        let mut given = self.changed.wait_while(given, |given| !*given).unwrap_or_else(PoisonError::into_inner);
        *given = false;
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.given.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}
