//! Following a lock.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream::BoxStream};
use lock_core::{Backend, Error, LockName, Locks, Mode, Snapshot};
use lock_sim::zookeeper::deployment::Cut;
use lock_zk::{Strategy, ZooKeeper};

use crate::{
    common::{self, eventually, watches, within},
    simulation::{connect, connect_with, directory, inspect, lock, locks, session, simulated},
};

type Changes = BoxStream<'static, Result<Snapshot, Error>>;

fn changes(zk: &Arc<ZooKeeper>, name: &str) -> Changes {
    zk.clone().watch(LockName::new(name).unwrap())
}

/// The next snapshot that is so.
async fn until(changes: &mut Changes, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
    loop {
        let snapshot = changes.next().await.expect("the stream goes on").expect("no outage");
        if is_so(&snapshot) {
            return snapshot;
        }
    }
}

/// The same, through outages.
async fn in_the_end(changes: &mut Changes, is_so: impl Fn(&Snapshot) -> bool) {
    while !changes.next().await.unwrap().is_ok_and(|snapshot| is_so(&snapshot)) {}
}

fn held_by(token: u64) -> impl Fn(&Snapshot) -> bool {
    move |snapshot| snapshot.holders.first().is_some_and(|holder| holder.token == Some(token))
}

fn is_free(snapshot: &Snapshot) -> bool {
    snapshot.holders.is_empty() && snapshot.queue.is_empty()
}

#[test]
fn holders_and_waiters_are_seen_from_before_the_name_was_ever_used() {
    simulated(async |servers| {
        let (zk, locks, other) = (connect(&servers, 1).await, locks(&servers, 2).await, locks(&servers, 3).await);
        let mut changes = changes(&zk, "fresh");
        until(&mut changes, is_free).await;
        let guard = locks.mutex("fresh").payload(*b"me").lock().await.unwrap();
        let seen = until(&mut changes, held_by(guard.token().number)).await;
        assert_eq!(seen.holders[0].payload, b"me");
        assert!(seen.holders[0].since.is_some());
        let waiting = lock(&servers, 3, &other, "fresh");
        until(&mut changes, |snapshot| snapshot.queue.len() == 1).await;
        guard.release().await.unwrap();
        let next = waiting.await.unwrap().unwrap();
        until(&mut changes, held_by(next.token().number)).await;
        next.release().await.unwrap();
        until(&mut changes, is_free).await;
    });
}

#[test]
fn every_holder_is_seen_by_one_who_looks_also_when_the_directory_is_removed_in_between() {
    simulated(async |servers| {
        let (zk, locks) = (connect(&servers, 1).await, locks(&servers, 2).await);
        let mut changes = changes(&zk, "each");
        for round in 0..10 {
            let guard = locks.mutex("each").lock().await.unwrap();
            until(&mut changes, held_by(guard.token().number)).await;
            guard.release().await.unwrap();
            if round % 3 == 0 {
                until(&mut changes, is_free).await;
                servers.delete(&directory("each")).await;
            }
        }
    });
}

#[test]
fn a_downgrade_a_reader_and_a_permit_are_seen() {
    simulated(async |servers| {
        let (zk, locks) = (connect(&servers, 1).await, locks(&servers, 2).await);
        let mut changes = changes(&zk, "modes");
        let writer = locks.rwlock("modes").write().await.unwrap();
        let token = writer.token().number;
        until(&mut changes, held_by(token)).await;
        let reader = writer.downgrade().await.unwrap();
        let is_reader = |snapshot: &Snapshot| held_by(token)(snapshot) && snapshot.holders[0].mode == Some(Mode::Read);
        until(&mut changes, is_reader).await;
        let permit = locks.semaphore("modes", 1).acquire().await.unwrap();
        until(&mut changes, |snapshot| snapshot.holders.len() == 2).await;
        permit.release().await.unwrap();
        reader.release().await.unwrap();
        until(&mut changes, is_free).await;
    });
}

#[test]
fn who_does_not_ask_is_told_the_newest_state_and_nothing_is_kept_for_it() {
    simulated(async |servers| {
        let (zk, locks) = (connect(&servers, 1).await, locks(&servers, 2).await);
        let mut changes = changes(&zk, "slow");
        until(&mut changes, is_free).await;
        for _ in 0..100 {
            locks.mutex("slow").lock().await.unwrap().release().await.unwrap();
        }
        let guard = locks.mutex("slow").lock().await.unwrap();
        let next = changes.next().await.unwrap().unwrap();
        assert!(held_by(guard.token().number)(&next), "{next:?}");
    });
}

/// On the client library and a real server.
#[tokio::test]
async fn a_stream_that_is_dropped_leaves_no_watch() {
    let server = common::server().await;
    let port = server.ports()[0];
    let (zk, locks) = (common::connect(port).await, common::locks(port).await);
    for name in ["used", "unused"] {
        if name == "used" {
            locks.mutex(name).lock().await.unwrap().release().await.unwrap();
        }
        let mut changes = changes(&zk, name);
        within("nobody", until(&mut changes, is_free)).await;
        eventually("only it watches", || async { watches(&server).await == 1 }).await;
        drop(changes);
        eventually("no watch is left", || async { watches(&server).await == 0 }).await;
        // In the middle of a wait.
        let mut changes = self::changes(&zk, name);
        within("nobody", until(&mut changes, is_free)).await;
        let waiting = tokio::spawn(async move { changes.next().await });
        tokio::task::yield_now().await;
        waiting.abort();
        eventually("no watch is left", || async { watches(&server).await == 0 }).await;
    }
}

#[test]
fn an_outage_is_told_and_the_stream_goes_on_after_it() {
    simulated(async |servers| {
        let impatient = servers.config(1).with_response_timeout(Duration::from_secs(2));
        let (zk, locks) = (connect_with(&servers, 1, impatient).await, locks(&servers, 2).await);
        let mut changes = changes(&zk, "outage");
        let first = locks.mutex("outage").lock().await.unwrap();
        until(&mut changes, held_by(first.token().number)).await;
        servers.cut(1, Cut::Both).await;
        servers.reset(1).await;
        for _ in 0..2 {
            let error = changes.next().await.unwrap().unwrap_err();
            assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        }
        first.release().await.unwrap();
        let second = locks.mutex("outage").lock().await.unwrap();
        servers.heal(1).await;
        in_the_end(&mut changes, held_by(second.token().number)).await;
    });
}

#[test]
fn the_end_of_the_session_does_not_end_the_stream() {
    simulated(async |servers| {
        let (zk, locks) = (connect(&servers, 1).await, locks(&servers, 2).await);
        let own = Locks::new(zk.clone());
        let mut changes = changes(&zk, "session");
        let guard = own.mutex("session").lock().await.unwrap();
        until(&mut changes, held_by(guard.token().number)).await;
        let node = inspect(&zk, "session").await.holders.remove(0).id;
        servers.end_session(session(&node)).await;
        let next = locks.mutex("session").lock().await.unwrap();
        in_the_end(&mut changes, held_by(next.token().number)).await;
    });
}

#[test]
fn the_stream_ends_with_the_connection() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let mut closed = changes(&zk, "end");
        until(&mut closed, is_free).await;
        let ending = servers.start(1, async move { closed.next().await.is_none() });
        zk.close(Duration::from_secs(30)).await;
        assert!(ending.await.unwrap());
        assert!(changes(&zk, "end").next().await.is_none());

        let zk = connect(&servers, 1).await;
        let mut dropped = changes(&zk, "end");
        until(&mut dropped, is_free).await;
        drop(zk);
        assert!(dropped.next().await.is_none());
    });
}

#[test]
fn the_strategy_herd_is_followed_as_well() {
    simulated(async |servers| {
        let zk = connect_with(&servers, 1, servers.config(1).with_strategy(Strategy::Herd)).await;
        let locks = Locks::new(zk.clone());
        let mut changes = changes(&zk, "herd");
        until(&mut changes, is_free).await;
        for _ in 0..3 {
            let guard = locks.mutex("herd").payload(*b"me").lock().await.unwrap();
            let seen = until(&mut changes, held_by(guard.token().number)).await;
            assert_eq!(seen.holders[0].payload, b"me");
            guard.release().await.unwrap();
            until(&mut changes, is_free).await;
        }
    });
}
