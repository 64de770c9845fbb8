//! Readers, writers and their downgrade.

use lock_core::{Contender, Error, Guard, Locks, Loss, Mode, WriteGuard};
use lock_sim::zookeeper::deployment::Deployment;
use tokio::sync::mpsc;

use crate::simulation::{
    children, connect, delete, directory, empty, inspect, locks, quiet_locks, read, simulated, standing, write,
};

/// Contenders that say when they are granted the lock.
struct Line {
    servers: Deployment,
    granted: mpsc::UnboundedSender<(bool, Guard)>,
    grants: mpsc::UnboundedReceiver<(bool, Guard)>,
}

impl Line {
    fn new(servers: &Deployment) -> Self {
        let (granted, grants) = mpsc::unbounded_channel();
        Self { servers: servers.clone(), granted, grants }
    }

    /// Waits until the contender stands in line.
    async fn join(&self, locks: &Locks, name: &str, writes: bool) {
        let (lock, granted) = (locks.rwlock(name), self.granted.clone());
        let stood = children(&self.servers, name).await.len();
        drop(self.servers.start(2, async move {
            let guard = if writes { lock.write().await.map(WriteGuard::into_guard) } else { lock.read().await };
            granted.send((writes, guard.unwrap())).unwrap();
        }));
        standing(&self.servers, name, stood + 1).await;
    }

    async fn next(&mut self) -> (bool, Guard) {
        self.grants.recv().await.unwrap()
    }

    fn nobody_was_granted(&mut self) -> bool {
        self.grants.try_recv().is_err()
    }
}

#[test]
fn a_writers_release_lets_all_readers_behind_it_in_without_any_further_request() {
    simulated(async |servers| {
        let writer = quiet_locks(&servers, 1).await;
        let guard = writer.rwlock("all").write().await.unwrap();
        let mut line = Line::new(&servers);
        let mut connections = Vec::new();
        for _ in 0..10 {
            let locks = quiet_locks(&servers, 2).await;
            line.join(&locks, "all", false).await;
            connections.push(locks);
        }
        // The writer's own, and of each reader the writer's and its own.
        assert_eq!(servers.watches().await, 21);
        let before = servers.requests().await;
        guard.release().await.unwrap();
        let mut readers = Vec::new();
        for _ in 0..10 {
            readers.push(line.next().await.1);
        }
        servers.settle().await;
        assert_eq!(servers.requests().await - before, 1, "only the release itself");
        assert!(readers.iter().all(Guard::is_valid));
    });
}

#[test]
fn a_reader_that_leaves_wakes_nobody_but_a_writer_right_behind_it() {
    simulated(async |servers| {
        let (readers, writer, late) =
            (quiet_locks(&servers, 1).await, quiet_locks(&servers, 2).await, quiet_locks(&servers, 2).await);
        let mut reading = Vec::new();
        for _ in 0..3 {
            reading.push(readers.rwlock("last").read().await.unwrap());
        }
        let mut line = Line::new(&servers);
        line.join(&writer, "last", true).await;
        line.join(&late, "last", false).await;
        assert_eq!(servers.watches().await, 7);

        let cost = async |reader: Guard| {
            let before = servers.requests().await;
            reader.release().await.unwrap();
            servers.settle().await;
            servers.requests().await - before
        };
        assert_eq!(cost(reading.remove(0)).await, 1);
        // The writer watched the nearest one: it looks again, and watches the one that is left.
        assert_eq!(cost(reading.remove(1)).await, 3);
        assert!(line.nobody_was_granted(), "one still reads");
        reading.remove(0).release().await.unwrap();
        let (writes, guard) = line.next().await;
        assert!(writes && line.nobody_was_granted(), "the reader came after the writer");
        guard.release().await.unwrap();
        drop(line.next().await);
    });
}

#[test]
fn a_reader_and_a_writer_never_wait_for_each_other() {
    simulated(async |servers| {
        let (here, there) = (locks(&servers, 1).await, locks(&servers, 2).await);
        let first = here.rwlock("each other").read().await.unwrap();
        let writer = there.rwlock("each other");
        let (writing, gives_up) = futures::future::abortable(async move { writer.write().await });
        drop(servers.start(2, writing));
        standing(&servers, "each other", 2).await;
        let reading = read(&servers, 1, &here, "each other");
        standing(&servers, "each other", 3).await;
        assert!(here.rwlock("each other").try_read().await.unwrap().is_none(), "a writer waits");
        // The writer gives up: its node goes without a mark, and the reader behind it looks and reads beside the first.
        gives_up.abort();
        let second = reading.await.unwrap().unwrap();
        assert!(first.is_valid() && second.is_valid());
        assert!(here.rwlock("each other").try_read().await.unwrap().is_some());
    });
}

#[test]
fn somebody_elses_write_to_a_readers_node_lets_no_writer_in() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let (locks, other) = (Locks::new(zk.clone()), locks(&servers, 2).await);
        let reader = locks.rwlock("scribble").read().await.unwrap();
        let mut line = Line::new(&servers);
        line.join(&other, "scribble", true).await;
        let before = servers.watches().await;
        let node = inspect(&zk, "scribble").await.holders.remove(0).id;
        servers.write(&format!("{}/{node}", directory("scribble"))).await;
        assert_eq!(servers.watches().await, before, "it looked and waits on");
        assert!(line.nobody_was_granted());
        assert!(locks.rwlock("scribble").try_write().await.unwrap().is_none());
        assert!(reader.is_valid());
        reader.release().await.unwrap();
        drop(line.next().await);
    });
}

#[test]
fn a_downgraded_writer_stands_in_its_place_as_a_reader_with_its_number() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let (locks, other) = (Locks::new(zk.clone()), locks(&servers, 2).await);
        let writer = locks.rwlock("down").payload(*b"me").write().await.unwrap();
        let token = writer.token();
        let mut line = Line::new(&servers);
        for writes in [false, true, false] {
            line.join(&other, "down", writes).await;
        }
        let reader = writer.downgrade().await.unwrap();
        assert_eq!(reader.token(), token);
        let (writes, beside) = line.next().await;
        assert!(!writes && beside.is_valid() && reader.is_valid());
        let snapshot = inspect(&zk, "down").await;
        assert_eq!(snapshot.holders[0].token, Some(token.number));
        assert_eq!(snapshot.holders[0].payload, b"me");
        let modes = |contenders: &[Contender]| contenders.iter().map(|one| one.mode.unwrap()).collect::<Vec<_>>();
        assert_eq!(modes(&snapshot.holders), [Mode::Read, Mode::Read]);
        assert_eq!(modes(&snapshot.queue), [Mode::Exclusive, Mode::Read]);
        beside.release().await.unwrap();
        servers.settle().await;
        assert!(line.nobody_was_granted(), "the writer waits for the one that was a writer");
        reader.release().await.unwrap();
        for expected in [true, false] {
            let (writes, guard) = line.next().await;
            assert_eq!(writes, expected);
            assert!(guard.token() > token);
            guard.release().await.unwrap();
        }
        empty(&servers, "down").await;
    });
}

#[test]
fn a_downgraded_writer_is_told_that_its_new_node_was_deleted() {
    simulated(async |servers| {
        let writer = locks(&servers, 1).await.rwlock("watched").write().await.unwrap();
        servers.until("the node is watched", async || servers.watches().await == 1).await;
        let reader = writer.downgrade().await.unwrap();
        servers.settle().await;
        assert_eq!(servers.watches().await, 1, "the new node is watched");
        assert!(reader.is_valid(), "the end of the writer's node is no loss");
        delete(&servers, "watched", &children(&servers, "watched").await[0]).await;
        assert_eq!(reader.lost().await, Loss::Revoked);
        assert!(matches!(reader.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
    });
}

#[test]
fn an_uncontended_reader_costs_as_much_as_a_writer_and_a_downgrade_one_request() {
    simulated(async |servers| {
        let locks = quiet_locks(&servers, 1).await;
        locks.rwlock("cost").read().await.unwrap().release().await.unwrap();
        let before = servers.requests().await;
        locks.rwlock("cost").read().await.unwrap().release().await.unwrap();
        assert_eq!(servers.requests().await - before, 3);
        let writer = write(&servers, 1, &locks, "cost").await.unwrap().unwrap();
        servers.settle().await;
        let before = servers.requests().await;
        let reader = writer.downgrade().await.unwrap();
        assert_eq!(servers.requests().await - before, 1);
        reader.release().await.unwrap();
    });
}
