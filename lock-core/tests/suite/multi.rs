//! Several locks at once, on the memory backend in virtual time.

use crate::world;
use std::{pin::pin, time::Duration};

use lock_core::{
    Clock, Error, Locks, Loss, MultiGuard, MultiLock,
    memory::{Config, Memory, MemoryServer},
};

use crate::world::{LONG, TTL, World, polled};

const LIMIT: Duration = Duration::from_secs(5);

fn names(guard: &MultiGuard) -> Vec<&str> {
    guard.names().map(lock_core::LockName::as_str).collect()
}

#[tokio::test(start_paused = true)]
async fn all_are_held_under_one_guard_in_the_order_of_their_names() {
    let world = World::new();
    let all = world.locks.multi(["b", "a", "c", "a"]).lock().await.unwrap();
    assert_eq!(names(&all), ["a", "b", "c"]);
    for name in ["a", "b", "c"] {
        assert_eq!(world.holders(name), 1);
        assert_eq!(all.token(name), Some(all.guard(name).unwrap().token()));
    }
    assert!(all.token("d").is_none() && all.guard("d").is_none());
    let tokens: Vec<_> = all.tokens().iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(tokens, ["a", "b", "c"]);
    all.release().await.unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(world.holders(name), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_all_or_nothing_within_one_limit() {
    let world = World::new();
    let other = world.other();
    let held = other.mutex("b").lock().await.unwrap();
    let late = other.mutex("c").lock().await.unwrap();
    tokio::spawn(async move {
        Clock::runtime().sleep(LIMIT - Duration::from_secs(1)).await;
        drop(held);
    });
    let started = Clock::runtime().now();
    let refused = world.locks.multi(["a", "b", "c"]).timeout(LIMIT).lock().await.unwrap_err();
    assert!(matches!(&refused, Error::NotAcquired { name } if name.as_str() == "c"), "{refused}");
    assert_eq!(Clock::runtime().now().saturating_since(started), LIMIT, "one limit for the whole");
    for name in ["a", "b"] {
        assert_eq!(world.holders(name), 0, "{name} has been given back");
    }
    assert_eq!(world.waiters("c"), 0);
    assert!(world.locks.multi(["a", "b", "c"]).try_lock().await.unwrap().is_none());
    assert_eq!(world.holders("a") + world.holders("b"), 0);
    late.release().await.unwrap();
    assert!(world.locks.multi(["a", "b", "c"]).try_lock().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_name_them_in_opposite_orders_never_wait_for_each_other() {
    let server = MemoryServer::new();
    let locks = Locks::new(Memory::connect(Config::new(server).with_ttl(TTL)).unwrap());
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
    let tasks = orders.map(|order| {
        let all = locks.multi(order);
        tokio::spawn(async move {
            for _ in 0..500 {
                let held = all.lock().await.unwrap();
                tokio::task::yield_now().await;
                held.release().await.unwrap();
            }
        })
    });
    for task in tasks {
        Clock::boot().timeout(Duration::from_secs(60), task).await.expect("no deadlock").unwrap();
    }
    locks.close(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_lost_while_the_others_are_waited_for_fails_the_whole() {
    let world = World::new();
    let other = world.other();
    let _held = other.mutex("c").lock().await.unwrap();
    let waiting = tokio::spawn({
        let all = world.locks.multi(["a", "b", "c"]);
        async move { all.lock().await }
    });
    world.until_waiters("c", 1).await;
    world.delete("a");
    let lost = waiting.await.unwrap().unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, loss: Loss::Revoked } if name.as_str() == "a"), "{lost}");
    world.until_free("a").await;
    world.until_free("b").await;
    world.until_waiters("c", 0).await;
}

/// The runtime was starved between the last grant and the look at the first one.
#[tokio::test(start_paused = true)]
async fn a_lock_that_ran_out_while_the_others_were_taken_fails_the_whole() {
    let world = World::new();
    let held = world.locks.mutex("b").lock().await.unwrap();
    let all = world.locks.multi(["a", "b"]);
    let mut taking = pin!(all.lock());
    assert!(!polled(taking.as_mut(), 3).await);
    world.delete("a");
    held.release().await.unwrap();
    // "b" was granted by the release, and both news are there when it is looked at again.
    world::until(|| world.holders("b") == 1 && world.holders("a") == 0).await;
    // Time enough to notice at a renewal that "a" is gone, and not for the lease of "b" to end.
    Clock::runtime().sleep(TTL / 2).await;
    let lost = taking.await.unwrap_err();
    assert!(matches!(&lost, Error::Lost { name, loss: Loss::Revoked } if name.as_str() == "a"), "{lost}");
    world.until_free("b").await;
}

#[tokio::test(start_paused = true)]
async fn the_validity_is_the_earliest_and_ends_with_the_name_of_the_lock_that_was_lost() {
    let world = World::new();
    let all = world.locks.multi(["a", "b"]).lock().await.unwrap();
    let earliest = ["a", "b"].map(|name| all.guard(name).unwrap().valid_until().unwrap()).into_iter().min();
    assert_eq!(all.valid_until(), earliest);
    assert!(all.is_valid() && all.remaining() > Duration::ZERO && all.remaining() <= TTL);
    world.delete("b");
    let (name, loss) = all.lost().await;
    assert_eq!((name.as_str(), loss), ("b", Loss::Revoked));
    assert!(!all.is_valid());
    assert_eq!(all.valid_until(), None);
    assert_eq!(all.remaining(), Duration::ZERO);
    assert!(all.guard("a").unwrap().is_valid(), "the other one is still held");
}

#[tokio::test(start_paused = true)]
async fn locks_of_different_ages_end_with_the_oldest() {
    let world = World::new();
    let other = world.other();
    let held = other.mutex("b").lock().await.unwrap();
    tokio::spawn(async move {
        Clock::runtime().sleep(LIMIT).await;
        drop(held);
    });
    let all = world.locks.multi(["a", "b"]).max_hold(2 * LIMIT).lock().await.unwrap();
    let ends = ["a", "b"].map(|name| all.guard(name).unwrap().valid_until().unwrap());
    assert_eq!(ends[1].saturating_since(ends[0]).as_secs(), LIMIT.as_secs());
    assert_eq!(all.valid_until(), Some(ends[0]));
    let (name, loss) = all.lost().await;
    assert_eq!((name.as_str(), loss), ("a", Loss::MaxHoldExceeded));
}

#[tokio::test(start_paused = true)]
async fn an_operation_under_a_lost_lock_is_cut_off() {
    let world = World::new();
    let all = world.locks.multi(["a", "b"]).lock().await.unwrap();
    assert_eq!(all.run(async { 7 }).await.unwrap(), 7);
    world.delete("a");
    let cut = all.run(std::future::pending::<()>()).await;
    assert!(matches!(&cut, Err(Error::Lost { name, .. }) if name.as_str() == "a"));
    let late = all.run(async { panic!("it must not start") }).await;
    assert!(matches!(late, Err(Error::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_result_of_an_operation_that_outlived_its_locks_is_not_given_out() {
    let world = World::new();
    let all = world.locks.multi(["a", "b"]).lock().await.unwrap();
    world.memory.set_connected(false);
    assert!(matches!(all.run(world::starve(2 * TTL)).await, Err(Error::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_release_gives_all_back_and_reports_the_first_error() {
    let world = World::new();
    let all = world.locks.multi(["a", "b", "c"]).lock().await.unwrap();
    world.delete("b");
    all.lost().await;
    let error = all.release().await.unwrap_err();
    assert!(matches!(&error, Error::Lost { name, .. } if name.as_str() == "b"), "{error}");
    assert_eq!(world.holders("a") + world.holders("c"), 0);
    drop(world.locks.multi(["a", "b", "c"]).lock().await.unwrap());
    for name in ["a", "b", "c"] {
        world.until_free(name).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_dropped_after_any_poll_leaves_nothing() {
    let world = World::new();
    let all = world.locks.multi(["a", "b", "c"]);
    for polls in 0..12 {
        let held = world.locks.mutex("b").lock().await.unwrap();
        {
            let mut dropped = pin!(all.lock());
            assert!(!polled(dropped.as_mut(), polls / 3).await);
            if polls % 3 > 0 {
                held.release().await.unwrap();
                polled(dropped.as_mut(), polls % 3).await;
            } else {
                drop(held);
            }
        }
        for name in ["a", "b", "c"] {
            world.until_free(name).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_undo_that_gets_no_answer_is_left_to_the_background() {
    let world = World::new();
    let all = world.locks.multi(["a", "b"]);
    let _held = world.locks.mutex("b").lock().await.unwrap();
    let waiting = tokio::spawn(async move { all.timeout(LIMIT).lock().await });
    world.until_waiters("b", 1).await;
    world.memory.set_connected(false);
    let failed = Clock::runtime().timeout(LONG, waiting).await.expect("it ends").unwrap().unwrap_err();
    assert!(failed.is_temporary(), "{failed}");
    assert_eq!(world.holders("a"), 1);
    world.memory.set_connected(true);
    world.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_an_error_that_says_what_is_allowed() {
    let World { locks, .. } = World::new();
    let none = locks.multi([""; 0]).lock().await.unwrap_err();
    assert!(matches!(&none, Error::Config { key, .. } if key == "names"), "{none}");
    assert!(matches!(locks.multi(Vec::<String>::new()).try_lock().await, Err(Error::Config { .. })));
    let name = locks.multi(["fine", "a\0b"]).lock().await.unwrap_err();
    assert!(matches!(name, Error::InvalidName { .. }), "{name}");
    let ttl = locks.multi(["a", "b"]).ttl(Duration::from_millis(1)).lock().await.unwrap_err();
    assert!(matches!(ttl, Error::Config { .. }), "{ttl}");
}

#[test]
fn public_types_can_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    fn sends<T: Send>(_: T) {}
    crosses::<MultiLock>();
    crosses::<MultiGuard>();
    let _ = |all: MultiLock, guard: MultiGuard| {
        sends(all.lock());
        sends(all.try_lock());
        sends(guard.lost());
        sends(guard.run(async {}));
        sends(guard.release());
    };
}
