//! The fair queue. What every backend promises of one is in the conformance suite.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use lock_core::Locks;
use lock_zk::Config;

use crate::simulation::{
    children, connect, connect_with, delete, directory, empty, inspect, lock, locks, simulated, standing,
};

#[test]
fn a_hundred_contenders_never_hold_together() {
    simulated(async |servers| {
        let mut connections = Vec::new();
        for host in [1, 2, 3, 4] {
            connections.push(locks(&servers, host).await);
        }
        let inside = Arc::new(AtomicU32::new(0));
        let contend = |number: usize| {
            let (mutex, inside) = (connections[number % 4].mutex("crowd"), Arc::clone(&inside));
            let clock = servers.clock(1 + number % 4);
            servers.start(1 + number % 4, async move {
                let guard = mutex.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                clock.sleep(Duration::from_millis(1)).await;
                assert!(guard.is_valid());
                assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                guard.release().await.unwrap();
            })
        };
        let contenders: Vec<_> = (0..100).map(contend).collect();
        for contender in contenders {
            contender.await.unwrap();
        }
        empty(&servers, "crowd").await;
    });
}

#[test]
fn a_waiter_whose_node_is_deleted_by_somebody_else_queues_again() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let locks = Locks::new(zk.clone());
        let guard = locks.mutex("again").lock().await.unwrap();
        let waiter = lock(&servers, 1, &locks, "again");
        standing(&servers, "again", 2).await;
        let node = inspect(&zk, "again").await.queue.remove(0).id;
        delete(&servers, "again", &node).await;
        servers
            .until("another node waits", async || {
                inspect(&zk, "again").await.queue.first().is_some_and(|waiter| waiter.id != node)
            })
            .await;
        guard.release().await.unwrap();
        drop(waiter.await.unwrap().unwrap());
    });
}

#[test]
fn a_node_of_another_program_that_is_not_a_contender_is_ignored_and_left_alone() {
    simulated(async |servers| {
        let locks = locks(&servers, 1).await;
        locks.mutex("foreign").lock().await.unwrap().release().await.unwrap();
        servers.create(&format!("{}/note-0000000000", directory("foreign"))).await;
        locks.mutex("foreign").lock().await.unwrap().release().await.unwrap();
        assert_eq!(children(&servers, "foreign").await, ["note-0000000000"]);
    });
}

#[test]
fn names_that_mean_something_in_a_path_are_locks_of_their_own() {
    simulated(async |servers| {
        let locks = locks(&servers, 1).await;
        let names = ["a/b", "a%2Fb", ".", "..", "zookeeper", ".sessions", &"ü".repeat(256), &"/".repeat(512)];
        let mut guards = Vec::new();
        for name in names {
            let guard = locks.mutex(name).try_lock().await.unwrap();
            guards.push(guard.unwrap_or_else(|| panic!("{name} is held already")));
        }
    });
}

#[test]
fn another_root_is_another_set_of_locks() {
    simulated(async |servers| {
        let deep = connect_with(&servers, 1, servers.config(1).with_root("/apps/a.b/locks")).await;
        let (deep, here) = (Locks::new(deep), locks(&servers, 2).await);
        let _here = here.mutex("same").lock().await.unwrap();
        let _deep = deep.mutex("same").try_lock().await.unwrap().expect("a lock of its own");
        assert_eq!(servers.children("/apps/a.b/locks/same").await.len(), 1);
        assert_eq!(servers.children(&format!("{}/same", Config::ROOT)).await.len(), 1);
    });
}
