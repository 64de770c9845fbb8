//! Several locks at once, and names that could be taken for each other.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use lock::Error;

use crate::catalogue::world::{LONG, Service, eventually, on_each, within};

on_each! {
    several_locks_are_not_held_when_one_of_them_is_anothers_by_now: zookeeper, redis, redlock;
    several_locks_are_held_by_one_at_a_time_in_whichever_order_they_are_named: zookeeper, redis, redlock;
    names_that_look_alike_when_they_are_joined_are_different_locks: zookeeper, redis, redlock;
}

/// It has the first of two locks and waits for the second; meanwhile the first one is lost, and somebody else's.
async fn several_locks_are_not_held_when_one_of_them_is_anothers_by_now(service: Service) {
    let both = service.connect(Duration::from_secs(3)).await;
    let others = service.connect(LONG).await;
    let second = others.mutex("b").lock().await.unwrap();
    let acquiring = tokio::spawn(async move { both.multi(["a", "b"]).lock().await });
    eventually("it has the first one", || async { !service.things("a").await.is_empty() }).await;
    // On Redlock it has it when a majority has said so, and may still be asking the others.
    let servers = service.proxies.len();
    eventually("it has the first one everywhere", || async { service.things("a").await.len() == servers }).await;
    service.delete("a").await;
    let first = within("the first one is free", others.mutex("a").lock()).await.unwrap();
    let error = within("it gives up", acquiring).await.unwrap().unwrap_err();
    assert!(matches!(&error, Error::Lost { name, .. } if name.as_str() == "a"), "{error}");
    assert!(first.is_valid() && second.is_valid());
    second.release().await.unwrap();
    first.release().await.unwrap();
    service.until_only("b", &[]).await;
}

/// They ask for the same locks in opposite orders: never two at once, and no two that wait for each other for ever.
async fn several_locks_are_held_by_one_at_a_time_in_whichever_order_they_are_named(service: Service) {
    let inside = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for names in [["a", "b"], ["b", "a"], ["a", "b"], ["b", "a"]] {
        let (locks, inside) = (service.connect(LONG).await, Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guard = locks.multi(names).lock().await.unwrap();
                assert!(!inside.swap(true, Ordering::SeqCst), "two holders");
                tokio::task::yield_now().await;
                assert!(guard.is_valid());
                inside.store(false, Ordering::SeqCst);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        within("all rounds", task).await.unwrap();
    }
    service.until_only("a", &[]).await;
    service.until_only("b", &[]).await;
}

/// Each of them is held while all the others are.
async fn names_that_look_alike_when_they_are_joined_are_different_locks(service: Service) {
    let (locks, others) = (service.connect(LONG).await, service.connect(LONG).await);
    let together = locks.multi(["ab", "c"]).try_lock().await.unwrap().expect("nobody holds any");
    let apart = others.multi(["a", "bc"]).try_lock().await.unwrap().expect("these are others");
    let names = ["abc", "a:b", "a/b", "a%2Fb", "a b", "a,b", "ab:c", "a:token", "a}:token", "{lock:a}", "lock:a", "A"];
    let mut guards = Vec::new();
    for name in names {
        guards.push(locks.mutex(name).try_lock().await.unwrap().unwrap_or_else(|| panic!("{name} is held already")));
    }
    assert!(together.is_valid() && apart.is_valid());
    for name in names.into_iter().chain(["a", "ab", "c", "bc"]) {
        assert!(others.mutex(name).try_lock().await.unwrap().is_none(), "{name} is held");
    }
}
