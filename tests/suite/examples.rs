//! The example programs, on real servers: what their first comments say that they do.

use std::path::PathBuf;

use lock::{Clock, Locks};
use lock_lab::servers::{Redis, free_port};
use rustix::process::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::example::{Example, LIMIT, until};

/// A lock service on Redis whose leases are short, and a directory for a store.
struct World {
    server: Redis,
    url: String,
    locks: Locks,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let server = Redis::start().await.unwrap();
        // Longer than a machine with too much to do may stand still; the server answers, if late.
        let url = format!("{}?ttl=6s&response_timeout=20s", server.url());
        let locks = lock::connect(&url).await.unwrap();
        Self { server, url, locks, dir: tempfile::tempdir().unwrap() }
    }

    fn store(&self) -> PathBuf {
        self.dir.path().join("store.db")
    }

    /// Waits until somebody waits for the lock.
    async fn somebody_waits(&self, name: &str) {
        until(|| async { !self.locks.inspect(name).await.unwrap().queue.is_empty() }).await;
    }

    /// An instance of the web service with a patience in seconds, and its port.
    async fn service(&self, patience: &str) -> (Example, u16) {
        let port = free_port();
        let (address, store) = (format!("127.0.0.1:{port}"), self.store());
        let mut service = Example::start("axum_service", &self.url, &[&address, store.to_str().unwrap(), patience]);
        assert_eq!(service.line().await, format!("listening on http://{address}"));
        (service, port)
    }

    fn worker(&self, arguments: &[&str]) -> Example {
        let store = self.store();
        let arguments = [&[store.to_str().unwrap()], arguments].concat();
        Example::start("batch_worker", &self.url, &arguments)
    }
}

/// The status of an answer over HTTP, and all of its text.
async fn ship(port: u16, order: &str) -> (u16, String) {
    let asked = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("POST /orders/{order}/ship HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    let text = Clock::boot().timeout(LIMIT, asked).await.expect("an answer in time");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no answer: {text:?}")), text)
}

#[tokio::test]
async fn two_instances_of_the_service_ship_an_order_once_and_tell_busy_from_out_of_reach() {
    let mut world = World::new().await;
    let (_one, first) = world.service("5").await;
    let (_other, second) = world.service("5").await;

    let (status, text) = ship(first, "4711").await;
    assert!(status == 200 && text.contains("order 4711 shipped with token "), "{text}");
    let (status, text) = ship(second, "4711").await;
    assert!(status == 200 && text.contains("order 4711 was shipped before"), "{text}");

    let guard = world.locks.mutex("orders/4712").lock().await.unwrap();
    let (status, text) = ship(second, "4712").await;
    assert_eq!(status, 409, "{text}");
    guard.release().await.unwrap();
    assert_eq!(ship(second, "4712").await.0, 200);

    world.server.kill();
    let (status, text) = ship(first, "4713").await;
    assert!(status == 503 && text.to_lowercase().contains("\r\nretry-after: "), "{text}");
}

#[tokio::test]
async fn a_service_that_is_stopped_answers_the_requests_that_it_has_and_leaves_no_lock() {
    let world = World::new().await;
    let (mut service, port) = world.service("60").await;
    let guard = world.locks.mutex("orders/4711").lock().await.unwrap();
    let asked = tokio::spawn(ship(port, "4711"));
    world.somebody_waits("orders/4711").await;
    service.signal(Signal::TERM);
    assert_eq!(service.line().await, "stopping");
    guard.release().await.unwrap();
    let (status, text) = asked.await.unwrap();
    assert_eq!(status, 200, "{text}");
    assert!(service.ends().await);
    // At once, so nothing was left to its ttl.
    assert!(world.locks.mutex("orders/4711").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_leader_hands_over_when_it_is_told_to_end_and_one_that_was_stopped_learns_that_it_leads_no_more() {
    let world = World::new().await;
    let start = |name| Example::start("leader", &world.url, &["scheduler", name]);
    let mut first = start("first");
    let mut lines = vec![first.line().await];
    let mut second = start("second");
    world.somebody_waits("scheduler").await;
    first.signal(Signal::TERM);
    assert_eq!(first.line().await, "first has resigned");
    assert!(first.ends().await);
    lines.push(second.line().await);

    let mut third = start("third");
    world.somebody_waits("scheduler").await;
    second.signal(Signal::STOP);
    lines.push(third.line().await);
    second.signal(Signal::CONT);
    let said = second.line().await;
    assert!(said.starts_with("second leads no more: ") && said.contains("was lost"), "{said}");
    world.somebody_waits("scheduler").await;
    third.signal(Signal::TERM);
    assert_eq!(third.line().await, "third has resigned");
    lines.push(second.line().await);

    let terms = lines.iter().map(|line| line.split_once(" leads with token ").unwrap_or_else(|| panic!("{line}")));
    let (names, tokens): (Vec<&str>, Vec<&str>) = terms.unzip();
    assert_eq!(names, ["first", "second", "third", "second"]);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

#[tokio::test]
async fn a_worker_that_is_stopped_past_its_lease_finds_its_late_write_refused() {
    let world = World::new().await;
    let mut late = world.worker(&["late", "--pause"]);
    let has = late.line().await;
    assert!(has.starts_with("late has token "), "{has}");
    assert_eq!(late.line().await, "about to write");
    late.signal(Signal::STOP);

    // Granted when the lease of the stopped one has ended.
    let mut other = world.worker(&["other"]);
    let has = other.line().await;
    assert!(has.starts_with("other has token "), "{has}");
    assert_eq!(other.line().await, "other has done the batch");
    assert!(other.ends().await);

    late.tell().await;
    late.signal(Signal::CONT);
    let said = late.line().await;
    assert!(said.starts_with("late was refused: ") && said.contains("is stale"), "{said}");
    assert!(!late.ends().await);
    let store = rusqlite::Connection::open(world.store()).unwrap();
    let count = |of: &str| store.query_row("SELECT count(*) FROM results WHERE result = ?1", [of], |row| row.get(0));
    assert_eq!((count("done by other"), count("done by late")), (Ok(3), Ok(0)));
}

/// Without this, the worker above could have been refused for nothing.
#[tokio::test]
async fn a_worker_that_pauses_within_its_lease_does_the_batch() {
    let world = World::new().await;
    let mut worker = world.worker(&["worker", "--pause"]);
    let has = worker.line().await;
    assert!(has.starts_with("worker has token "), "{has}");
    assert_eq!(worker.line().await, "about to write");
    worker.tell().await;
    assert_eq!(worker.line().await, "worker has done the batch");
    assert!(worker.ends().await);
}
