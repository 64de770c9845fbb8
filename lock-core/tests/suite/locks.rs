//! What `Locks`, `Mutex` and `Guard` do on top of any backend, on the memory backend in virtual time.

use std::{sync::Arc, time::Duration};

use lock_core::{
    Clock, Error, FencingToken, Guard, LockName, Locks, LocksOptions, Loss, Mutex, Validity,
    memory::{Config, Memory, MemoryServer},
};

const TTL: Duration = Duration::from_secs(30);

struct World {
    server: MemoryServer,
    memory: Arc<Memory>,
    locks: Locks,
}

fn world() -> World {
    let server = MemoryServer::with_clock(Clock::runtime());
    let memory = Memory::connect(Config::new(server.clone()).with_ttl(TTL)).unwrap();
    let options = LocksOptions::default().with_era(3).with_payload(*b"tester");
    let locks = Locks::with_options(memory.clone(), options);
    World { server, memory, locks }
}

async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        Clock::runtime().sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_limit_is_kept_and_leaves_nothing_in_the_queue() {
    let World { server, locks, .. } = world();
    let held = locks.mutex("a").lock().await.unwrap();
    let started = Clock::runtime().now();
    let refused = locks.mutex("a").timeout(Duration::from_secs(5)).lock().await;
    assert!(matches!(refused, Err(Error::NotAcquired { .. })));
    assert_eq!(Clock::runtime().now().saturating_since(started).as_secs(), 5);
    assert!(server.snapshot(held.name()).queue.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_renewed_far_beyond_its_ttl_and_released_when_dropped() {
    let World { server, locks, .. } = world();
    let guard = locks.mutex("a").lock().await.unwrap();
    Clock::runtime().sleep(100 * TTL).await;
    assert!(guard.is_valid());
    assert!(guard.remaining() <= TTL);
    let name = guard.name().clone();
    drop(guard);
    until(|| server.snapshot(&name).holders.is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn tokens_carry_the_era_and_rise() {
    let World { locks, .. } = world();
    let mut last = FencingToken { era: 3, number: 0 };
    for _ in 0..10 {
        let guard = locks.mutex("a").lock().await.unwrap();
        assert!(guard.token() > last);
        assert_eq!(guard.token().era, 3);
        last = guard.token();
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_knows_it_before_the_next_one_is_granted() {
    let World { server, memory, locks } = world();
    let other = Locks::with_options(Memory::connect(Config::new(server)).unwrap(), LocksOptions::default());
    let guard = locks.mutex("a").lock().await.unwrap();
    memory.set_connected(false);
    let next = other.mutex("a").lock().await.unwrap();
    assert_eq!(guard.validity().loss(), Some(Loss::Unreachable));
    memory.set_connected(true);
    assert!(!guard.is_valid(), "lost is final");
    assert!(matches!(guard.release().await, Err(Error::Lost { loss: Loss::Unreachable, .. })));
    assert!(next.is_valid(), "the release of a lost lock leaves the next one alone");
}

#[tokio::test(start_paused = true)]
async fn an_operation_under_a_lost_lock_is_cut_off() {
    let World { server, locks, .. } = world();
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    server.delete(guard.name());
    let cut = guard.run(std::future::pending::<()>()).await;
    assert!(matches!(cut, Err(Error::Lost { loss: Loss::Revoked, .. })));
    let late = guard.run(async { panic!("it must not start") }).await;
    assert!(matches!(late, Err(Error::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn the_result_of_an_operation_that_outlived_its_lock_is_not_given_out() {
    let World { memory, locks, .. } = world();
    let guard = locks.mutex("a").lock().await.unwrap();
    memory.set_connected(false);
    let blocking = async {
        // As a starved runtime would: the time passes within one poll, and nobody can cut it off.
        tokio::time::advance(2 * TTL).await;
    };
    assert!(matches!(guard.run(blocking).await, Err(Error::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn closing_releases_what_is_held_and_ends_what_waits() {
    let World { server, locks, .. } = world();
    let guard = locks.mutex("a").lock().await.unwrap();
    let dropped = locks.mutex("b").lock().await.unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.mutex("a").lock().await }
    });
    until(|| !server.snapshot(guard.name()).queue.is_empty()).await;
    drop(dropped);
    locks.close(Duration::from_secs(1)).await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(Error::Closed)));
    assert_eq!(guard.validity().loss(), Some(Loss::Closed));
    for name in ["a", "b"] {
        assert!(server.snapshot(&LockName::new(name).unwrap()).holders.is_empty());
    }
    assert!(matches!(locks.mutex("c").try_lock().await, Err(Error::Closed)));
    assert!(matches!(locks.inspect("c").await, Err(Error::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_release_without_an_answer_is_repeated_until_the_server_has_it() {
    let World { server, memory, locks } = world();
    let guard = locks.mutex("a").lock().await.unwrap();
    let name = guard.name().clone();
    memory.set_connected(false);
    assert!(matches!(guard.release().await, Err(Error::Unavailable { .. })));
    assert_eq!(server.snapshot(&name).holders.len(), 1);
    memory.set_connected(true);
    until(|| server.snapshot(&name).holders.is_empty()).await;
}

#[tokio::test]
async fn a_guard_may_be_dropped_outside_of_the_runtime() {
    let server = MemoryServer::new();
    let locks = Locks::new(Memory::connect(Config::new(server.clone())).unwrap());
    let guard = locks.mutex("a").lock().await.unwrap();
    let name = guard.name().clone();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    let again = locks.mutex("a").timeout(Duration::from_secs(30)).lock().await.unwrap();
    assert_eq!(server.snapshot(&name).holders.len(), 1);
    again.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_an_error_that_says_what_is_allowed() {
    let World { locks, .. } = world();
    let name = locks.mutex("a\0b").lock().await.unwrap_err();
    assert!(name.to_string().contains("1 to 512 bytes"), "{name}");
    let ttl = locks.mutex("a").ttl(Duration::from_millis(1)).lock().await.unwrap_err();
    assert!(ttl.to_string().contains("ttl") && ttl.to_string().contains("10ms"), "{ttl}");
    let payload = locks.mutex("a").payload(vec![0; 1025]).lock().await.unwrap_err();
    assert!(payload.to_string().contains("1025 bytes"), "{payload}");
}

#[test]
fn public_types_can_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    fn sends<T: Send>(_: T) {}
    crosses::<Locks>();
    crosses::<Mutex>();
    crosses::<Guard>();
    crosses::<Validity>();
    crosses::<Error>();
    // The futures, too: never run, only typed.
    let _ = |locks: Locks, mutex: Mutex, guard: Guard| {
        sends(mutex.lock());
        sends(mutex.try_lock());
        sends(guard.lost());
        sends(guard.run(async {}));
        sends(locks.close(Duration::ZERO));
        sends(guard.release());
    };
}
