//! Semaphores, on a real server.

use std::collections::VecDeque;

use crate::common::{
    children, connect,
    count::{Count, quiet_locks, watches},
    empty, end_session, eventually, held, inspect, locks, outsider, queued, server, within,
};
use lock_core::{Backend, Error, Locks, Mode, Permit};
use tokio::sync::mpsc;

/// Contenders for permits, each on a connection of its own.
struct Line {
    connections: Vec<Locks>,
    granted: mpsc::UnboundedSender<(usize, Permit)>,
    grants: mpsc::UnboundedReceiver<(usize, Permit)>,
}

impl Line {
    fn new() -> Self {
        let (granted, grants) = mpsc::unbounded_channel();
        Self { connections: Vec::new(), granted, grants }
    }

    fn join(&mut self, locks: Locks, name: &'static str, permits: u32) -> tokio::task::AbortHandle {
        let (place, granted) = (self.connections.len(), self.granted.clone());
        let semaphore = locks.semaphore(name, permits);
        self.connections.push(locks);
        tokio::spawn(async move { granted.send((place, semaphore.acquire().await.unwrap())) }).abort_handle()
    }

    async fn next(&mut self) -> (usize, Permit) {
        within("the next permit", self.grants.recv()).await.unwrap()
    }
}

#[tokio::test]
async fn permits_go_to_those_who_wait_in_the_order_of_their_arrival_whichever_comes_free() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let mut line = Line::new();
    for place in 0..9 {
        line.join(locks(port).await, "order", 3);
        held(&zk, "order", (place + 1).min(3)).await;
        queued(&zk, "order", place.saturating_sub(2)).await;
    }
    let mut holding = VecDeque::new();
    for expected in 0..3 {
        let (place, permit) = line.next().await;
        assert_eq!(place, expected);
        holding.push_back(permit);
    }
    for expected in 3..9 {
        assert!(line.grants.try_recv().is_err());
        // The oldest, the youngest, and one in between.
        let freed = holding.remove(expected % 3).unwrap();
        freed.release().await.unwrap();
        let (place, permit) = line.next().await;
        assert_eq!(place, expected);
        holding.push_back(permit);
        held(&zk, "order", 3).await;
    }
    for permit in holding {
        permit.release().await.unwrap();
    }
    empty(&outsider(port).await, "order").await;
}

#[tokio::test]
async fn one_contender_watches_for_departures_and_a_release_costs_the_same_however_many_wait() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let mut line = Line::new();
    for place in 0..12 {
        line.join(quiet_locks(port).await, "gate", 2);
        held(&zk, "gate", (place + 1).min(2)).await;
        queued(&zk, "gate", place.saturating_sub(1)).await;
    }
    // Of the two holders their own nodes; the gate watches the directory; of the nine others the one ahead and the own.
    eventually("all watches are set", || async { watches(&server).await == 2 + 1 + 2 * 9 }).await;
    zk.close(crate::common::LIMIT).await;
    let mut holding = VecDeque::from([line.next().await.1, line.next().await.1]);
    let count = Count::start(&server).await;
    for left in (3..=9).rev() {
        let before = count.requests().await;
        holding.pop_front().unwrap().release().await.unwrap();
        holding.push_back(line.next().await.1);
        // The two holders, the next gate (which watches its own node since it waited), and the rest.
        let expected = 2 + 2 + 2 * (left - 1);
        // As many are there once the release has fired two, before the new holder's news fires two more.
        eventually("all watches are set again", || async {
            count.requests().await - before >= 5 && count.watches().await == expected
        })
        .await;
        assert!(line.grants.try_recv().is_err(), "one permit came free");
    }
    // Each time the release; the gate's look; its news; the next gate's look, and the one with the watch. Since the news
    // changes the new holder's node, it watches that anew, once or twice. That each takes five at least was waited for.
    let requests = count.requests().await;
    assert!(requests <= 7 * 7, "{requests} requests for seven releases");
}

#[tokio::test]
async fn a_gate_that_gives_up_dies_or_is_removed_is_followed_by_the_next_one() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let mut line = Line::new();
    let mut tasks = Vec::new();
    for place in 0..6 {
        tasks.push(line.join(locks(port).await, "gates", 1));
        held(&zk, "gates", 1).await;
        queued(&zk, "gates", place).await;
    }
    let (_, holder) = line.next().await;
    tasks[1].abort();
    queued(&zk, "gates", 4).await;
    let ids = || async { inspect(&zk, "gates").await.queue.into_iter().map(|waiter| waiter.id).collect::<Vec<_>>() };
    // Its session ends: it queues again in a new one, at the end.
    end_session(&server, &client, "gates", &ids().await[0]).await;
    queued(&zk, "gates", 4).await;
    // Somebody deletes its node: as well.
    let removed = ids().await[0].clone();
    client.delete(&format!("/locks/gates/{removed}"), None).await.unwrap();
    eventually("it queues again", || async {
        let ids = ids().await;
        ids.len() == 4 && !ids.contains(&removed)
    })
    .await;
    let mut permit = holder;
    for expected in [4, 5, 2, 3] {
        permit.release().await.unwrap();
        let (place, next) = line.next().await;
        assert_eq!(place, expected);
        permit = next;
    }
}

#[tokio::test]
async fn a_holder_whose_node_is_deleted_by_somebody_else_makes_room_and_is_told() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let locks = Locks::new(zk.clone());
    let held =
        [locks.semaphore("taken", 2).acquire().await.unwrap(), locks.semaphore("taken", 2).acquire().await.unwrap()];
    let mut line = Line::new();
    line.join(locks.clone(), "taken", 2);
    queued(&zk, "taken", 1).await;
    let node = inspect(&zk, "taken").await.holders.remove(0).id;
    client.delete(&format!("/locks/taken/{node}"), None).await.unwrap();
    drop(line.next().await);
    within("the loss", held[0].lost()).await;
    assert!(held[1].is_valid());
}

#[tokio::test]
async fn somebody_elses_writes_to_waiting_nodes_grant_nothing_and_cost_no_more_than_a_look() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let mut line = Line::new();
    for place in 0..4 {
        line.join(locks(port).await, "scribble", 1);
        held(&zk, "scribble", 1).await;
        queued(&zk, "scribble", place).await;
    }
    let (_, mut permit) = line.next().await;
    for node in children(&client, "scribble").await {
        client.set_data(&format!("/locks/scribble/{node}"), b"x", None).await.unwrap();
    }
    eventually("all watches are set again", || async { watches(&server).await == 1 + 1 + 2 * 2 }).await;
    assert!(line.grants.try_recv().is_err());
    for expected in 1..4 {
        permit.release().await.unwrap();
        let (place, next) = line.next().await;
        assert_eq!(place, expected);
        permit = next;
    }
}

#[tokio::test]
async fn who_names_another_number_is_refused_with_both_and_leaves_nothing() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let locks = Locks::new(zk.clone());
    let permit = locks.semaphore("numbers", 2).acquire().await.unwrap();
    let error = within("a refusal", locks.semaphore("numbers", 3).acquire()).await.unwrap_err();
    let Error::Config { key, value, allowed } = &error else { panic!("{error}") };
    assert_eq!((key.as_str(), value.as_str()), ("permits", "3"));
    assert!(allowed.contains('2'), "{allowed}");
    assert_eq!(children(&client, "numbers").await.len(), 1);
    assert_eq!(inspect(&zk, "numbers").await.holders[0].mode, Some(Mode::Permit { of: 2.try_into().unwrap() }));
    permit.release().await.unwrap();
    drop(locks.semaphore("numbers", 3).acquire().await.unwrap());
}

#[tokio::test]
async fn the_lock_and_the_semaphore_of_one_name_are_shown_together_and_do_not_disturb_each_other() {
    let server = server().await;
    let zk = connect(server.ports()[0]).await;
    let locks = Locks::new(zk.clone());
    let guard = locks.mutex("both").lock().await.unwrap();
    let permit = locks.semaphore("both", 1).acquire().await.unwrap();
    let mut line = Line::new();
    line.join(locks.clone(), "both", 1);
    let reading = tokio::spawn({
        let lock = locks.rwlock("both");
        async move { lock.read().await }
    });
    queued(&zk, "both", 2).await;
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
    drop(within("the reader", reading).await.unwrap().unwrap());
}
