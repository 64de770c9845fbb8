//! A memory server and a connection to it, in virtual time.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use lock_core::{
    Clock, LockName, Locks, Snapshot,
    memory::{Config, Memory, MemoryServer},
};

pub(crate) const TTL: Duration = Duration::from_secs(30);

/// Long enough for anything that ends at all.
pub(crate) const LONG: Duration = Duration::from_secs(3600);

pub(crate) struct World {
    pub(crate) server: MemoryServer,
    pub(crate) memory: Arc<Memory>,
    pub(crate) locks: Locks,
}

impl World {
    pub(crate) fn new() -> Self {
        let server = MemoryServer::with_clock(Clock::runtime());
        let (memory, locks) = connect(&server);
        Self { server, memory, locks }
    }

    /// Another connection to the same server.
    pub(crate) fn other(&self) -> Locks {
        connect(&self.server).1
    }

    pub(crate) fn snapshot(&self, name: &str) -> Snapshot {
        self.server.snapshot(&LockName::new(name).unwrap())
    }

    pub(crate) fn holders(&self, name: &str) -> usize {
        self.snapshot(name).holders.len()
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.snapshot(name).queue.len()
    }

    /// As an operator would who deletes the key or the node.
    pub(crate) fn delete(&self, name: &str) {
        self.server.delete(&LockName::new(name).unwrap());
    }

    pub(crate) async fn until_free(&self, name: &str) {
        until(|| self.holders(name) == 0 && self.waiters(name) == 0).await;
    }

    pub(crate) async fn until_waiters(&self, name: &str, count: usize) {
        until(|| self.waiters(name) == count).await;
    }
}

fn connect(server: &MemoryServer) -> (Arc<Memory>, Locks) {
    let memory = Memory::connect(Config::new(server.clone()).with_ttl(TTL)).unwrap();
    let locks = Locks::new(memory.clone());
    (memory, locks)
}

/// Waits for an event that must come.
pub(crate) async fn until(mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            Clock::runtime().sleep(Duration::from_millis(1)).await;
        }
    };
    Clock::runtime().timeout(LONG, waiting).await.expect("it comes");
}

/// Polls `future` that many times, with other tasks running in between. Whether it is done.
pub(crate) async fn polled<F: Future>(mut future: Pin<&mut F>, times: usize) -> bool {
    for _ in 0..times {
        let done = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await;
        if done {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// As a starved runtime: the time passes within one poll of the caller, and no other task runs.
pub(crate) async fn starve(by: Duration) {
    let mut passing = pin!(tokio::time::advance(by));
    // Its first poll moves the clock; what it waits for afterwards is that other tasks run.
    poll_fn(|cx| Poll::Ready(passing.as_mut().poll(cx).is_ready())).await;
}
