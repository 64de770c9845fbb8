//! A real server, connections to it, and control requests that go past the backend.

pub(crate) mod apart;
pub(crate) mod guide;

use std::time::Duration;

use lock_core::{BootInstant, Clock, Error, Guard, LockName, Locks, LocksOptions};
use lock_lab::{
    proxy::Proxy,
    servers::{self, RedisOptions},
    wait::renewed,
};
use lock_redis::{
    Config, Deployment, Redis,
    keys::Keys,
    node::NodeConfig,
    protocol::{
        attempt::{Attempt, Kind},
        packed::Lock,
    },
};
use redis::{FromRedisValue, ToRedisArgs, aio::MultiplexedConnection};
use tokio::task::JoinHandle;

/// Longer than anything that is waited for; only a promise that is broken takes so long.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A server, and a connection for control requests.
pub(crate) struct Server {
    pub(crate) redis: servers::Redis,
    pub(crate) control: MultiplexedConnection,
}

pub(crate) async fn server() -> Server {
    server_of(RedisOptions::default()).await
}

pub(crate) async fn server_of(options: RedisOptions) -> Server {
    let redis = servers::Redis::start_as_told(options).await.unwrap();
    let control = redis.connection().await.unwrap();
    Server { redis, control }
}

pub(crate) fn config(port: u16) -> Config {
    Config::new("127.0.0.1", port)
}

/// A server that always answers, if late: the machine is busy, or stands still.
pub(crate) fn patient_node(port: u16) -> NodeConfig {
    let mut config = NodeConfig::new("127.0.0.1", port);
    (config.response_timeout, config.connect_timeout) = (LIMIT, LIMIT);
    config
}

/// A connection that bridges an outage for as long as it takes to connect, and a failover as by default.
pub(crate) async fn connect(config: Config) -> Locks {
    let is_alone = config.deployment == Deployment::Standalone;
    let limit = if is_alone { config.node.connect_timeout } else { LocksOptions::OUTAGE_TIMEOUT };
    connect_bridging(config, limit).await
}

/// A connection that bridges an outage for that long.
pub(crate) async fn connect_bridging(config: Config, outage_timeout: Duration) -> Locks {
    let options = LocksOptions::default().with_outage_timeout(outage_timeout);
    Locks::with_options(Redis::connect(config).await.unwrap(), options)
}

impl Server {
    pub(crate) fn config(&self) -> Config {
        config(self.redis.port())
    }

    /// For a test in which the server always answers, if late.
    pub(crate) fn patient(&self) -> Config {
        self.config().with_response_timeout(LIMIT)
    }

    pub(crate) async fn locks(&self) -> Locks {
        connect(self.patient()).await
    }

    pub(crate) async fn named(&self, payload: &str) -> Locks {
        let options = LocksOptions::default().with_payload(payload.as_bytes());
        Locks::with_options(Redis::connect(self.patient()).await.unwrap(), options)
    }

    pub(crate) async fn proxy(&self) -> Proxy {
        Proxy::start(self.redis.port()).await.unwrap()
    }

    /// Sends a command, as somebody else would.
    pub(crate) async fn ask<T: FromRedisValue>(&mut self, command: &[impl ToRedisArgs + Sync]) -> T {
        self.try_ask(command).await.unwrap()
    }

    pub(crate) async fn try_ask<T: FromRedisValue>(
        &mut self,
        command: &[impl ToRedisArgs + Sync],
    ) -> redis::RedisResult<T> {
        let mut request = redis::Cmd::new();
        request.arg(command);
        request.query_async(&mut self.control).await
    }

    /// What the server keeps, but for the counters behind the tokens.
    pub(crate) async fn left(&mut self) -> Vec<String> {
        let mut left: Vec<String> = self.ask(&["KEYS", "*"]).await;
        left.retain(|key| !key.ends_with(":token"));
        left
    }

    /// Waits until the server keeps nothing but the counters and so many tombstones.
    pub(crate) async fn until_only_tombstones_are_left(&mut self, tombstones: usize) {
        let deadline = after(LIMIT);
        loop {
            let left = self.left().await;
            if left.len() == tombstones && left.iter().all(|key| key.contains(":undone:")) {
                return;
            }
            assert!(Clock::boot().now() < deadline, "left on the server: {left:?}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the server keeps nothing but the counters.
    pub(crate) async fn until_nothing_is_left(&mut self) {
        let deadline = after(LIMIT);
        loop {
            let left = self.left().await;
            if left.is_empty() {
                return;
            }
            assert!(Clock::boot().now() < deadline, "left on the server: {left:?}");
            tokio::task::yield_now().await;
        }
    }

    /// Waits until somebody stands in line for `name`.
    pub(crate) async fn until_somebody_waits(&mut self, name: &str) {
        let queue = keys(name).line(false).queue;
        soon(async { while self.ask::<u64>(&["ZCARD", &queue]).await == 0 {} }).await;
    }

    /// How many scripts were called so far.
    pub(crate) async fn calls(&self) -> u64 {
        let stats = self.redis.info("commandstats").await.unwrap();
        let count = |name| {
            let stat: &String = stats.get(name)?;
            stat.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok()
        };
        ["cmdstat_eval", "cmdstat_evalsha"].into_iter().filter_map(count).sum()
    }

    /// Waits until scripts were called that often.
    pub(crate) async fn until_called(&self, times: u64) {
        soon(async { while self.calls().await < times {} }).await;
    }

    pub(crate) async fn holder(&mut self, name: &str) -> Option<String> {
        let keys = keys(name);
        holder_in(self.ask(&["GET", keys.lock()]).await)
    }
}

/// Of what a lock key holds, the value of the attempt; the whole of it, where another library has written it.
pub(crate) fn holder_in(packed: Option<Vec<u8>>) -> Option<String> {
    let packed = packed?;
    let value = Lock::read(&packed).map_or(packed, |lock| lock.value);
    Some(String::from_utf8(value).unwrap())
}

/// The attempt on `name` with this number.
pub(crate) fn attempt(name: &str, kind: Kind, number: u32, ttl: Duration, delay: Duration) -> Attempt {
    Attempt::new(keys(name), kind, format!("{number:032}"), ttl, delay)
}

/// Waits until so many stand in line, as `locks` sees it.
pub(crate) async fn in_line(locks: &Locks, name: &str, waiters: usize) {
    soon(async { while locks.inspect(name).await.unwrap().queue.len() != waiters {} }).await;
}

pub(crate) fn keys(name: &str) -> Keys {
    Keys::new("lock", &LockName::new(name).unwrap())
}

pub(crate) fn after(duration: Duration) -> BootInstant {
    Clock::boot().now().saturating_add(duration)
}

/// Releases after the next renewal, and waits until the one who waits is granted the lock, by a higher token.
pub(crate) async fn passed_on(guard: Guard, waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    renewed([guard.validity()]).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    next
}

/// Runs `future`, which must end long before the limit.
pub(crate) async fn soon<F: Future>(future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.expect("it did not end in time")
}
