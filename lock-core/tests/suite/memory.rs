//! What the memory backend promises beyond exclusion, in virtual time.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use futures_core::stream::BoxStream;
use futures_util::StreamExt;
use lock_core::{
    Backend, BootInstant, Clock, Error, Lease, LockName, Locks, Loss, Mode, Request, Snapshot,
    memory::{Config, Memory, MemoryServer},
};
use tokio_util::sync::CancellationToken;

const TTL: Duration = Duration::from_secs(30);
const DELAY: Duration = Duration::from_secs(20);

/// A server with two connections, the first of which can be cut off.
struct World {
    server: MemoryServer,
    memory: Arc<Memory>,
    first: Locks,
    second: Locks,
}

fn world() -> World {
    let server = MemoryServer::with_clock(Clock::runtime());
    let connect = || Memory::connect(Config::new(server.clone()).with_ttl(TTL)).unwrap();
    let locks = |memory| Locks::new(memory);
    let memory = connect();
    let (first, second) = (locks(memory.clone()), locks(connect()));
    World { server, memory, first, second }
}

fn name() -> LockName {
    LockName::new("a").unwrap()
}

fn now() -> BootInstant {
    Clock::runtime().now()
}

fn since(earlier: BootInstant) -> Duration {
    now().saturating_since(earlier)
}

async fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        Clock::runtime().sleep(Duration::from_millis(1)).await;
    }
}

async fn leased(memory: &Arc<Memory>, mode: Mode) -> Box<dyn Lease> {
    let request = Request::new(name(), mode);
    Arc::clone(memory).acquire(request, CancellationToken::new()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_reader_is_renewed_by_itself() {
    let World { server, memory, first, second } = world();
    let [dying, living] = [first.rwlock("a").read().await.unwrap(), second.rwlock("a").read().await.unwrap()];
    memory.set_connected(false);
    Clock::runtime().sleep(3 * TTL).await;
    assert!(!dying.is_valid() && living.is_valid());
    assert_eq!(server.snapshot(&name()).holders.len(), 1);
    assert!(second.rwlock("a").try_write().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_semaphore_of_another_size_is_an_error_that_names_both() {
    let World { first, second, .. } = world();
    let permit = first.semaphore("a", 3).acquire().await.unwrap();
    for refused in
        [second.semaphore("a", 7).try_acquire().await.map(|_| ()), second.semaphore("a", 7).acquire().await.map(|_| ())]
    {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
        let said = error.to_string();
        assert!(said.contains('3') && said.contains('7'), "{said}");
    }
    permit.release().await.unwrap();
    second.semaphore("a", 7).acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_downgraded_guard_keeps_its_number_and_is_renewed_on() {
    let World { first, second, .. } = world();
    let writer = first.rwlock("a").write().await.unwrap();
    let (token, validity) = (writer.token(), writer.validity().clone());
    let waiting = tokio::spawn(async move { second.rwlock("a").write().await.map(|writer| writer.token()) });
    let reader = writer.downgrade().await.unwrap();
    assert_eq!(reader.token(), token);
    Clock::runtime().sleep(10 * TTL).await;
    assert!(reader.is_valid() && validity.is_valid() && !waiting.is_finished());
    reader.release().await.unwrap();
    assert!(waiting.await.unwrap().unwrap() > token);
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_out_of_reach_is_unavailable_and_the_lock_is_given_back() {
    let World { server, memory, second, .. } = world();
    let lease = leased(&memory, Mode::Exclusive).await;
    let validity = lease.validity().clone();
    memory.set_connected(false);
    let refused = lease.downgrade().await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert_eq!(validity.loss(), Some(Loss::Released));
    assert_eq!(server.snapshot(&name()).holders.len(), 1, "the server has not heard of it");
    let healed = now();
    memory.set_connected(true);
    second.rwlock("a").write().await.unwrap().release().await.unwrap();
    assert!(since(healed) < TTL / 2, "by the cleanup, not by its ttl");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_taken_away_is_not_downgraded() {
    let World { server, memory, .. } = world();
    let lease = leased(&memory, Mode::Exclusive).await;
    server.delete(&name());
    let refused = lease.downgrade().await.unwrap_err();
    assert!(matches!(refused, Error::Lost { loss: Loss::Revoked, .. }), "{refused}");
    assert!(server.snapshot(&name()).holders.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_holder_died_stays_closed_for_its_delay() {
    let World { memory, first, second, .. } = world();
    let guard = first.mutex("a").lock_delay(DELAY).lock().await.unwrap();
    let granted = now();
    memory.set_connected(false);
    let waiter = second.mutex("a");
    let waiting = tokio::spawn(async move { waiter.lock().await.unwrap().release().await.unwrap() });
    guard.lost().await;
    Clock::runtime().sleep(TTL / 10).await;
    assert!(second.inspect("a").await.unwrap().holders.is_empty());
    assert!(second.mutex("a").try_lock().await.unwrap().is_none(), "closed");
    assert_eq!(second.inspect("a").await.unwrap().queue.len(), 1);
    waiting.await.unwrap();
    assert!(since(granted) >= TTL + DELAY);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_an_operator_deleted_stays_closed_for_its_delay() {
    let World { server, first, second, .. } = world();
    let _guard = first.mutex("a").lock_delay(DELAY).lock().await.unwrap();
    server.delete(&name());
    let deleted = now();
    assert!(second.mutex("a").try_lock().await.unwrap().is_none());
    second.mutex("a").lock().await.unwrap().release().await.unwrap();
    assert!(since(deleted) >= DELAY);
}

#[tokio::test(start_paused = true)]
async fn neither_a_release_nor_a_close_begins_a_lock_delay() {
    let World { first, second, .. } = world();
    let guard = first.mutex("a").lock_delay(DELAY).lock().await.unwrap();
    guard.release().await.unwrap();
    assert!(second.mutex("a").try_lock().await.unwrap().is_some());
    let guard = first.mutex("b").lock_delay(DELAY).lock().await.unwrap();
    first.close(TTL).await.unwrap();
    assert!(second.mutex("b").try_lock().await.unwrap().is_some());
    drop(guard);
}

/// The next item of the stream that is a state, and must be one.
async fn state(changes: &mut BoxStream<'static, Result<Snapshot, Error>>) -> Snapshot {
    changes.next().await.unwrap().unwrap()
}

fn tokens(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.holders.iter().filter_map(|holder| holder.token).collect()
}

#[tokio::test(start_paused = true)]
async fn changes_are_announced_without_a_moments_wait() {
    let World { first, second, .. } = world();
    let began = now();
    let mut changes = second.watch("a").unwrap();
    assert_eq!(state(&mut changes).await, Snapshot::default());
    let guard = first.rwlock("a").write().await.unwrap();
    assert_eq!(tokens(&state(&mut changes).await), [guard.token().number]);
    let waiting = tokio::spawn({
        let lock = first.rwlock("a");
        async move { lock.read().await }
    });
    assert_eq!(state(&mut changes).await.queue[0].mode, Some(Mode::Read));
    guard.release().await.unwrap();
    let reader = waiting.await.unwrap().unwrap();
    let seen = state(&mut changes).await;
    assert_eq!((tokens(&seen), seen.queue.len()), (vec![reader.token().number], 0));
    let permit = first.semaphore("a", 2).acquire().await.unwrap();
    let of = NonZeroU32::new(2).unwrap();
    assert_eq!(state(&mut changes).await.holders[1].mode, Some(Mode::Permit { of }));
    permit.release().await.unwrap();
    assert_eq!(state(&mut changes).await.holders.len(), 1);
    assert!(since(began).is_zero());
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_lease_is_a_change_and_a_renewal_is_none() {
    let World { memory, first, second, .. } = world();
    let guard = first.mutex("a").lock().await.unwrap();
    let mut changes = second.watch("a").unwrap();
    assert_eq!(state(&mut changes).await.holders.len(), 1);
    assert!(Clock::runtime().timeout(5 * TTL, changes.next()).await.is_none(), "it was only renewed");
    memory.set_connected(false);
    assert!(state(&mut changes).await.holders.is_empty());
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn changes_out_of_reach_are_errors_with_pauses_and_go_on_afterwards() {
    let World { memory, first, second, .. } = world();
    let mut changes = first.watch("a").unwrap();
    assert!(state(&mut changes).await.holders.is_empty());
    memory.set_connected(false);
    let began = now();
    for _ in 0..10 {
        assert!(matches!(changes.next().await, Some(Err(Error::Unavailable { .. }))));
    }
    assert!(since(began) >= Duration::from_secs(1));
    let guard = second.mutex("a").lock().await.unwrap();
    memory.set_connected(true);
    assert_eq!(tokens(&state(&mut changes).await), [guard.token().number]);
    guard.release().await.unwrap();
    assert!(state(&mut changes).await.holders.is_empty());
}

#[tokio::test(start_paused = true)]
async fn changes_end_when_the_connection_is_closed() {
    let World { memory, first, .. } = world();
    let mut changes = Arc::clone(&memory).watch(name());
    assert!(state(&mut changes).await.holders.is_empty());
    let ended = tokio::spawn(async move { changes.next().await.is_none() });
    first.close(TTL).await.unwrap();
    assert!(ended.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_look_shows_how_and_since_when_each_contender_is_there() {
    let World { server, memory, first, second } = world();
    assert_eq!(first.inspect("a").await.unwrap(), Snapshot::default());
    let _reader = leased(&memory, Mode::Read).await;
    let lock = second.rwlock("a");
    let waiting = tokio::spawn(async move { lock.write().await });
    until(|| !server.snapshot(&name()).queue.is_empty()).await;
    let seen = first.inspect("a").await.unwrap();
    assert_eq!((seen.holders[0].mode, seen.queue[0].mode), (Some(Mode::Read), Some(Mode::Exclusive)));
    assert!(seen.holders[0].since.unwrap() <= seen.queue[0].since.unwrap());
    waiting.abort();
}
