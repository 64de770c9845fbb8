//! A deployment of real servers for a test, and what is seen on them.

use std::time::Duration;

use lock_core::{Clock, Locks, Settings};
use lock_lab::{
    proxy::Proxy,
    servers::{Redis, RedisNodes, RedisOptions},
    wait,
};
use lock_redlock::{Config, Redlock};

/// Shorter than the default ttl: what is gone within it was given back, and has not ended by itself.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

pub(crate) fn config(ports: &[u16], values: &[(&str, &str)]) -> Config {
    let mut settings = Settings::new("redlock");
    settings.hosts = ports.iter().map(|port| ("127.0.0.1".to_owned(), Some(*port))).collect();
    settings.values = values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    Config::from_settings(settings).unwrap()
}

/// Servers that are members from the start, of a deployment in which leases may be longer than any test.
pub(crate) async fn marked(count: usize) -> RedisNodes {
    marked_as(count, &[("max_ttl", "1h")]).await
}

/// Servers that are members from the start, of a deployment with these settings.
pub(crate) async fn marked_as(count: usize, settings: &[(&str, &str)]) -> RedisNodes {
    RedisNodes::start_as(count, RedisOptions::default(), settings).await.unwrap()
}

pub(crate) async fn connect(nodes: &RedisNodes, values: &[(&str, &str)]) -> Locks {
    connect_to(&nodes.ports(), values).await
}

pub(crate) async fn connect_to(ports: &[u16], values: &[(&str, &str)]) -> Locks {
    Locks::new(Redlock::connect(config(ports, values)).await.unwrap())
}

/// The value of a key on a server, as text.
pub(crate) async fn get(node: &Redis, key: &str) -> Option<String> {
    let mut connection = node.connection().await.unwrap();
    let value: Option<Vec<u8>> = redis::cmd("GET").arg(key).query_async(&mut connection).await.unwrap();
    value.map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// How many scripts a server has run.
pub(crate) async fn scripts_run(node: &Redis) -> u64 {
    let stats = node.info("commandstats").await.unwrap();
    let calls = |name| stats.get(name)?.strip_prefix("calls=")?.split(',').next()?.parse::<u64>().ok();
    ["cmdstat_eval", "cmdstat_evalsha"].into_iter().filter_map(calls).sum()
}

/// Runs one command on a server.
pub(crate) async fn command(node: &Redis, words: &[&str]) -> redis::Value {
    let mut connection = node.connection().await.unwrap();
    let mut command = redis::cmd(words[0]);
    for word in &words[1..] {
        command.arg(*word);
    }
    command.query_async(&mut connection).await.unwrap()
}

/// As [`wait::eventually`], within [`LIMIT`].
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFnMut() -> bool) {
    let seen = Clock::boot().timeout(LIMIT, Box::pin(wait::eventually(what, is_so))).await;
    seen.unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}"));
}

/// Waits until no server of `nodes` has the key of `name`.
pub(crate) async fn until_free(nodes: &[&Redis], name: &str) {
    let key = format!("{{lock:{name}}}");
    eventually("the key is gone", || async {
        for node in nodes {
            if get(node, &key).await.is_some() {
                return false;
            }
        }
        true
    })
    .await;
}

/// How many servers of `nodes` have the key of `name`.
pub(crate) async fn count(nodes: &RedisNodes, name: &str) -> usize {
    let key = format!("{{lock:{name}}}");
    let mut count = 0;
    for node in nodes.nodes() {
        count += usize::from(get(node, &key).await.is_some());
    }
    count
}

/// Proxies in front of all servers.
pub(crate) async fn proxied(nodes: &RedisNodes) -> Vec<Proxy> {
    let mut proxies = Vec::new();
    for port in nodes.ports() {
        proxies.push(Proxy::start(port).await.unwrap());
    }
    proxies
}

/// Everything that a server keeps of `name`, but for the counter and notes of what was undone, which stay for a while.
pub(crate) async fn residue(node: &Redis, name: &str) -> Vec<String> {
    let mut connection = node.connection().await.unwrap();
    let keys: Vec<String> =
        redis::cmd("KEYS").arg(format!("{{lock:{name}}}*")).query_async(&mut connection).await.unwrap();
    keys.into_iter().filter(|key| !key.ends_with(":token") && !key.contains(":undone:")).collect()
}

/// Waits until no server keeps anything of `name`.
pub(crate) async fn until_nothing_is_left(nodes: &[Redis], name: &str) {
    eventually("nothing is left", || async {
        for node in nodes {
            if !residue(node, name).await.is_empty() {
                return false;
            }
        }
        true
    })
    .await;
}
