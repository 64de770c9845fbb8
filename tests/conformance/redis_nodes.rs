//! Redis and Redlock on real servers. What the servers hold is read here by the format that docs/protocols.md describes,
//! not by the backends' own code.

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
use lock_lab::servers::{Redis, RedisNodes};
use redis::{AsyncConnectionConfig, aio::MultiplexedConnection};

use crate::links::{Proxies, hosts};

/// The ttl of connections that are cut off.
const SHORT_TTL: Duration = Duration::from_secs(3);

/// The limit for one request: the part of a ttl that leaves time for a second try at a renewal, and enough for a machine
/// on which many tests run.
const LIMITS_PER_TTL: u32 = 4;
const LONGEST_LIMIT: Duration = Duration::from_secs(10);

/// The longest that a note of an undone attempt may stay: it ends by itself.
const LONGEST_TOMBSTONE: Duration = Duration::from_secs(120);

/// One Redis server, or the nodes of Redlock. One server is its own majority.
#[derive(Debug)]
pub(crate) struct RedisNodesFixture {
    scheme: &'static str,
    /// What the URL says beside the times.
    settings: &'static str,
    ports: Vec<u16>,
    control: Vec<MultiplexedConnection>,
    /// Proxies to servers that are down: they live as long as what was connected through them.
    down: Mutex<Vec<Proxies>>,
    _servers: Servers,
}

/// The processes: they end when this is dropped.
#[derive(Debug)]
enum Servers {
    One(#[expect(dead_code, reason = "it is kept only to be dropped")] Redis),
    Nodes(#[expect(dead_code, reason = "it is kept only to be dropped")] RedisNodes),
}

/// A holder, as one node has it: the writer, a reader, or one with a permit.
struct Holding {
    value: Vec<u8>,
    remaining: Duration,
    /// The number of its grant; for a writer also the last number that was given out, which a quorum agrees on.
    numbers: Vec<u64>,
}

impl RedisNodesFixture {
    pub(crate) async fn single() -> Result<Self, String> {
        let server = Redis::start().await.map_err(|error| error.to_string())?;
        Self::of("redis", vec![server.port()], Servers::One(server)).await
    }

    /// One server, where those who wait stand in line.
    pub(crate) async fn fifo() -> Result<Self, String> {
        Ok(Self { settings: "&queue=fifo", ..Self::single().await? })
    }

    pub(crate) async fn redlock(count: usize) -> Result<Self, String> {
        let nodes = RedisNodes::start(count).await.map_err(|error| error.to_string())?;
        Self::of("redlock", nodes.ports(), Servers::Nodes(nodes)).await
    }

    async fn of(scheme: &'static str, ports: Vec<u16>, servers: Servers) -> Result<Self, String> {
        let mut control = Vec::with_capacity(ports.len());
        for port in &ports {
            control.push(connection(*port).await.map_err(|error| error.to_string())?);
        }
        Ok(Self { scheme, settings: "", ports, control, down: Mutex::default(), _servers: servers })
    }

    fn majority(&self) -> usize {
        self.control.len() / 2 + 1
    }

    async fn locks(&self, hosts: &str, ttl: Duration) -> Result<Locks, Error> {
        let limit = (ttl / LIMITS_PER_TTL).min(LONGEST_LIMIT).as_millis();
        let limit_key = if self.scheme == "redlock" { "node_timeout" } else { "response_timeout" };
        let (scheme, settings) = (self.scheme, self.settings);
        let url = format!("{scheme}://{hosts}/?ttl={}ms&{limit_key}={limit}ms{settings}", ttl.as_millis());
        let locks = lock::Locks::connect(&url).await?;
        Ok((*locks).clone())
    }

    /// Who holds `name` on any node.
    async fn holdings(&self, name: &LockName) -> Result<Vec<Holding>, Failure> {
        let mut looks = tokio::task::JoinSet::new();
        for node in &self.control {
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
        Ok(self.locks(&hosts(&self.ports), LONG_TTL).await?)
    }

    async fn connect_severable(&self) -> Result<Severable, Failure> {
        let proxies = Proxies::start(&self.ports).await?;
        let locks = self.locks(&proxies.hosts(), SHORT_TTL).await?;
        Ok(Severable { locks, link: Box::new(proxies) })
    }

    async fn connect_to_down(&self, down: Down) -> Result<Locks, Error> {
        let proxies = Proxies::start_down(&self.ports, down).await?;
        let hosts = proxies.hosts();
        self.down.lock().unwrap_or_else(PoisonError::into_inner).push(proxies);
        self.locks(&hosts, LONG_TTL).await
    }

    async fn residue(&self, name: &LockName) -> Result<Vec<String>, Failure> {
        let mut left = Vec::new();
        for (node, port) in self.control.iter().zip(&self.ports) {
            let left_there = residue(node.clone(), &lock_key(name)).await?;
            left.extend(left_there.into_iter().map(|what| format!("{what} on port {port}")));
        }
        Ok(left)
    }

    async fn delete(&self, name: &LockName) -> Result<(), Failure> {
        let lock = lock_key(name);
        let parts = ["", ":readers", ":reading", ":permits", ":permitted"].map(|part| format!("{lock}{part}"));
        for node in &self.control {
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

/// A connection past the backends, patient with a busy machine.
async fn connection(port: u16) -> redis::RedisResult<MultiplexedConnection> {
    let patience = Some(Duration::from_secs(30));
    let config = AsyncConnectionConfig::new().set_connection_timeout(patience).set_response_timeout(patience);
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    client.get_multiplexed_async_connection_with_config(&config).await
}

fn lock_key(name: &LockName) -> String {
    format!("{{lock:{name}}}")
}

/// What one node keeps of a writer, of readers and of permits. All of it comes from one moment.
async fn holdings(mut node: MultiplexedConnection, lock: String) -> redis::RedisResult<Vec<Holding>> {
    let mut look = redis::pipe();
    look.atomic().get(&lock).pttl(&lock).hmget(format!("{lock}:token"), &["held", "counter"]).cmd("TIME");
    for (members, notes) in [(":readers", ":reading"), (":permits", ":permitted")] {
        look.zrange_withscores(format!("{lock}{members}"), 0, -1).hgetall(format!("{lock}{notes}"));
    }
    type Look = (Option<Vec<u8>>, i64, Vec<Option<u64>>, (u64, u64), MembersOf, NotesOf, MembersOf, NotesOf);
    let (value, remaining, numbers, (seconds, micros), readers, reading, permits, permitted): Look =
        look.query_async(&mut node).await?;
    let mut all = Vec::new();
    if let Some(value) = value {
        let remaining = u64::try_from(remaining).map_or(Duration::MAX, Duration::from_millis);
        all.push(Holding { value, remaining, numbers: numbers.into_iter().flatten().collect() });
    }
    let now = Duration::from_micros(seconds * 1_000_000 + micros);
    all.extend(members(readers, &reading, now));
    all.extend(members(permits, &permitted, now));
    Ok(all)
}

/// Members with the milliseconds at which they end, and the notes on them.
type MembersOf = Vec<(Vec<u8>, u64)>;
type NotesOf = HashMap<Vec<u8>, Vec<u8>>;

/// Those of the members whose leases run. A note begins with the number of the grant, its time and the lock delay in ms,
/// for which the member stays after its lease.
fn members(members: MembersOf, notes: &NotesOf, now: Duration) -> impl Iterator<Item = Holding> {
    members.into_iter().filter_map(move |(value, ends)| {
        let note = String::from_utf8_lossy(notes.get(&value)?);
        let mut parts = note.split(' ').map(str::parse);
        let (Some(Ok(number)), Some(Ok(_since)), Some(Ok(delay))) = (parts.next(), parts.next(), parts.next()) else {
            return None;
        };
        let remaining = Duration::from_millis(ends).checked_sub(now + Duration::from_millis(delay))?;
        Some(Holding { value, remaining, numbers: vec![number] })
    })
}

async fn residue(mut node: MultiplexedConnection, lock: &str) -> redis::RedisResult<Vec<String>> {
    let keys: Vec<String> = redis::cmd("KEYS").arg(format!("{}*", literally(lock))).query_async(&mut node).await?;
    let mut left = Vec::new();
    for key in keys {
        let Some(rest) = key.strip_prefix(lock).filter(|rest| is_of_this_name(rest)) else { continue };
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query_async(&mut node).await?;
        if ttl == KEY_IS_GONE || is_meant_to_stay(rest, ttl) {
            continue;
        }
        left.push(format!("the key {key:?} (for another {ttl} ms)"));
    }
    Ok(left)
}

/// What `PTTL` answers about a key that is not there, or not any more.
const KEY_IS_GONE: i64 = -2;

/// Whether a key that begins with a lock key belongs to that lock: it is the lock key, or adds a part after a colon. Other
/// names' keys that begin alike have a brace further on, where their lock keys end.
fn is_of_this_name(rest: &str) -> bool {
    rest.is_empty() || (rest.starts_with(':') && !rest.contains('}'))
}

/// The counter behind the fencing token, which goes some day, and notes of undone attempts, which go soon.
fn is_meant_to_stay(rest: &str, ttl: i64) -> bool {
    let ends_within = |limit: Duration| u64::try_from(ttl).is_ok_and(|ttl| Duration::from_millis(ttl) <= limit);
    (rest == ":token" && ttl >= 0) || (rest.starts_with(":undone:") && ends_within(LONGEST_TOMBSTONE))
}

/// The text as a pattern that matches only itself.
fn literally(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for c in text.chars() {
        if r"*?[]^-\".contains(c) {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}
