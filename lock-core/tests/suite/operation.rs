//! Guarded operations, on the memory backend in virtual time.

use std::{
    collections::VecDeque,
    panic::AssertUnwindSafe,
    pin::pin,
    sync::{Arc, Mutex},
};

use futures_util::FutureExt;
use lock_core::{
    Abandoned, Cause, Clock, Committed, Error, FencingToken, Guard, Loss, MultiGuard, Operation, Owner, Permit,
    StateAfter, Tokens,
};
use tokio::sync::Notify;

use crate::world::{TTL, World, polled, starve, until};

/// What a step does before it ends.
#[derive(Debug, Clone)]
enum Does {
    Ends,
    Fails,
    Hangs,
    /// As in a starved runtime: the time passes within one poll.
    Starves,
    Panics,
    /// Ends when it is told to.
    Waits(Arc<Notify>),
}

/// An operation on a number that steps as it was told, and notes what it did.
#[derive(Debug, Clone)]
struct Scripted {
    script: VecDeque<(&'static str, Does)>,
    noted: Arc<Mutex<Vec<String>>>,
    number: Arc<Mutex<u32>>,
}

impl Scripted {
    fn new(script: impl IntoIterator<Item = (&'static str, Does)>) -> Self {
        Self { script: script.into_iter().collect(), noted: Arc::default(), number: Arc::default() }
    }

    async fn step(&self, name: &'static str, token: &str) -> Result<(), String> {
        let note = |what: &str| self.noted.lock().unwrap().push(what.trim_end().to_owned());
        note(&format!("{name} {token}"));
        let does = self.script.iter().find(|(step, _)| *step == name).map(|(_, does)| does.clone());
        match does.unwrap_or(Does::Ends) {
            Does::Ends => {}
            Does::Fails => return Err(format!("{name} did not work")),
            Does::Hangs => std::future::pending().await,
            Does::Starves => starve(2 * TTL).await,
            Does::Panics => panic!("{name} panicked"),
            Does::Waits(told) => told.notified().await,
        }
        note(&format!("{name} done"));
        Ok(())
    }

    fn noted(&self) -> Vec<String> {
        self.noted.lock().unwrap().clone()
    }

    fn has(&self, note: &str) -> bool {
        self.noted().iter().any(|noted| noted == note)
    }

    fn number(&self) -> u32 {
        *self.number.lock().unwrap()
    }
}

/// The text of whatever the steps get as their fencing token.
trait Shown: Clone + Send + Sync + 'static {
    fn shown(&self) -> String;
}

impl Shown for FencingToken {
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl Shown for () {
    fn shown(&self) -> String {
        "none".to_owned()
    }
}

impl Shown for Tokens {
    fn shown(&self) -> String {
        self.iter().map(|(name, token)| format!("{name}={token}")).collect::<Vec<_>>().join(" ")
    }
}

impl<T: Shown> Operation<T> for Scripted {
    type Snapshot = u32;
    type Output = u32;
    type Error = String;

    async fn snapshot(&mut self) -> Result<u32, String> {
        self.step("snapshot", "").await?;
        Ok(self.number())
    }

    async fn apply(&mut self, token: T) -> Result<(), String> {
        *self.number.lock().unwrap() += 1;
        self.step("apply", &token.shown()).await
    }

    async fn commit(&mut self, token: T) -> Result<u32, String> {
        self.step("commit", &token.shown()).await?;
        Ok(self.number())
    }

    async fn restore(&mut self, snapshot: u32, token: T) -> Result<(), String> {
        self.step("restore", &token.shown()).await?;
        *self.number.lock().unwrap() = snapshot;
        Ok(())
    }
}

type Done = Result<Committed<u32>, Abandoned<String>>;

fn restored(done: &Done) -> &Cause<String> {
    match done {
        Err(Abandoned { cause, state: StateAfter::Restored, .. }) => cause,
        other => panic!("not restored: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn it_is_committed_while_the_lock_is_held_and_every_step_gets_the_token() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let operation = Scripted::new([]);
    let committed = guard.transact(operation.clone()).await.unwrap();
    assert_eq!(committed.output, 1);
    assert!(committed.late.is_none());
    let token = guard.token();
    let steps = [
        "snapshot",
        "snapshot done",
        &format!("apply {token}"),
        "apply done",
        &format!("commit {token}"),
        "commit done",
    ];
    assert_eq!(operation.noted(), steps);
    guard.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_not_started_when_the_lock_is_lost() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    world.memory.set_connected(false);
    // Nobody has looked at the lock since.
    starve(2 * TTL).await;
    let operation = Scripted::new([]);
    let done = guard.transact(operation.clone()).await.unwrap_err();
    assert!(matches!(done, Abandoned { cause: Cause::Lock(Error::Lost { .. }), state: StateAfter::Untouched, .. }));
    assert!(done.is_as_before());
    assert_eq!(operation.noted(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn it_is_not_committed_when_the_time_passed_in_its_work_unseen() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    world.memory.set_connected(false);
    let operation = Scripted::new([("apply", Does::Starves)]);
    let done = guard.transact(operation.clone()).await;
    assert!(matches!(restored(&done), Cause::Lock(Error::Lost { .. })));
    assert!(operation.has("apply done") && operation.has("restore done"));
    assert!(!operation.noted().iter().any(|note| note.starts_with("commit")));
    assert_eq!(operation.number(), 0);
}

#[tokio::test(start_paused = true)]
async fn it_does_not_begin_its_work_when_the_time_passed_in_its_snapshot_unseen() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    world.memory.set_connected(false);
    let operation = Scripted::new([("snapshot", Does::Starves)]);
    let done = guard.transact(operation.clone()).await;
    assert!(matches!(done, Err(Abandoned { state: StateAfter::Untouched, .. })));
    assert_eq!(operation.noted(), ["snapshot", "snapshot done"]);
}

#[tokio::test(start_paused = true)]
async fn its_work_is_cut_off_and_its_state_restored_when_the_lock_is_lost() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let operation = Scripted::new([("apply", Does::Hangs)]);
    let done = tokio::join!(guard.transact(operation.clone()), async {
        until(|| operation.number() == 1).await;
        world.delete("a");
    })
    .0;
    assert!(matches!(restored(&done), Cause::Lock(Error::Lost { loss: Loss::Revoked, .. })));
    assert_eq!(operation.number(), 0);
    let said = done.unwrap_err().to_string();
    assert!(said.contains("was lost") && said.contains("restored"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_step_that_fails_leaves_the_state_as_it_was() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let operation = Scripted::new([("snapshot", Does::Fails)]);
    let done = guard.transact(operation.clone()).await;
    assert!(matches!(done, Err(Abandoned { cause: Cause::Snapshot(_), state: StateAfter::Untouched, .. })));
    assert_eq!(operation.noted(), ["snapshot"]);
    for step in ["apply", "commit"] {
        let operation = Scripted::new([(step, Does::Fails)]);
        let done = guard.transact(operation.clone()).await;
        match restored(&done) {
            Cause::Apply(said) if step == "apply" => assert_eq!(said, "apply did not work"),
            Cause::Commit(said) if step == "commit" => assert_eq!(said, "commit did not work"),
            other => panic!("{other:?}"),
        }
        assert_eq!(operation.number(), 0);
    }
    assert!(guard.is_valid(), "it is the operation that failed, not the lock");
}

#[tokio::test(start_paused = true)]
async fn a_restore_that_fails_is_told() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let operation = Scripted::new([("apply", Does::Fails), ("restore", Does::Fails)]);
    let done = guard.transact(operation.clone()).await.unwrap_err();
    assert!(!done.is_as_before());
    assert!(matches!(&done, Abandoned { cause: Cause::Apply(_), state: StateAfter::RestoreFailed(_), .. }));
    let said = done.to_string();
    assert!(said.contains("apply did not work") && said.contains("NOT restored: restore did not work"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_commit_is_never_cut_off_and_says_that_the_lock_was_lost_meanwhile() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let told = Arc::new(Notify::new());
    let operation = Scripted::new([("commit", Does::Waits(Arc::clone(&told)))]);
    let done = tokio::join!(guard.transact(operation.clone()), async {
        until(|| operation.has("apply done")).await;
        world.delete("a");
        guard.lost().await;
        told.notify_one();
    })
    .0
    .unwrap();
    assert_eq!(done.output, 1);
    assert!(matches!(done.late, Some(Error::Lost { loss: Loss::Revoked, .. })));
    assert!(!operation.has("restore done"));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_dropped_in_its_work_is_restored_in_the_background_while_the_lock_is_still_held() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let told = Arc::new(Notify::new());
    let operation = Scripted::new([("apply", Does::Hangs), ("restore", Does::Waits(Arc::clone(&told)))]);
    {
        let mut dropped = pin!(guard.transact(operation.clone()));
        assert!(!polled(dropped.as_mut(), 3).await);
        assert_eq!(operation.number(), 1);
    }
    drop(guard);
    until(|| operation.noted().iter().any(|note| note.starts_with("restore"))).await;
    Clock::runtime().sleep(10 * TTL).await;
    assert_eq!(world.holders("a"), 1, "the lock stays held, and is renewed, until the state is restored");
    told.notify_one();
    world.until_free("a").await;
    assert_eq!(operation.number(), 0);
    assert!(!operation.noted().iter().any(|note| note.starts_with("commit")));
}

#[tokio::test(start_paused = true)]
async fn an_operation_that_is_dropped_in_its_commit_is_committed_in_the_background_while_the_lock_is_still_held() {
    let world = World::new();
    let guard = world.locks.mutex("a").lock().await.unwrap();
    let told = Arc::new(Notify::new());
    let operation = Scripted::new([("commit", Does::Waits(Arc::clone(&told)))]);
    {
        let mut dropped = pin!(guard.transact(operation.clone()));
        assert!(!polled(dropped.as_mut(), 3).await);
        assert!(operation.has("apply done"));
    }
    let release = tokio::spawn(guard.release());
    Clock::runtime().sleep(10 * TTL).await;
    assert!(!release.is_finished(), "a release waits for what was begun under the lock");
    assert_eq!(world.holders("a"), 1);
    told.notify_one();
    release.await.unwrap().unwrap();
    assert!(operation.has("commit done"));
    assert_eq!(operation.number(), 1);
    assert_eq!(world.holders("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_dropped_after_any_poll_has_happened_as_a_whole_or_not_at_all() {
    let world = World::new();
    for polls in 0..8 {
        let guard = world.locks.mutex("a").lock().await.unwrap();
        let told = Arc::new(Notify::new());
        let steps = ["snapshot", "apply", "commit", "restore"];
        let operation = Scripted::new(steps.map(|step| (step, Does::Waits(Arc::clone(&told)))));
        {
            let mut dropped = pin!(guard.transact(operation.clone()));
            for _ in 0..polls {
                told.notify_one();
                if polled(dropped.as_mut(), 1).await {
                    break;
                }
            }
        }
        drop(guard);
        until(|| {
            told.notify_one();
            world.holders("a") == 0
        })
        .await;
        let committed = operation.has("commit done");
        assert_eq!(operation.number(), u32::from(committed), "{:?}", operation.noted());
        assert!(!(committed && operation.has("restore done")));
    }
}

#[tokio::test(start_paused = true)]
async fn work_that_panics_is_restored_and_the_panic_goes_on() {
    let world = World::new();
    for step in ["apply", "commit"] {
        let guard = world.locks.mutex("a").lock().await.unwrap();
        let operation = Scripted::new([(step, Does::Panics)]);
        let panicked = AssertUnwindSafe(guard.transact(operation.clone())).catch_unwind().await.unwrap_err();
        assert_eq!(panicked.downcast_ref::<String>().unwrap(), &format!("{step} panicked"));
        assert_eq!(operation.number(), 0);
        assert!(operation.has("restore done"));
        guard.release().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn the_maximum_time_ends_an_operation_as_any_loss_does() {
    let world = World::new();
    let guard = world.locks.mutex("a").max_hold(TTL).lock().await.unwrap();
    let operation = Scripted::new([("apply", Does::Hangs)]);
    let done = guard.transact(operation.clone()).await;
    assert!(matches!(restored(&done), Cause::Lock(Error::Lost { loss: Loss::MaxHoldExceeded, .. })));
    // Also when what is left of it runs in the background.
    let guard = world.locks.mutex("b").max_hold(TTL).lock().await.unwrap();
    let operation = Scripted::new([("commit", Does::Hangs)]);
    {
        let mut dropped = pin!(guard.transact(operation.clone()));
        assert!(!polled(dropped.as_mut(), 3).await);
    }
    drop(guard);
    world.until_free("b").await;
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_what_runs_in_the_background_and_cuts_off_what_does_not() {
    let world = World::new();
    let told = Arc::new(Notify::new());
    let left = Scripted::new([("commit", Does::Waits(Arc::clone(&told)))]);
    let guard = world.locks.mutex("a").lock().await.unwrap();
    {
        let mut dropped = pin!(guard.transact(left.clone()));
        assert!(!polled(dropped.as_mut(), 3).await);
    }
    let running = Scripted::new([("apply", Does::Hangs)]);
    let other = world.locks.mutex("b").lock().await.unwrap();
    let (done, closed, ()) = tokio::join!(other.transact(running.clone()), world.locks.close(3 * TTL), async {
        Clock::runtime().sleep(TTL).await;
        told.notify_one();
    });
    closed.unwrap();
    assert!(left.has("commit done"));
    assert!(matches!(restored(&done), Cause::Lock(Error::Lost { loss: Loss::Closed, .. })));
    assert_eq!(running.number(), 0);
}

#[tokio::test(start_paused = true)]
async fn several_locks_guard_an_operation_together() {
    let world = World::new();
    let all = world.locks.multi(["b", "a"]).lock().await.unwrap();
    let operation = Scripted::new([]);
    assert_eq!(all.transact(operation.clone()).await.unwrap().output, 1);
    let tokens = format!("commit a={} b={}", all.token("a").unwrap(), all.token("b").unwrap());
    assert!(operation.has(&tokens), "{:?}", operation.noted());
    let cut = Scripted::new([("apply", Does::Hangs)]);
    let done = tokio::join!(all.transact(cut.clone()), async {
        until(|| cut.number() == 1).await;
        world.delete("b");
    })
    .0;
    assert!(matches!(restored(&done), Cause::Lock(Error::Lost { name, .. }) if name.as_str() == "b"));
}

#[tokio::test(start_paused = true)]
async fn permits_terms_writers_and_owners_guard_operations_too() {
    let world = World::new();
    let permit = world.locks.semaphore("a", 2).acquire().await.unwrap();
    let operation = Scripted::new([]);
    assert_eq!(permit.transact(operation.clone()).await.unwrap().output, 1);
    assert!(operation.has("commit none"), "a permit has no fencing token here");
    let term = world.locks.election("b").campaign(*b"me").await.unwrap();
    assert_eq!(term.transact(Scripted::new([])).await.unwrap().output, 1);
    let writer = world.locks.rwlock("c").write().await.unwrap();
    assert_eq!(writer.transact(Scripted::new([])).await.unwrap().output, 1);

    let mutex = world.locks.mutex("d").reentrant(&Owner::new());
    let (outer, inner) = (mutex.lock().await.unwrap(), mutex.lock().await.unwrap());
    let told = Arc::new(Notify::new());
    let operation = Scripted::new([("commit", Does::Waits(Arc::clone(&told)))]);
    {
        let mut dropped = pin!(inner.transact(operation.clone()));
        assert!(!polled(dropped.as_mut(), 3).await);
    }
    drop((outer, inner));
    Clock::runtime().sleep(TTL).await;
    assert_eq!(world.holders("d"), 1);
    told.notify_one();
    world.until_free("d").await;
}

#[test]
fn the_futures_can_cross_threads() {
    fn sends<T: Send>(_: T) {}
    let _ = |guard: Guard, permit: Permit, all: MultiGuard, operation: Scripted| {
        sends(guard.transact(operation.clone()));
        sends(permit.transact(operation.clone()));
        sends(all.transact(operation));
        sends(guard.release());
    };
}
