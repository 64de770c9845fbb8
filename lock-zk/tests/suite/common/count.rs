//! Requests and watches, counted on the server.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lock_core::Locks;
use lock_lab::servers;
use lock_zk::{Config, ZooKeeper};

use super::config;

/// A quiet connection: with this tick the heartbeat sends nothing within a test.
pub(crate) fn quiet(port: u16) -> Config {
    config(port).with_session_timeout(Duration::from_secs(60)).with_tick_time(Duration::from_secs(20))
}

pub(crate) async fn quiet_locks(port: u16) -> Locks {
    Locks::new(ZooKeeper::connect(quiet(port)).await.unwrap())
}

/// Counts the requests that a server receives from its clients.
pub(crate) struct Count<'a> {
    server: &'a servers::ZooKeeper,
    start: u64,
    /// The server counts the questions, too.
    questions: AtomicU64,
    per_question: u64,
}

impl<'a> Count<'a> {
    pub(crate) async fn start(server: &'a servers::ZooKeeper) -> Self {
        let first = server.packets().await.unwrap();
        let start = server.packets().await.unwrap();
        Self { server, start, questions: AtomicU64::new(0), per_question: start - first }
    }

    /// How many watches the server keeps, as a question that is not counted.
    pub(crate) async fn watches(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed);
        watches(self.server).await
    }

    pub(crate) async fn requests(&self) -> u64 {
        let questions = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        self.server.packets().await.unwrap() - self.start - questions * self.per_question
    }
}

/// How many watches the server keeps.
pub(crate) async fn watches(server: &servers::ZooKeeper) -> u64 {
    server.monitor(0).await.unwrap()["zk_watch_count"].parse().unwrap()
}
