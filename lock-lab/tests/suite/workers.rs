//! The laboratory's worker processes, on a real server: what they report, what the store sees, and what the checker says.

use std::time::Duration;

use lock::{BootInstant, Clock};
use lock_lab::{
    failover::{
        check::{Both, Chance, Expected, Findings, Loser, Moments, Verdict, check},
        events::{Attempt, Event, History, Lock, What, now},
        workers::{Workers, WorkersOptions},
    },
    servers::Redis,
};

/// Far above what anything takes, so that a busy machine fails no test.
const LIMIT: Duration = Duration::from_secs(60);
/// More grants than these come before a fault.
const GRANTS: usize = 50;
/// How long a quit may take.
const QUIT: Duration = Duration::from_secs(20);

fn options_of(url: &str, processes: usize, clients: usize) -> WorkersOptions {
    WorkersOptions::new(env!("CARGO_BIN_EXE_lock-lab"), url, processes, clients)
}

/// The first grant of the kept lock to a process, and a write under it.
fn wrote(history: &History, process: usize) -> Option<()> {
    let by = |whose: &Attempt| whose.lock == Lock::Kept && whose.process == process;
    history.writes.iter().any(|write| by(&write.whose)).then_some(())
}

fn is_busy_grant(event: &Event) -> bool {
    event.whose.lock == Lock::Busy && matches!(event.what, What::Granted { .. })
}

/// Waits until the busy lock was granted that often.
async fn traffic(workers: &mut Workers) {
    let enough =
        |history: &History| (history.events.iter().filter(|event| is_busy_grant(event)).count() > GRANTS).then_some(());
    workers.wait_for("traffic", LIMIT, enough).await.unwrap();
}

/// Waits for a grant of the busy lock after the fault: the process that was struck may have had that one as well.
async fn goes_on(workers: &mut Workers, fault: BootInstant) {
    let again =
        |history: &History| history.events.iter().any(|event| event.at > fault && is_busy_grant(event)).then_some(());
    workers.wait_for("the busy lock goes on", LIMIT, again).await.unwrap();
}

/// Stops the holder of the kept lock until another one has it and has written, and lets it go on.
async fn stopped_holder(careless: usize) -> (History, Moments) {
    let redis = Redis::start().await.unwrap();
    let mut options = options_of(&format!("{}?ttl=6s", redis.url()), 2, 3);
    options.processes[0].careless = careless;
    let mut workers = Workers::start(&options).await.unwrap();
    workers.keep(0, LIMIT).await.unwrap();
    workers.want(1, LIMIT).await.unwrap();
    workers.wait_for("the holder writes", LIMIT, |history| wrote(history, 0)).await.unwrap();
    traffic(&mut workers).await;

    let fault = now();
    workers.stop(0).await.unwrap();
    workers.wait_for("another holder writes", LIMIT, |history| wrote(history, 1)).await.unwrap();
    // The write was recorded by the store, which may be before the process's report of its grant is read.
    workers.keep(1, LIMIT).await.unwrap();
    workers.resume(0).unwrap();
    let told = |history: &History| {
        let lost = |event: &Event| {
            let kept = event.whose.lock == Lock::Kept && event.whose.process == 0 && event.at > fault;
            kept && matches!(event.what, What::ReleaseFailed { .. })
        };
        history.events.iter().any(lost).then_some(())
    };
    workers.wait_for("the stopped holder gives up", LIMIT, told).await.unwrap();
    goes_on(&mut workers, fault).await;
    let end = now();
    (workers.finish(QUIT).await.unwrap(), Moments { fault, end })
}

/// What is expected of any fault. How fast the traffic was before it depends on the machine: these tests count it.
fn expected() -> Expected {
    let mut expected = Expected::default();
    expected.traffic = 0.0;
    expected
}

/// What is expected of a fault by which a holder loses its lock.
fn expected_loss() -> Expected {
    let mut expected = expected();
    expected.losses = Chance::Certain;
    expected
}

fn loser(found: &Findings) -> Option<&Loser> {
    found.losing.losers.iter().find(|loser| loser.whose.lock == Lock::Kept)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_stopped_holder_writes_without_looking_is_refused_by_the_fence_and_counted_at_the_control() {
    let (history, moments) = stopped_holder(1).await;
    let mut expected = expected_loss();
    expected.stale = Chance::Certain;
    let found = check(&history, &[], moments, &expected);
    for (letter, verdict) in found.verdicts() {
        assert_eq!(verdict, &Verdict::Holds, "{letter}");
    }
    assert!(found.fencing.stale > 0 && found.fencing.refused >= found.fencing.stale, "{:?}", found.fencing);
    assert_eq!((found.fencing.let_through, found.fencing.fell, found.exclusion.overlaps.len()), (0, 0, 0));
    let loser = loser(&found).expect("the stopped holder has lost the lock");
    assert!(loser.was_still && loser.knew_after_deadline_ms > Some(0.0), "{loser:?}");
    assert!(found.progress.take_overs[0].next_grant_ms.is_some());
    assert!(found.grants > GRANTS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_looks_before_each_write_has_the_fence_as_a_second_guard_only() {
    let (history, moments) = stopped_holder(0).await;
    let found = check(&history, &[], moments, &expected_loss());
    assert!(found.is_good(), "{:?}", found.verdicts());
    // One write may have been under way when the process was stopped.
    let late = history.writes.iter().filter(|write| write.whose.process == 0 && write.went_back).count();
    assert!(late <= 4, "each client has at most one write under way: {late}");
    let mut certain = expected_loss();
    certain.stale = Chance::Certain;
    if found.fencing.stale == 0 {
        let found = check(&history, &[], moments, &certain);
        assert!(matches!(found.fencing.verdict, Verdict::ProvesNothing { .. }), "{:?}", found.fencing);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_starved_runtime_does_not_keep_the_holder_from_knowing() {
    let redis = Redis::start().await.unwrap();
    let mut options = options_of(&format!("{}?ttl=6s", redis.url()), 2, 2);
    options.processes[0].careless = 1;
    let mut workers = Workers::start(&options).await.unwrap();
    workers.keep(0, LIMIT).await.unwrap();
    workers.want(1, LIMIT).await.unwrap();
    traffic(&mut workers).await;
    let fault = now();
    workers.starve(0, Duration::from_secs(10)).await.unwrap();
    let stale = |history: &History| history.writes.iter().any(|write| write.went_back).then_some(());
    workers.wait_for("a stale write", LIMIT, stale).await.unwrap();
    goes_on(&mut workers, fault).await;
    let end = now();
    let history = workers.finish(QUIT).await.unwrap();
    let mut expected = expected_loss();
    expected.stale = Chance::Certain;
    let found = check(&history, &[], Moments { fault, end }, &expected);
    assert!(found.is_good(), "{:?}", found.verdicts());
    let loser = loser(&found).expect("the starved holder has lost the lock");
    let (knew, told) = (loser.knew_ms.unwrap(), loser.told_ms.unwrap());
    assert!(knew < told, "the thread that looks knows before the runtime runs again: {loser:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_holder_is_followed_and_its_process_leaves_whole_lines() {
    let redis = Redis::start().await.unwrap();
    let mut workers = Workers::start(&options_of(&format!("{}?ttl=6s", redis.url()), 2, 2)).await.unwrap();
    workers.keep(0, LIMIT).await.unwrap();
    workers.want(1, LIMIT).await.unwrap();
    traffic(&mut workers).await;
    let fault = now();
    workers.kill(0).await.unwrap();
    // The other one may have it already, where this program stood still meanwhile.
    assert!(workers.holder(Lock::Kept).is_none_or(|holder| holder.whose.process == 1));
    workers.wait_for("another holder writes", LIMIT, |history| wrote(history, 1)).await.unwrap();
    goes_on(&mut workers, fault).await;
    let end = now();
    let found = check(&workers.finish(QUIT).await.unwrap(), &[], Moments { fault, end }, &expected());
    assert!(found.is_good(), "{:?}", found.verdicts());
    assert!(found.progress.take_overs[0].next_grant_ms.is_some(), "{:?}", found.progress);
}

/// Each worker of the memory backend has a server of its own, so that nothing keeps them apart: the checker must see it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_does_not_lock_is_found_out() {
    let mut workers = Workers::start(&options_of("memory://", 2, 2)).await.unwrap();
    workers.keep(0, LIMIT).await.unwrap();
    workers.keep(1, LIMIT).await.unwrap();
    traffic(&mut workers).await;
    let fault = now();
    let more = |history: &History| history.writes.iter().any(|write| write.at > fault).then_some(());
    workers.wait_for("writes", LIMIT, more).await.unwrap();
    let end = now();
    let found = check(&workers.finish(QUIT).await.unwrap(), &[], Moments { fault, end }, &expected());
    assert!(found.exclusion.verdict.is_broken(), "{:?}", found.exclusion);
    assert!(!found.exclusion.overlaps.is_empty() && found.exclusion.contradictions > 0);
    let kept = |both: &&Both| both.pair.iter().all(|whose| whose.lock == Lock::Kept);
    assert!(found.exclusion.overlaps.iter().any(|both| kept(&both)), "both kept it: {:?}", found.exclusion);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_end_with_the_laboratory_and_one_that_ends_by_itself_is_an_error() {
    let error =
        Workers::start(&options_of("redis://127.0.0.1:1?outage_timeout=0s", 1, 1)).await.unwrap_err().to_string();
    assert!(error.contains("worker process 0") && error.contains("127.0.0.1:1"), "{error}");

    let mut workers = Workers::start(&options_of("memory://", 2, 1)).await.unwrap();
    workers.stop(1).await.unwrap();
    let pids = workers.pids();
    drop(workers);
    let gone = async {
        while pids.iter().any(|pid| std::path::Path::new("/proc").join(pid.to_string()).join("exe").read_link().is_ok())
        {
            Clock::boot().sleep(Duration::from_millis(5)).await;
        }
    };
    Clock::boot().timeout(LIMIT, gone).await.expect("they have ended, the stopped one as well");
}
