//! What an acquisition costs, counted on the servers.

use tokio::sync::mpsc;

use crate::simulation::{lock, quiet_locks, simulated, standing};

#[test]
fn an_uncontended_acquisition_is_two_requests_and_a_release_is_one() {
    simulated(async |servers| {
        let locks = quiet_locks(&servers, 1).await;
        locks.mutex("cost").lock().await.unwrap().release().await.unwrap();
        for _ in 0..10 {
            let before = servers.requests().await;
            let guard = locks.mutex("cost").lock().await.unwrap();
            guard.release().await.unwrap();
            assert_eq!(servers.requests().await - before, 3, "create, list, and the transaction");
        }
    });
}

#[test]
fn each_waiter_watches_its_predecessor_and_itself_and_nobody_watches_the_directory() {
    simulated(async |servers| {
        let holder = quiet_locks(&servers, 1).await;
        let guard = holder.mutex("watches").lock().await.unwrap();
        servers.until("the holder watches its node", async || servers.watches().await == 1).await;
        let mut waiters = Vec::new();
        for count in 1..=20 {
            let locks = quiet_locks(&servers, 2).await;
            waiters.push((lock(&servers, 2, &locks, "watches"), locks));
            standing(&servers, "watches", count + 1).await;
            assert_eq!(servers.watches().await, 1 + 2 * count, "two watches per waiter");
        }
        drop(guard);
    });
}

#[test]
fn a_release_wakes_exactly_one_waiter_which_holds_without_any_further_request() {
    simulated(async |servers| {
        let first = quiet_locks(&servers, 1).await;
        let mut holder = first.mutex("herd").lock().await.unwrap();
        let (granted, mut grants) = mpsc::unbounded_channel();
        let mut connections = Vec::new();
        for count in 1..=10 {
            let locks = quiet_locks(&servers, 2).await;
            let (mutex, granted) = (locks.mutex("herd"), granted.clone());
            connections.push(locks);
            drop(servers.start(2, async move { granted.send(mutex.lock().await.unwrap()).unwrap() }));
            standing(&servers, "herd", count + 1).await;
        }
        assert_eq!(servers.watches().await, 21);
        for left in (1..=10).rev() {
            let before = servers.requests().await;
            holder.release().await.unwrap();
            holder = grants.recv().await.unwrap();
            servers.settle().await;
            assert_eq!(servers.requests().await - before, 1, "only the release itself");
            assert!(grants.try_recv().is_err(), "one waiter is woken");
            // Its predecessor's watch and its predecessor's own went; all others stayed.
            assert_eq!(servers.watches().await, 2 * left - 1);
        }
    });
}
