//! What the queue promises when clients die or are cut off, and when messages and answers are lost.

use crate::common;
use std::time::Duration;

use crate::common::{LIMIT, connect, in_line, server, soon};
use lock_core::{Error, Guard, Locks, Loss};
use lock_lab::proxy::Proxy;
use lock_redis::Config;
use tokio::task::{JoinHandle, JoinSet};

const SECOND: Duration = Duration::from_secs(1);

/// So long that nothing in these tests could wait for its end.
const A_DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn through(proxy: &Proxy) -> Config {
    common::config(proxy.port())
}

fn spawn_lock(locks: &Locks, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let mutex = locks.mutex(name);
    tokio::spawn(async move { mutex.lock().await })
}

#[tokio::test]
async fn those_who_died_in_line_cost_a_short_time_altogether_and_not_a_ttl_each() {
    const DEAD: usize = 20;
    let server = server().await;
    let proxy = server.proxy().await;
    let holder = server.locks().await;
    let dying = connect(through(&proxy).with_ttl(A_DAY)).await;
    let guard = holder.mutex("a").lock().await.unwrap();
    let mut dead = Vec::new();
    for place in 0..DEAD {
        dead.push(spawn_lock(&dying, "a"));
        in_line(&holder, "a", place + 1).await;
    }
    let patient = spawn_lock(&holder, "a");
    in_line(&holder, "a", DEAD + 1).await;
    proxy.cut();
    // While they still count as alive: the first of them is handed the lock, and does not answer.
    guard.release().await.unwrap();
    soon(patient).await.unwrap().unwrap().release().await.unwrap();
    for waiting in dead {
        assert!(matches!(soon(waiting).await.unwrap(), Err(Error::Unavailable { .. })));
    }
}

#[tokio::test]
async fn a_waiter_that_is_cut_off_is_passed_over_and_stands_at_the_end_when_it_is_back() {
    let server = server().await;
    let proxy = server.proxy().await;
    let holder = server.locks().await;
    let guard = holder.mutex("a").lock().await.unwrap();
    // Ready for an outage longer than this one.
    let away = connect(through(&proxy).with_ttl(SECOND).with_connect_timeout(3 * LIMIT)).await;
    let away = spawn_lock(&away, "a");
    in_line(&holder, "a", 1).await;
    let second = spawn_lock(&holder, "a");
    in_line(&holder, "a", 2).await;
    proxy.hold();
    // It counts as dead now.
    in_line(&holder, "a", 1).await;
    let third = spawn_lock(&holder, "a");
    in_line(&holder, "a", 2).await;
    proxy.heal();
    in_line(&holder, "a", 3).await;
    guard.release().await.unwrap();
    soon(second).await.unwrap().unwrap().release().await.unwrap();
    soon(third).await.unwrap().unwrap().release().await.unwrap();
    soon(away).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_release_whose_answer_was_lost_hands_over_once() {
    let server = server().await;
    let proxy = server.proxy().await;
    let releasing = connect(through(&proxy)).await;
    let others = server.locks().await;
    let guard = releasing.mutex("a").lock().await.unwrap();
    let next = spawn_lock(&others, "a");
    in_line(&others, "a", 1).await;
    let last = spawn_lock(&others, "a");
    in_line(&others, "a", 2).await;
    proxy.cut_at_reply(0);
    soon(guard.release()).await.unwrap();
    let next = soon(next).await.unwrap().unwrap();
    let seen = others.inspect("a").await.unwrap();
    assert_eq!((seen.holders[0].token, seen.queue.len()), (Some(next.token().number), 1));
    next.release().await.unwrap();
    soon(last).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn an_entry_whose_answer_was_lost_is_one_place_in_the_line() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let (holder, waiter) = (server.locks().await, connect(through(&proxy)).await);
    let guard = holder.mutex("a").lock().await.unwrap();
    proxy.cut_at_reply(0);
    let waiting = spawn_lock(&waiter, "a");
    in_line(&holder, "a", 1).await;
    let behind = spawn_lock(&holder, "a");
    in_line(&holder, "a", 2).await;
    guard.release().await.unwrap();
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
    soon(behind).await.unwrap().unwrap().release().await.unwrap();
    // The first of its two requests might have come only now: it would find a tombstone.
    server.until_only_tombstones_are_left(1).await;
}

#[tokio::test]
async fn a_grant_of_which_the_message_was_lost_is_found() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let holder = server.locks().await;
    let waiter = connect(through(&proxy).with_ttl(A_DAY).with_connect_timeout(LIMIT)).await;
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting = spawn_lock(&waiter, "a");
    in_line(&holder, "a", 1).await;
    proxy.cut();
    guard.release().await.unwrap();
    proxy.heal();
    let guard = soon(waiting).await.unwrap().unwrap();
    never_believes_too_much(&guard, &mut server).await;
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_lock_that_was_handed_over_is_never_believed_in_for_longer_than_the_server_keeps_it() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let holder = server.locks().await;
    // Slow answers and messages: what counted from a receipt would count from far too late.
    for (ttl, delay) in [(2 * SECOND, 100), (2 * SECOND, 450), (4 * SECOND, 450)] {
        let config = through(&proxy).with_ttl(ttl).with_response_timeout(LIMIT);
        let waiter = connect(config.with_connect_timeout(LIMIT)).await;
        let guard = holder.mutex("a").lock().await.unwrap();
        let waiting = spawn_lock(&waiter, "a");
        in_line(&holder, "a", 1).await;
        proxy.delay_each(Duration::ZERO, Duration::from_millis(delay));
        guard.release().await.unwrap();
        let guard = soon(waiting).await.unwrap().unwrap();
        for _ in 0..50 {
            never_believes_too_much(&guard, &mut server).await;
        }
        proxy.heal();
        drop(guard);
        waiter.close(LIMIT).await.unwrap();
    }
}

async fn never_believes_too_much(guard: &Guard, server: &mut common::Server) {
    let Some(until) = guard.valid_until() else { return };
    let left: u64 = server.ask(&["PTTL", "{lock:a}"]).await;
    let kept_until = common::after(Duration::from_millis(left));
    assert!(until < kept_until, "the holder believes {until:?}, the server keeps it until {kept_until:?}");
}

#[tokio::test]
async fn a_lock_that_was_handed_over_is_kept_for_a_whole_ttl_from_its_first_renewal_on() {
    let mut server = server().await;
    let [holder, waiter] = [server.locks().await, server.locks().await];
    let guard = holder.mutex("a").lock().await.unwrap();
    let waiting = spawn_lock(&waiter, "a");
    in_line(&holder, "a", 1).await;
    guard.release().await.unwrap();
    let guard = soon(waiting).await.unwrap().unwrap();
    soon(async {
        while guard.remaining() < 20 * SECOND {
            // The renewal runs on this very thread.
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(server.ask::<u64>(&["PTTL", "{lock:a}"]).await > 20_000);
}

#[tokio::test]
async fn a_lease_that_ended_goes_to_the_first_in_line_and_its_holder_knows() {
    let server = server().await;
    let proxy = server.proxy().await;
    let (lost, others) = (connect(through(&proxy).with_ttl(6 * SECOND)).await, server.locks().await);
    let guard = lost.mutex("a").lock().await.unwrap();
    let first = spawn_lock(&others, "a");
    in_line(&others, "a", 1).await;
    let second = spawn_lock(&others, "a");
    in_line(&others, "a", 2).await;
    proxy.hold();
    let first = soon(first).await.unwrap().unwrap();
    assert!(matches!(guard.validity().loss(), Some(Loss::Expired | Loss::Unreachable)));
    assert!(first.token() > guard.token());
    first.release().await.unwrap();
    soon(second).await.unwrap().unwrap().release().await.unwrap();
    proxy.heal();
}

#[tokio::test]
async fn nothing_stays_of_a_line_whose_clients_have_all_died() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let config = through(&proxy).with_ttl(4 * SECOND);
    let [holder, waiter] = [connect(config.clone()).await, connect(config).await];
    let _guard = holder.mutex("a").lock().await.unwrap();
    let waiting = spawn_lock(&waiter, "a");
    soon(async { while server.ask::<Vec<String>>(&["KEYS", "*:queue*"]).await.len() < 3 {} }).await;
    proxy.cut();
    assert!(soon(waiting).await.unwrap().is_err());
    drop(holder);
    // All keys have an expiry, so nobody has to come by; but what a dead holder noted goes with the next grant.
    soon(async { while server.ask::<Vec<String>>(&["KEYS", "*"]).await != ["{lock:a}:token"] {} }).await;
}

#[tokio::test]
async fn a_server_that_forgot_the_line_grants_all_of_it_in_the_end() {
    let mut server = server().await;
    let [holder, waiter] = [server.locks().await, server.locks().await];
    let _lost = holder.mutex("a").lock().await.unwrap();
    let mut waiting = JoinSet::new();
    for _ in 0..5 {
        let mutex = waiter.mutex("a");
        waiting.spawn(async move { mutex.lock().await?.release().await });
    }
    in_line(&holder, "a", 5).await;
    server.ask::<()>(&["FLUSHALL"]).await;
    // They stand in line anew; in which order, nobody remembers.
    while let Some(released) = soon(waiting.join_next()).await {
        released.unwrap().unwrap();
    }
}
