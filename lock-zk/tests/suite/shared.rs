//! Readers, writers and their downgrade, on a real server.

use crate::common::{
    children, connect,
    count::{Count, quiet, quiet_locks, watches},
    empty, eventually, held, inspect, locks, outsider, queued, server, within,
};
use lock_core::{Backend, Error, Locks, Loss, Mode};
use lock_zk::ZooKeeper;
use tokio::sync::mpsc;

#[tokio::test]
async fn a_writers_release_lets_all_readers_behind_it_in_without_any_further_request() {
    let server = server().await;
    let port = server.ports()[0];
    let (viewer, writer) = (connect(port).await, quiet_locks(port).await);
    let guard = writer.rwlock("all").write().await.unwrap();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut connections = Vec::new();
    for count in 1..=10 {
        let locks = quiet_locks(port).await;
        let (lock, granted) = (locks.rwlock("all"), granted.clone());
        connections.push(locks);
        tokio::spawn(async move { granted.send(lock.read().await.unwrap()) });
        queued(&viewer, "all", count).await;
    }
    // The writer's own, and of each reader the writer's and its own.
    eventually("all watches are set", || async { watches(&server).await == 21 }).await;
    viewer.close(crate::common::LIMIT).await;
    let count = Count::start(&server).await;
    guard.release().await.unwrap();
    let mut readers = Vec::new();
    for _ in 0..10 {
        readers.push(within("all readers", grants.recv()).await.unwrap());
    }
    assert_eq!(count.requests().await, 1, "only the release itself");
    assert!(readers.iter().all(lock_core::Guard::is_valid));
}

#[tokio::test]
async fn a_reader_that_leaves_wakes_nobody_but_a_writer_right_behind_it() {
    let server = server().await;
    let port = server.ports()[0];
    let viewer = connect(port).await;
    let (readers, writer, late) = (quiet_locks(port).await, quiet_locks(port).await, quiet_locks(port).await);
    let mut reading = Vec::new();
    for count in 1..=3 {
        reading.push(readers.rwlock("last").read().await.unwrap());
        held(&viewer, "last", count).await;
    }
    let (granted, mut grants) = mpsc::unbounded_channel();
    let (lock, sender) = (writer.rwlock("last"), granted.clone());
    tokio::spawn(async move { sender.send(lock.write().await.unwrap().into_guard()) });
    queued(&viewer, "last", 1).await;
    let (lock, sender) = (late.rwlock("last"), granted);
    tokio::spawn(async move { sender.send(lock.read().await.unwrap()) });
    queued(&viewer, "last", 2).await;
    eventually("all watches are set", || async { watches(&server).await == 7 }).await;
    viewer.close(crate::common::LIMIT).await;

    let cost = async |reader: lock_core::Guard, expected: u64| {
        let count = Count::start(&server).await;
        reader.release().await.unwrap();
        eventually("what the release costs", || async { count.requests().await == expected }).await;
    };
    cost(reading.remove(0), 1).await;
    // The writer watched the nearest one: it looks again, and watches the one that is left.
    cost(reading.remove(1), 3).await;
    assert!(grants.try_recv().is_err(), "one still reads");
    reading.remove(0).release().await.unwrap();
    let write = within("the writer", grants.recv()).await.unwrap();
    assert!(grants.try_recv().is_err(), "the reader came after the writer");
    write.release().await.unwrap();
    drop(within("the late reader", grants.recv()).await.unwrap());
}

#[tokio::test]
async fn a_reader_and_a_writer_never_wait_for_each_other() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let (here, there) = (Locks::new(zk.clone()), locks(port).await);
    let first = here.rwlock("each other").read().await.unwrap();
    let (writer, reader) = (there.rwlock("each other"), here.rwlock("each other"));
    let writing = tokio::spawn(async move { writer.write().await });
    queued(&zk, "each other", 1).await;
    let reading = tokio::spawn(async move { reader.read().await });
    queued(&zk, "each other", 2).await;
    assert!(here.rwlock("each other").try_read().await.unwrap().is_none(), "a writer waits");
    // The writer gives up: its node goes without a mark, and the reader behind it looks and reads beside the first.
    writing.abort();
    let second = within("the reader behind the writer", reading).await.unwrap().unwrap();
    assert!(first.is_valid() && second.is_valid());
    assert!(here.rwlock("each other").try_read().await.unwrap().is_some());
}

#[tokio::test]
async fn somebody_elses_write_to_a_readers_node_lets_no_writer_in() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let locks = Locks::new(zk.clone());
    let reader = locks.rwlock("scribble").read().await.unwrap();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let lock = self::locks(port).await.rwlock("scribble");
    tokio::spawn(async move { granted.send(lock.write().await.unwrap()) });
    queued(&zk, "scribble", 1).await;
    eventually("the watches are set", || async { watches(&server).await == 3 }).await;
    let node = inspect(&zk, "scribble").await.holders.remove(0).id;
    let before = watches(&server).await;
    client.set_data(&format!("/locks/scribble/{node}"), b"x", None).await.unwrap();
    eventually("it looked and waits on", || async { watches(&server).await == before }).await;
    assert!(grants.try_recv().is_err());
    assert!(locks.rwlock("scribble").try_write().await.unwrap().is_none());
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    drop(within("the writer", grants.recv()).await.unwrap());
}

#[tokio::test]
async fn a_downgraded_writer_stands_in_its_place_as_a_reader_with_its_number() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let (locks, other) = (Locks::new(zk.clone()), locks(port).await);
    let writer = locks.rwlock("down").payload(*b"me").write().await.unwrap();
    let token = writer.token();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut expect = 0;
    for writes in [false, true, false] {
        let (lock, granted) = (other.rwlock("down"), granted.clone());
        tokio::spawn(async move {
            let guard =
                if writes { lock.write().await.map(lock_core::WriteGuard::into_guard) } else { lock.read().await };
            granted.send((writes, guard.unwrap()))
        });
        expect += 1;
        queued(&zk, "down", expect).await;
    }
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.token(), token);
    let (writes, beside) = within("the reader next in line", grants.recv()).await.unwrap();
    assert!(!writes && beside.is_valid() && reader.is_valid());
    let snapshot = inspect(&zk, "down").await;
    assert_eq!(snapshot.holders[0].token, Some(token.number));
    assert_eq!(snapshot.holders[0].payload, b"me");
    let modes =
        |contenders: &[lock_core::Contender]| contenders.iter().map(|one| one.mode.unwrap()).collect::<Vec<_>>();
    assert_eq!(modes(&snapshot.holders), [Mode::Read, Mode::Read]);
    assert_eq!(modes(&snapshot.queue), [Mode::Exclusive, Mode::Read]);
    beside.release().await.unwrap();
    assert!(grants.try_recv().is_err(), "the writer waits for the one that was a writer");
    reader.release().await.unwrap();
    for expected in [true, false] {
        let (writes, guard) = within("the next one", grants.recv()).await.unwrap();
        assert_eq!(writes, expected);
        assert!(guard.token() > token);
        guard.release().await.unwrap();
    }
    empty(&client, "down").await;
}

#[tokio::test]
async fn a_downgraded_writer_is_told_that_its_new_node_was_deleted() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let writer = Locks::new(zk.clone()).rwlock("watched").write().await.unwrap();
    eventually("the node is watched", || async { watches(&server).await == 1 }).await;
    let reader = writer.downgrade().await.unwrap();
    eventually("the new node is watched", || async { watches(&server).await == 1 }).await;
    assert!(reader.is_valid(), "the end of the writer's node is no loss");
    let node = children(&client, "watched").await.remove(0);
    client.delete(&format!("/locks/watched/{node}"), None).await.unwrap();
    assert_eq!(within("the loss", reader.lost()).await, Loss::Revoked);
    assert!(matches!(reader.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
}

#[tokio::test]
async fn an_uncontended_reader_costs_as_much_as_a_writer_and_a_downgrade_one_request() {
    let server = server().await;
    let locks = Locks::new(ZooKeeper::connect(quiet(server.ports()[0])).await.unwrap());
    locks.rwlock("cost").read().await.unwrap().release().await.unwrap();
    let count = Count::start(&server).await;
    locks.rwlock("cost").read().await.unwrap().release().await.unwrap();
    let requests = count.requests().await;
    // On a slow machine also the watch of a hold that took long.
    assert!((3..=4).contains(&requests), "{requests} requests");
    let count = Count::start(&server).await;
    let reader = locks.rwlock("cost").write().await.unwrap().downgrade().await.unwrap();
    reader.release().await.unwrap();
    let requests = count.requests().await;
    assert!((4..=6).contains(&requests), "{requests} requests");
}
