//! The strategy `plain` with replicas, with Sentinels, and in a cluster.

use std::time::Duration;

use crate::common::{LIMIT, config, connect, passed_on, soon};
use lock_core::{Error, Locks};
use lock_lab::{servers, wait::renewed};
use lock_redis::{Config, Sentinel, Strategy, node::Address};

const TTL: Duration = Duration::from_secs(6);

/// Nobody who looks again after this does so within a test.
const NEVER: Strategy = Strategy::Plain { look_again: Duration::from_secs(60) };

/// A lock key, and the name of its lock: a key without a hash tag.
const NAME: &str = "orders/4711";

async fn client_of(config: Config) -> Locks {
    connect(config.with_prefix("").with_strategy(NEVER).with_ttl(TTL)).await
}

fn spawn_lock(locks: &Locks) -> tokio::task::JoinHandle<Result<lock_core::Guard, Error>> {
    let mutex = locks.mutex(NAME);
    tokio::spawn(async move { mutex.lock().await })
}

/// Waits until somebody has the server publish the release.
async fn until_somebody_waits(server: &servers::Redis) {
    let record = format!("lock-plain:token:{{{NAME}}}");
    let waits = async || {
        let record: Option<Vec<u8>> = server.ask("GET", &[&record]).await.unwrap();
        record.is_some_and(|record| record[49..57] != [0; 8])
    };
    soon(async { while !waits().await {} }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_and_those_who_wait_get_over_a_failover_by_sentinels() {
    let servers = servers::Sentinel::start().await.unwrap();
    let at = servers.sentinels().iter().map(|sentinel| Address::new("127.0.0.1", sentinel.port()));
    let config = Config::sentinel(Sentinel::new(servers::Sentinel::NAME, at));
    let (holder, waiter) = (client_of(config.clone()).await, client_of(config).await);
    let guard = holder.mutex(NAME).lock().await.unwrap();
    let waiting = spawn_lock(&waiter);
    for node in servers.nodes() {
        soon(async { while node.ask::<Option<Vec<u8>>>("GET", &[NAME]).await.unwrap().is_none() {} }).await;
        until_somebody_waits(node).await;
    }
    let primary = servers.failover().await.unwrap();
    let next = passed_on(guard, waiting).await;
    assert!(servers.nodes()[primary].ask::<Option<Vec<u8>>>("GET", &[NAME]).await.unwrap().is_some());
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_and_those_who_wait_get_over_a_failover_of_their_shard_and_a_move_of_their_slot() {
    let cluster = servers::Cluster::start().await.unwrap();
    let slot = cluster.slot(NAME).await.unwrap();
    let primary = cluster.owner(slot).await.unwrap();
    let replica = cluster.replicas(primary).await.unwrap()[0];
    let config = Config::cluster(cluster.nodes().iter().map(|node| Address::new("127.0.0.1", node.port())));
    let (first, second) = (client_of(config.clone()).await, client_of(config).await);
    let guard = first.mutex(NAME).lock().await.unwrap();
    let waiting = spawn_lock(&second);
    until_somebody_waits(&cluster.nodes()[primary]).await;
    cluster.failover(replica).await.unwrap();
    let next = passed_on(guard, waiting).await;
    assert_eq!(first.inspect(NAME).await.unwrap().holders[0].token, Some(next.token().number));
    let waiting = spawn_lock(&first);
    // The key of the record is in the slot of the lock, so it moves with it.
    let to = (0..3).find(|&server| server != primary && server != replica).unwrap();
    cluster.begin_migration(slot, to).await.unwrap();
    cluster.finish_migration(slot, to).await.unwrap();
    renewed([next.validity()]).await;
    next.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_too_few_replicas_have_is_given_back() {
    let start = async || servers::Redis::start_with(&["--save", "", "--repl-diskless-sync-delay", "0"]).await.unwrap();
    let (primary, replica) = (start().await, start().await);
    () = replica.ask("REPLICAOF", &["127.0.0.1", &primary.port().to_string()]).await.unwrap();
    soon(async { while replica.info("replication").await.unwrap()["master_link_status"] != "up" {} }).await;
    let patient = config(primary.port()).with_response_timeout(LIMIT);
    let locks = client_of(patient.with_min_replicas(1, Duration::from_secs(1))).await;
    let guard = locks.mutex(NAME).lock().await.unwrap();
    renewed([guard.validity()]).await;
    guard.release().await.unwrap();
    replica.stop().unwrap();
    let error = locks.mutex(NAME).try_lock().await.unwrap_err();
    assert!(error.to_string().contains("min_replicas=1"), "{error}");
    assert_eq!(primary.ask::<u64>("EXISTS", &[NAME]).await.unwrap(), 0);
    replica.cont().unwrap();
}
