//! Redis and Redlock on real servers.

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
use lock_lab::{
    LabError,
    residue::RedisKeys,
    servers::{Cluster, Redis, RedisNodes, Sentinel},
};
use redis::aio::MultiplexedConnection;

use crate::{
    links::{Proxies, hosts},
    redis_keys::{Holding, connection, holdings, lock_key},
    rights::{self, PROGRAM},
};

/// The ttl of connections that are cut off.
const SHORT_TTL: Duration = Duration::from_secs(3);

/// The limit for one request: the part of a ttl that leaves time for a second try at a renewal, and enough for a machine
/// on which many tests run.
const LIMITS_PER_TTL: u32 = 4;
const LONGEST_LIMIT: Duration = Duration::from_secs(10);

/// How long an outage is bridged where another server may take over. None does here.
const FAILOVER_TIMEOUT: &str = "&failover_timeout=1s&look_again=1h";

/// The same, for those who sign in to the sentinels.
const WATCHED: &str = "&failover_timeout=1s&look_again=1h&sentinel_username=watcher&sentinel_password=secret";

/// Those who wait hear of a release, or not at all within the limits of the suite.
const HEARD: &str = "&look_again=1h";

/// One Redis server, the nodes of Redlock, or servers of which one takes another's place. One server is its own majority,
/// and so is a primary. Clients of all but Redlock have the least rights that are enough, as docs/rights.md gives them.
#[derive(Debug)]
pub(crate) struct RedisNodesFixture {
    scheme: &'static str,
    /// As whom clients sign in, with an @ behind it.
    user: &'static str,
    /// What the URL says beside the times.
    settings: &'static str,
    /// What the URL names.
    ports: Vec<u16>,
    /// What those tell of: servers that a client finds through them.
    behind: Vec<u16>,
    control: Vec<MultiplexedConnection>,
    /// Proxies to servers that are down: they live as long as what was connected through them.
    down: Mutex<Vec<Proxies>>,
    /// Which server of a cluster has a name: asked once, for no slot moves here.
    primaries: Mutex<HashMap<LockName, usize>>,
    servers: Servers,
}

/// The processes: they end when this is dropped.
#[derive(Debug)]
enum Servers {
    One(Redis),
    Nodes(RedisNodes),
    Sentinel(Sentinel),
    Cluster(Cluster),
}

impl RedisNodesFixture {
    /// One server.
    pub(crate) async fn single() -> Result<Self, String> {
        let server = Redis::start().await.map_err(|error| error.to_string())?;
        let fixture = Self::of("redis", vec![server.port()], Servers::One(server)).await?;
        fixture.grant("Redis").await?;
        Ok(Self { user: PROGRAM, settings: HEARD, ..fixture })
    }

    /// One server, where those who wait stand in line.
    pub(crate) async fn fifo() -> Result<Self, String> {
        Ok(Self { settings: "&queue=fifo", ..Self::single().await? })
    }

    /// Members of a deployment, for a user who has the least rights that are enough.
    pub(crate) async fn redlock(count: usize) -> Result<Self, String> {
        let nodes = RedisNodes::start(count).await.map_err(|error| error.to_string())?;
        let fixture = Self::of("redlock", nodes.ports(), Servers::Nodes(nodes)).await?;
        fixture.grant("Redlock").await?;
        Ok(Self { user: PROGRAM, ..fixture })
    }

    /// A primary that clients find through Sentinels.
    pub(crate) async fn sentinel() -> Result<Self, String> {
        let servers = apart(Sentinel::start).await?;
        let [nodes, sentinels] = [servers.nodes(), servers.sentinels()].map(ports);
        let fixture = Self::of("redis+sentinel", vec![nodes[0]], Servers::Sentinel(servers)).await?;
        fixture.grant("Redis").await?;
        let Servers::Sentinel(servers) = &fixture.servers else { return Err("no sentinels".to_owned()) };
        for sentinel in servers.sentinels() {
            rights::grant(sentinel, "Redis with Sentinel").await?;
        }
        Ok(Self { ports: sentinels, behind: nodes, user: PROGRAM, settings: WATCHED, ..fixture })
    }

    /// Primaries that share the locks.
    pub(crate) async fn cluster() -> Result<Self, String> {
        let servers = apart(Cluster::start).await?;
        let nodes = ports(servers.nodes());
        let fixture = Self::of("redis+cluster", nodes, Servers::Cluster(servers)).await?;
        fixture.grant("Redis").await?;
        fixture.grant("Redis Cluster").await?;
        Ok(Self { user: PROGRAM, settings: FAILOVER_TIMEOUT, ..fixture })
    }

    async fn of(scheme: &'static str, ports: Vec<u16>, servers: Servers) -> Result<Self, String> {
        let mut control = Vec::with_capacity(ports.len());
        for port in &ports {
            control.push(connection(*port).await.map_err(|error| error.to_string())?);
        }
        let (user, settings, behind) = ("", "", Vec::new());
        let (down, primaries) = (Mutex::default(), Mutex::default());
        Ok(Self { scheme, user, settings, ports, behind, control, down, primaries, servers })
    }

    /// Makes the users of that section of docs/rights.md on every data node.
    async fn grant(&self, section: &str) -> Result<(), String> {
        let nodes = match &self.servers {
            Servers::One(server) => std::slice::from_ref(server),
            Servers::Nodes(nodes) => nodes.nodes(),
            Servers::Sentinel(servers) => servers.nodes(),
            Servers::Cluster(servers) => servers.nodes(),
        };
        for node in nodes {
            rights::grant(node, section).await?;
        }
        Ok(())
    }

    fn majority(&self) -> usize {
        if matches!(self.servers, Servers::Cluster(_)) { 1 } else { self.control.len() / 2 + 1 }
    }

    /// Connects, through proxies if there are any.
    async fn locks(&self, through: Option<&Proxies>, ttl: Duration) -> Result<Locks, Error> {
        let limit = (ttl / LIMITS_PER_TTL).min(LONGEST_LIMIT).as_millis();
        let limit_key = if self.scheme == "redlock" { "node_timeout" } else { "response_timeout" };
        let (scheme, user, settings) = (self.scheme, self.user, self.settings);
        let named = hosts(&self.ports);
        let (hosts, path, addresses) = match (&self.servers, through) {
            (Servers::One(_) | Servers::Nodes(_), through) => {
                (through.map_or(named, Proxies::hosts), "", String::new())
            }
            // Clients are told of the servers themselves: their way to them is what is changed.
            (Servers::Sentinel(_), through) => (named, Sentinel::NAME, self.detours(through)),
            (Servers::Cluster(_), through) => (named, "", self.detours(through)),
        };
        let ttl = ttl.as_millis();
        let url = format!("{scheme}://{user}{hosts}/{path}?ttl={ttl}ms&{limit_key}={limit}ms{settings}{addresses}");
        let locks = lock::connect(&url).await?;
        Ok(locks)
    }

    /// The setting by which a client reaches every server through its proxy.
    fn detours(&self, through: Option<&Proxies>) -> String {
        let Some(through) = through else { return String::new() };
        let detour = |(server, proxy): (u16, u16)| format!("127.0.0.1:{server}=127.0.0.1:{proxy}");
        let detours: Vec<_> = self.all().into_iter().zip(through.ports()).map(detour).collect();
        format!("&address_map={}", detours.join(","))
    }

    /// All servers that a client may connect to.
    fn all(&self) -> Vec<u16> {
        [self.ports.as_slice(), &self.behind].concat()
    }

    /// Those who keep what there is to keep of `name`.
    async fn keepers(&self, name: &LockName) -> Result<&[MultiplexedConnection], Failure> {
        let Servers::Cluster(cluster) = &self.servers else { return Ok(&self.control) };
        let known = self.primaries.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        let primary = match known {
            Some(primary) => primary,
            None => {
                let primary = cluster.primary(&lock_key(name)).await?;
                primary.ok_or_else(|| Failure::new("nobody has the slot"))?
            }
        };
        self.primaries.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), primary);
        Ok(std::slice::from_ref(&self.control[primary]))
    }

    /// Who holds `name` on any node.
    async fn holdings(&self, name: &LockName) -> Result<Vec<Holding>, Failure> {
        let mut looks = tokio::task::JoinSet::new();
        for node in self.keepers(name).await? {
            looks.spawn(holdings(node.clone(), lock_key(name)));
        }
        let mut all = Vec::with_capacity(self.control.len());
        while let Some(look) = looks.join_next().await {
            all.extend(look??);
        }
        Ok(all)
    }
}

#[async_trait]
impl Fixture for RedisNodesFixture {
    async fn connect(&self) -> Result<Locks, Failure> {
        Ok(self.locks(None, LONG_TTL).await?)
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let proxies = Proxies::start(&self.all()).await?;
        let locks = self.locks(Some(&proxies), SHORT_TTL).await?;
        Ok(Severable { locks, link: Box::new(proxies) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        let proxies = Proxies::start_down(&self.all(), down).await?;
        let locks = self.locks(Some(&proxies), LONG_TTL).await;
        self.down.lock().unwrap_or_else(PoisonError::into_inner).push(proxies);
        locks
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Failure> {
        let keys = RedisKeys::of_lock(lock_key(name));
        let mut left = Vec::new();
        for (number, node) in self.keepers(name).await?.iter().enumerate() {
            let left_there = keys.left_on(&mut node.clone()).await?;
            left.extend(left_there.into_iter().map(|what| format!("{what} on server {number}")));
        }
        Ok(left)
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        let lock = lock_key(name);
        let parts = ["", ":readers", ":reading", ":permits", ":permitted"].map(|part| format!("{lock}{part}"));
        for node in self.keepers(name).await? {
            redis::cmd("DEL").arg(&parts).exec_async(&mut node.clone()).await?;
        }
        Ok(())
    }

    async fn kept(&self, name: &LockName, token: u64) -> Result<Kept, Failure> {
        let holdings = self.holdings(name).await?;
        for holding in &holdings {
            let mut same: Vec<_> = holdings.iter().filter(|other| other.value == holding.value).collect();
            // A grant is known by its token: a majority of all nodes gave it that.
            let agreed = same.iter().filter(|other| other.numbers.contains(&token)).count();
            if agreed >= self.majority() {
                // It stands for as long as a majority keeps it.
                same.sort_by_key(|other| std::cmp::Reverse(other.remaining));
                return Ok(Kept::For(same[self.majority() - 1].remaining));
            }
        }
        Ok(Kept::Gone)
    }
}

fn ports(servers: &[Redis]) -> Vec<u16> {
    servers.iter().map(Redis::port).collect()
}

/// Starts servers on a thread of its own: starting several is a future that stays on one thread.
async fn apart<S, F>(start: impl FnOnce() -> F + Send + 'static) -> Result<S, String>
where
    S: Send + 'static,
    F: Future<Output = Result<S, LabError>>,
{
    let runtime = tokio::runtime::Handle::current();
    let started = tokio::task::spawn_blocking(move || runtime.block_on(start())).await;
    started.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}
