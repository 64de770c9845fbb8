//! The fair queue, on a real server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use crate::common::{LIMIT, children, connect, empty, eventually, inspect, locks, outsider, queued, server, within};
use lock_core::{Clock, Error, Locks, LocksOptions, Loss};
use lock_zk::Config;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_granted_in_the_order_of_their_arrival_with_rising_tokens() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let connections = [Locks::new(zk.clone()), locks(port).await, locks(port).await];
    let first = connections[0].mutex("order").lock().await.unwrap();
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for place in 0..12 {
        let (mutex, granted) = (connections[place % 3].mutex("order"), granted.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            granted.send((place, guard.token())).unwrap();
            guard.release().await.unwrap();
        });
        queued(&zk, "order", place + 1).await;
    }
    let mut newest = first.token();
    first.release().await.unwrap();
    for expected in 0..12 {
        let (place, token) = within("the next grant", grants.recv()).await.unwrap();
        assert_eq!(place, expected);
        assert!(token > newest, "{token} after {newest}");
        newest = token;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_contenders_never_hold_together() {
    let server = server().await;
    let port = server.ports()[0];
    let connections = [locks(port).await, locks(port).await, locks(port).await, locks(port).await];
    let inside = Arc::new(AtomicU32::new(0));
    let mut contenders = tokio::task::JoinSet::new();
    for number in 0..100 {
        let (mutex, inside) = (connections[number % 4].mutex("crowd"), Arc::clone(&inside));
        contenders.spawn(async move {
            let guard = mutex.lock().await.unwrap();
            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
            tokio::task::yield_now().await;
            assert!(guard.is_valid());
            assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
            guard.release().await.unwrap();
        });
    }
    let done = within("all hundred", contenders.join_all()).await;
    assert_eq!(done.len(), 100);
    empty(&outsider(port).await, "crowd").await;
}

#[tokio::test]
async fn a_try_on_a_held_lock_is_denied_and_leaves_nothing() {
    let server = server().await;
    let port = server.ports()[0];
    let (holder, other) = (locks(port).await, locks(port).await);
    let guard = holder.mutex("try").lock().await.unwrap();
    for locks in [&other, &holder] {
        assert!(within("a try", locks.mutex("try").try_lock()).await.unwrap().is_none());
    }
    assert_eq!(children(&outsider(port).await, "try").await.len(), 1);
    guard.release().await.unwrap();
    assert!(other.mutex("try").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_wait_that_ends_leaves_nothing_and_the_one_behind_it_is_granted() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let (holder, impatient, patient) = (Locks::new(zk.clone()), locks(port).await, locks(port).await);
    let guard = holder.mutex("wait").lock().await.unwrap();
    let impatient =
        tokio::spawn(async move { impatient.mutex("wait").timeout(Duration::from_millis(300)).lock().await });
    queued(&zk, "wait", 1).await;
    let patient = tokio::spawn(async move { patient.mutex("wait").lock().await });
    let denied = within("the limit", impatient).await.unwrap();
    assert!(matches!(denied, Err(Error::NotAcquired { .. })), "{denied:?}");
    queued(&zk, "wait", 1).await;
    guard.release().await.unwrap();
    drop(within("the grant", patient).await.unwrap().unwrap());
}

#[tokio::test]
async fn an_acquisition_dropped_after_any_poll_leaves_nothing() {
    let server = server().await;
    let port = server.ports()[0];
    let (locks, client) = (locks(port).await, outsider(port).await);
    for polls in 1.. {
        let mutex = locks.mutex("dropped");
        let mut acquiring = Box::pin(mutex.lock());
        let mut left = polls;
        let done = std::future::poll_fn(|context| {
            left -= 1;
            match acquiring.as_mut().poll(context) {
                std::task::Poll::Ready(guard) => std::task::Poll::Ready(Some(guard)),
                std::task::Poll::Pending if left == 0 => std::task::Poll::Ready(None),
                std::task::Poll::Pending => std::task::Poll::Pending,
            }
        })
        .await;
        drop(acquiring);
        let complete = done.is_some();
        drop(done);
        empty(&client, "dropped").await;
        if complete {
            break;
        }
    }
}

#[tokio::test]
async fn a_holder_whose_node_is_deleted_by_somebody_else_is_told() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let guard = Locks::new(zk.clone()).mutex("taken").lock().await.unwrap();
    let node = inspect(&zk, "taken").await.holders.remove(0).id;
    client.delete(&format!("/locks/taken/{node}"), None).await.unwrap();
    assert_eq!(within("the loss", guard.lost()).await, Loss::Revoked);
    assert!(matches!(guard.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
}

#[tokio::test]
async fn a_waiter_whose_node_is_deleted_by_somebody_else_queues_again() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, client) = (connect(port).await, outsider(port).await);
    let locks = Locks::new(zk.clone());
    let guard = locks.mutex("again").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = locks.mutex("again");
        async move { mutex.lock().await }
    });
    queued(&zk, "again", 1).await;
    let node = inspect(&zk, "again").await.queue.remove(0).id;
    client.delete(&format!("/locks/again/{node}"), None).await.unwrap();
    eventually("another node waits", || async {
        inspect(&zk, "again").await.queue.first().is_some_and(|waiter| waiter.id != node)
    })
    .await;
    guard.release().await.unwrap();
    drop(within("the grant", waiter).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_node_of_another_program_that_is_not_a_contender_is_ignored_and_left_alone() {
    let server = server().await;
    let port = server.ports()[0];
    let (locks, client) = (locks(port).await, outsider(port).await);
    locks.mutex("foreign").lock().await.unwrap().release().await.unwrap();
    let options = zookeeper_client::CreateMode::Persistent.with_acls(zookeeper_client::Acls::anyone_all());
    client.create("/locks/foreign/note-0000000000", b"", &options).await.unwrap();
    locks.mutex("foreign").lock().await.unwrap().release().await.unwrap();
    assert_eq!(children(&client, "foreign").await, ["note-0000000000"]);
}

#[tokio::test]
async fn inspection_shows_the_holder_with_its_token_and_the_queue_in_its_order() {
    let server = server().await;
    let port = server.ports()[0];
    let zk = connect(port).await;
    let locks = Locks::with_options(zk.clone(), LocksOptions::default().with_payload(*b"me"));
    assert_eq!(inspect(&zk, "seen").await, lock_core::Snapshot::default());
    let guard = locks.mutex("seen").lock().await.unwrap();
    let mut waiters = tokio::task::JoinSet::new();
    for (count, payload) in [&b"second"[..], b"third"].into_iter().enumerate() {
        let mutex = locks.mutex("seen").payload(payload);
        waiters.spawn(async move { mutex.lock().await.unwrap().release().await });
        queued(&zk, "seen", count + 1).await;
    }
    let snapshot = inspect(&zk, "seen").await;
    assert_eq!(snapshot.holders[0].payload, b"me");
    assert_eq!(snapshot.holders[0].token, Some(guard.token().number));
    let queue: Vec<_> = snapshot.queue.iter().map(|waiter| waiter.payload.as_slice()).collect();
    assert_eq!(queue, [&b"second"[..], b"third"]);
    guard.release().await.unwrap();
    within("both waiters", waiters.join_all()).await;
}

#[tokio::test]
async fn names_of_any_characters_are_locks_of_their_own() {
    let server = server().await;
    let port = server.ports()[0];
    let locks = locks(port).await;
    let names =
        ["a/b", "a%2Fb", ".", "..", "zookeeper", " ", "emoji 🔒", ".sessions", &"ü".repeat(256), &"/".repeat(512)];
    let mut guards = Vec::new();
    for name in names {
        let guard = locks.mutex(name).try_lock().await.unwrap();
        guards.push(guard.unwrap_or_else(|| panic!("{name} is held already")));
    }
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_thousand_locks_are_held_at_once_by_one_connection_beyond_the_session_timeout() {
    let server = server().await;
    let port = server.ports()[0];
    let timeout = Duration::from_secs(4);
    let zk = lock_zk::ZooKeeper::connect(crate::common::config(port).with_session_timeout(timeout)).await.unwrap();
    let locks = Locks::new(zk);
    let mut guards = Vec::new();
    for number in 0..1000 {
        guards.push(locks.mutex(format!("many/{number}")).lock().await.unwrap());
    }
    let all_valid_beyond = Clock::boot().now().saturating_add(timeout);
    eventually("every guard was renewed", || async {
        guards.iter().all(|guard| guard.valid_until().is_some_and(|until| until > all_valid_beyond))
    })
    .await;
    within("closing", locks.close(LIMIT)).await.unwrap();
    assert!(guards.iter().all(|guard| guard.validity().loss() == Some(Loss::Closed)));
    let client = outsider(port).await;
    for number in [0, 500, 999] {
        assert!(children(&client, &format!("many/{number}")).await.is_empty());
    }
}

#[tokio::test]
async fn another_root_is_another_set_of_locks() {
    let server = server().await;
    let port = server.ports()[0];
    let deep = crate::common::config(port).with_root("/apps/a.b/locks");
    let deep = Locks::new(lock_zk::ZooKeeper::connect(deep).await.unwrap());
    let here = locks(port).await;
    let _here = here.mutex("same").lock().await.unwrap();
    let _deep = deep.mutex("same").try_lock().await.unwrap().expect("a lock of its own");
    let client = outsider(port).await;
    assert_eq!(client.list_children("/apps/a.b/locks/same").await.unwrap().len(), 1);
    assert_eq!(client.list_children(&format!("{}/same", Config::ROOT)).await.unwrap().len(), 1);
}
