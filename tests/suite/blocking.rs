//! Locks for programs without a runtime.

use std::{sync::mpsc, thread, time::Duration};

use lock::{
    Error, Feature, FencingToken, LockName, Loss, Owner, blocking,
    blocking::{Guard, Locks},
    testing::TestService,
};
use lock_lab::servers::Redis;

/// How long something may take that must happen.
const LIMIT: Duration = Duration::from_secs(60);

/// Every kind of lock once, on a service that has them all.
fn everything(url: &str) {
    let (locks, other) = (blocking::connect(url).unwrap(), blocking::connect(url).unwrap());

    let guard = locks.mutex("a").timeout(LIMIT).ttl(Duration::from_secs(20)).payload(*b"me").lock().unwrap();
    assert!(guard.is_valid() && guard.remaining() <= Duration::from_secs(20) && guard.valid_until().is_some());
    assert!(other.mutex("a").try_lock().unwrap().is_none());
    let refused = other.mutex("a").timeout(Duration::from_millis(10)).lock();
    assert!(matches!(refused, Err(Error::NotAcquired { .. })), "{refused:?}");
    assert_eq!(other.list("").unwrap(), [LockName::new("a").unwrap()]);
    let seen = other.inspect("a").unwrap();
    assert_eq!((seen.holders.len(), seen.holders[0].payload.as_slice()), (1, &b"me"[..]));
    assert_eq!(other.fencing_token(seen.holders[0].token.unwrap()), guard.token());
    assert_eq!(guard.run(|| 7).unwrap(), 7);
    assert_eq!(guard.lost(Duration::from_millis(1)), None);
    let (token, validity) = (guard.token(), guard.validity().clone());
    guard.release().unwrap();
    assert_eq!(validity.loss(), Some(Loss::Released));

    // Dropped, and released in the background.
    drop(other.mutex("a").lock().unwrap());
    let again = locks.mutex("a").timeout(LIMIT).lock().unwrap();
    assert!(again.token() > token);
    again.release().unwrap();

    let owner = Owner::new();
    let outer = locks.mutex("a").reentrant(&owner).lock().unwrap();
    let inner = locks.mutex("a").reentrant(&owner).try_lock().unwrap().expect("its owner holds it");
    assert_eq!(inner.token(), outer.token());
    outer.release().unwrap();
    inner.release().unwrap();

    let both = locks.multi(["b", "a"]).lock().unwrap();
    assert!(both.is_valid() && other.multi(["a", "c"]).try_lock().unwrap().is_none());
    assert_eq!(both.names().map(LockName::as_str).collect::<Vec<_>>(), ["a", "b"]);
    assert!(both.token("a").is_some() && both.tokens().iter().len() == 2);
    both.run(|| ()).unwrap();
    assert_eq!(both.lost(Duration::from_millis(1)), None);
    both.release().unwrap();

    let reader = locks.rwlock("a").read().unwrap();
    assert!(other.rwlock("a").try_write().unwrap().is_none());
    other.rwlock("a").try_read().unwrap().expect("beside another reader").release().unwrap();
    reader.release().unwrap();
    let reader = locks.rwlock("a").write().unwrap().downgrade().unwrap();
    assert!(other.rwlock("a").try_read().unwrap().is_some());
    reader.release().unwrap();

    let permits = locks.semaphore("s", 2);
    let held = [permits.acquire().unwrap(), permits.acquire().unwrap()];
    assert!(other.semaphore("s", 2).try_acquire().unwrap().is_none());
    held.into_iter().for_each(|permit| permit.release().unwrap());

    let mut leaders = other.election("e").observe().unwrap();
    let term = locks.election("e").campaign(*b"first").unwrap();
    assert!(other.election("e").try_campaign(*b"second").unwrap().is_none());
    let leader = leaders.next().unwrap().unwrap();
    assert_eq!((leader.payload.as_slice(), leader.token), (&b"first"[..], term.token()));
    let mut seen = other.watch("e").unwrap();
    assert_eq!(seen.next().unwrap().unwrap().holders.len(), 1);
    term.resign().unwrap();
    while !seen.next().unwrap().unwrap().holders.is_empty() {}

    // An iterator ends when another thread closes the connection.
    let ends = thread::spawn(move || seen.filter_map(Result::ok).count());
    assert_eq!(other.drain(LIMIT), 0);
    assert!(matches!(other.mutex("a").lock(), Err(Error::Closed)));
    other.close(LIMIT).unwrap();
    ends.join().unwrap();
    assert!(leaders.next().is_none());
    let kept = locks.mutex("a").lock().unwrap();
    locks.close(LIMIT).unwrap();
    assert_eq!(kept.lost(LIMIT), Some(Loss::Closed));
    assert!(matches!(kept.run(|| unreachable!("it is lost")), Err(Error::Lost { .. })));
}

#[test]
fn every_kind_of_lock_works_in_memory() {
    everything("memory://blocking-everything");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_kind_of_lock_works_on_redis() {
    let redis = Redis::start().await.unwrap();
    let url = format!("{}?response_timeout=20s", redis.url());
    tokio::task::spawn_blocking(move || everything(&url)).await.unwrap();
}

/// Of a program that does nothing but wait on its own thread.
#[tokio::test(flavor = "multi_thread")]
async fn renewals_go_on_while_the_caller_is_busy() {
    let redis = Redis::start().await.unwrap();
    let url = format!("{}?response_timeout=20s", redis.url());
    let busy = move || {
        let ttl = Duration::from_secs(6);
        let guard = blocking::connect(&url).unwrap().mutex("a").ttl(ttl).lock().unwrap();
        let until = guard.valid_until().unwrap();
        // This thread is blocked, and asks for nothing meanwhile.
        let (_quiet, nothing) = mpsc::channel::<()>();
        nothing.recv_timeout(ttl + Duration::from_secs(1)).unwrap_err();
        assert!(guard.is_valid() && guard.valid_until().unwrap() > until);
        guard.release().unwrap();
    };
    tokio::task::spawn_blocking(busy).await.unwrap();
}

/// Blocking calls in a task: neither a panic, nor a wait that never ends when the task's share of polls is used up.
#[tokio::test]
async fn calls_inside_a_runtime_work() {
    let redis = Redis::start().await.unwrap();
    let url = format!("{}?response_timeout=20s", redis.url());
    let (done, ended) = mpsc::channel();
    // On a thread of its own, which this test does not wait for in vain.
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            for url in ["memory://blocking-inside", &url] {
                let (locks, other) = (blocking::connect(url).unwrap(), blocking::connect(url).unwrap());
                for _ in 0..200 {
                    let guard = locks.mutex("a").lock().unwrap();
                    let refused = other.mutex("a").timeout(Duration::from_micros(1)).lock();
                    assert!(matches!(refused, Err(Error::NotAcquired { .. })), "{refused:?}");
                    guard.release().unwrap();
                    drop(locks.mutex("a").timeout(LIMIT).lock().unwrap());
                }
                locks.close(LIMIT).unwrap();
                other.close(LIMIT).unwrap();
            }
        });
        done.send(()).unwrap();
    });
    ended.recv_timeout(LIMIT).expect("all calls come back");
}

#[test]
fn threads_exclude_each_other_and_waiters_are_woken() {
    let locks = blocking::connect("memory://blocking-threads").unwrap();
    locks.require(Feature::Fifo).unwrap();
    let (say, said) = mpsc::channel::<FencingToken>();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (locks, say) = (locks.clone(), say.clone());
            scope.spawn(move || {
                for _ in 0..100 {
                    let guard: Guard = locks.mutex("a").lock().unwrap();
                    say.send(guard.token()).unwrap();
                    guard.release().unwrap();
                }
            });
        }
    });
    drop(say);
    let tokens: Vec<_> = said.iter().collect();
    assert_eq!(tokens.len(), 400);
    assert!(tokens.is_sorted(), "the order of the grants is that of what was done under them");
}

#[test]
fn bad_input_is_an_error_and_no_panic() {
    assert!(matches!(blocking::connect("nothing://h"), Err(Error::Config { .. })));
    let locks = blocking::connect("memory://blocking-bad").unwrap();
    assert!(matches!(locks.mutex("").lock(), Err(Error::InvalidName { .. })));
    assert!(matches!(locks.semaphore("a", 0).acquire(), Err(Error::Config { .. })));
    assert!(matches!(locks.watch(""), Err(Error::InvalidName { .. })));
}

/// A connection that was made in a runtime, used by a thread that blocks.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_of_a_runtime_serves_callers_that_block() {
    let service = TestService::new();
    let locks = Locks::from(service.connect().unwrap().locks());
    let token = tokio::task::spawn_blocking(move || {
        let guard = locks.mutex("a").timeout(LIMIT).lock().unwrap();
        let token = guard.token();
        guard.release().unwrap();
        token
    });
    assert_eq!(token.await.unwrap().number, 1);
}
