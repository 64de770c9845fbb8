//! Guarded operations in a process that is stopped in the middle.

use std::{fs, path::PathBuf};

use lock::{
    Guard, Locks,
    fence::redis::{FenceError, FencedKey},
};
use lock_lab::servers::Redis;
use redis::AsyncCommands;
use rustix::process::Signal;

use crate::example::{Example, LIMIT};

/// What the journal says before a deposit.
const BEFORE: &str = "nothing is under way\n";

/// A real server with a balance of 100, and a journal.
struct World {
    server: Redis,
    /// With a ttl that outlasts a standstill of the machine, and lets a process that is stopped lose its lock all the same.
    url: String,
    locks: Locks,
    dir: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let server = Redis::start().await.unwrap();
        let url = format!("{}?ttl=6s&response_timeout=20s", server.url());
        let locks = lock::connect(&url).await.unwrap();
        let world = Self { server, url, locks, dir: tempfile::tempdir().unwrap() };
        fs::write(world.journal(), BEFORE).unwrap();
        let guard = world.hold().await;
        world.write(&guard, 100).await.unwrap();
        guard.release().await.unwrap();
        world
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    async fn hold(&self) -> Guard {
        self.locks.mutex("examples/deposit").timeout(LIMIT).lock().await.unwrap()
    }

    async fn write(&self, guard: &Guard, balance: i64) -> Result<(), FenceError> {
        let mut store = self.server.connection().await.unwrap();
        FencedKey::new("balance").set(&mut store, guard.token(), balance.to_string()).await
    }

    async fn balance(&self) -> i64 {
        self.server.connection().await.unwrap().get("balance").await.unwrap()
    }

    fn deposit(&self, pause: Option<&str>) -> Example {
        let (store, journal) = (self.server.url(), self.journal());
        let mut arguments = vec![store.as_str(), journal.to_str().unwrap(), "5"];
        arguments.extend(pause);
        Example::start("deposit", &self.url, &arguments)
    }

    /// Stops a deposit in `step`, lets another holder set the balance to 107, lets the deposit go on, and gives what it said.
    async fn stopped_in(&self, step: &str) -> String {
        let mut deposit = self.deposit(Some(step));
        assert_eq!(deposit.line().await, format!("in {step}"));
        assert_ne!(fs::read_to_string(self.journal()).unwrap(), BEFORE, "its work has changed the journal");
        deposit.signal(Signal::STOP);
        // Granted when the lease of the stopped process has ended on the server.
        let next = self.hold().await;
        self.write(&next, 107).await.unwrap();
        deposit.tell().await;
        deposit.signal(Signal::CONT);
        let said = deposit.line().await;
        assert!(!deposit.ends().await, "it did not fail: {said}");
        assert_eq!(self.balance().await, 107, "{said}");
        assert_eq!(fs::read_to_string(self.journal()).unwrap(), BEFORE, "{said}");
        assert!(next.is_valid());
        next.release().await.unwrap();
        said
    }
}

/// Without this, the others could not have failed.
#[tokio::test]
async fn a_process_that_is_not_stopped_commits() {
    let world = World::new().await;
    for step in [None, Some("apply"), Some("commit")] {
        let before = world.balance().await;
        let mut deposit = world.deposit(step);
        if let Some(step) = step {
            assert_eq!(deposit.line().await, format!("in {step}"));
            deposit.tell().await;
        }
        assert_eq!(deposit.line().await, format!("committed: {}", before + 5));
        assert!(deposit.ends().await);
        assert_eq!(world.balance().await, before + 5);
    }
}

#[tokio::test]
async fn a_process_that_is_stopped_between_its_work_and_its_commit_beyond_its_lease_does_not_commit_and_restores() {
    let world = World::new().await;
    let said = world.stopped_in("apply").await;
    assert!(said.contains("was lost") && said.contains("the state was restored"), "{said}");
}

/// Here no look at the lock can help: it was held when the commit began. The store refuses the write, by the token.
#[tokio::test]
async fn a_process_that_is_stopped_in_its_commit_beyond_its_lease_is_refused_by_the_store_and_restores() {
    let world = World::new().await;
    let said = world.stopped_in("commit").await;
    assert!(said.contains("is stale") && said.contains("the state was restored"), "{said}");
}
