//! ZooKeeper on real servers, one or an ensemble. What the servers hold is read here by a client of its own.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{
    Error, LockName, Locks,
    conformance::{Down, Failure, Fixture, Kept, LONG_TTL, Severable},
};
use lock_lab::servers::ZooKeeper;
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Permission, Stat};

use crate::links::{Proxies, hosts};

/// The session of connections that are cut off.
const SHORT_SESSION: Duration = Duration::from_secs(3);

/// Where the locks are by default.
const ROOT: &str = "/locks";

/// What the control client writes to, to catch up with the ensemble.
const MARKER: &str = "/conformance";

#[derive(Debug)]
pub(crate) struct ZooKeeperFixture {
    ports: Vec<u16>,
    control: Client,
    /// What the URL says besides: the strategy.
    strategy: &'static str,
    /// The node of each grant that was looked at: found once by listing, then looked at directly.
    nodes: Mutex<HashMap<(LockName, u64), String>>,
    /// Proxies to servers that are down: they live as long as what was connected through them.
    down: Mutex<Vec<Proxies>>,
    _servers: ZooKeeper,
}

impl ZooKeeperFixture {
    pub(crate) async fn queue(count: usize) -> Result<Self, String> {
        Self::start(count, "queue").await
    }

    pub(crate) async fn herd(count: usize) -> Result<Self, String> {
        Self::start(count, "herd").await
    }

    async fn start(count: usize, strategy: &'static str) -> Result<Self, String> {
        let servers = ZooKeeper::start(count).await.map_err(|error| error.to_string())?;
        let ports = servers.ports();
        let connector = Client::connector().with_session_timeout(LONG_TTL);
        let control = connector.connect(&hosts(&ports)).await.map_err(|error| error.to_string())?;
        let marker = CreateMode::Persistent.with_acls(Acls::anyone_all());
        control.create(MARKER, b"", &marker).await.map_err(|error| error.to_string())?;
        // The least rights, so that the whole suite shows that they are enough: docs/protocols.md has them in a table.
        let at_root = if strategy == "herd" { Permission::CREATE | Permission::DELETE } else { Permission::CREATE };
        let acl = [Acl::new(at_root, AuthId::anyone())];
        let root = CreateMode::Persistent.with_acls(Acls::new(&acl));
        control.create(ROOT, b"", &root).await.map_err(|error| error.to_string())?;
        Ok(Self { ports, control, strategy, nodes: Mutex::default(), down: Mutex::default(), _servers: servers })
    }

    async fn locks(&self, hosts: &str, session: Duration) -> Result<Locks, Error> {
        let tick = ZooKeeper::TICK.as_millis();
        let (session, strategy) = (session.as_millis(), self.strategy);
        let url = format!("zk://{hosts}/?session_timeout={session}ms&tick_time={tick}ms&strategy={strategy}");
        let locks = lock::connect(&url).await?;
        Ok(locks)
    }

    /// Waits until the control client's server has applied all that any client was told of so far. A `sync` would do on
    /// a follower only: the leader answers it without waiting, and reads there what it has applied, which may be less than
    /// what a follower has told its clients already. A write of the own session is applied in its turn.
    async fn catch_up(&self) -> Result<(), Failure> {
        self.control.set_data(MARKER, b"", None).await?;
        Ok(())
    }

    /// The paths of all nodes that stand for a contender of `name`, oldest first.
    async fn contenders(&self, name: &LockName) -> Result<Vec<String>, Failure> {
        let path = directory(name);
        if self.strategy == "herd" {
            return Ok(self.stat(&path).await?.map(|_| path).into_iter().collect());
        }
        Ok(self.children(name).await?.into_iter().map(|child| format!("{path}/{child}")).collect())
    }

    /// The children of the lock's directory. On a follower the read waits for the `sync` before it.
    async fn children(&self, name: &LockName) -> Result<Vec<String>, Failure> {
        let directory = directory(name);
        // Requests go out when they are made: both are on their way before the first is awaited.
        let (synced, listed) = tokio::join!(self.control.sync(ROOT), self.control.list_children(&directory));
        ignore_no_node(synced)?;
        let mut children = ignore_no_node(listed)?.unwrap_or_default();
        children.sort_by_key(|child| sequence(child));
        Ok(children)
    }

    async fn stat(&self, path: &str) -> Result<Option<Stat>, Failure> {
        let (synced, stat) = tokio::join!(self.control.sync(ROOT), self.control.check_stat(path));
        ignore_no_node(synced)?;
        Ok(stat?)
    }

    /// Whether the node of that grant is there.
    async fn is_there(&self, name: &LockName, token: u64) -> Result<bool, Failure> {
        let key = (name.clone(), token);
        let known = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        // A writer that became a reader goes on by another node: look for that when the first one is gone.
        for path in known.into_iter().chain(self.contenders(name).await?) {
            let Some(stat) = self.stat(&path).await? else { continue };
            if number(&path).unwrap_or(stat.czxid.cast_unsigned()) == token {
                self.nodes.lock().unwrap_or_else(PoisonError::into_inner).insert(key, path);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[async_trait]
impl Fixture for ZooKeeperFixture {
    async fn connect(&self) -> Result<Locks, Failure> {
        Ok(self.locks(&hosts(&self.ports), LONG_TTL).await?)
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let proxies = Proxies::start(&self.ports).await?;
        let locks = self.locks(&proxies.hosts(), SHORT_SESSION).await?;
        Ok(Severable { locks, link: Box::new(proxies) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        let proxies = Proxies::start_down(&self.ports, down).await?;
        let hosts = proxies.hosts();
        self.down.lock().unwrap_or_else(PoisonError::into_inner).push(proxies);
        self.locks(&hosts, LONG_TTL).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Failure> {
        self.catch_up().await?;
        Ok(self.contenders(name).await?.into_iter().map(|path| format!("the node {path}")).collect())
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        self.catch_up().await?;
        for path in self.contenders(name).await? {
            ignore_no_node(self.control.delete(&path, None).await)?;
        }
        Ok(())
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        // ZooKeeper tells nobody until when a session lives: only whether the node is still there. That it is not may be
        // old news, of a grant that is not known here yet, so it is believed only after catching up.
        if self.is_there(name, token).await? {
            return Ok(Kept::Held);
        }
        self.catch_up().await?;
        Ok(if self.is_there(name, token).await? { Kept::Held } else { Kept::Gone })
    }
}

fn directory(name: &LockName) -> String {
    format!("{ROOT}/{}", name.to_component())
}

/// The fencing token's number in the name of a node that took a writer's place: its own creation says nothing.
fn number(path: &str) -> Option<u64> {
    let kind = path.rsplit('/').next()?.split('-').nth(2)?;
    kind.strip_prefix('r')?.parse().ok()
}

/// Arrival by the server's digits; those of one run never wrap.
fn sequence(child: &str) -> u64 {
    child.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

fn ignore_no_node<T>(result: Result<T, zookeeper_client::Error>) -> Result<Option<T>, Failure> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(zookeeper_client::Error::NoNode) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
