//! The comparison and the demonstration from end to end, much shortened.

use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

use lock_core::Clock;
use lock_lab::{
    compare, demo,
    holder::Holder,
    readwrite,
    report::{Outcome, Report},
    topology::Topology,
};
use tempfile::TempDir;

/// Stands in for `lock run`: runs the command without any lock.
fn program(dir: &Path, script: &str) -> std::path::PathBuf {
    let file = dir.join("lock");
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    file
}

const RUNS_THE_COMMAND: &str = r#"while [ "$1" != -- ]; do shift; done; shift; exec "$@""#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_comparison_writes_its_report_in_every_form() {
    let dir = TempDir::new().unwrap();
    let mut options = compare::Options::new(dir.path().join("new/report"), "no-such-program");
    options.topologies = vec![Topology::Memory, Topology::Redis];
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
async fn a_holder_holds_until_it_is_killed_and_its_command_ends_with_it() {
    let dir = TempDir::new().unwrap();
    let marker = dir.path().join("command");
    let script = format!("echo $$ > {}; {RUNS_THE_COMMAND}", marker.display());
    let holder = Holder::start(&program(dir.path(), &script), "redis://unused", "name").await.unwrap();
    let pid = fs::read_to_string(&marker).unwrap().trim().to_string();
    assert!(Path::new("/proc").join(&pid).exists());
    holder.kill().await.unwrap();
    let gone = async {
        while Path::new("/proc").join(&pid).exists() {
            Clock::boot().sleep(Duration::from_millis(5)).await;
        }
    };
    Clock::boot().timeout(Duration::from_secs(30), gone).await.expect("the holder has ended");
}

#[tokio::test]
async fn a_holder_that_gets_no_lock_is_an_error_with_its_own_words() {
    let dir = TempDir::new().unwrap();
    let refuses = program(dir.path(), "echo 'somebody else has it' >&2; exit 75");
    let error = Holder::start(&refuses, "redis://unused", "name").await.unwrap_err().to_string();
    assert!(error.contains("75") && error.contains("somebody else has it"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_demonstration_grants_every_contender_once() {
    let mut options = demo::Options::default();
    options.nodes = 6;
    options.hold = Duration::from_millis(5);
    for topology in [Topology::Memory, Topology::ZooKeeper1, Topology::Redis] {
        let deployment = topology.start().await.unwrap();
        options.url = Some(deployment.url());
        let results = demo::run(&options).await.unwrap();
        let [(_, Outcome::Measured(summary))] = &*results else { panic!("one backend: {results:?}") };
        assert_eq!((summary.grants, summary.tokens_rise), (6, true), "{topology}");
        assert!(summary.fifo || topology == Topology::Redis, "{topology}");
    }
}

#[tokio::test]
async fn the_demonstration_says_which_backend_it_cannot_reach() {
    let mut options = demo::Options::default();
    options.url = Some("redis://127.0.0.1:1".into());
    let error = demo::run(&options).await.unwrap_err();
    assert!(error.to_string().contains("connecting"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_share_a_lock_as_promised() {
    let mut options = readwrite::Options::default();
    options.topologies = vec![Topology::Memory, Topology::ZooKeeper1, Topology::Redis];
    // It fails when a promise is broken, and when the run was such that it could not have shown: on a busy machine it takes
    // longer until it could.
    const LONGEST: u64 = 32;
    for seconds in [2, 8, LONGEST] {
        options.time = Duration::from_secs(seconds);
        let outcomes = readwrite::run(&options).await;
        if seconds < LONGEST && matches!(&outcomes, Err(error) if error.to_string().contains("could not have failed")) {
            continue;
        }
        for (backend, outcome) in outcomes.unwrap() {
            assert!(outcome.measured().is_some_and(|summary| summary.reads > 0), "{backend}: {outcome:?}");
        }
        return;
    }
}
