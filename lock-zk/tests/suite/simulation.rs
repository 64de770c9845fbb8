//! The shipped backend on simulated servers, in simulated time: for whatever depends on time, and for what is counted on the
//! servers. How the servers and the client library behave is compared with real ones in `simulated_servers`.

use std::{sync::Arc, time::Duration};

use futures::channel::oneshot;
use lock_core::{Backend, Error, Guard, LockName, Locks, Snapshot, WriteGuard};
use lock_sim::zookeeper::{
    SessionId,
    deployment::{self, Deployment},
};
use lock_zk::{Config, ZooKeeper};

/// How many schedules each test plays.
const SEEDS: u64 = 4;

/// Plays `test` several times.
pub(crate) fn simulated(test: impl AsyncFnOnce(Deployment) + Copy + 'static) {
    for seed in 0..SEEDS {
        deployment::play(seed, test);
    }
}

pub(crate) async fn connect(servers: &Deployment, host: usize) -> Arc<ZooKeeper> {
    connect_with(servers, host, servers.config(host)).await
}

pub(crate) async fn connect_with(servers: &Deployment, host: usize, config: Config) -> Arc<ZooKeeper> {
    servers.connect(host, config).await.expect("a connection")
}

/// A connection of its own, on that host.
pub(crate) async fn locks(servers: &Deployment, host: usize) -> Locks {
    Locks::new(connect(servers, host).await)
}

/// As [`locks`], of which the servers hear nothing but what is asked of it here.
pub(crate) async fn quiet_locks(servers: &Deployment, host: usize) -> Locks {
    Locks::new(connect_with(servers, host, quiet(servers.config(host))).await)
}

/// With such a time-out and tick the next heartbeat is minutes away.
pub(crate) fn quiet(config: Config) -> Config {
    config.with_session_timeout(Duration::from_secs(600)).with_tick_time(Duration::from_secs(200))
}

/// What a lock's directory is called.
pub(crate) fn directory(name: &str) -> String {
    format!("{}/{}", Config::ROOT, LockName::new(name).unwrap().to_component())
}

/// What stands in a lock's directory.
pub(crate) async fn children(servers: &Deployment, name: &str) -> Vec<String> {
    servers.children(&directory(name)).await
}

/// Waits until nothing is left in a lock's directory.
pub(crate) async fn empty(servers: &Deployment, name: &str) {
    servers.until("nothing is left", async || children(servers, name).await.is_empty()).await;
}

pub(crate) async fn inspect(zk: &ZooKeeper, name: &str) -> Snapshot {
    zk.inspect(&LockName::new(name).unwrap()).await.expect("a snapshot")
}

/// Waits until that many stand in a lock's directory, holders and waiters, and have set their watches.
pub(crate) async fn standing(servers: &Deployment, name: &str, count: usize) {
    servers.until("so many stand in line", async || children(servers, name).await.len() == count).await;
    servers.settle().await;
}

/// Deletes the node of a contender, as somebody else.
pub(crate) async fn delete(servers: &Deployment, name: &str, contender: &str) {
    servers.delete(&format!("{}/{contender}", directory(name))).await;
}

/// The session that made a contender's node.
pub(crate) fn session(contender: &str) -> SessionId {
    let session = contender.split('-').nth(1).and_then(|hex| SessionId::from_str_radix(hex, 16).ok());
    session.expect("a contender's name")
}

/// Waits for the lock, on that host beside the test.
pub(crate) fn lock(
    servers: &Deployment,
    host: usize,
    locks: &Locks,
    name: &str,
) -> oneshot::Receiver<Result<Guard, Error>> {
    let mutex = locks.mutex(name);
    servers.start(host, async move { mutex.lock().await })
}

pub(crate) fn read(
    servers: &Deployment,
    host: usize,
    locks: &Locks,
    name: &str,
) -> oneshot::Receiver<Result<Guard, Error>> {
    let lock = locks.rwlock(name);
    servers.start(host, async move { lock.read().await })
}

pub(crate) fn write(
    servers: &Deployment,
    host: usize,
    locks: &Locks,
    name: &str,
) -> oneshot::Receiver<Result<WriteGuard, Error>> {
    let lock = locks.rwlock(name);
    servers.start(host, async move { lock.write().await })
}
