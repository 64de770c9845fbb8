//! Servers that replicate: a primary with Sentinels, and a cluster.

use lock_lab::{
    servers::{Cluster, Redis, Sentinel, SentinelOptions},
    wait::eventually,
};

async fn set(server: &Redis, key: &str) -> redis::RedisResult<()> {
    let mut connection = server.connection().await.unwrap();
    redis::cmd("SET").arg(key).arg("value").exec_async(&mut connection).await
}

async fn get(server: &Redis, key: &str) -> Option<String> {
    server.ask("GET", &[key]).await.unwrap()
}

#[tokio::test]
async fn sentinels_put_a_replica_in_the_place_of_a_killed_primary() {
    let mut servers = Sentinel::start().await.unwrap();
    assert_eq!(servers.primary().await, Some(0));
    assert_eq!((servers.url().matches(',').count(), servers.url().ends_with("/lab")), (2, true));
    servers.kill(0);
    let primary = servers.promoted(Some(0)).await.unwrap();
    assert_ne!(primary, 0);
    set(&servers.nodes()[primary], "key").await.unwrap();
    servers.restart(0).await.unwrap();
    servers.wait_until_ready().await.unwrap();
    assert_eq!(get(&servers.nodes()[0], "key").await.as_deref(), Some("value"));
    assert_eq!(set(&servers.nodes()[0], "key").await.unwrap_err().code(), Some("READONLY"));
    servers.kill_sentinel(1);
    servers.restart_sentinel(1).await.unwrap();
    servers.wait_until_ready().await.unwrap();
    let next = servers.failover().await.unwrap();
    assert_ne!(next, primary);
    servers.wait_until_ready().await.unwrap();
}

#[tokio::test]
async fn a_primary_that_must_hear_of_replicas_takes_no_writes_without_them() {
    let options = SentinelOptions::default().with_min_replicas_to_write(1);
    let mut servers = Sentinel::start_with(options).await.unwrap();
    let refusal = async |servers: &Sentinel| {
        let refused = set(&servers.nodes()[0], "key").await.err();
        refused.map(|error| error.code().map(str::to_owned))
    };
    // On a machine that stands still, the primary takes those for lost that have not been heard for a while.
    eventually("a write", async || refusal(&servers).await.is_none()).await;
    servers.kill(1);
    servers.kill(2);
    assert_eq!(refusal(&servers).await, Some(Some("NOREPLICAS".to_owned())));
}

#[tokio::test]
async fn a_cluster_replaces_a_killed_primary_and_moves_slots() {
    let mut cluster = Cluster::start().await.unwrap();
    let slot = cluster.slot("{a}1").await.unwrap();
    let from = cluster.owner(slot).await.unwrap();
    assert_eq!(cluster.primary("{a}2").await.unwrap(), Some(from));
    for key in ["{a}1", "{a}2"] {
        set(&cluster.nodes()[from], key).await.unwrap();
    }
    let to = (from + 1) % 3;
    cluster.begin_migration(slot, to).await.unwrap();
    cluster.migrate_keys(slot, to, &["{a}1"]).await.unwrap();
    let both: Result<Vec<String>, _> = cluster.nodes()[from].ask("MGET", &["{a}1", "{a}2"]).await;
    let refusal = both.unwrap_err().to_string();
    assert!(refusal.contains("TryAgain"), "{refusal}");
    cluster.finish_migration(slot, to).await.unwrap();
    cluster.wait_until_ready().await.unwrap();
    assert_eq!(cluster.owner(slot).await, Some(to));
    assert_eq!(get(&cluster.nodes()[to], "{a}2").await.as_deref(), Some("value"));

    let replicas = cluster.replicas(to).await.unwrap();
    assert_eq!(replicas.len(), 1);
    cluster.kill(to);
    cluster.promoted(replicas[0]).await.unwrap();
    assert_eq!(get(&cluster.nodes()[replicas[0]], "{a}2").await.as_deref(), Some("value"));
    cluster.restart(to).await.unwrap();
    cluster.wait_until_ready().await.unwrap();
    cluster.failover(to).await.unwrap();
    cluster.wait_until_ready().await.unwrap();
    assert_eq!(cluster.owner(slot).await, Some(to));
}
