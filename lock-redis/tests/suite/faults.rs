//! What holds when the server or the way to it fails.

use crate::common;
use std::time::Duration;

use crate::common::{LIMIT, connect, connect_bridging, server, soon};
use futures::FutureExt;
use lock_core::{Clock, Context, Driver, Error, Loss, Settings};
use lock_lab::{
    proxy::{Proxy, answered_in_a_standstill},
    wait::renewed,
};
use lock_redis::{
    Redis, RedisDriver,
    node::{Node, NodeConfig},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn the_scripts_are_sent_again_when_the_server_forgot_them() {
    let mut server = server().await;
    let locks = connect(server.patient().with_ttl(6 * SECOND)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    renewed([guard.validity()]).await;
    server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    guard.release().await.unwrap();
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn one_that_began_to_connect_and_has_other_things_to_do_keeps_nobody_waiting() {
    let server = server().await;
    let mut config = NodeConfig::new("127.0.0.1", server.redis.port());
    config.connect_timeout = LIMIT;
    let node = Node::new(config, Context::current());
    // Polled once, and then not until another is connected.
    let mut first = Box::pin(node.connection());
    assert!((&mut first).now_or_never().is_none());
    soon(node.connection()).await.unwrap();
    soon(first).await.unwrap();
}

#[tokio::test]
async fn a_connection_that_is_answered_in_a_standstill_is_made() {
    let server = server().await;
    let way = Proxy::start(server.redis.port()).await.unwrap();
    let mut config = NodeConfig::new("127.0.0.1", way.port());
    config.connect_timeout = LIMIT;
    let node = Node::new(config, Context::current().with_clock(Clock::runtime()));
    let connecting = async move { node.connection().await.map(drop) };
    answered_in_a_standstill(&[way], LIMIT, connecting).await.unwrap();
}

#[tokio::test]
async fn a_server_that_answers_the_doctor_in_a_standstill_is_not_told_as_silent() {
    let server = server().await;
    let way = Proxy::start(server.redis.port()).await.unwrap();
    let mut settings = Settings::new("redis");
    settings.hosts.push(("127.0.0.1".to_owned(), Some(way.port())));
    for limit in ["connect_timeout", "response_timeout"] {
        settings.values.insert(limit.to_owned(), "20s".to_owned());
    }
    let context = Context::current().with_clock(Clock::runtime());
    let looking = async move { RedisDriver.diagnose(settings, context).await };
    let diagnosis = answered_in_a_standstill(&[way], LIMIT, looking).await.unwrap();
    assert!(diagnosis.is_reached() && !diagnosis.has_problems(), "{diagnosis:?}");
}

#[tokio::test]
async fn a_replica_grants_nothing_and_a_primary_grants_again() {
    let mut server = server().await;
    let locks = server.locks().await;
    let closed_port = server.redis.port() - 1;
    server.ask::<()>(&["REPLICAOF", "127.0.0.1", &closed_port.to_string()]).await;
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("READONLY")), "{error}");
    server.ask::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_primary_that_misses_its_replicas_grants_nothing_and_is_waited_for() {
    let mut server = server().await;
    let locks = connect_bridging(server.config(), LIMIT).await;
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("NOREPLICAS")), "{error}");
    let waiting = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    server.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_busy_server_is_an_error_and_never_a_grant() {
    let mut server = server().await;
    let locks = server.locks().await;
    server.ask::<()>(&["CONFIG", "SET", "busy-reply-threshold", "1"]).await;
    let mut other = server.redis.connection().await.unwrap();
    let endless = tokio::spawn(async move {
        redis::cmd("EVAL").arg("while true do end").arg(0).query_async::<redis::Value>(&mut other).await
    });
    soon(async {
        while !server.try_ask::<String>(&["PING"]).await.is_err_and(|error| error.code() == Some("BUSY")) {}
    })
    .await;
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("BUSY")), "{error}");
    server.ask::<()>(&["SCRIPT", "KILL"]).await;
    assert!(endless.await.unwrap().is_err());
    assert_eq!(server.left().await, Vec::<String>::new());
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_server_out_of_memory_grants_nothing_and_still_takes_locks_back() {
    let mut server = server().await;
    let locks = server.locks().await;
    let guard = locks.mutex("a").lock().await.unwrap();
    server.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = locks.mutex("b").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason, .. } if reason.contains("OOM")), "{error}");
    guard.release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_token_key_of_another_type_is_an_error_and_never_a_grant() {
    let mut server = server().await;
    let locks = server.locks().await;
    // As earlier versions of this library kept it.
    server.ask::<()>(&["HSET", "{lock:a}:token", "counter", "1"]).await;
    let error = locks.mutex("a").try_lock().await.unwrap_err();
    assert!(matches!(&error, Error::Refused { reason, .. } if reason.contains("WRONGTYPE")), "{error}");
    assert_eq!(server.holder("a").await, None);
    assert!(soon(locks.mutex("a").lock()).await.is_err(), "waiting does not help");
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_found_again_by_the_same_attempt() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    proxy.cut_at_reply(0);
    let guard = soon(locks.mutex("a").try_lock()).await.unwrap().expect("its own lock stood in its way");
    assert_eq!(server.holder("a").await.map(|value| value.len()), Some(32));
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    // The first of its two requests might have come only now: it would find a tombstone.
    server.until_only_tombstones_are_left(1).await;
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_is_confirmed_by_the_next_one() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    proxy.cut_at_reply(0);
    soon(guard.release()).await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn an_acquisition_without_an_answer_is_undone_when_the_server_answers_again() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    proxy.hold_replies();
    let error = soon(locks.mutex("a").try_lock()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    proxy.heal();
    locks.close(LIMIT).await.unwrap();
    assert_eq!(server.holder("a").await, None);
}

#[tokio::test]
async fn an_acquisition_that_arrives_after_its_undo_finds_the_tombstone() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    proxy.hold_requests();
    let error = soon(locks.mutex("a").try_lock()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    proxy.heal();
    locks.close(LIMIT).await.unwrap();
    assert_eq!(server.holder("a").await, None);
}

#[tokio::test]
async fn a_release_without_an_answer_is_repeated_until_there_is_one() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port())).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    proxy.cut();
    assert!(matches!(soon(guard.release()).await, Err(Error::Unavailable { .. })));
    assert!(server.holder("a").await.is_some());
    proxy.heal();
    server.until_nothing_is_left().await;
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test]
async fn a_release_while_the_waiters_subscription_was_down_is_not_missed() {
    let server = server().await;
    let proxy = server.proxy().await;
    let holder = server.locks().await;
    // Ready for an outage longer than this one.
    let waiter = connect(common::config(proxy.port()).with_connect_timeout(LIMIT)).await;
    let guard = holder.mutex("a").lock().await.unwrap();
    let before = server.calls().await;
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await });
    // It enters, and beats once it has subscribed.
    server.until_called(before + 2).await;
    proxy.cut();
    guard.release().await.unwrap();
    proxy.heal();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_outage_during_a_wait_is_bridged_and_one_that_lasts_is_unavailable() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let (holder, short) = (server.locks().await, connect(common::config(proxy.port())).await);
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let mutex = short.mutex("a");
            tokio::spawn(async move { mutex.lock().await })
        })
        .collect();
    server.until_somebody_waits("a").await;
    proxy.cut();
    for waiting in waiting {
        let error = soon(waiting).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    }
    proxy.heal();
    guard.release().await.unwrap();
    soon(short.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_notices_that_the_server_stands_still() {
    let mut server = server().await;
    let (holder, waiter) = (server.locks().await, connect(server.config()).await);
    let _guard = holder.mutex("a").lock().await.unwrap();
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await });
    server.until_somebody_waits("a").await;
    server.redis.stop().unwrap();
    let error = soon(waiting).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    server.redis.cont().unwrap();
}

#[tokio::test]
async fn a_holder_that_cannot_renew_knows_it_before_the_server_grants_again() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_ttl(6 * SECOND)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    proxy.hold();
    let until = guard.valid_until().unwrap();
    let left: u64 = server.ask(&["PTTL", "{lock:a}"]).await;
    let kept_until = common::after(Duration::from_millis(left));
    assert_eq!(soon(guard.lost()).await, Loss::Unreachable);
    assert!(until < kept_until, "the holder believed {until:?}, the server kept it until {kept_until:?}");
    proxy.heal();
}

#[tokio::test]
async fn a_server_that_came_back_is_used_without_a_failed_attempt() {
    let mut server = server().await;
    let locks = server.locks().await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    server.redis.restart().await.unwrap();
    assert!(soon(locks.mutex("a").try_lock()).await.unwrap().is_some());
}

#[tokio::test]
async fn tokens_rise_even_when_the_server_lost_their_counter() {
    let mut server = server().await;
    let locks = server.locks().await;
    let mut last = 0;
    for round in 0..20 {
        let guard = locks.mutex("a").lock().await.unwrap();
        assert!(guard.token().number > last, "round {round}");
        last = guard.token().number;
        guard.release().await.unwrap();
        server.ask::<()>(&["FLUSHALL"]).await;
    }
}

#[tokio::test]
async fn a_wrong_password_is_said_to_be_one() {
    let mut server = server().await;
    server.ask::<()>(&["CONFIG", "SET", "requirepass", "secret"]).await;
    let error = Redis::connect(server.config()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }), "{error}");
    let mut source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(source.contains("NOAUTH"), "{source}");
    let error = Redis::connect(server.config().with_credentials(None, "wrong")).await.unwrap_err();
    source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
    assert!(!source.contains("wrong\""), "{source}");
    Redis::connect(server.config().with_credentials(None, "secret")).await.unwrap();
}

#[tokio::test]
async fn a_user_without_the_right_to_publish_and_to_subscribe_has_locks_all_the_same() {
    let mut server = server().await;
    server.ask::<()>(&["ACL", "SETUSER", "worker", "on", ">secret", "~*", "resetchannels", "+@all"]).await;
    let config = server.patient().with_credentials(Some("worker".to_owned()), "secret");
    let (holder, waiter) = (connect(config.clone()).await, connect(config).await);
    let guard = holder.mutex("a").lock().await.unwrap();
    let before = server.calls().await;
    let waiting = tokio::spawn(async move { waiter.mutex("a").lock().await });
    server.until_called(before + 1).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn nothing_renews_a_lock_after_its_release() {
    let mut server = server().await;
    let locks = connect(server.patient().with_ttl(6 * SECOND)).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let before = server.redis.commands().await.unwrap();
    // A third of the ttl, after which it would be renewed, and more.
    Clock::boot().sleep(3 * SECOND).await;
    assert_eq!(server.redis.commands().await.unwrap(), before);
    assert_eq!(server.holder("a").await, None);
}
