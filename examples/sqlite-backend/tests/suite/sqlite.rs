//! Processes that are killed, reboots, files that vanish, URLs.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use lock::{Config, Error, Guard, Locks, Loss};
use lock_core::Clock;
use lock_sqlite_example::SqliteDriver;
use rusqlite::Connection;
use tempfile::TempDir;

/// How long to wait for what happens at once, or after a short ttl.
const LIMIT: Duration = Duration::from_secs(30);

const NAME: &str = "orders/4711";

/// A database file in a temporary directory of its own.
struct TestDatabase {
    _directory: TempDir,
    file: PathBuf,
}

impl TestDatabase {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("locks.db");
        Self { _directory: directory, file }
    }

    fn url(&self, settings: &str) -> String {
        format!("sqlite://{}?look_again=20ms&{settings}", self.file.display())
    }

    async fn connect(&self, settings: &str) -> Locks {
        connect(&self.url(settings)).await.unwrap()
    }
}

async fn connect(url: &str) -> Result<Locks, Error> {
    Config::from_url(url)?.connect_with(&lock::registry().with(SqliteDriver)).await
}

async fn within<F: Future>(what: &str, future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.unwrap_or_else(|| panic!("{what} took longer than {LIMIT:?}"))
}

async fn lock(locks: &Locks) -> Guard {
    within("an acquisition", locks.mutex(NAME).lock()).await.unwrap()
}

fn change(file: &Path, statement: &str) {
    let connection = Connection::open(file).unwrap();
    connection.busy_timeout(LIMIT).unwrap();
    connection.execute(statement, []).unwrap();
}

#[tokio::test]
async fn the_lock_of_a_process_that_was_killed_is_free_after_its_ttl() {
    let place = TestDatabase::new();
    let mut holder = Command::new(env!("CARGO_BIN_EXE_hold"))
        .arg(&place.file)
        .args([NAME, "6"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(holder.stdout.take().unwrap()).lines().map(Result::unwrap);
    let token: u64 = said.find_map(|line| line.strip_prefix("held ").map(|token| token.parse().unwrap())).unwrap();
    let locks = place.connect("").await;
    assert!(locks.mutex(NAME).try_lock().await.unwrap().is_none(), "it is held");
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(lock(&locks).await.token().number > token);
}

#[tokio::test]
async fn a_lease_of_an_earlier_boot_is_over_and_tokens_rise_on() {
    let place = TestDatabase::new();
    let (first, second) = (place.connect("ttl=1h").await, place.connect("ttl=1h").await);
    let before = lock(&first).await;
    // As the machine would find it when it was started again: the deadline is of another boot's clock.
    change(&place.file, "UPDATE lock_contender SET boot = 'an earlier one'");
    let after = lock(&second).await;
    assert!(after.token() > before.token());
    assert!(matches!(before.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
    assert!(first.mutex(NAME).try_lock().await.unwrap().is_none(), "the late release took nothing from its successor");
}

#[tokio::test]
async fn tokens_rise_after_every_row_was_deleted_and_every_program_has_ended() {
    let place = TestDatabase::new();
    let mut highest = None;
    for _ in 0..3 {
        let locks = place.connect("").await;
        let guard = lock(&locks).await;
        assert!(highest < Some(guard.token()));
        highest = Some(guard.token());
        change(&place.file, "DELETE FROM lock_contender");
        drop(guard);
        locks.close(LIMIT).await.unwrap();
    }
}

#[tokio::test]
async fn what_killed_programs_left_is_removed_by_the_next_that_connects() {
    let place = TestDatabase::new();
    place.connect("").await.close(LIMIT).await.unwrap();
    let row = "INSERT INTO lock_contender (id, name, payload, held, since, boot, until)
               VALUES ('a', 'nobody asks for it', x'', 1, 0, 'an earlier one', 1)";
    change(&place.file, row);
    place.connect("").await.close(LIMIT).await.unwrap();
    let count = "SELECT count(*) FROM lock_contender";
    let left: u32 = Connection::open(&place.file).unwrap().query_row(count, [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_database_that_was_deleted_is_not_made_again_by_those_who_used_it() {
    let place = TestDatabase::new();
    let locks = place.connect("ttl=4s&outage_timeout=0s").await;
    let guard = lock(&locks).await;
    std::fs::remove_file(&place.file).unwrap();
    let loss = within("the news of the loss", guard.lost()).await;
    assert_eq!(loss, Loss::Unreachable);
    assert!(matches!(locks.mutex(NAME).lock().await, Err(Error::Unavailable { .. })));
    assert!(!place.file.exists());
}

#[tokio::test]
async fn a_holder_whose_database_was_replaced_has_lost_its_lock() {
    let place = TestDatabase::new();
    let locks = place.connect("ttl=6s").await;
    let guard = lock(&locks).await;
    std::fs::rename(&place.file, place.file.with_extension("old")).unwrap();
    let other = place.connect("").await;
    assert_eq!(within("the news of the loss", guard.lost()).await, Loss::Revoked);
    other.close(LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_url_is_refused_with_what_is_allowed() {
    for (url, named) in [
        ("sqlite://", "the absolute path of a file"),
        ("sqlite://host/locks.db", "three slashes"),
        ("sqlite://me@/locks.db", ""),
        ("sqlite:///locks.db?ttl=1ms", "from 100ms"),
        ("sqlite:///locks.db?tll=1s", "ttl"),
    ] {
        let error = connect(url).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{url}: {error}");
        assert!(error.to_string().contains(named), "{url}: {error}");
    }
}
