//! What the tests on real servers share.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use lock_core::{Backend, Error, LockName, Locks, Snapshot};
use lock_lab::servers;
pub(crate) use lock_lab::wait::{LIMIT, eventually, within};
use lock_zk::{Config, ZooKeeper};
use tokio::sync::Mutex;
use zookeeper_client::Client;

/// The session of most tests: long enough not to expire on a busy machine.
pub(crate) const SESSION: Duration = Duration::from_secs(10);

pub(crate) fn config(port: u16) -> Config {
    Config::new([("127.0.0.1", port)])
        .with_session_timeout(SESSION)
        .with_tick_time(servers::ZooKeeper::TICK)
        .with_connect_timeout(Duration::from_secs(10))
        .with_response_timeout(Duration::from_secs(10))
}

pub(crate) async fn server() -> servers::ZooKeeper {
    servers::ZooKeeper::start(1).await.expect("a ZooKeeper server")
}

/// A server for tests that do nothing to it, each with locks of its own. It runs until the last of those that use it has ended.
pub(crate) async fn shared_server() -> Arc<servers::ZooKeeper> {
    static RUNNING: Mutex<Weak<servers::ZooKeeper>> = Mutex::const_new(Weak::new());
    let mut running = RUNNING.lock().await;
    if let Some(server) = running.upgrade() {
        return server;
    }
    let server = Arc::new(server().await);
    *running = Arc::downgrade(&server);
    server
}

pub(crate) async fn connect(port: u16) -> Arc<ZooKeeper> {
    ZooKeeper::connect(config(port)).await.expect("a connection")
}

pub(crate) async fn locks(port: u16) -> Locks {
    Locks::new(connect(port).await)
}

/// Another client of the same servers, without locks. Its session is one for which no silence of a busy machine is too long: of
/// the six seconds that it would be by default, the library waits 2.4 for an answer.
pub(crate) async fn outsider(port: u16) -> Client {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(60));
    connector.connect(&format!("127.0.0.1:{port}")).await.expect("a client")
}

/// Who holds `name` and who waits for it. A server that does not answer in time, as on a busy machine, is asked again.
pub(crate) async fn inspect(zk: &ZooKeeper, name: &str) -> Snapshot {
    let name = LockName::new(name).unwrap();
    let mut shown = None;
    eventually("a snapshot", async || {
        shown = match zk.inspect(&name).await {
            Err(Error::Unavailable { .. }) => None,
            shown => Some(shown.expect("a snapshot")),
        };
        shown.is_some()
    })
    .await;
    shown.expect("it was waited for")
}

/// Waits until that many wait for `name`.
pub(crate) async fn queued(zk: &ZooKeeper, name: &str, count: usize) {
    eventually("the queue has its length", || async { inspect(zk, name).await.queue.len() == count }).await;
}

/// Waits until that many hold `name`.
pub(crate) async fn held(zk: &ZooKeeper, name: &str, count: usize) {
    eventually("there are that many holders", || async { inspect(zk, name).await.holders.len() == count }).await;
}

/// The children of a lock's directory, by an outsider.
pub(crate) async fn children(client: &Client, name: &str) -> Vec<String> {
    let path = format!("{}/{}", Config::ROOT, LockName::new(name).unwrap().to_component());
    match client.list_children(&path).await {
        Ok(children) => children,
        Err(zookeeper_client::Error::NoNode) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until nothing is left in a lock's directory.
pub(crate) async fn empty(client: &Client, name: &str) {
    eventually("nothing is left", || async { children(client, name).await.is_empty() }).await;
}

/// How many watches the server keeps. One that does not answer in time, as on a busy machine, is asked again.
pub(crate) async fn watches(server: &servers::ZooKeeper) -> u64 {
    let mut monitored = None;
    eventually("an answer", async || {
        monitored = server.monitor(0).await.ok();
        monitored.is_some()
    })
    .await;
    monitored.expect("it was waited for")["zk_watch_count"].parse().unwrap()
}
