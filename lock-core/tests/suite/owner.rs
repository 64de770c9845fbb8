//! Re-entrant locks, on the memory backend in virtual time.

use std::{
    pin::pin,
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use lock_core::{
    Clock, Error, Locks, Loss, Owner, Reentrant, ReentrantGuard,
    memory::{Config, Memory, MemoryServer},
};

use crate::world::{TTL, World, polled};

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn the_owner_takes_it_again_at_once_and_the_guards_share_token_and_validity() {
    let world = World::new();
    let owner = Owner::new();
    let mutex = world.locks.mutex("a").reentrant(&owner);
    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();
    let tried = mutex.try_lock().await.unwrap().expect("its own lock");
    assert_eq!(inner.token(), outer.token());
    assert_eq!(tried.token(), outer.token());
    assert_eq!(world.holders("a"), 1);
    world.delete("a");
    assert_eq!(outer.lost().await, Loss::Revoked);
    assert!(!inner.is_valid() && !tried.is_valid());
}

#[tokio::test(start_paused = true)]
async fn it_is_released_on_the_server_when_the_count_returns_to_zero_in_whatever_order() {
    let world = World::new();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let owner = Owner::new();
        let mutex = world.locks.mutex("a").reentrant(&owner);
        let mut guards = Vec::new();
        for _ in order {
            guards.push(Some(mutex.lock().await.unwrap()));
        }
        for (gone, which) in order.into_iter().enumerate() {
            assert_eq!(world.holders("a"), 1, "after {gone} of {order:?}");
            let guard = guards[which].take().unwrap();
            if which == 1 && gone < 2 {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
        }
        assert_eq!(world.holders("a"), 0, "after all of {order:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_owner_waits_and_so_does_the_plain_mutex() {
    let world = World::new();
    let mutex = world.locks.mutex("a").timeout(LIMIT);
    let (first, second) = (Owner::new(), Owner::new());
    assert_ne!(first, second);
    let outer = mutex.reentrant(&first).lock().await.unwrap();
    let inner = mutex.reentrant(&first.clone()).lock().await.unwrap();
    assert!(matches!(mutex.reentrant(&second).lock().await, Err(Error::NotAcquired { .. })));
    assert!(mutex.reentrant(&second).try_lock().await.unwrap().is_none());
    assert!(matches!(mutex.lock().await, Err(Error::NotAcquired { .. })));
    let waiting = tokio::spawn({
        let mutex = mutex.reentrant(&second);
        async move { mutex.lock().await }
    });
    world.until_waiters("a", 1).await;
    let earlier = outer.token();
    outer.release().await.unwrap();
    assert_eq!(world.waiters("a"), 1, "the nested guard still holds it");
    inner.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().token() > earlier);
}

/// Starts a task that acquires, and waits until it has its place in the queue or waits for another task of its owner.
async fn start(mutex: &Reentrant) -> tokio::task::JoinHandle<Result<ReentrantGuard, Error>> {
    let mutex = mutex.clone();
    let started = tokio::spawn(async move { mutex.lock().await });
    Clock::runtime().sleep(Duration::from_millis(10)).await;
    started
}

#[tokio::test(start_paused = true)]
async fn tasks_of_one_owner_that_acquire_at_the_same_time_share_one_acquisition() {
    let world = World::new();
    let owner = Owner::new();
    let held = world.locks.mutex("a").lock().await.unwrap();
    let mutex = world.locks.mutex("a").reentrant(&owner);
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(start(&mutex).await);
    }
    assert_eq!(world.waiters("a"), 1);
    assert!(mutex.try_lock().await.unwrap().is_none());
    held.release().await.unwrap();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap().unwrap());
    }
    assert!(guards.iter().all(|guard| guard.token() == guards[0].token()));
    for guard in guards {
        assert_eq!(world.holders("a"), 1);
        guard.release().await.unwrap();
    }
    assert_eq!(world.holders("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_task_waits_for_another_one_of_its_owner_within_its_own_limit() {
    let world = World::new();
    let owner = Owner::new();
    let held = world.locks.mutex("a").lock().await.unwrap();
    let first = start(&world.locks.mutex("a").reentrant(&owner)).await;
    let started = Clock::runtime().now();
    let second = world.locks.mutex("a").timeout(LIMIT).reentrant(&owner).lock().await;
    assert!(matches!(second, Err(Error::NotAcquired { .. })));
    assert_eq!(Clock::runtime().now().saturating_since(started), LIMIT);
    held.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn when_the_first_task_goes_away_or_fails_the_second_acquires_by_itself_with_what_is_left_of_its_limit() {
    let world = World::new();
    for fails in [false, true] {
        let owner = Owner::new();
        let held = world.locks.mutex("a").lock().await.unwrap();
        let first = start(&world.locks.mutex("a").timeout(LIMIT).reentrant(&owner)).await;
        let started = Clock::runtime().now();
        let second = start(&world.locks.mutex("a").timeout(2 * LIMIT).reentrant(&owner)).await;
        let third = start(&world.locks.mutex("a").reentrant(&owner)).await;
        if fails {
            assert!(matches!(first.await.unwrap(), Err(Error::NotAcquired { .. })));
        } else {
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
        }
        assert!(matches!(second.await.unwrap(), Err(Error::NotAcquired { .. })));
        assert_eq!(Clock::runtime().now().saturating_since(started).as_secs(), (2 * LIMIT).as_secs());
        held.release().await.unwrap();
        third.await.unwrap().unwrap().release().await.unwrap();
        world.until_free("a").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_hold_is_not_entered_again_until_all_its_guards_are_gone() {
    let world = World::new();
    let mutex = world.locks.mutex("a").reentrant(&Owner::new());
    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();
    world.delete("a");
    outer.lost().await;
    for _ in 0..2 {
        assert!(matches!(mutex.lock().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
        assert!(matches!(mutex.try_lock().await, Err(Error::Lost { loss: Loss::Revoked, .. })));
    }
    let lost = outer.token();
    assert!(matches!(inner.release().await, Err(Error::Lost { .. })));
    assert!(matches!(mutex.lock().await, Err(Error::Lost { .. })), "one guard of it is left");
    drop(outer);
    let again = mutex.lock().await.unwrap();
    assert!(again.is_valid() && again.token() > lost);
}

#[tokio::test(start_paused = true)]
async fn the_last_release_reports_what_the_server_said() {
    let world = World::new();
    let mutex = world.locks.mutex("a").reentrant(&Owner::new());
    let outer = mutex.lock().await.unwrap();
    let inner = mutex.lock().await.unwrap();
    world.memory.set_connected(false);
    inner.release().await.unwrap();
    assert!(matches!(outer.release().await, Err(Error::Unavailable { .. })));
    world.memory.set_connected(true);
    world.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_found_by_calls_in_it_and_only_by_them() {
    let world = World::new();
    let mutex = world.locks.mutex("a");
    let (outer, inner) = (Owner::new(), Owner::new());
    assert_eq!(Owner::current(), None);
    let outside = mutex.reentrant_in_scope().unwrap_err();
    assert!(outside.to_string().contains("Owner::scope"), "{outside}");
    let work = async {
        assert_eq!(Owner::current(), Some(outer.clone()));
        let held = mutex.reentrant_in_scope().unwrap().lock().await.unwrap();
        let nested = mutex.reentrant_in_scope().unwrap().lock().await.unwrap();
        assert_eq!(nested.token(), held.token());
        let hidden = async { mutex.reentrant_in_scope().unwrap().try_lock().await.unwrap().is_none() };
        assert!(inner.scope(hidden).await, "an inner scope is another owner");
        let spawned = tokio::spawn(async { Owner::current() });
        assert_eq!(spawned.await.unwrap(), None);
        let given = tokio::spawn(outer.scope(async { Owner::current() }));
        assert_eq!(given.await.unwrap(), Some(outer.clone()));
    };
    outer.scope(work).await;
    assert_eq!(Owner::current(), None);
    world.until_free("a").await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_keeps_connections_and_names_apart() {
    let world = World::new();
    let owner = Owner::new();
    let _held = world.locks.mutex("a").reentrant(&owner).lock().await.unwrap();
    let elsewhere = world.other();
    assert!(elsewhere.mutex("a").reentrant(&owner).try_lock().await.unwrap().is_none());
    let other = world.locks.mutex("b").reentrant(&owner).try_lock().await.unwrap().expect("another lock is free");
    assert_eq!(other.name().as_str(), "b");
    let clone = world.locks.clone();
    assert!(clone.mutex("a").reentrant(&owner).try_lock().await.unwrap().is_some(), "a clone is the same connection");
}

#[tokio::test(start_paused = true)]
async fn closing_ends_those_who_hold_and_those_who_wait_for_each_other() {
    let world = World::new();
    let mutex = world.locks.mutex("a");
    let holder = Owner::new();
    let held = mutex.reentrant(&holder).lock().await.unwrap();
    let owner = Owner::new();
    // The first of them is not driven any more, as in a select that is not polled.
    let waiting = mutex.reentrant(&owner);
    let mut first = pin!(waiting.lock());
    assert!(!polled(first.as_mut(), 3).await);
    let second = start(&mutex.reentrant(&owner)).await;
    world.locks.close(Duration::from_secs(2)).await.unwrap();
    assert!(matches!(second.await.unwrap(), Err(Error::Closed)));
    assert!(matches!(mutex.reentrant(&holder).lock().await, Err(Error::Closed)));
    assert!(matches!(held.release().await, Err(Error::Lost { loss: Loss::Closed, .. })));
}

#[tokio::test(start_paused = true)]
async fn an_acquisition_dropped_after_any_poll_leaves_nothing_and_blocks_no_other_task_of_its_owner() {
    let world = World::new();
    let owner = Owner::new();
    let mutex = world.locks.mutex("a").reentrant(&owner);
    for polls in 0..6 {
        let held = world.locks.mutex("a").lock().await.unwrap();
        {
            let mut dropped = pin!(mutex.lock());
            assert!(!polled(dropped.as_mut(), polls / 2).await);
            if polls % 2 == 1 {
                held.release().await.unwrap();
                polled(dropped.as_mut(), polls).await;
            } else {
                drop(held);
            }
        }
        let next = mutex.lock().await.unwrap();
        next.release().await.unwrap();
        world.until_free("a").await;
    }
}

/// Three owners of three tasks each, which enter, nest and give up as it comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_exclude_each_other_however_their_tasks_come_and_go() {
    static INSIDE: [AtomicI64; 3] = [const { AtomicI64::new(0) }; 3];
    let server = MemoryServer::new();
    let locks = Locks::new(Memory::connect(Config::new(server).with_ttl(TTL)).unwrap());
    let mut tasks = Vec::new();
    for (which, entered) in INSIDE.iter().enumerate() {
        let owner = Owner::new();
        for _ in 0..3 {
            let mutex = locks.mutex("a").reentrant(&owner);
            tasks.push(tokio::spawn(async move {
                for round in 0..200 {
                    if round % 5 == 0 {
                        let mut given_up = pin!(mutex.lock());
                        polled(given_up.as_mut(), fastrand::usize(..3)).await;
                    }
                    let outer = mutex.lock().await.unwrap();
                    entered.fetch_add(1, Ordering::SeqCst);
                    let inner = mutex.lock().await.unwrap();
                    drop(outer);
                    tokio::task::yield_now().await;
                    for (other, inside) in INSIDE.iter().enumerate() {
                        assert!(other == which || inside.load(Ordering::SeqCst) == 0, "two owners are inside");
                    }
                    entered.fetch_sub(1, Ordering::SeqCst);
                    if fastrand::bool() { drop(inner) } else { inner.release().await.unwrap() }
                }
            }));
        }
    }
    for task in tasks {
        Clock::boot().timeout(Duration::from_secs(60), task).await.expect("no task is stuck").unwrap();
    }
    locks.close(Duration::from_secs(5)).await.unwrap();
}

#[test]
fn public_types_can_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    fn sends<T: Send>(_: T) {}
    crosses::<Owner>();
    crosses::<Reentrant>();
    crosses::<ReentrantGuard>();
    let _ = |owner: Owner, mutex: Reentrant, guard: ReentrantGuard| {
        sends(mutex.lock());
        sends(mutex.try_lock());
        sends(owner.scope(async {}));
        sends(guard.release());
    };
}
