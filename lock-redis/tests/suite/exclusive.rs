//! What the exclusive lock promises while the server is well.

use crate::common;
use std::time::Duration;

use crate::common::{LIMIT, connect, keys, server, soon};
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
    assert!((20_000..=30_000).contains(&left), "{left}");
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
    let locks = connect(server.patient().with_ttl(6 * SECOND)).await;
    let deleted = locks.mutex("deleted").lock().await.unwrap();
    let taken = locks.mutex("taken").lock().await.unwrap();
    server.ask::<()>(&["DEL", "{lock:deleted}"]).await;
    server.ask::<()>(&["SET", "{lock:taken}", "other"]).await;
    assert_eq!(soon(deleted.lost()).await, Loss::Revoked);
    assert_eq!(soon(taken.lost()).await, Loss::Revoked);
    assert!(matches!(taken.release().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
    assert_eq!(server.holder("taken").await.as_deref(), Some("other"));
}

#[tokio::test]
async fn the_holder_gives_up_before_the_server_does_even_when_answers_are_late() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_response_timeout(LIMIT).with_ttl(6 * SECOND)).await;
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
    let locks = connect(common::config(proxy.port()).with_response_timeout(LIMIT).with_ttl(6 * SECOND)).await;
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
async fn what_a_dead_holder_left_behind_is_not_shown_as_its_successors() {
    let mut server = server().await;
    let locks = server.named("host-7").await;
    let _guard = locks.mutex("a").lock().await.unwrap();
    server.ask::<()>(&["SET", "{lock:a}", "other"]).await;
    let holder = &locks.inspect("a").await.unwrap().holders[0];
    assert_eq!((holder.id.as_str(), holder.payload.len(), holder.token), ("other", 0, None));
}
