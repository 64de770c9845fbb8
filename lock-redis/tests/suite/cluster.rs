//! What holds in a cluster when a primary fails and when a slot moves.

use std::time::Duration;

use crate::common;
use crate::common::{LIMIT, connect, connect_bridging, in_line, keys, passed_on, soon};
use lock_core::{Clock, Context, Error, Guard, Locks};
use lock_lab::{
    proxy::{Proxy, answered_in_a_standstill},
    servers::{self, ClusterOptions},
    wait::renewed,
};
use lock_redis::{Config, Redis, node::Address};

const TTL: Duration = Duration::from_secs(6);

fn config(cluster: &servers::Cluster) -> Config {
    Config::cluster(cluster.nodes().iter().map(|node| Address::new("127.0.0.1", node.port()))).with_ttl(TTL)
}

/// A cluster in which nothing is to fail over.
async fn steady() -> servers::Cluster {
    servers::Cluster::start_with(ClusterOptions::default().with_bears_silence(true)).await.unwrap()
}

async fn client_of(cluster: &servers::Cluster) -> Locks {
    connect(config(cluster)).await
}

/// The slot of a lock, the primary that has it, and another primary.
async fn place_of(cluster: &servers::Cluster, name: &str) -> (u16, usize, usize) {
    let slot = cluster.slot(keys(name).lock()).await.unwrap();
    let primary = cluster.owner(slot).await.unwrap();
    (slot, primary, (primary + 1) % 3)
}

/// Moves a whole slot to another primary.
async fn migrate(cluster: &servers::Cluster, slot: u16, to: usize) {
    cluster.begin_migration(slot, to).await.unwrap();
    cluster.finish_migration(slot, to).await.unwrap();
}

async fn until_somebody_waits(cluster: &servers::Cluster, server: usize, name: &str) {
    let queue = keys(name).line(false).queue;
    soon(async { while cluster.nodes()[server].ask::<u64>("ZCARD", &[&queue]).await.unwrap() == 0 {} }).await;
}

/// Waits until a server says that it is of no use to anybody.
async fn until_down(server: &servers::Redis) {
    let is_down = async || server.ask::<String>("CLUSTER INFO", &[]).await.unwrap().contains("cluster_state:fail");
    soon(async { while !is_down().await {} }).await;
}

async fn holder(cluster: &servers::Cluster, server: usize, name: &str) -> Option<String> {
    common::holder_in(cluster.nodes()[server].ask("GET", &[keys(name).lock()]).await.unwrap())
}

#[tokio::test]
async fn a_cluster_that_answers_in_a_standstill_is_connected_to() {
    let cluster = servers::Cluster::start().await.unwrap();
    let way = Proxy::start(cluster.nodes()[0].port()).await.unwrap();
    let config = Config::cluster([Address::new("127.0.0.1", way.port())]).with_connect_timeout(LIMIT);
    let context = Context::current().with_clock(Clock::runtime());
    answered_in_a_standstill(&[way], LIMIT, Redis::connect_in(config, context)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_and_those_who_wait_get_over_a_failover_of_their_shard() {
    let mut cluster = servers::Cluster::start().await.unwrap();
    let (slot, primary, _) = place_of(&cluster, "a").await;
    let replica = cluster.replicas(primary).await.unwrap()[0];
    // A failover takes two or three seconds, and twice as long on a machine that stands still in it.
    let lasting = config(&cluster).with_ttl(Duration::from_secs(12));
    let (first, second) = (connect(lasting.clone()).await, connect(lasting).await);
    let guard = first.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = second.mutex("a");
        async move { mutex.lock().await }
    });
    until_somebody_waits(&cluster, primary, "a").await;
    // In order: the old primary lives on as a replica, and sends its clients on.
    cluster.failover(replica).await.unwrap();
    let next = passed_on(guard, waiting).await;
    assert!(holder(&cluster, replica, "a").await.is_some());
    // By a crash: it has to be found through others. A lock that was handed over outlasts that from its first renewal on.
    renewed([next.validity()]).await;
    cluster.wait_until_ready().await.unwrap();
    let waiting = tokio::spawn(async move { first.mutex("a").lock().await });
    until_somebody_waits(&cluster, replica, "a").await;
    cluster.kill(replica);
    cluster.promoted(primary).await.unwrap();
    renewed([next.validity()]).await;
    next.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(cluster.owner(slot).await, Some(primary));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_may_move_while_its_lock_is_held_and_while_others_wait_for_it() {
    let cluster = steady().await;
    let (slot, from, to) = place_of(&cluster, "a").await;
    let (first, second) = (client_of(&cluster).await, client_of(&cluster).await);
    let guard = first.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = second.mutex("a");
        async move { mutex.lock().await }
    });
    until_somebody_waits(&cluster, from, "a").await;
    migrate(&cluster, slot, to).await;
    renewed([guard.validity()]).await;
    assert_eq!(first.inspect("a").await.unwrap().holders.len(), 1);
    guard.release().await.unwrap();
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(holder(&cluster, to, "a").await.is_some());
    assert!(soon(first.mutex("a").try_lock()).await.unwrap().is_none());
    next.release().await.unwrap();
    // A release that is the first to hear of a move is sent on as well.
    let guard = soon(first.mutex("a").try_lock()).await.unwrap().unwrap();
    migrate(&cluster, slot, from).await;
    guard.release().await.unwrap();
    assert_eq!(holder(&cluster, from, "a").await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_slot_is_on_its_way_its_locks_are_kept_and_given_back_but_not_granted() {
    let cluster = steady().await;
    let (slot, _, to) = place_of(&cluster, "a").await;
    let (first, second) = (client_of(&cluster).await, client_of(&cluster).await);
    let guard = first.mutex("a").lock().await.unwrap();
    cluster.begin_migration(slot, to).await.unwrap();
    renewed([guard.validity()]).await;
    let error = second.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("TRYAGAIN")), "{error}");
    cluster.migrate_keys(slot, to, &[keys("a").lock(), &keys("a").token()]).await.unwrap();
    renewed([guard.validity()]).await;
    let token = guard.token();
    guard.release().await.unwrap();
    let waiting = tokio::spawn(async move { second.mutex("a").lock().await });
    let error = first.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { .. }), "{error}");
    cluster.finish_migration(slot, to).await.unwrap();
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert!(holder(&cluster, to, "a").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewals_go_to_the_node_of_each_lock() {
    let cluster = steady().await;
    let locks = client_of(&cluster).await;
    let mut guards = Vec::new();
    let mut used = std::collections::BTreeSet::new();
    for number in 0..12 {
        let name = format!("{number}");
        used.insert(place_of(&cluster, &name).await.1);
        guards.push(locks.mutex(&name).lock().await.unwrap());
    }
    assert_eq!(used.len(), 3, "all of them on one server say nothing");
    renewed(guards.iter().map(Guard::validity)).await;
    drop(guards);
    locks.close(LIMIT).await.unwrap();
    for server in 0..3 {
        let left: Vec<String> = cluster.nodes()[server].ask("KEYS", &["*}"]).await.unwrap();
        assert_eq!(left, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_goes_on_where_its_lock_has_moved() {
    let cluster = steady().await;
    let (slot, _, to) = place_of(&cluster, "a").await;
    let fifo = || connect(config(&cluster));
    let (first, second) = (fifo().await, fifo().await);
    let guard = first.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = second.mutex("a");
        async move { mutex.lock().await }
    });
    in_line(&first, "a", 1).await;
    migrate(&cluster, slot, to).await;
    in_line(&first, "a", 1).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_cut_off_from_its_cluster_is_not_believed() {
    let cluster = servers::Cluster::start().await.unwrap();
    for other in 1..6 {
        cluster.nodes()[other].stop().unwrap();
    }
    let alone = &cluster.nodes()[0];
    until_down(alone).await;
    let known = Config::cluster([Address::new("127.0.0.1", alone.port())]);
    let error = Redis::connect(known).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("cut off")), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_that_is_down_grants_nothing_and_is_waited_for() {
    let mut cluster = servers::Cluster::start().await.unwrap();
    let (_, primary, other) = place_of(&cluster, "a").await;
    let locks = connect_bridging(config(&cluster), 3 * LIMIT).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    // Another part of the cluster is gone altogether, so this one serves nobody.
    for lost in cluster.replicas(other).await.unwrap().into_iter().chain([other]) {
        cluster.kill(lost);
    }
    until_down(&cluster.nodes()[primary]).await;
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    let waiting = tokio::spawn(async move { locks.mutex("a").lock().await });
    cluster.restart(other).await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}
