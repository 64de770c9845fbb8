//! Following a lock, on a real server.

use std::time::Duration;

use crate::common::{
    LIMIT, config, connect, count::watches, end_session, eventually, inspect, locks, outsider, server, within,
};
use futures::{StreamExt, stream::BoxStream};
use lock_core::{Backend, Error, LockName, Locks, Snapshot};
use lock_lab::proxy::Proxy;
use lock_zk::{Strategy, ZooKeeper};

type Changes = BoxStream<'static, Result<Snapshot, Error>>;

fn changes(zk: &std::sync::Arc<ZooKeeper>, name: &str) -> Changes {
    zk.clone().watch(LockName::new(name).unwrap())
}

/// The next snapshot that is so.
async fn until(changes: &mut Changes, what: &str, is_so: impl Fn(&Snapshot) -> bool + Send + Sync) -> Snapshot {
    within(what, async {
        loop {
            let snapshot = changes.next().await.expect("the stream goes on").expect("no outage");
            if is_so(&snapshot) {
                return snapshot;
            }
        }
    })
    .await
}

fn held_by(token: u64) -> impl Fn(&Snapshot) -> bool + Send + Sync {
    move |snapshot| snapshot.holders.first().is_some_and(|holder| holder.token == Some(token))
}

fn is_free(snapshot: &Snapshot) -> bool {
    snapshot.holders.is_empty() && snapshot.queue.is_empty()
}

#[tokio::test]
async fn holders_and_waiters_are_seen_from_before_the_name_was_ever_used() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks, other) = (connect(port).await, locks(port).await, locks(port).await);
    let mut changes = changes(&zk, "fresh");
    until(&mut changes, "nobody", is_free).await;
    let guard = locks.mutex("fresh").payload(*b"me").lock().await.unwrap();
    let seen = until(&mut changes, "the holder", held_by(guard.token().number)).await;
    assert_eq!(seen.holders[0].payload, b"me");
    assert!(seen.holders[0].since.is_some());
    let waiting = tokio::spawn(async move { other.mutex("fresh").lock().await.unwrap() });
    until(&mut changes, "the waiter", |snapshot| snapshot.queue.len() == 1).await;
    guard.release().await.unwrap();
    let next = within("the grant", waiting).await.unwrap();
    until(&mut changes, "the next holder", held_by(next.token().number)).await;
    next.release().await.unwrap();
    until(&mut changes, "nobody again", is_free).await;
}

#[tokio::test]
async fn every_holder_is_seen_by_one_who_looks_also_when_the_directory_is_removed_in_between() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks, client) = (connect(port).await, locks(port).await, outsider(port).await);
    let mut changes = changes(&zk, "each");
    for round in 0..10 {
        let guard = locks.mutex("each").lock().await.unwrap();
        until(&mut changes, "the holder", held_by(guard.token().number)).await;
        guard.release().await.unwrap();
        if round % 3 == 0 {
            until(&mut changes, "nobody", is_free).await;
            client.delete("/locks/each", None).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_downgrade_a_reader_and_a_permit_are_seen() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks) = (connect(port).await, locks(port).await);
    let mut changes = changes(&zk, "modes");
    let writer = locks.rwlock("modes").write().await.unwrap();
    let token = writer.token().number;
    until(&mut changes, "the writer", held_by(token)).await;
    let reader = writer.downgrade().await.unwrap();
    let is_reader =
        |snapshot: &Snapshot| held_by(token)(snapshot) && snapshot.holders[0].mode == Some(lock_core::Mode::Read);
    until(&mut changes, "the reader that it became", is_reader).await;
    let permit = locks.semaphore("modes", 1).acquire().await.unwrap();
    until(&mut changes, "both", |snapshot| snapshot.holders.len() == 2).await;
    permit.release().await.unwrap();
    reader.release().await.unwrap();
    until(&mut changes, "nobody", is_free).await;
}

#[tokio::test]
async fn who_does_not_ask_is_told_the_newest_state_and_nothing_is_kept_for_it() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks) = (connect(port).await, locks(port).await);
    let mut changes = changes(&zk, "slow");
    until(&mut changes, "nobody", is_free).await;
    for _ in 0..100 {
        locks.mutex("slow").lock().await.unwrap().release().await.unwrap();
    }
    let guard = locks.mutex("slow").lock().await.unwrap();
    let next = within("the next item", changes.next()).await.unwrap().unwrap();
    assert!(held_by(guard.token().number)(&next), "{next:?}");
}

#[tokio::test]
async fn a_stream_that_is_dropped_leaves_no_watch() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks) = (connect(port).await, locks(port).await);
    for name in ["used", "unused"] {
        if name == "used" {
            locks.mutex(name).lock().await.unwrap().release().await.unwrap();
        }
        let mut changes = changes(&zk, name);
        until(&mut changes, "nobody", is_free).await;
        assert_eq!(watches(&server).await, 1);
        drop(changes);
        eventually("no watch is left", || async { watches(&server).await == 0 }).await;
        // In the middle of a wait.
        let mut changes = self::changes(&zk, name);
        until(&mut changes, "nobody", is_free).await;
        let waiting = tokio::spawn(async move { changes.next().await });
        tokio::task::yield_now().await;
        waiting.abort();
        eventually("no watch is left", || async { watches(&server).await == 0 }).await;
    }
}

#[tokio::test]
async fn an_outage_is_told_and_the_stream_goes_on_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let proxy = Proxy::start(port).await.unwrap();
    let patient = config(proxy.port()).with_connect_timeout(Duration::from_secs(2));
    let (zk, locks) = (ZooKeeper::connect(patient).await.unwrap(), locks(port).await);
    let mut changes = changes(&zk, "outage");
    let first = locks.mutex("outage").lock().await.unwrap();
    until(&mut changes, "the first", held_by(first.token().number)).await;
    proxy.cut();
    for _ in 0..2 {
        let error = within("an error", changes.next()).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    first.release().await.unwrap();
    let second = locks.mutex("outage").lock().await.unwrap();
    proxy.heal();
    within("the second", async {
        while !changes.next().await.unwrap().is_ok_and(|snapshot| held_by(second.token().number)(&snapshot)) {}
    })
    .await;
}

#[tokio::test]
async fn the_end_of_the_session_does_not_end_the_stream() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks, client) = (connect(port).await, locks(port).await, outsider(port).await);
    let own = Locks::new(zk.clone());
    let mut changes = changes(&zk, "session");
    let guard = own.mutex("session").lock().await.unwrap();
    until(&mut changes, "the holder", held_by(guard.token().number)).await;
    let node = inspect(&zk, "session").await.holders.remove(0).id;
    end_session(&server, &client, "session", &node).await;
    let next = within("the next grant", locks.mutex("session").lock()).await.unwrap();
    within("the next holder", async {
        while !changes.next().await.unwrap().is_ok_and(|snapshot| held_by(next.token().number)(&snapshot)) {}
    })
    .await;
}

#[tokio::test]
async fn the_stream_ends_with_the_connection() {
    let server = server().await;
    let zk = connect(server.ports()[0]).await;
    let mut closed = changes(&zk, "end");
    until(&mut closed, "nobody", is_free).await;
    let ending = tokio::spawn(async move { closed.next().await.is_none() });
    zk.close(LIMIT).await;
    assert!(within("the end", ending).await.unwrap());
    assert!(within("the end", changes(&zk, "end").next()).await.is_none());

    let zk = connect(server.ports()[0]).await;
    let mut dropped = changes(&zk, "end");
    until(&mut dropped, "nobody", is_free).await;
    drop(zk);
    assert!(within("the end", dropped.next()).await.is_none());
}

#[tokio::test]
async fn the_strategy_herd_is_followed_as_well() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = ZooKeeper::connect(config(port).with_strategy(Strategy::Herd)).await.unwrap();
    let locks = Locks::new(zk.clone());
    let mut changes = changes(&zk, "herd");
    until(&mut changes, "nobody", is_free).await;
    for _ in 0..3 {
        let guard = locks.mutex("herd").payload(*b"me").lock().await.unwrap();
        let seen = until(&mut changes, "the holder", held_by(guard.token().number)).await;
        assert_eq!(seen.holders[0].payload, b"me");
        guard.release().await.unwrap();
        until(&mut changes, "nobody", is_free).await;
    }
}
