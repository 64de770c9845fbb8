//! The services, and what their servers still have of the locks of a batch, read from them directly.

use std::{fs, io, path::Path, time::Duration};

use lock::{Error, Feature, LockName, Locks};
use lock_lab::{
    proxy::Proxy,
    residue::{self, RedisKeys},
    servers::{Redis, RedisNodes, ZooKeeper},
};
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use zookeeper_client::Client;

use crate::cancellation::choices::Way;

/// The ttl, or ZooKeeper's session time-out: what is left behind a cut connection is gone after it.
pub(crate) const TTL: Duration = Duration::from_secs(3);

/// The limit for one request.
const REQUEST_LIMIT: Duration = Duration::from_millis(500);

/// The connection of a batch.
pub(crate) struct Link {
    pub(crate) locks: Locks,
    /// In front of each server, where there is one.
    pub(crate) proxies: Vec<Proxy>,
}

pub(crate) struct Service {
    scheme: &'static str,
    settings: &'static str,
    ports: Vec<u16>,
    servers: Servers,
}

enum Servers {
    /// Looked at over a connection of its own.
    Memory(String, Locks),
    Local(TempDir),
    Redis(Vec<MultiplexedConnection>, #[expect(dead_code, reason = "kept only to be dropped")] RedisServers),
    ZooKeeper(Client, #[expect(dead_code, reason = "kept only to be dropped")] ZooKeeper),
}

#[expect(dead_code, reason = "kept only to be dropped")]
enum RedisServers {
    One(Box<Redis>),
    Nodes(RedisNodes),
}

impl Service {
    pub(crate) async fn memory() -> Self {
        let name = format!("cancellation-{:016x}", fastrand::u64(..));
        let locks = lock::connect(&format!("memory://{name}")).await.expect("memory is there");
        Self { scheme: "memory", settings: "", ports: Vec::new(), servers: Servers::Memory(name, locks) }
    }

    pub(crate) fn local() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        Self { scheme: "local", settings: "", ports: Vec::new(), servers: Servers::Local(directory) }
    }

    pub(crate) async fn redis(settings: &'static str) -> Self {
        let server = Redis::start().await.expect("a Redis server");
        let control = vec![server.connection().await.expect("a connection")];
        let (ports, server) = (vec![server.port()], RedisServers::One(Box::new(server)));
        Self { scheme: "redis", settings, ports, servers: Servers::Redis(control, server) }
    }

    pub(crate) async fn redlock(count: usize) -> Self {
        let nodes = RedisNodes::start(count).await.expect("Redis servers");
        let mut control = Vec::new();
        for node in nodes.nodes() {
            control.push(node.connection().await.expect("a connection"));
        }
        let (ports, nodes) = (nodes.ports(), RedisServers::Nodes(nodes));
        Self { scheme: "redlock", settings: "", ports, servers: Servers::Redis(control, nodes) }
    }

    pub(crate) async fn zookeeper(settings: &'static str) -> Self {
        let servers = ZooKeeper::start(1).await.expect("a ZooKeeper server");
        let ports = servers.ports();
        let control = Client::connect(&hosts(&ports)).await.expect("a client");
        Self { scheme: "zk", settings, ports, servers: Servers::ZooKeeper(control, servers) }
    }

    /// Whether there is a connection to a server that can be cut.
    pub(crate) const fn is_remote(&self) -> bool {
        !matches!(self.servers, Servers::Memory(..) | Servers::Local(_))
    }

    /// How long after a cut everything must be gone: the lease; for ZooKeeper two ticks more, and in the queue on Redis the
    /// time of a claim, should the lock be handed over to one that is cut off, too.
    pub(crate) fn bound(&self) -> Duration {
        match self.servers {
            Servers::ZooKeeper(..) => TTL + ZooKeeper::TICK * 2,
            _ if self.settings.contains("fifo") => TTL + TTL / 3,
            _ => TTL,
        }
    }

    /// The ways in which its locks can be asked for; the plain one comes first.
    pub(crate) fn ways(locks: &Locks) -> Vec<Way> {
        let capabilities = locks.capabilities();
        let mut ways = vec![Way::Lock];
        if capabilities.supports(Feature::ReadWrite) {
            ways.extend([Way::Read, Way::Write]);
        }
        if capabilities.supports(Feature::Semaphore) {
            ways.push(Way::Permit);
        }
        ways
    }

    pub(crate) async fn connect(&self) -> Locks {
        self.connect_to(&self.ports).await
    }

    /// A connection that can be cut.
    pub(crate) async fn link(&self) -> Link {
        let mut proxies = Vec::new();
        for port in &self.ports {
            proxies.push(Proxy::start(*port).await.expect("a proxy"));
        }
        let ports: Vec<u16> = proxies.iter().map(Proxy::port).collect();
        Link { locks: self.connect_to(&ports).await, proxies }
    }

    async fn connect_to(&self, ports: &[u16]) -> Locks {
        let (scheme, settings) = (self.scheme, self.settings);
        let (ttl, limit, tick) = (TTL.as_millis(), REQUEST_LIMIT.as_millis(), ZooKeeper::TICK.as_millis());
        let hosts = hosts(ports);
        let url = match &self.servers {
            Servers::Memory(name, _) => format!("memory://{name}"),
            Servers::Local(directory) => format!("local://{}", directory.path().display()),
            Servers::ZooKeeper(..) => {
                format!("{scheme}://{hosts}/?session_timeout={ttl}ms&tick_time={tick}ms{settings}")
            }
            Servers::Redis(..) => {
                let key = if scheme == "redlock" { "node_timeout" } else { "response_timeout" };
                format!("{scheme}://{hosts}/?ttl={ttl}ms&{key}={limit}ms{settings}")
            }
        };
        // Connecting is not what is on trial: on a busy machine it may take more than one limit.
        loop {
            match lock::connect(&url).await {
                Ok(locks) => return locks,
                Err(Error::Unavailable { reason, .. }) => println!("connecting again: {reason}"),
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// What the servers have of `names`, holders and waiters alike.
    pub(crate) async fn left(&self, names: &[LockName]) -> Vec<String> {
        match &self.servers {
            Servers::Memory(_, locks) => left_in_memory(locks, names).await,
            Servers::Local(directory) => left_in_files(directory.path(), names).expect("the directory is read"),
            Servers::Redis(control, _) => {
                let mut left = Vec::new();
                for node in control {
                    left.extend(left_in_redis(node.clone(), names).await.expect("the server answers"));
                }
                left
            }
            Servers::ZooKeeper(control, _) => {
                let left = if self.settings.contains("herd") {
                    residue::herd_left(control, names).await
                } else {
                    residue::contenders_left(control, names).await
                };
                left.expect("the server answers")
            }
        }
    }
}

fn hosts(ports: &[u16]) -> String {
    ports.iter().map(|port| format!("127.0.0.1:{port}")).collect::<Vec<_>>().join(",")
}

async fn left_in_memory(locks: &Locks, names: &[LockName]) -> Vec<String> {
    let mut left = Vec::new();
    for name in names {
        let seen = locks.inspect(name.as_str()).await.expect("memory is there");
        if !seen.holders.is_empty() || !seen.queue.is_empty() {
            left.push(format!("{name}: {seen:?}"));
        }
    }
    left
}

/// A contender of a lock has a file beside the door, and its own lock on it.
fn left_in_files(root: &Path, names: &[LockName]) -> io::Result<Vec<String>> {
    let mut left = Vec::new();
    for name in names {
        for kind in ["lock", "permits"] {
            let directory = root.join(format!("{}.{kind}", name.to_component()));
            match fs::read_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => {
                    for entry in entries? {
                        left.extend(Some(entry?.path()).filter(|path| !path.ends_with("door")));
                    }
                }
            }
        }
    }
    Ok(left.into_iter().map(|path| path.display().to_string()).collect())
}

/// What a node has of the locks of a batch, whose names begin alike.
async fn left_in_redis(mut node: MultiplexedConnection, names: &[LockName]) -> redis::RedisResult<Vec<String>> {
    let batch = names[0].as_str().split('.').next().unwrap_or_default();
    RedisKeys::beginning_with(format!("{{lock:{batch}.")).with_ended_members().left_on(&mut node).await
}
