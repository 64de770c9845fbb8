//! What `min_replicas` promises: a grant or a renewal counts when enough replicas have it, and not before.

use crate::common;
use std::{collections::HashMap, time::Duration};

use crate::common::{LIMIT, connect, connect_bridging, keys, soon};
use futures::StreamExt;
use lock_core::{Clock, Error, Locks, Loss};
use lock_lab::{servers, wait::renewed};
use lock_redis::Config;

const TTL: Duration = Duration::from_secs(6);

/// Long enough for a busy machine; where replicas are frozen, it passes.
const PATIENCE: Duration = Duration::from_secs(1);

/// A primary and two replicas.
struct Replicated {
    primary: servers::Redis,
    replicas: [servers::Redis; 2],
}

impl Replicated {
    async fn start() -> Self {
        let start =
            async || servers::Redis::start_with(&["--save", "", "--repl-diskless-sync-delay", "0"]).await.unwrap();
        let all = Self { primary: start().await, replicas: [start().await, start().await] };
        for replica in &all.replicas {
            () = replica.ask("REPLICAOF", &["127.0.0.1", &all.primary.port().to_string()]).await.unwrap();
        }
        soon(async { while all.acknowledging().await < 2 {} }).await;
        all
    }

    async fn acknowledging(&self) -> usize {
        let info = self.primary.info("replication").await.unwrap();
        info.values().filter(|value| value.contains("state=online")).count()
    }

    fn config(&self, min_replicas: u32) -> Config {
        common::config(self.primary.port())
            .with_response_timeout(LIMIT)
            .with_ttl(TTL)
            .with_min_replicas(min_replicas, PATIENCE)
    }

    async fn locks(&self, min_replicas: u32) -> Locks {
        connect(self.config(min_replicas)).await
    }

    fn freeze(&self) {
        self.replicas.iter().for_each(|replica| replica.stop().unwrap());
    }

    fn go_on(&self) {
        self.replicas.iter().for_each(|replica| replica.cont().unwrap());
    }

    async fn holder(&self, name: &str) -> Option<String> {
        common::holder_in(self.primary.ask("GET", &[keys(name).lock()]).await.unwrap())
    }

    /// Waits until nobody holds it.
    async fn until_free(&self, name: &str) {
        soon(async { while self.holder(name).await.is_some() {} }).await;
    }
}

fn refused(error: &Error) -> bool {
    matches!(error, Error::Unavailable { reason, .. } if reason.contains("min_replicas=1") && reason.contains("0 of 1"))
}

#[tokio::test]
async fn what_too_few_replicas_acknowledge_is_given_back_and_refused() {
    let servers = Replicated::start().await;
    let locks = servers.locks(1).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    for replica in &servers.replicas {
        // The first one that has it was enough; the other one is about to.
        soon(async { while replica.ask::<Option<Vec<u8>>>("GET", &[keys("a").lock()]).await.unwrap().is_none() {} })
            .await;
    }
    guard.release().await.unwrap();
    servers.freeze();
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(refused(&error), "{error}");
    assert_eq!(servers.holder("a").await, None, "the grant that nobody was told of stands");
    let error = locks.rwlock("a").try_read().await.map(drop).unwrap_err();
    assert!(refused(&error), "{error}");
    let left: Vec<String> = servers.primary.ask("KEYS", &["*readers"]).await.unwrap();
    assert_eq!(left, Vec::<String>::new());
    servers.go_on();
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn one_more_replica_than_there_are_is_never_enough_and_the_error_says_how_many_acknowledged_it() {
    let servers = Replicated::start().await;
    let error = servers.locks(3).await.mutex("a").try_lock().await.unwrap_err();
    let Error::Unavailable { reason, .. } = &error else { panic!("{error}") };
    assert!(reason.contains("min_replicas=3") && reason.contains(" of 3"), "{error}");
    assert_eq!(servers.holder("a").await, None);
}

#[tokio::test]
async fn a_renewal_counts_only_when_enough_replicas_have_acknowledged_it() {
    let servers = Replicated::start().await;
    let locks = servers.locks(1).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    renewed([guard.validity()]).await;
    servers.freeze();
    assert_eq!(soon(guard.lost()).await, Loss::Unreachable);
    // The primary had taken every renewal: it would be kept for longer than the holder believes.
    let left: i64 = servers.primary.ask("PTTL", &[keys("a").lock()]).await.unwrap();
    assert!(left > 0, "the primary was not asked to renew it");
    servers.go_on();
}

#[tokio::test]
async fn a_wait_goes_on_until_enough_replicas_acknowledge() {
    let servers = Replicated::start().await;
    let locks = connect_bridging(servers.config(1), LIMIT).await;
    servers.freeze();
    let waiting = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    // It is granted, and given back.
    soon(async { while servers.holder("a").await.is_none() {} }).await;
    servers.until_free("a").await;
    assert!(!waiting.is_finished());
    servers.go_on();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_is_handed_over_is_delivered_when_enough_replicas_have_it() {
    let servers = Replicated::start().await;
    let fifo = async || connect_bridging(servers.config(1), LIMIT).await;
    let (first, second) = (fifo().await, fifo().await);
    let guard = first.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = second.mutex("a");
        async move { mutex.lock().await }
    });
    common::in_line(&first, "a", 1).await;
    servers.freeze();
    let before = servers.holder("a").await;
    guard.release().await.unwrap();
    // It was handed over, and its new holder does not keep it.
    assert_ne!(servers.holder("a").await, before);
    Clock::boot().sleep(PATIENCE).await;
    assert!(!waiting.is_finished(), "delivered though no replica has it");
    servers.go_on();
    let next = soon(waiting).await.unwrap().unwrap();
    assert!(next.is_valid());
    next.release().await.unwrap();
}

#[tokio::test]
async fn replicas_are_waited_for_on_the_connection_that_wrote() {
    let servers = Replicated::start().await;
    let client = redis::Client::open(servers.primary.url()).unwrap();
    let mut monitor = client.get_async_monitor().await.unwrap().into_on_message::<String>();
    let locks = servers.locks(2).await;
    let mut guards = Vec::new();
    for name in ["a", "b", "c"] {
        guards.push(locks.mutex(name).lock().await.unwrap());
    }
    renewed([guards[0].validity()]).await;
    drop(guards);
    locks.close(LIMIT).await.unwrap();
    let _: String = servers.primary.ask("ECHO", &["the end"]).await.unwrap();
    // What each connection wrote last that nobody has waited for.
    let (mut written, mut waited) = (HashMap::<String, String>::new(), 0);
    while let Some(line) = monitor.next().await {
        // `<time> [<db> <client>] "<command>" …`, where what a script runs is the client `lua`.
        let Some((_, rest)) = line.split_once('[') else { continue };
        let Some((client, command)) = rest.split_once("] ") else { continue };
        if command.contains("the end") {
            break;
        }
        let command = command.to_ascii_uppercase();
        if command.starts_with("\"EVAL") {
            written.insert(client.to_owned(), command);
        } else if command.starts_with("\"WAIT\" \"2\"") {
            assert!(written.remove(client).is_some(), "waited on a connection that had written nothing: {line}");
            waited += 1;
        }
    }
    assert!(waited >= 5, "three grants and two renewals were waited for only {waited} times");
}
