//! Outages of the lock service: bridged until the limit of the acquisition, or for as long as the connection says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Backend, Clock, Context, Driver, Error, Locks, LocksOptions, Registry, Scheme, SettingDoc, Settings,
    memory::{Config, Memory, MemoryServer},
};

const OUTAGE_TIMEOUT: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

/// The pauses between two tries are at most a second.
const PAUSE: Duration = SECOND;

fn service() -> (MemoryServer, Locks) {
    let server = MemoryServer::with_clock(Clock::runtime());
    (server.clone(), locks(&server))
}

fn locks(server: &MemoryServer) -> Locks {
    let memory = Memory::connect(Config::new(server.clone())).unwrap();
    Locks::with_options(memory, LocksOptions::default().with_outage_timeout(OUTAGE_TIMEOUT))
}

/// What `future` gives, and how long that took.
async fn timed<T>(future: impl Future<Output = T>) -> (T, Duration) {
    let begin = Clock::runtime().now();
    let output = future.await;
    (output, Clock::runtime().now().saturating_since(begin))
}

/// The server is back after `after`.
fn back(server: &MemoryServer, after: Duration) {
    let server = server.clone();
    tokio::spawn(async move {
        Clock::runtime().sleep(after).await;
        server.set_up(true);
    });
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_without_a_limit_bridges_an_outage_for_as_long_as_the_connection_says() {
    let (server, locks) = service();
    server.set_up(false);
    let (failed, took) = timed(locks.mutex("a").lock()).await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    assert_eq!(took, OUTAGE_TIMEOUT);

    back(&server, OUTAGE_TIMEOUT / 2);
    let (granted, took) = timed(locks.mutex("a").lock()).await;
    granted.unwrap().release().await.unwrap();
    assert!(OUTAGE_TIMEOUT / 2 <= took && took <= OUTAGE_TIMEOUT / 2 + PAUSE, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_limit_bounds_the_outage_too_and_the_error_says_what_was_waited_for() {
    let (server, locks) = service();
    server.set_up(false);
    let (failed, took) = timed(locks.mutex("a").timeout(3 * SECOND).lock()).await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    assert_eq!(took, 3 * SECOND);

    // Longer than the connection would bridge it.
    back(&server, 2 * OUTAGE_TIMEOUT);
    let (granted, _) = timed(locks.mutex("a").timeout(6 * OUTAGE_TIMEOUT).lock()).await;
    granted.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_does_not_wait_and_a_connection_that_bridges_nothing_fail_at_once() {
    let (server, locks) = service();
    let memory = Memory::connect(Config::new(server.clone())).unwrap();
    let impatient = Locks::with_options(memory, LocksOptions::default().with_outage_timeout(Duration::ZERO));
    server.set_up(false);
    let (failed, took) = timed(locks.mutex("a").try_lock()).await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })) && took.is_zero(), "{failed:?} after {took:?}");
    let (failed, took) = timed(impatient.mutex("a").lock()).await;
    assert!(matches!(failed, Err(Error::Unavailable { .. })) && took < SECOND, "{failed:?} after {took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_that_is_over_does_not_count_while_the_acquisition_stands_in_line() {
    let (server, first) = service();
    let second = locks(&server);
    let guard = first.mutex("a").lock().await.unwrap();
    server.set_up(false);
    let waiting = tokio::spawn(async move { second.mutex("a").lock().await });
    // It is seen to fail, and then enters the line.
    Clock::runtime().sleep(SECOND / 2).await;
    server.set_up(true);
    Clock::runtime().sleep(3 * OUTAGE_TIMEOUT).await;
    assert!(!waiting.is_finished(), "{:?}", waiting.await);
    guard.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_bridges_an_outage_hears_of_the_end_of_the_connection_at_once_and_leaves_nothing_when_it_goes_away() {
    let (server, ours) = service();
    server.set_up(false);
    let (mutex, gone) = (ours.mutex("a"), ours.mutex("a"));
    let waiting = tokio::spawn(async move { timed(mutex.lock()).await });
    let limit = Clock::runtime().timeout(SECOND, gone.lock()).await;
    assert!(limit.is_none(), "{limit:?}");
    assert_eq!(ours.drain(OUTAGE_TIMEOUT).await, 0);
    let (failed, took) = waiting.await.unwrap();
    assert!(matches!(failed, Err(Error::Closed)), "{failed:?}");
    assert_eq!(took, SECOND);
    server.set_up(true);
    Clock::runtime().sleep(2 * PAUSE).await;
    assert!(locks(&server).mutex("a").try_lock().await.unwrap().is_some());
}

/// Connects to a memory server once it was asked so often.
#[derive(Debug, Clone)]
struct LateDriver {
    server: MemoryServer,
    refusals: Arc<AtomicU32>,
}

#[async_trait]
impl Driver for LateDriver {
    fn schemes(&self) -> &'static [Scheme] {
        const LATE: Scheme = Scheme { name: "late", summary: "", form: "late://", example: "late://", with_tls: None };
        &[LATE]
    }

    fn settings(&self, _scheme: &str) -> Vec<SettingDoc> {
        Vec::new()
    }

    async fn connect(&self, _settings: Settings, _context: Context) -> Result<Arc<dyn Backend>, Error> {
        if self.refusals.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
            return Err(Error::no_answer("late://", "it is not there yet"));
        }
        Ok(Memory::connect(Config::new(self.server.clone()))?)
    }
}

#[tokio::test]
async fn connecting_bridges_an_outage_within_its_limit() {
    let driver = LateDriver { server: MemoryServer::new(), refusals: Arc::new(AtomicU32::new(3)) };
    let registry = Registry::new().with(driver.clone());
    let connect = |limit| registry.connect_within(Settings::new("late"), limit);
    assert!(matches!(connect(Duration::ZERO).await, Err(Error::Unavailable { .. })));
    assert_eq!(driver.refusals.load(Ordering::Relaxed), 2, "it was tried again although nothing is bridged");
    connect(60 * SECOND).await.unwrap();
    assert_eq!(driver.refusals.load(Ordering::Relaxed), 0);
}
