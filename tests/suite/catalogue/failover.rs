//! Another server becomes the primary.

use lock::{Error, Guard};
use lock_lab::servers::{Redis, Sentinel};

use crate::catalogue::world::{LONG, within};

/// One holds the lock and another one waits for it while a replica is promoted. Afterwards each of them is granted the
/// lock in turn, as is one who comes only then: not only the one who held it before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_not_only_the_old_holder_is_granted_the_lock() {
    let servers = Sentinel::start().await.expect("a primary, replicas and sentinels start");
    let url = format!("{}?ttl={}ms&response_timeout=5s&connect_timeout=15s", servers.url(), LONG.as_millis());
    let connect = async || within("a connection", lock::connect(&url)).await.unwrap();
    let (first, second) = (connect().await, connect().await);
    let mut held = first.mutex("a").lock().await.unwrap();
    let old = servers.primary().await;
    // In the middle of a wait: it must hear of the release at the new primary.
    let mutex = second.mutex("a");
    let waiting = tokio::spawn(async move { mutex.lock().await });
    let in_line = async || {
        let primary = &servers.nodes()[old.expect("there is one")];
        primary.ask::<u64>("ZCARD", &["{lock:a}:queue"]).await.unwrap() > 0
    };
    within("it waits", async { while !in_line().await {} }).await;
    let before = &servers.nodes()[old.expect("there is one")];
    within("it listens", async { while channels(before).await.is_empty() {} }).await;
    for node in servers.nodes() {
        // A failover before that may lose the lock itself, as replication is asynchronous.
        let knows = async || node.ask::<Option<Vec<u8>>>("GET", &["{lock:a}"]).await.unwrap().is_some();
        within("every server has the lock", async { while !knows().await {} }).await;
    }
    servers.failover().await.unwrap();
    // Until the old primary follows the new one it takes writes that nobody will ever see.
    servers.wait_until_ready().await.unwrap();
    let new = servers.primary().await.expect("there is one");
    // By itself it looks only now and then: it is to hear at once of what happens at the new primary.
    within("it listens to the new primary", async { while channels(&servers.nodes()[new]).await.is_empty() {} }).await;
    give_back(held).await;
    held = within("the one who waited", waiting).await.unwrap().unwrap();
    let third = connect().await;
    for next in [&third, &first, &second, &third] {
        let mutex = next.mutex("a");
        let waiting = tokio::spawn(async move { mutex.lock().await });
        let before = held.token();
        give_back(held).await;
        held = within("the next one", waiting).await.unwrap().unwrap();
        assert!(held.token() > before);
    }
    give_back(held).await;
}

/// What clients listen to on that server, other than Sentinels.
async fn channels(node: &Redis) -> Vec<String> {
    let mut all: Vec<String> = node.ask("PUBSUB CHANNELS", &[]).await.unwrap_or_default();
    all.retain(|channel| channel != "__sentinel__:hello");
    all
}

/// The connection may just be moving: then the release goes on in the background.
async fn give_back(guard: Guard) {
    match within("the release", guard.release()).await {
        Ok(()) | Err(Error::Unavailable { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}
