//! Running deployments of each backend, the connections to them, and what stands on them.

use std::time::Duration;

use lock::{LockName, Locks};
pub(crate) use lock_lab::wait::{LIMIT, eventually, within};
use lock_lab::{
    deployment::{Connection, Deployment, Running},
    proxy::Proxy,
    servers::Redis,
};
use zookeeper_client::{Client, Error as ZooKeeperError};

/// A lease that no test outlasts: what is gone within [`LIMIT`] was not removed by its end.
pub(crate) const LONG: Duration = Duration::from_secs(60);

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

/// Running servers, with a proxy before each of them.
pub(crate) struct Service {
    pub(crate) running: Running,
    pub(crate) proxies: Vec<Proxy>,
    /// Looks on, at ZooKeeper.
    client: Option<Client>,
}

impl Service {
    pub(crate) async fn zookeeper() -> Self {
        let service = Self::of("zk1").await;
        let connector = Client::connector().with_session_timeout(LONG);
        let client = connector.connect(&format!("127.0.0.1:{}", service.running.ports()[0])).await;
        Self { client: Some(client.expect("it answers")), ..service }
    }

    pub(crate) async fn redis() -> Self {
        Self::of("redis").await
    }

    pub(crate) async fn redlock() -> Self {
        Self::of("redlock3").await
    }

    async fn of(deployment: &str) -> Self {
        let deployment: Deployment = deployment.parse().expect("a deployment");
        let running = deployment.start().await.expect("its servers start");
        let mut proxies = Vec::new();
        for port in running.ports() {
            proxies.push(Proxy::start(port).await.expect("a proxy starts"));
        }
        Self { running, proxies, client: None }
    }

    /// What looks on at ZooKeeper.
    pub(crate) fn client(&self) -> &Client {
        self.client.as_ref().expect("on ZooKeeper only")
    }

    /// A connection by that way. `patience`: how long an answer may take.
    async fn connect_by(&self, way: Connection, lease: Duration, patience: Duration) -> Locks {
        let way = way.with_lease(lease).with_answer_limit(patience).with("connect_timeout=10s");
        let url = self.running.url(&way.with(self.running.deployment().in_trials));
        within("a connection", lock::connect(&url)).await.unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// A connection whose locks outlive it for `lease`.
    pub(crate) async fn connect(&self, lease: Duration) -> Locks {
        self.connect_by(Connection::default(), lease, LIMIT).await
    }

    /// The same through the proxies.
    pub(crate) async fn connect_through(&self, lease: Duration) -> Locks {
        self.connect_impatiently(lease, LIMIT).await
    }

    /// The same, for which an answer is late after `patience`.
    pub(crate) async fn connect_impatiently(&self, lease: Duration, patience: Duration) -> Locks {
        let proxies = self.running.ports().into_iter().zip(self.proxies.iter().map(Proxy::port));
        self.connect_by(Connection::default().through(proxies), lease, patience).await
    }

    /// Does something with each proxy.
    pub(crate) fn on_the_way(&self, fault: impl Fn(&Proxy)) {
        self.proxies.iter().for_each(fault);
    }

    /// Freezes all servers: connections stay open, and nothing is answered.
    pub(crate) fn freeze(&self) {
        (0..self.proxies.len()).try_for_each(|server| self.running.stop(server)).expect("servers can be stopped");
    }

    /// The Redis servers; none of ZooKeeper.
    pub(crate) fn nodes(&self) -> &[Redis] {
        self.running.redis()
    }

    /// What stands on the servers for `name`: nodes, or keys with their server. Counters of tokens and the notes on what
    /// was undone, which stay for a while, are left out.
    pub(crate) async fn things(&self, name: &str) -> Vec<String> {
        let mut things = Vec::new();
        if let Some(client) = &self.client {
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

    /// What stands there when `name` is held on all servers: Redlock's are asked all at once, and it holds with a majority of them.
    pub(crate) async fn held_everywhere(&self, name: &str) -> Vec<String> {
        eventually("it is held everywhere", || async { self.things(name).await.len() == self.proxies.len() }).await;
        self.things(name).await
    }

    /// Waits until `things` stand there, and nothing else.
    pub(crate) async fn until_only(&self, name: &str, things: &[String]) {
        eventually(&format!("only {things:?} is left"), || async { self.things(name).await == things }).await;
    }

    /// Counts what shows that somebody tries: contenders of `name`, or commands of everybody.
    pub(crate) async fn tries(&self, name: &str) -> u64 {
        match &self.client {
            Some(client) => children(client, name).await.len() as u64,
            None => self.running.requests().await.expect("they answer").unwrap_or_default(),
        }
    }

    /// Waits until somebody who began after `before` was counted has been refused everywhere.
    pub(crate) async fn until_tried(&self, name: &str, before: u64) {
        let servers = self.proxies.len() as u64;
        eventually("somebody tries", || async { self.tries(name).await >= before + servers }).await;
    }

    /// Deletes what stands for the holder of `name`, as an operator would: the oldest node, or the key everywhere.
    pub(crate) async fn delete(&self, name: &str) {
        let name = LockName::new(name).expect("a name");
        self.running.ground_truth().delete(&name).await.expect("it can be deleted");
    }
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
