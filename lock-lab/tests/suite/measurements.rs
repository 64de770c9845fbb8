//! The comparison and the demonstration from end to end, much shortened.

use std::{fs, path::Path, process::Stdio, time::Duration};

use lock::Clock;
use lock_lab::{
    LabError,
    compare::{self, Report},
    demo,
    deployment::Deployment,
    holder::Holder,
    readwrite,
    report::Outcome,
    servers::Redis,
};
use tempfile::TempDir;
use tokio::process::Command;

/// The program `lock-lab`.
const PROGRAM: &str = env!("CARGO_BIN_EXE_lock-lab");
/// Far above what anything takes, so that a busy machine fails no test.
const LIMIT: Duration = Duration::from_secs(30);

fn those(keys: &[&str]) -> Vec<Deployment> {
    keys.iter().map(|key| key.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_writes_its_report_in_every_form() {
    let dir = TempDir::new().unwrap();
    let mut options = compare::Options::new(dir.path().join("new/report"), "no-such-program");
    options.deployments = those(&["memory", "redis"]);
    options.scale = 0.02;
    let report = compare::run(&options).await.unwrap();

    let json = fs::read_to_string(options.out.join("report.json")).unwrap();
    assert!(serde_json::from_str::<Report>(&json).unwrap() == report, "{json}");
    for file in ["report.md", "index.html", "contended.svg"] {
        assert!(options.out.join(file).exists(), "{file}");
    }
    let [memory, redis] = &*report.backends else { panic!("two backends: {report:?}") };
    assert!(matches!(memory.server_killed, Outcome::Missing(_)));
    for backend in [memory, redis] {
        let contended = backend.contended.measured().expect("contended");
        assert_eq!((contended.grants, contended.overlaps, contended.tokens_rise), (16, 0, true));
        assert!(backend.uncontended.measured().expect("uncontended").tokens_rise);
    }
    assert!(redis.uncontended.measured().unwrap().requests >= Some(2.0));
    let killed = redis.server_killed.measured().expect("server killed");
    assert!(killed.grants_before >= 50 && killed.grants_after > 0, "{killed:?}");
    let Outcome::Failed(why) = &redis.holder_killed else { panic!("there is no program to kill") };
    assert!(why.contains("no-such-program"), "{why}");
    assert!(!report.complete());
}

#[tokio::test]
async fn a_holder_holds_until_it_is_killed() {
    let redis = Redis::start().await.unwrap();
    let url = format!("{}?ttl=5s", redis.url());
    let holder = Holder::start(Path::new(PROGRAM), &url, "name").await.unwrap();
    let locks = lock::connect(&url).await.unwrap();
    assert!(locks.mutex("name").try_lock().await.unwrap().is_none(), "the holder has it");
    holder.kill().await.unwrap();
    let next = Clock::boot().timeout(LIMIT, locks.mutex("name").lock()).await.expect("its lease ends");
    next.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_holder_ends_with_the_program_that_started_it() {
    let mut holder = Command::new(PROGRAM);
    holder.args(["hold", "memory://", "name"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    // Its input ends when this program drops it.
    let ended = Clock::boot().timeout(LIMIT, holder.spawn().unwrap().wait_with_output()).await;
    let output = ended.expect("the holder has ended").unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"held\n"[..]));
}

#[tokio::test]
async fn a_holder_that_gets_no_lock_is_an_error_with_its_own_words() {
    let error = Holder::start(Path::new(PROGRAM), "redis://127.0.0.1:1?outage_timeout=0s", "name")
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("69") && error.contains("127.0.0.1:1"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demonstration_grants_every_contender_once() {
    let mut options = demo::Options::default();
    options.nodes = 6;
    options.hold = Duration::from_millis(5);
    for deployment in those(&["memory", "zk1", "redis"]) {
        let running = deployment.start().await.unwrap();
        options.url = Some(running.plain_url());
        let results = demo::run(&options).await.unwrap();
        let [(_, Outcome::Measured(summary))] = &*results else { panic!("one backend: {results:?}") };
        assert_eq!((summary.grants, summary.tokens_rise), (6, true), "{deployment}");
        assert!(summary.fifo, "{deployment}");
    }
}

#[tokio::test]
async fn the_demonstration_says_which_backend_it_cannot_reach() {
    let mut options = demo::Options::default();
    options.url = Some("redis://127.0.0.1:1?outage_timeout=0s".into());
    let error = demo::run(&options).await.unwrap_err();
    assert!(error.to_string().contains("connecting"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_share_a_lock_as_promised() {
    let mut options = readwrite::Options::default();
    options.deployments = those(&["memory", "zk1", "redis"]);
    // It fails when a promise is broken, and when the run was such that it could not have shown: on a busy machine it takes
    // longer until it could, and two writers may be under way all the time, so that no refused try is known to be due to one.
    const LONGEST: u64 = 32;
    for (writers, seconds) in [(2, 2), (1, 8), (1, LONGEST)] {
        (options.writers, options.time) = (writers, Duration::from_secs(seconds));
        let outcomes = readwrite::run(&options).await;
        if seconds < LONGEST && matches!(outcomes, Err(LabError::ProvesNothing { .. })) {
            continue;
        }
        for (backend, outcome) in outcomes.unwrap() {
            assert!(outcome.measured().is_some_and(|summary| summary.reads > 0), "{backend}: {outcome:?}");
        }
        return;
    }
}
