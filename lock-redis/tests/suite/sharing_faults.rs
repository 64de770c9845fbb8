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

async fn until_noted(server: &mut Server, writers: u64) {
    soon(async { while server.ask::<u64>(&["ZCARD", "{lock:a}:writers"]).await != writers {} }).await;
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
    let locks = connect(server.config().with_ttl(SECOND)).await;
    let downgraded = locks.rwlock("a").write().await.unwrap().downgrade().await.unwrap();
    let reader = locks.rwlock("a").read().await.unwrap();
    let permit = locks.semaphore("a", 1).acquire().await.unwrap();
    let renewed = permit.valid_until().unwrap().saturating_add(4 * SECOND);
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
async fn a_writer_that_only_listens_keeps_readers_out_for_as_long_as_it_waits() {
    let mut server = server().await;
    let (readers, writers) = (server.locks().await, connect(server.config().with_ttl(SECOND)).await);
    let reader = readers.rwlock("a").read().await.unwrap();
    let waiting = tokio::spawn(async move { writers.rwlock("a").write().await });
    until_noted(&mut server, 1).await;
    let until = after(4 * SECOND);
    while Clock::boot().now() < until {
        assert!(readers.rwlock("a").try_read().await.unwrap().is_none(), "a reader overtook the waiting writer");
    }
    reader.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_writer_that_gives_up_takes_its_note_back_and_wakes_the_readers() {
    let mut server = server().await;
    let (readers, writers) = (server.locks().await, server.locks().await);
    let reader = readers.rwlock("a").read().await.unwrap();
    let waiting = {
        let writers = writers.clone();
        tokio::spawn(async move { writers.rwlock("a").timeout(SECOND).write().await })
    };
    until_noted(&mut server, 1).await;
    let later = tokio::spawn(async move { readers.rwlock("a").read().await });
    server.until_somebody_waits("a").await;
    assert!(matches!(soon(waiting).await.unwrap(), Err(Error::NotAcquired { .. })));
    assert_eq!(server.ask::<u64>(&["EXISTS", "{lock:a}:writers", "{lock:a}:writing"]).await, 0);
    soon(later).await.unwrap().unwrap().release().await.unwrap();
    reader.release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_second_writer_of_a_client_goes_before_a_reader_that_came_after_it() {
    let mut server = server().await;
    let (readers, writers) = (server.locks().await, server.locks().await);
    let reader = readers.rwlock("a").read().await.unwrap();
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for who in ["first writer", "second writer"] {
        let (writers, granted) = (writers.clone(), granted.clone());
        tokio::spawn(async move {
            let guard = writers.rwlock("a").write().await.unwrap();
            granted.send((who, Some(guard))).ok();
        });
        until_noted(&mut server, 1).await;
    }
    reader.release().await.unwrap();
    for expected in ["first writer", "second writer"] {
        let (who, guard) = soon(grants.recv()).await.unwrap();
        assert_eq!(who, expected);
        assert!(readers.rwlock("a").try_read().await.unwrap().is_none());
        if expected == "first writer" {
            // Only now: the grant has noted the second writer, and however long requests take, this one has come after it.
            let (other, told) = (readers.clone(), granted.clone());
            tokio::spawn(async move {
                let guard = other.rwlock("a").read().await.unwrap();
                told.send(("reader", None)).ok();
                guard.release().await.unwrap();
            });
        }
        guard.unwrap().release().await.unwrap();
    }
    assert_eq!(soon(grants.recv()).await.unwrap().0, "reader");
}

#[tokio::test]
async fn those_who_wait_for_a_permit_ask_for_nothing_until_one_is_given_back() {
    let mut server = server().await;
    let (holder, waiters) = (server.locks().await, server.locks().await);
    let permit = holder.semaphore("a", 1).acquire().await.unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let waiters = waiters.clone();
            tokio::spawn(async move { waiters.semaphore("a", 1).acquire().await?.release().await })
        })
        .collect();
    let listening = async |server: &mut Server| {
        let channel = common::keys("a").permit_channel();
        server.ask::<(String, u64)>(&["PUBSUB", "NUMSUB", &channel]).await.1
    };
    soon(async { while listening(&mut server).await == 0 {} }).await;
    Clock::boot().sleep(SECOND / 5).await;
    let before = server.calls().await;
    Clock::boot().sleep(SECOND).await;
    assert_eq!(server.calls().await, before, "somebody polls");
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

#[tokio::test]
async fn a_writer_that_was_noted_by_a_grant_that_was_undone_leaves_no_note_when_it_is_granted() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_response_timeout(LIMIT)).await;
    server.ask::<()>(&["SET", "{lock:a}", "another", "PX", "1000"]).await;
    let first = tokio::spawn({
        let locks = locks.clone();
        async move { locks.mutex("a").lock().await }
    });
    // It was refused, subscribed, and was refused again; then it has had its answers and sleeps until the lock ends.
    server.until_called(2).await;
    locks.inspect("a").await.unwrap();
    let mutex = locks.mutex("a");
    let mut second = std::pin::pin!(mutex.lock());
    assert!(futures::poll!(&mut second).is_pending(), "it is in line");
    // The first one is granted, which notes the second one, but is not told so, and gives up.
    proxy.hold_replies();
    soon(async { while server.holder("a").await.is_none_or(|holder| holder == "another") {} }).await;
    first.abort();
    soon(async { while server.holder("a").await.is_some() {} }).await;
    assert_eq!(server.ask::<u64>(&["ZCARD", "{lock:a}:writers"]).await, 1);
    proxy.heal();
    soon(soon(second).await.unwrap().release()).await.unwrap();
    assert_eq!(server.ask::<u64>(&["ZCARD", "{lock:a}:writers"]).await, 0, "it would keep readers out");
}
