//! Readers, permits and waiting writers on a real server: what holds when answers are lost, and who wakes whom.

use crate::common;
use std::time::Duration;

use crate::common::{LIMIT, Server, after, connect, server, soon};
use lock_core::{Clock, Error, Locks, Loss};

const SECOND: Duration = Duration::from_secs(1);

/// What is held, of whichever kind: it is only kept.
type AnyGuard = Box<dyn std::any::Any + Send>;

/// An attempt to read, and one at a permit.
async fn attempts(locks: &Locks) -> [Result<Option<AnyGuard>, Error>; 2] {
    let boxed = |guard| Box::new(guard) as AnyGuard;
    let reader = soon(locks.rwlock("a").try_read()).await.map(|guard| guard.map(boxed));
    let permit = soon(locks.semaphore("a", 2).try_acquire()).await;
    [reader, permit.map(|guard| guard.map(|guard| Box::new(guard) as AnyGuard))]
}

async fn until_in_line(server: &mut Server, waiters: u64) {
    soon(async { while server.ask::<u64>(&["ZCARD", "{lock:a}:queue"]).await != waiters {} }).await;
}

#[tokio::test]
async fn a_reader_or_a_permit_whose_answer_was_lost_is_found_again_by_the_same_attempt() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    proxy.cut_at_reply(0);
    let reader = soon(locks.rwlock("a").try_read()).await.unwrap().expect("readers do not exclude each other");
    assert_eq!(server.ask::<u64>(&["ZCARD", "{lock:a}:readers"]).await, 1, "one attempt, one reader");
    proxy.cut_at_reply(0);
    let permit = soon(locks.semaphore("a", 1).try_acquire()).await.unwrap().expect("its own permit stood in its way");
    proxy.cut_at_reply(0);
    soon(reader.release()).await.unwrap();
    proxy.cut_at_reply(0);
    soon(permit.release()).await.unwrap();
    // The first of the two requests of each might have come only now: it would find a tombstone.
    server.until_only_tombstones_are_left(2).await;
}

#[tokio::test]
async fn readers_and_permits_without_an_answer_are_undone_when_the_server_answers_again() {
    for held_up in ["replies", "requests"] {
        let mut server = server().await;
        let proxy = server.proxy().await;
        let locks = connect(common::config(proxy.port())).await;
        match held_up {
            "replies" => proxy.hold_replies(),
            _ => proxy.hold_requests(),
        }
        for attempt in attempts(&locks).await {
            assert!(matches!(attempt, Err(Error::Unavailable { .. })), "{held_up}");
        }
        proxy.heal();
        locks.close(LIMIT).await.unwrap();
        // Requests that come late find the tombstones of their undoing.
        let left = server.left().await;
        assert!(left.iter().all(|key| key.contains(":undone:")), "{held_up}: {left:?}");
    }
}

#[tokio::test]
async fn a_downgrade_whose_answer_was_lost_is_confirmed_by_the_next_one() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    let writer = locks.rwlock("a").write().await.unwrap();
    let token = writer.token();
    proxy.cut_at_reply(0);
    let reader = soon(writer.downgrade()).await.unwrap();
    assert_eq!(reader.token(), token);
    assert_eq!(server.ask::<u64>(&["EXISTS", "{lock:a}"]).await, 0);
    reader.release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_downgrade_without_an_answer_leaves_neither_a_writer_nor_a_reader() {
    for held_up in ["replies", "requests"] {
        let mut server = server().await;
        let proxy = server.proxy().await;
        let locks = connect(common::config(proxy.port())).await;
        let writer = locks.rwlock("a").write().await.unwrap();
        let validity = writer.validity().clone();
        match held_up {
            "replies" => proxy.hold_replies(),
            _ => proxy.hold_requests(),
        }
        let failed = soon(writer.downgrade()).await.unwrap_err();
        assert!(failed.guard.is_none() && matches!(failed.error, Error::Unavailable { .. }), "{failed}");
        assert_eq!(validity.loss(), Some(Loss::Released));
        proxy.heal();
        locks.close(LIMIT).await.unwrap();
        assert_eq!(server.left().await, Vec::<String>::new(), "{held_up}");
    }
}

#[tokio::test]
async fn the_scripts_of_sharing_are_sent_again_when_the_server_forgot_them() {
    let mut server = server().await;
    let locks = server.locks().await;
    for _ in 0..2 {
        let writer = locks.rwlock("a").write().await.unwrap();
        server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        let reader = writer.downgrade().await.unwrap();
        let permit = locks.semaphore("a", 3).acquire().await.unwrap();
        server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        let other = locks.rwlock("a").read().await.unwrap();
        locks.inspect("a").await.unwrap();
        server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
        for guard in [reader, other] {
            guard.release().await.unwrap();
        }
        permit.release().await.unwrap();
    }
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn readers_permits_and_a_downgraded_writer_are_renewed() {
    let server = server().await;
    // Longer than the machine may stand still.
    let locks = connect(server.patient().with_ttl(6 * SECOND)).await;
    let downgraded = locks.rwlock("a").write().await.unwrap().downgrade().await.unwrap();
    let reader = locks.rwlock("a").read().await.unwrap();
    let permit = locks.semaphore("a", 1).acquire().await.unwrap();
    let renewed = permit.valid_until().unwrap().saturating_add(6 * SECOND);
    let ends = || [downgraded.valid_until(), reader.valid_until(), permit.valid_until()];
    soon(async {
        while ends().iter().any(|until| until.expect("it is still held") < renewed) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(locks.semaphore("a", 1).try_acquire().await.unwrap().is_none());
    assert!(locks.rwlock("a").try_write().await.unwrap().is_none());
}

#[tokio::test]
async fn a_writer_that_waits_keeps_readers_out_for_as_long_as_it_waits() {
    let mut server = server().await;
    // It counts as alive for three beats of two seconds: a machine that stands still for a while lets it live.
    let (readers, writers) = (server.locks().await, connect(server.patient().with_ttl(8 * SECOND)).await);
    let reader = readers.rwlock("a").read().await.unwrap();
    let waiting = tokio::spawn(async move { writers.rwlock("a").write().await });
    until_in_line(&mut server, 1).await;
    let until = after(9 * SECOND);
    while Clock::boot().now() < until {
        assert!(readers.rwlock("a").try_read().await.unwrap().is_none(), "a reader overtook the waiting writer");
    }
    reader.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn those_who_wait_for_a_permit_only_beat_until_one_is_given_back() {
    let mut server = server().await;
    let (holder, waiters) = (server.locks().await, server.locks().await);
    let permit = holder.semaphore("a", 1).acquire().await.unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let waiters = waiters.clone();
            tokio::spawn(async move { waiters.semaphore("a", 1).acquire().await?.release().await })
        })
        .collect();
    let queue = common::keys("a").line(true).queue;
    soon(async { while server.ask::<u64>(&["ZCARD", &queue]).await != 5 {} }).await;
    // They beat once their subscription is confirmed, and then every two seconds, in one script.
    Clock::boot().sleep(SECOND / 5).await;
    let before = server.calls().await;
    Clock::boot().sleep(SECOND).await;
    assert!(server.calls().await <= before + 1, "somebody polls");
    permit.release().await.unwrap();
    for waiter in waiting {
        soon(waiter).await.unwrap().unwrap();
    }
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_free_lock_costs_one_command_and_its_release_another_whether_alone_or_shared() {
    let server = server().await;
    let locks = server.locks().await;
    for _ in 0..2 {
        let before = server.calls().await;
        locks.mutex("a").lock().await.unwrap().release().await.unwrap();
        locks.rwlock("a").read().await.unwrap().release().await.unwrap();
        locks.semaphore("a", 2).acquire().await.unwrap().release().await.unwrap();
        assert_eq!(server.calls().await, before + 6);
    }
}
