//! Semaphores.

use std::collections::VecDeque;

use futures::future::AbortHandle;
use lock_core::{Error, Locks, Mode, Permit};
use lock_sim::zookeeper::deployment::Deployment;
use tokio::sync::mpsc;

use crate::simulation::{
    children, connect, delete, directory, empty, inspect, locks, quiet_locks, read, session, simulated, standing,
};

/// Contenders for permits, each on a connection of its own.
struct Line {
    servers: Deployment,
    connections: Vec<Locks>,
    granted: mpsc::UnboundedSender<(usize, Permit)>,
    grants: mpsc::UnboundedReceiver<(usize, Permit)>,
}

impl Line {
    fn new(servers: &Deployment) -> Self {
        let (granted, grants) = mpsc::unbounded_channel();
        Self { servers: servers.clone(), connections: Vec::new(), granted, grants }
    }

    /// Waits until the contender stands in line.
    async fn join(&mut self, locks: Locks, name: &'static str, permits: u32) -> AbortHandle {
        let (place, granted) = (self.connections.len(), self.granted.clone());
        let stood = children(&self.servers, name).await.len();
        let semaphore = locks.semaphore(name, permits);
        self.connections.push(locks);
        let acquiring = async move { granted.send((place, semaphore.acquire().await.unwrap())).unwrap() };
        let (acquiring, handle) = futures::future::abortable(acquiring);
        drop(self.servers.start(2, acquiring));
        standing(&self.servers, name, stood + 1).await;
        handle
    }

    async fn next(&mut self) -> (usize, Permit) {
        self.grants.recv().await.unwrap()
    }
}

#[test]
fn permits_go_to_those_who_wait_in_the_order_of_their_arrival_whichever_comes_free() {
    simulated(async |servers| {
        let mut line = Line::new(&servers);
        for _ in 0..9 {
            line.join(locks(&servers, 2).await, "order", 3).await;
        }
        let mut holding = VecDeque::new();
        for expected in 0..3 {
            let (place, permit) = line.next().await;
            assert_eq!(place, expected);
            holding.push_back(permit);
        }
        for expected in 3..9 {
            servers.settle().await;
            assert!(line.grants.try_recv().is_err());
            // The oldest, the youngest, and one in between.
            let freed = holding.remove(expected % 3).unwrap();
            freed.release().await.unwrap();
            let (place, permit) = line.next().await;
            assert_eq!(place, expected);
            holding.push_back(permit);
        }
        for permit in holding {
            permit.release().await.unwrap();
        }
        empty(&servers, "order").await;
    });
}

#[test]
fn one_contender_watches_for_departures_and_a_release_costs_the_same_however_many_wait() {
    simulated(async |servers| {
        let mut line = Line::new(&servers);
        for _ in 0..12 {
            line.join(quiet_locks(&servers, 2).await, "gate", 2).await;
        }
        // Of the two holders their own nodes; the gate watches the directory; of the nine others the one ahead and the own.
        assert_eq!(servers.watches().await, 2 + 1 + 2 * 9);
        let mut holding = VecDeque::from([line.next().await.1, line.next().await.1]);
        for left in (3..=9).rev() {
            let before = servers.requests().await;
            holding.pop_front().unwrap().release().await.unwrap();
            holding.push_back(line.next().await.1);
            servers.settle().await;
            // The two holders, the next gate (which watches its own node since it waited), and the rest.
            assert_eq!(servers.watches().await, 2 + 2 + 2 * (left - 1));
            assert!(line.grants.try_recv().is_err(), "one permit came free");
            // The release; the gate's look; its news; the next gate's look, and the one with the watch. Since the news changes
            // the new holder's node, it watches that anew, once or twice.
            let requests = servers.requests().await - before;
            assert!((5..=7).contains(&requests), "{requests} requests for a release before {left}");
        }
    });
}

#[test]
fn a_gate_that_gives_up_dies_or_is_removed_is_followed_by_the_next_one() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let mut line = Line::new(&servers);
        let mut tasks = Vec::new();
        for _ in 0..6 {
            tasks.push(line.join(locks(&servers, 2).await, "gates", 1).await);
        }
        let (_, holder) = line.next().await;
        tasks[1].abort();
        standing(&servers, "gates", 5).await;
        let ids = async || inspect(&zk, "gates").await.queue.into_iter().map(|waiter| waiter.id).collect::<Vec<_>>();
        let is_back = async |gone: &str| {
            let ids = ids().await;
            ids.len() == 4 && !ids.iter().any(|id| id == gone)
        };
        // Its session ends: it queues again in a new one, at the end.
        let ended = ids().await.remove(0);
        servers.end_session(session(&ended)).await;
        servers.until("it queues again", async || is_back(&ended).await).await;
        // Somebody deletes its node: as well.
        let removed = ids().await.remove(0);
        delete(&servers, "gates", &removed).await;
        servers.until("it queues again", async || is_back(&removed).await).await;
        let mut permit = holder;
        for expected in [4, 5, 2, 3] {
            permit.release().await.unwrap();
            let (place, next) = line.next().await;
            assert_eq!(place, expected);
            permit = next;
        }
    });
}

#[test]
fn a_holder_whose_node_is_deleted_by_somebody_else_makes_room_and_is_told() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let locks = Locks::new(zk.clone());
        let semaphore = locks.semaphore("taken", 2);
        let held = [semaphore.acquire().await.unwrap(), semaphore.acquire().await.unwrap()];
        let mut line = Line::new(&servers);
        line.join(locks.clone(), "taken", 2).await;
        delete(&servers, "taken", &inspect(&zk, "taken").await.holders.remove(0).id).await;
        drop(line.next().await);
        held[0].lost().await;
        assert!(held[1].is_valid());
    });
}

#[test]
fn somebody_elses_writes_to_waiting_nodes_grant_nothing_and_cost_no_more_than_a_look() {
    simulated(async |servers| {
        let mut line = Line::new(&servers);
        for _ in 0..4 {
            line.join(quiet_locks(&servers, 2).await, "scribble", 1).await;
        }
        let (_, mut permit) = line.next().await;
        for node in children(&servers, "scribble").await {
            servers.write(&format!("{}/{node}", directory("scribble"))).await;
        }
        assert_eq!(servers.watches().await, 1 + 1 + 2 * 2, "all watches are set again");
        assert!(line.grants.try_recv().is_err());
        for expected in 1..4 {
            permit.release().await.unwrap();
            let (place, next) = line.next().await;
            assert_eq!(place, expected);
            permit = next;
        }
    });
}

#[test]
fn who_names_another_number_is_refused_with_both_and_leaves_nothing() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let locks = Locks::new(zk.clone());
        let permit = locks.semaphore("numbers", 2).acquire().await.unwrap();
        let error = locks.semaphore("numbers", 3).acquire().await.unwrap_err();
        let Error::Config { key, value, allowed } = &error else { panic!("{error}") };
        assert_eq!((key.as_str(), value.as_str()), ("permits", "3"));
        assert!(allowed.contains('2'), "{allowed}");
        assert_eq!(children(&servers, "numbers").await.len(), 1);
        assert_eq!(inspect(&zk, "numbers").await.holders[0].mode, Some(Mode::Permit { of: 2.try_into().unwrap() }));
        permit.release().await.unwrap();
        drop(locks.semaphore("numbers", 3).acquire().await.unwrap());
    });
}

#[test]
fn the_lock_and_the_semaphore_of_one_name_are_shown_together_and_do_not_disturb_each_other() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let locks = Locks::new(zk.clone());
        let guard = locks.mutex("both").lock().await.unwrap();
        let permit = locks.semaphore("both", 1).acquire().await.unwrap();
        let mut line = Line::new(&servers);
        line.join(locks.clone(), "both", 1).await;
        let reading = read(&servers, 1, &locks, "both");
        standing(&servers, "both", 4).await;
        let snapshot = inspect(&zk, "both").await;
        let permits = Mode::Permit { of: 1.try_into().unwrap() };
        let mut modes: Vec<_> = snapshot.queue.iter().map(|waiter| waiter.mode.unwrap().to_string()).collect();
        modes.sort();
        assert_eq!(modes, [permits.to_string(), Mode::Read.to_string()]);
        assert_eq!(snapshot.holders.len(), 2);
        permit.release().await.unwrap();
        drop(line.next().await);
        assert!(guard.is_valid());
        guard.release().await.unwrap();
        drop(reading.await.unwrap().unwrap());
    });
}
