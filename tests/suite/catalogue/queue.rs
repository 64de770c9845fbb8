//! Who stands where in line, and whose place it is.

use std::sync::Arc;

use futures::{StreamExt, stream::FuturesUnordered};
use lock::{Error, Locks};
use lock_lab::proxy::Proxy;
use lock_zk::protocol::queue::{ContenderKind, NUMBERS_END, NameForm, is_out_of_numbers, prefix};
use tokio::sync::Mutex;
use zookeeper_client::{Acls, CreateMode};

use crate::catalogue::world::{LONG, Service, children, eventually, on_each, path, within};

on_each! {
    a_node_is_ones_own_only_in_ones_own_session: zookeeper;
    a_contender_that_lost_its_place_while_it_queued_is_not_granted_by_it: zookeeper;
    an_acquisition_whose_answer_is_lost_is_not_made_twice: zookeeper, redis, redlock;
    readers_and_writers_do_not_wait_for_each_other: zookeeper, redis, redlock;
    contenders_are_granted_in_the_order_of_their_arrival_whatever_their_nodes_are_called: zookeeper, redis;
}

/// The answer to a contender's create is lost, and a node of that very name is there when it looks: of a session that is
/// not its own, as that of its own last one is for as long as the servers have not removed it.
async fn a_node_is_ones_own_only_in_ones_own_session(service: Service) {
    let client = service.client();
    let locks = service.connect_through(LONG).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.on_the_way(Proxy::hold_replies);
    let mutex = locks.mutex("a");
    let mut waiting = tokio::spawn(async move { mutex.lock().await });
    eventually("its node is there", || async { children(client, "a").await.len() == 1 }).await;
    service.on_the_way(Proxy::cut);
    let node = children(client, "a").await.remove(0);
    client.delete(&path("a", &node), None).await.unwrap();
    let alike = node[..node.len() - 10].to_owned();
    let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let (_, digits) = client.create(&path("a", &alike), b"", &options).await.unwrap();
    service.on_the_way(Proxy::heal);

    tokio::select! {
        granted = &mut waiting => panic!("granted by another session's node: {granted:?}"),
        () = eventually("it stands in line", || async { children(client, "a").await.len() == 2 }) => {}
    }
    client.delete(&path("a", &format!("{alike}{digits}")), None).await.unwrap();
    within("its turn", waiting).await.unwrap().unwrap().release().await.unwrap();
}

/// What stands for a waiter is gone, as at the end of its lease, by the time that the lock comes free.
async fn a_contender_that_lost_its_place_while_it_queued_is_not_granted_by_it(service: Service) {
    let client = service.client();
    let (first, second, third) =
        (service.connect(LONG).await, service.connect_through(LONG).await, service.connect(LONG).await);
    let held = first.mutex("a").lock().await.unwrap();
    let waiting = [second.mutex("a"), third.mutex("a")];
    let mut tasks = Vec::new();
    for (ahead, mutex) in waiting.into_iter().enumerate() {
        tasks.push(tokio::spawn(async move { mutex.lock().await }));
        eventually("it stands in line", || async { children(client, "a").await.len() == ahead + 2 }).await;
    }
    // So that it hears of everything at once, and of its own node last if it does not look.
    service.on_the_way(Proxy::hold);
    let lost = children(client, "a").await.remove(1);
    client.delete(&path("a", &lost), None).await.unwrap();
    held.release().await.unwrap();
    let third = within("who is next by now", tasks.remove(1)).await.unwrap().unwrap();
    service.on_the_way(Proxy::heal);
    let mut second = tasks.remove(0);
    tokio::select! {
        granted = &mut second => panic!("granted beside another: {granted:?}"),
        () = eventually("it stands in line anew", || async { children(client, "a").await.len() == 2 }) => {}
    }
    assert!(third.is_valid());
    let before = third.token();
    third.release().await.unwrap();
    let second = within("its turn", second).await.unwrap().unwrap();
    assert!(second.token() > before && second.is_valid());
}

/// The server has carried the acquisition out, and its answer is lost: the client finds that again instead of standing in
/// its own way.
async fn an_acquisition_whose_answer_is_lost_is_not_made_twice(service: Service) {
    let locks = service.connect_through(LONG).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.until_only("a", &[]).await;
    service.on_the_way(|proxy| proxy.cut_at_reply(0));
    let mutex = locks.mutex("a");
    let guard = match within("an answer", mutex.lock()).await {
        // Of a majority of Redlock's nodes at once: the next call finds what this one has left, or nothing.
        Err(Error::Unavailable { .. }) => within("the grant", mutex.lock()).await.unwrap(),
        granted => granted.unwrap(),
    };
    if service.running.deployment().is_ensemble() {
        assert_eq!(children(service.client(), "a").await.len(), 1);
    }
    service.on_the_way(Proxy::heal);
    drop(guard);
    service.until_only("a", &[]).await;
}

/// A reader waits behind a writer, and a writer behind that reader. When the first writer goes, the reader must not look to
/// the one behind it: whether the first one says that it goes, or is just gone.
async fn readers_and_writers_do_not_wait_for_each_other(service: Service) {
    for says_so in [true, false] {
        let (first, reader) = (service.connect(LONG).await, service.connect(LONG).await);
        let second = service.connect(LONG).await;
        let held = first.rwlock("a").write().await.unwrap();
        let before = service.tries("a").await;
        let reading = tokio::spawn(async move { reader.rwlock("a").read().await.unwrap().release().await });
        service.until_tried("a", before).await;
        let before = service.tries("a").await;
        let writing = tokio::spawn(async move { second.rwlock("a").write().await.unwrap().release().await });
        service.until_tried("a", before).await;
        if says_so {
            held.release().await.unwrap();
        } else {
            service.delete("a").await;
        }
        within("the reader", reading).await.unwrap().unwrap();
        within("the second writer", writing).await.unwrap().unwrap();
    }
}

/// Their nodes are called after random ids of theirs: only what the server has appended says who came first.
async fn contenders_are_granted_in_the_order_of_their_arrival_whatever_their_nodes_are_called(service: Service) {
    let connections: [Locks; 2] = [service.connect(LONG).await, service.connect(LONG).await];
    let held = connections[0].mutex("a").lock().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiting = FuturesUnordered::new();
    for place in 0..8 {
        let (mutex, order) = (connections[place % 2].mutex("a"), Arc::clone(&order));
        waiting.push(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            order.lock().await.push(place);
            guard.release().await.unwrap();
        }));
        eventually("it stands in line", || async {
            connections[0].inspect("a").await.unwrap().queue.len() == place + 1
        })
        .await;
    }
    held.release().await.unwrap();
    within("all of them", async { while waiting.next().await.is_some() {} }).await;
    assert_eq!(*order.lock().await, (0..8).collect::<Vec<_>>());
}

/// The servers' counter has 32 bits, and near its end several nodes are given one number. `lock-zk/tests/suite/numbers.rs` takes a
/// real server there; here the nodes have made-up names.
#[test]
fn nobody_stands_in_the_queue_by_a_number_near_the_end_of_the_counter() {
    let node = |sequence: i64| format!("{}{sequence:010}", prefix(NameForm::Native, "a", 1, ContenderKind::Exclusive));
    let end = i64::from(NUMBERS_END);
    assert!(end <= i64::from(i32::MAX) - 1_000_000, "that many creates may be under way");
    for sequence in [0, 1, end - 1] {
        assert!(!is_out_of_numbers(&node(sequence)), "{sequence}");
    }
    for sequence in [end, i64::from(i32::MAX), i64::from(i32::MAX) + 1, i64::from(i32::MIN), -1] {
        assert!(is_out_of_numbers(&node(sequence)), "{sequence}");
    }
}
