//! A server that deletes locks when it is short of memory is refused.

use crate::common::guide;

use crate::common::{config, connect, server};
use guide::{FalseSentinel, SERVICE};
use lock_core::Error;
use lock_lab::servers;
use lock_redis::{Config, Redis, Sentinel, node::Address};

async fn set(server: &servers::Redis, maxmemory: &str, policy: &str) {
    () = server.ask("CONFIG SET", &["maxmemory", maxmemory, "maxmemory-policy", policy]).await.unwrap();
}

/// The server is refused, and both of its settings are told.
fn assert_refused(connected: Result<impl Sized, Error>, policy: &str, port: u16) {
    let Err(error) = connected else { panic!("{policy} is not refused") };
    let Error::Config { key, value, allowed } = &error else { panic!("{error:?}") };
    assert_eq!(key, "maxmemory-policy");
    assert!(value.contains(policy) && value.contains("104857600") && value.contains(&port.to_string()), "{value}");
    assert!(allowed.contains("noeviction"), "{allowed}");
}

#[tokio::test]
async fn a_server_that_may_delete_locks_is_refused_and_one_that_may_not_is_not() {
    let server = server().await;
    let (redis, port) = (&server.redis, server.redis.port());
    for policy in ["volatile-lru", "volatile-ttl", "allkeys-random"] {
        set(redis, "100mb", policy).await;
        assert_refused(Redis::connect(config(port)).await, policy, port);
        set(redis, "0", policy).await;
        Redis::connect(config(port)).await.unwrap();
    }
    set(redis, "100mb", "noeviction").await;
    Redis::connect(config(port)).await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_tell_a_user_of_its_memory_is_used() {
    let mut server = server().await;
    let port = server.redis.port();
    set(&server.redis, "100mb", "allkeys-lru").await;
    server.ask::<()>(&["ACL", "SETUSER", "program", "on", ">secret", "~*", "&*", "+@all", "-info"]).await;
    let config = config(port).with_credentials(Some("program".to_owned()), "secret");
    connect(config).await.mutex("a").lock().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn each_new_connection_asks_again() {
    let mut server = server().await;
    let port = server.redis.port();
    let locks = connect(config(port)).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    set(&server.redis, "100mb", "volatile-lru").await;
    server.ask::<()>(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).await;
    assert_refused(locks.mutex("a").lock().await, "volatile-lru", port);
}

#[tokio::test]
async fn a_primary_that_sentinels_name_is_asked() {
    let server = server().await;
    let port = server.redis.port();
    let guide = FalseSentinel::naming(port).await;
    let config = || Config::sentinel(Sentinel::new(SERVICE, [guide.address()]));
    Redis::connect(config()).await.unwrap();
    set(&server.redis, "100mb", "volatile-lfu").await;
    assert_refused(Redis::connect(config()).await, "volatile-lfu", port);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_primary_of_a_cluster_is_asked() {
    let steady = servers::ClusterOptions::default().with_bears_silence(true);
    let cluster = servers::Cluster::start_with(steady).await.unwrap();
    let config = || Config::cluster(cluster.nodes().iter().map(|node| Address::new("127.0.0.1", node.port())));
    let primary = cluster.primary("{lock:a}").await.unwrap().unwrap();
    let primary = &cluster.nodes()[primary];
    Redis::connect(config()).await.unwrap();
    set(primary, "100mb", "allkeys-lru").await;
    assert_refused(Redis::connect(config()).await, "allkeys-lru", primary.port());
}
