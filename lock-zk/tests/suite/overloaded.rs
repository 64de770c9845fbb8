//! Servers that answer, and do nothing of what they are asked: they throttle their clients, or know no better.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures::{
    StreamExt,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use lock_core::{Error, Locks};
use lock_zk::{
    Strategy,
    wire::{
        Answer, Client, Connections, CreateMode, Created, Ensemble, RequestError, Server, SessionState, Stat, Watch,
    },
};

use crate::simulation::{connect_with, simulated};

/// Far more requests than any test here expects.
const ENDLESS: u64 = 100_000;

/// Says the same to every request, and counts them.
#[derive(Debug)]
struct Busy {
    answer: RequestError,
    timeout: Duration,
    asked: Arc<AtomicU64>,
}

#[derive(Debug)]
struct TimedOut;

impl fmt::Display for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server could not find out in time whether it was done")
    }
}

impl std::error::Error for TimedOut {}

impl Busy {
    fn answer<'a, T: Send + 'a>(&'a self) -> Answer<'a, T> {
        let before = self.asked.fetch_add(1, Ordering::Relaxed);
        // Who asks without a pause never lets the simulated time pass in which the test would end.
        assert!(before < ENDLESS, "asked {before} times");
        Box::pin(future::ready(Err(self.answer.clone())))
    }
}

impl Ensemble for Busy {
    fn connect<'a>(&'a self, _: &'a [Server], timeout: Duration) -> Answer<'a, Arc<dyn Client>> {
        let client = Self { answer: self.answer.clone(), timeout, asked: Arc::clone(&self.asked) };
        Box::pin(future::ready(Ok(Arc::new(client) as Arc<dyn Client>)))
    }

    fn connections<'a>(&'a self, servers: &'a [Server]) -> BoxFuture<'a, Connections> {
        Box::pin(future::ready(Connections { servers: servers.to_vec(), is_certain: true }))
    }
}

impl Client for Busy {
    fn session_id(&self) -> i64 {
        7
    }

    fn session_timeout(&self) -> Duration {
        self.timeout
    }

    fn state(&self) -> SessionState {
        SessionState::Connected
    }

    fn states(&self) -> BoxStream<'static, SessionState> {
        stream::iter([SessionState::Connected]).chain(stream::pending()).boxed()
    }

    fn create<'a>(&'a self, _: &'a str, _: &[u8], _: CreateMode) -> Answer<'a, Created> {
        self.answer()
    }

    fn delete<'a>(&'a self, _: &'a str) -> Answer<'a, ()> {
        self.answer()
    }

    fn get_data<'a>(&'a self, _: &'a str) -> Answer<'a, (Vec<u8>, Stat)> {
        self.answer()
    }

    fn set_data<'a>(&'a self, _: &'a str, _: &[u8]) -> Answer<'a, Stat> {
        self.answer()
    }

    fn list_children<'a>(&'a self, _: &'a str) -> Answer<'a, Vec<String>> {
        self.answer()
    }

    fn sync<'a>(&'a self, _: &'a str) -> Answer<'a, ()> {
        self.answer()
    }

    fn watch_data<'a>(&'a self, _: &'a str) -> Answer<'a, (Stat, Watch)> {
        self.answer()
    }

    fn watch_existence<'a>(&'a self, _: &'a str) -> Answer<'a, (Option<Stat>, Watch)> {
        self.answer()
    }

    fn watch_children<'a>(&'a self, _: &'a str) -> Answer<'a, (Vec<String>, Watch)> {
        self.answer()
    }

    fn create_and_delete<'a>(&'a self, _: &str, _: &[u8], _: &str) -> Answer<'a, ()> {
        self.answer()
    }

    fn set_and_delete<'a>(&'a self, _: &str, _: &[u8]) -> Answer<'a, ()> {
        self.answer()
    }
}

#[test]
fn a_server_that_has_too_much_to_do_is_asked_again_with_growing_pauses() {
    simulated(async |servers| {
        for strategy in [Strategy::Queue, Strategy::Herd] {
            for answer in [RequestError::Throttled, RequestError::Unknown(Arc::new(TimedOut))] {
                let asked = Arc::new(AtomicU64::new(0));
                let busy = Busy { answer, timeout: Duration::ZERO, asked: Arc::clone(&asked) };
                let config = servers.config(1).with_strategy(strategy).with_ensemble(Arc::new(busy));
                let locks = Locks::new(connect_with(&servers, 1, config).await);
                let mutex = locks.mutex("busy").timeout(Duration::from_millis(500));
                let refused = mutex.lock().await.unwrap_err();
                assert!(matches!(refused, Error::NotAcquired { .. }), "{strategy}: {refused}");
                let asked = asked.load(Ordering::Relaxed);
                // Without pauses between them there is no end to the requests of one moment.
                assert!((2..400).contains(&asked), "{strategy}: {asked} requests");
            }
        }
    });
}
