//! Real servers of each backend, the connections to them, and what stands on them.

use std::time::Duration;

use lock::{Clock, LockName, Locks};
use lock_lab::{
    proxy::Proxy,
    servers::{Redis, RedisNodes, ZooKeeper},
};
use zookeeper_client::{Client, Error as ZooKeeperError};

/// Far beyond what anything here takes; what has not happened by then does not happen.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A lease that no test outlasts: what is gone within [`LIMIT`] was not removed by its end.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Redis: those who wait hear of a release, or not at all within [`LIMIT`].
pub(crate) const HEARD: &str = "&look_again=1h";

/// Makes a test of the function of that name on each of those backends.
macro_rules! on_each {
    ($($test:ident: $($backend:ident),+;)+) => {
        $(mod $test {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $backend() {
                super::$test(crate::catalogue::world::Service::$backend().await).await;
            })+
        })+
    };
}
pub(crate) use on_each;

/// The result of `future`, which must come.
pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}"))
}

/// Looks again and again until it is so.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    within(what, async {
        while !is_so().await {
            Clock::boot().sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Running servers, with a proxy before each of them.
pub(crate) struct Service {
    pub(crate) servers: Servers,
    pub(crate) proxies: Vec<Proxy>,
    /// What every URL says besides.
    setting: &'static str,
}

/// The servers themselves.
pub(crate) enum Servers {
    /// With a client that looks on.
    ZooKeeper(ZooKeeper, Client),
    Redis(Redis),
    Redlock(RedisNodes),
}

impl Service {
    pub(crate) async fn zookeeper() -> Self {
        let servers = ZooKeeper::start(1).await.expect("ZooKeeper starts");
        let connector = Client::connector().with_session_timeout(LONG);
        let client = connector.connect(&format!("127.0.0.1:{}", servers.ports()[0])).await.expect("it answers");
        Self::behind_proxies(Servers::ZooKeeper(servers, client), "").await
    }

    pub(crate) async fn redis() -> Self {
        Self::behind_proxies(Servers::Redis(Redis::start().await.expect("Redis starts")), HEARD).await
    }

    /// Redis with waiters that stand in line on the server.
    pub(crate) async fn redis_fifo() -> Self {
        Self { setting: "&queue=fifo", ..Self::redis().await }
    }

    pub(crate) async fn redlock() -> Self {
        Self::behind_proxies(Servers::Redlock(RedisNodes::start(3).await.expect("three Redis start")), "").await
    }

    async fn behind_proxies(servers: Servers, setting: &'static str) -> Self {
        let mut service = Self { servers, proxies: Vec::new(), setting };
        for port in service.ports() {
            service.proxies.push(Proxy::start(port).await.expect("a proxy starts"));
        }
        service
    }

    fn ports(&self) -> Vec<u16> {
        match &self.servers {
            Servers::ZooKeeper(servers, _) => servers.ports(),
            Servers::Redis(server) => vec![server.port()],
            Servers::Redlock(nodes) => nodes.ports(),
        }
    }

    /// The URL of servers on these ports. `patience`: how long an answer may take.
    fn url(&self, ports: &[u16], lease: Duration, patience: Duration) -> String {
        let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let (hosts, setting) = (hosts.join(","), self.setting);
        let (lease, patience) = (lease.as_millis(), patience.as_millis());
        match &self.servers {
            Servers::ZooKeeper(..) => {
                let tick = ZooKeeper::TICK.as_millis();
                format!("zk://{hosts}/?session_timeout={lease}ms&tick_time={tick}ms&connect_timeout=10s{setting}")
            }
            Servers::Redis(_) => {
                format!("redis://{hosts}/?ttl={lease}ms&response_timeout={patience}ms&connect_timeout=10s{setting}")
            }
            Servers::Redlock(_) => {
                format!("redlock://{hosts}/?ttl={lease}ms&node_timeout={patience}ms&connect_timeout=10s{setting}")
            }
        }
    }

    /// A connection whose locks outlive it for `lease`.
    pub(crate) async fn connect(&self, lease: Duration) -> Locks {
        connected(&self.url(&self.ports(), lease, LIMIT)).await
    }

    /// The same through the proxies.
    pub(crate) async fn connect_through(&self, lease: Duration) -> Locks {
        self.connect_impatiently(lease, LIMIT).await
    }

    /// The same, for which an answer is late after `patience`.
    pub(crate) async fn connect_impatiently(&self, lease: Duration, patience: Duration) -> Locks {
        let ports: Vec<_> = self.proxies.iter().map(Proxy::port).collect();
        connected(&self.url(&ports, lease, patience)).await
    }

    /// Does something with each proxy.
    pub(crate) fn on_the_way(&self, fault: impl Fn(&Proxy)) {
        self.proxies.iter().for_each(fault);
    }

    /// Freezes all servers: connections stay open, and nothing is answered.
    pub(crate) fn freeze(&self) {
        match &self.servers {
            Servers::ZooKeeper(servers, _) => servers.stop(0),
            Servers::Redis(server) => server.stop(),
            Servers::Redlock(nodes) => nodes.nodes().iter().try_for_each(Redis::stop),
        }
        .expect("servers can be stopped");
    }

    /// The Redis servers; none of ZooKeeper.
    pub(crate) fn nodes(&self) -> &[Redis] {
        match &self.servers {
            Servers::ZooKeeper(..) => &[],
            Servers::Redis(server) => std::slice::from_ref(server),
            Servers::Redlock(nodes) => nodes.nodes(),
        }
    }

    /// What stands on the servers for `name`: nodes, or keys with their server. Counters of tokens and the notes on what
    /// was undone, which stay for a while, are left out.
    pub(crate) async fn things(&self, name: &str) -> Vec<String> {
        let mut things = Vec::new();
        if let Servers::ZooKeeper(_, client) = &self.servers {
            things = children(client, name).await;
        }
        for (at, node) in self.nodes().iter().enumerate() {
            let keys: Vec<String> = ask(node, &["KEYS", &format!("{}*", key(name))]).await;
            let kept = keys.into_iter().filter(|key| !key.ends_with(":token") && !key.contains(":undone:"));
            things.extend(kept.map(|key| format!("{at} {key}")));
        }
        things.sort();
        things
    }

    /// Waits until `things` stand there, and nothing else.
    pub(crate) async fn until_only(&self, name: &str, things: &[String]) {
        eventually(&format!("only {things:?} is left"), || async { self.things(name).await == things }).await;
    }

    /// Counts what shows that somebody tries: contenders of `name`, or commands of everybody.
    pub(crate) async fn tries(&self, name: &str) -> u64 {
        match &self.servers {
            Servers::ZooKeeper(_, client) => children(client, name).await.len() as u64,
            Servers::Redis(server) => server.commands().await.expect("it answers"),
            Servers::Redlock(nodes) => nodes.commands().await.expect("they answer"),
        }
    }

    /// Waits until somebody who began after `before` was counted has been refused everywhere.
    pub(crate) async fn until_tried(&self, name: &str, before: u64) {
        let servers = self.proxies.len() as u64;
        eventually("somebody tries", || async { self.tries(name).await >= before + servers }).await;
    }

    /// Deletes what stands for the holder of `name`, as an operator would: the oldest node, or the key everywhere.
    pub(crate) async fn delete(&self, name: &str) {
        if let Servers::ZooKeeper(_, client) = &self.servers {
            let oldest = children(client, name).await.into_iter().min_by_key(|child| sequence(child));
            client.delete(&path(name, &oldest.expect("a holder")), None).await.expect("its node can be deleted");
        }
        for node in self.nodes() {
            let _: u32 = ask(node, &["DEL", &key(name)]).await;
        }
    }
}

async fn connected(url: &str) -> Locks {
    within("a connection", lock::connect(url)).await.unwrap_or_else(|error| panic!("{url}: {error}"))
}

/// The key that is the lock `name`.
pub(crate) fn key(name: &str) -> String {
    format!("{{lock:{name}}}")
}

/// The path of a contender's node.
pub(crate) fn path(name: &str, child: &str) -> String {
    format!("/locks/{}/{child}", LockName::new(name).expect("a name").to_component())
}

/// Arrival by the digits that the server appended.
pub(crate) fn sequence(child: &str) -> u64 {
    child.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX)
}

/// The contenders' nodes, oldest first.
pub(crate) async fn children(client: &Client, name: &str) -> Vec<String> {
    let directory = path(name, "");
    match client.list_children(directory.trim_end_matches('/')).await {
        Ok(mut children) => {
            children.sort_by_key(|child| sequence(child));
            children
        }
        Err(ZooKeeperError::NoNode) => Vec::new(),
        Err(error) => panic!("{error}"),
    }
}

/// Sends one command to a server, past everybody.
pub(crate) async fn ask<T: redis::FromRedisValue>(node: &Redis, words: &[&str]) -> T {
    let mut connection = node.connection().await.expect("it answers");
    redis::cmd(words[0]).arg(&words[1..]).query_async(&mut connection).await.expect("it is carried out")
}
