//! What the exclusive lock promises while the server is well.

use crate::common;
use std::{pin::pin, sync::Arc, task::Poll, time::Duration};

use crate::common::{Inside, LIMIT, connect, keys, server, soon};
use lock_core::{Backend, Error, LockName, Loss, Mode, Request, Wait};
use lock_redis::Redis;
use tokio_util::sync::CancellationToken;

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn an_uncontended_acquire_is_one_command_and_one_round_trip_and_so_is_a_release() {
    let server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    for name in ["first use of the scripts", "second use"] {
        let (commands, sent) = (server.redis.commands().await.unwrap(), proxy.requests().bursts);
        let guard = locks.mutex(name).lock().await.unwrap();
        assert_eq!(server.redis.commands().await.unwrap() - commands, 1, "acquire: {name}");
        guard.release().await.unwrap();
        assert_eq!(server.redis.commands().await.unwrap() - commands, 2, "release: {name}");
        assert_eq!(proxy.requests().bursts - sent, 2, "{name}");
    }
}

#[tokio::test]
async fn the_key_is_a_plain_string_with_an_expiry_so_that_other_clients_are_excluded() {
    let mut server = server().await;
    let guard = server.locks().await.mutex("a").lock().await.unwrap();
    assert_eq!(server.ask::<Option<String>>(&["SET", "{lock:a}", "other", "NX", "PX", "1000"]).await, None);
    let left: u64 = server.ask(&["PTTL", "{lock:a}"]).await;
    assert!((29_000..=30_000).contains(&left), "{left}");
    guard.release().await.unwrap();
    assert_eq!(server.ask::<Option<String>>(&["SET", "{lock:a}", "other", "NX", "PX", "1000"]).await.unwrap(), "OK");
}

#[tokio::test]
async fn try_does_not_wait_and_leaves_nothing() {
    let mut server = server().await;
    let (locks, others) = (server.locks().await, server.locks().await);
    let guard = locks.mutex("a").lock().await.unwrap();
    let before = server.redis.commands().await.unwrap();
    assert!(others.mutex("a").try_lock().await.unwrap().is_none());
    assert_eq!(server.redis.commands().await.unwrap() - before, 1);
    guard.release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release_and_does_not_poll() {
    let mut server = server().await;
    let (locks, others) = (server.locks().await, server.locks().await);
    let guard = locks.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move { others.mutex("a").lock().await });
    server.until_somebody_waits("a").await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn waiters_of_one_client_are_granted_in_the_order_of_their_arrival() {
    let mut server = server().await;
    let (locks, others) = (server.locks().await, server.locks().await);
    let guard = locks.mutex("a").lock().await.unwrap();
    let (grants, mut granted) = tokio::sync::mpsc::unbounded_channel();
    for place in 0..10 {
        let (mutex, grants) = (others.mutex("a"), grants.clone());
        let mut waiting = Box::pin(async move {
            let guard = mutex.lock().await.unwrap();
            grants.send(place).unwrap();
            guard.release().await.unwrap();
        });
        assert!(futures::poll!(&mut waiting).is_pending());
        tokio::spawn(waiting);
    }
    server.until_somebody_waits("a").await;
    guard.release().await.unwrap();
    for place in 0..10 {
        assert_eq!(soon(granted.recv()).await, Some(place));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_contenders_over_several_connections_never_hold_it_together() {
    let mut server = server().await;
    let inside = Inside::default();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        let locks = server.locks().await;
        for _ in 0..20 {
            let (mutex, inside) = (locks.mutex("a"), inside.clone());
            tasks.push(tokio::spawn(async move {
                let guard = mutex.lock().await.unwrap();
                inside.enter();
                tokio::task::yield_now().await;
                inside.leave();
                assert!(guard.is_valid());
                guard.release().await.unwrap();
            }));
        }
    }
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_ten_thousand_grants_from_several_connections() {
    let server = server().await;
    let last = Arc::new(tokio::sync::Mutex::new(0));
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let (locks, last) = (server.locks().await, Arc::clone(&last));
        tasks.push(tokio::spawn(async move {
            for _ in 0..2_500 {
                let guard = locks.mutex("a").lock().await.unwrap();
                let mut last = last.try_lock().expect("two holders at once");
                assert!(guard.token().number > *last);
                *last = guard.token().number;
                drop(last);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn a_release_never_removes_the_lock_of_the_successor() {
    let mut server = server().await;
    let (locks, others) = (server.locks().await, server.locks().await);
    let stale = locks.mutex("a").lock().await.unwrap();
    server.ask::<()>(&["DEL", "{lock:a}"]).await;
    let successor = others.mutex("a").try_lock().await.unwrap().unwrap();
    assert!(successor.token() > stale.token());
    let error = stale.release().await.unwrap_err();
    assert!(matches!(error, Error::Lost { loss: Loss::Revoked, .. }), "{error}");
    assert!(server.holder("a").await.is_some(), "the successor's lock is gone");
    successor.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_was_deleted_or_taken_is_noticed_at_the_next_renewal() {
    let mut server = server().await;
    let locks = connect(server.config().with_ttl(SECOND)).await;
    let deleted = locks.mutex("deleted").lock().await.unwrap();
    let taken = locks.mutex("taken").lock().await.unwrap();
    server.ask::<()>(&["DEL", "{lock:deleted}"]).await;
    server.ask::<()>(&["SET", "{lock:taken}", "other"]).await;
    assert_eq!(soon(deleted.lost()).await, Loss::Revoked);
    assert_eq!(soon(taken.lost()).await, Loss::Revoked);
    assert!(matches!(taken.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
    assert_eq!(server.holder("taken").await.as_deref(), Some("other"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_locks_are_held_by_one_client_for_as_long_as_it_likes() {
    let mut server = server().await;
    let locks = connect(server.config().with_ttl(6 * SECOND)).await;
    let acquiring = (0..1_000).map(|at| {
        let mutex = locks.mutex(format!("lock {at}"));
        async move { mutex.lock().await.unwrap() }
    });
    let guards = futures::future::join_all(acquiring).await;
    let first_ttl = guards.iter().map(|guard| guard.valid_until().unwrap()).max().unwrap();
    let renewed = |guard: &lock_core::Guard| guard.valid_until().expect("a lock was lost") > first_ttl;
    soon(async {
        while !guards.iter().all(renewed) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(server.ask::<usize>(&["DBSIZE"]).await, 2_000);
    drop(guards);
    locks.close(LIMIT).await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_holder_gives_up_before_the_server_does_even_when_answers_are_late() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_ttl(2 * SECOND)).await;
    proxy.delay_each(Duration::ZERO, Duration::from_millis(300));
    let guard = locks.mutex("a").lock().await.unwrap();
    let until = guard.valid_until().unwrap();
    let left: u64 = server.ask(&["PTTL", "{lock:a}"]).await;
    let kept_until = common::after(Duration::from_millis(left));
    assert!(until < kept_until, "the holder believes {until:?}, the server keeps it until {kept_until:?}");
    proxy.heal();
}

#[tokio::test]
async fn a_renewal_counts_from_its_own_sending() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_ttl(4 * SECOND)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let first = guard.valid_until().unwrap();
    proxy.delay_each(Duration::ZERO, Duration::from_millis(300));
    let renewed = soon(async {
        loop {
            match guard.valid_until() {
                Some(until) if until == first => tokio::task::yield_now().await,
                other => return other.unwrap(),
            }
        }
    })
    .await;
    let left: u64 = server.ask(&["PTTL", "{lock:a}"]).await;
    let kept_until = common::after(Duration::from_millis(left));
    assert!(renewed < kept_until, "the holder believes {renewed:?}, the server keeps it until {kept_until:?}");
    proxy.heal();
}

#[tokio::test]
async fn an_acquire_that_is_dropped_after_any_poll_leaves_nothing_and_blocks_nobody() {
    let mut server = server().await;
    let locks = server.locks().await;
    for held in [false, true] {
        for polls in 0..200 {
            let guard = if held { Some(locks.mutex("a").lock().await.unwrap()) } else { None };
            let mutex = locks.mutex("a");
            let done = {
                let mut acquiring = pin!(mutex.lock());
                let mut left = polls;
                std::future::poll_fn(|cx| match acquiring.as_mut().poll(cx) {
                    Poll::Ready(guard) => Poll::Ready(Some(guard)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => {
                        left -= 1;
                        // Polled again at once, so that every state is cut at some count.
                        cx.waker().wake_by_ref();
                        Poll::Pending
                    }
                })
                .await
            };
            if let Some(guard) = guard {
                guard.release().await.unwrap();
            }
            let is_done = done.is_some();
            drop(done);
            soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
            server.until_nothing_is_left().await;
            if is_done {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_stop_withdraws_in_one_round_trip_what_was_under_way() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let redis = Redis::connect(common::config(proxy.port())).await.unwrap();
    let (mut request, stop) = (Request::new(LockName::new("a").unwrap(), Mode::Exclusive), CancellationToken::new());
    request.wait = Wait::No;
    proxy.hold_replies();
    let mut acquiring = redis.clone().acquire(request, stop.clone());
    assert!(futures::poll!(&mut acquiring).is_pending());
    soon(async {
        while server.holder("a").await.is_none() {
            assert!(futures::poll!(&mut acquiring).is_pending());
        }
    })
    .await;
    let sent = proxy.requests().bursts;
    stop.cancel();
    assert!(futures::poll!(&mut acquiring).is_pending());
    // Before any answer has come, the undo is there.
    server.until_nothing_is_left().await;
    proxy.heal();
    assert!(matches!(soon(acquiring).await, Err(Error::Cancelled)));
    assert_eq!(proxy.requests().bursts - sent, 1);
    assert!(redis.context().cleanup().close(LIMIT).await);
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_wait_limit_ends_in_time_and_leaves_nothing() {
    let mut server = server().await;
    let (locks, others) = (server.locks().await, server.locks().await);
    let guard = locks.mutex("a").lock().await.unwrap();
    let error = soon(others.mutex("a").timeout(Duration::from_millis(50)).lock()).await.unwrap_err();
    assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    guard.release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_key_of_another_type_or_without_expiry_is_a_foreign_holder_until_it_is_gone() {
    let mut server = server().await;
    let locks = server.locks().await;
    server.ask::<()>(&["HSET", "{lock:hash}", "client:1", "1"]).await;
    server.ask::<()>(&["SET", "{lock:string}", "somebody"]).await;
    let foreign = locks.inspect("hash").await.unwrap();
    assert_eq!((foreign.holders[0].id.as_str(), foreign.holders[0].remaining), ("hash", None));
    let foreign = locks.inspect("string").await.unwrap();
    assert_eq!((foreign.holders[0].id.as_str(), foreign.holders[0].token), ("somebody", None));
    for name in ["hash", "string"] {
        assert!(locks.mutex(name).try_lock().await.unwrap().is_none());
        let mutex = locks.mutex(name);
        let waiting = tokio::spawn(async move { mutex.lock().await });
        server.until_somebody_waits(name).await;
        // Nobody publishes this: the waiter looks again by itself.
        server.ask::<()>(&["DEL", keys(name).lock()]).await;
        soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn a_waiter_takes_over_when_the_lease_of_a_dead_holder_ends() {
    let mut server = server().await;
    let locks = server.locks().await;
    server.ask::<()>(&["SET", "{lock:a}", "dead", "PX", "300"]).await;
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn inspect_shows_the_holder_with_its_payload_and_token() {
    let server = server().await;
    let locks = server.named("host-7").await;
    assert_eq!(locks.inspect("a").await.unwrap().holders, vec![]);
    let guard = locks.mutex("a").lock().await.unwrap();
    let seen = server.locks().await.inspect("a").await.unwrap();
    let [holder] = seen.holders.as_slice() else { panic!("{seen:?}") };
    assert_eq!((holder.payload.as_slice(), holder.token), (b"host-7".as_slice(), Some(guard.token().number)));
    assert!(holder.remaining.unwrap() <= Duration::from_secs(30));
    guard.release().await.unwrap();
    assert_eq!(locks.inspect("a").await.unwrap().holders, vec![]);
}

#[tokio::test]
async fn what_a_dead_holder_left_behind_is_not_shown_as_its_successors() {
    let mut server = server().await;
    let locks = server.named("host-7").await;
    let _guard = locks.mutex("a").lock().await.unwrap();
    server.ask::<()>(&["SET", "{lock:a}", "other"]).await;
    let holder = &locks.inspect("a").await.unwrap().holders[0];
    assert_eq!((holder.id.as_str(), holder.payload.len(), holder.token), ("other", 0, None));
}

#[tokio::test]
async fn closing_gives_back_what_is_held_and_says_so_to_the_guards() {
    let mut server = server().await;
    let locks = server.locks().await;
    let guards = [locks.mutex("a").lock().await.unwrap(), locks.mutex("b").lock().await.unwrap()];
    locks.close(LIMIT).await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
    assert!(guards.iter().all(|guard| guard.validity().loss() == Some(Loss::Closed)));
    assert!(matches!(locks.mutex("a").lock().await, Err(Error::Closed)));
}

#[tokio::test]
async fn a_ttl_of_a_single_lock_is_kept_and_checked() {
    let mut server = server().await;
    let locks = server.locks().await;
    let _guard = locks.mutex("a").ttl(5 * SECOND).lock().await.unwrap();
    let left: u64 = server.ask(&["PTTL", "{lock:a}"]).await;
    assert!((4_000..=5_000).contains(&left), "{left}");
    let error = locks.mutex("b").ttl(Duration::from_millis(99)).lock().await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
}
