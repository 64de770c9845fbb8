//! The program `lock-lab` on real servers.

use std::{
    fs,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use lock_core::Clock;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

/// Far above what anything takes, so that a busy machine fails no test.
const LIMIT: Duration = Duration::from_secs(180);

/// The program, with a lock service in its environment that it must not ask: it starts servers of its own.
fn lab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lock-lab"));
    command.env("LOCK_URL", "redis://127.0.0.1:1").args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn output(arguments: &[&str]) -> Output {
    within(lab(arguments).output()).await.expect("the program runs")
}

/// Runs `lock-lab failover` to its end.
async fn failover(arguments: &[&str], out: &Path) -> Output {
    let out = out.to_str().expect("a path in UTF-8");
    output(&[&["failover", "--out", out], arguments].concat()).await
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The result of `future`, which must come.
async fn within<F: Future>(future: F) -> F::Output {
    Clock::boot().timeout(LIMIT, future).await.expect("it happens within the limit")
}

/// The processes that this one started and that run: servers and workers.
fn children(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    children.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn a_demonstration_that_nobody_reads_any_more_ends_quietly() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut demo = lab(&["demo", "--url", "memory://unread", "--hold", "1h"]);
    let demo = demo.stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
    let ended = within(demo.wait_with_output()).await.expect("it can be waited for");
    assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(0), ""));
}

#[tokio::test]
async fn the_log_goes_by_rust_log_and_has_no_colours_in_a_pipe() {
    let mut demo = lab(&["demo", "--url", "memory://log", "--nodes", "2", "--hold", "1ms"]);
    let logged = within(demo.env("RUST_LOG", "lock_core=debug").output()).await.expect("the program runs");
    let said = text(&logged.stderr);
    assert!(said.contains("granted") && !said.contains('\u{1b}'), "{said}");
}

#[tokio::test]
async fn a_comparison_kills_holders_that_are_processes_of_the_same_program() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let output = output(&["compare", "--backend", "redis", "--scale", "0.02", "--out", out]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(dir.path().join("report.json")).unwrap()).unwrap();
    let killed = &report["backends"][0]["holder_killed"]["measured"];
    assert_eq!(killed["next_grant_ms"].as_array().map(Vec::len), Some(1), "{report}");
}

#[tokio::test]
async fn a_demonstration_is_on_the_service_that_it_is_told() {
    let shown = output(&["demo", "--url", "memory://", "--nodes", "3", "--hold", "1ms"]).await;
    assert_eq!((shown.status.code(), text(&shown.stdout).matches("waited").count()), (Some(0), 3), "{shown:?}");
    let refused = output(&["demo", "--url", "nothing://"]).await;
    assert_eq!(refused.status.code(), Some(64), "{refused:?}");
    let unreachable = output(&["demo", "--url", "redis://127.0.0.1:1?outage_timeout=0s"]).await;
    assert_eq!(unreachable.status.code(), Some(69), "{unreachable:?}");
}

#[tokio::test]
async fn what_starts_servers_of_its_own_takes_no_service() {
    for command in [&["compare", "--out", "unused"][..], &["read-write"], &["failover", "--out", "unused"]] {
        let refused = output(&[command, &["--url", "memory://"]].concat()).await;
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(text(&refused.stderr).contains("--url"), "{refused:?}");
    }
}

#[tokio::test]
async fn one_fault_on_one_arrangement_makes_a_whole_report() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("new/report");
    let mut unproved = serde_json::Value::Null;
    let proved = async {
        loop {
            let output = failover(&["--backend", "redis", "--fault", "server-restarted-empty"], &out).await;
            let report = fs::read(out.join("report.json")).expect("a report, whatever came of it");
            let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
            let verdict = &report["runs"][0]["verdict"];
            // On a machine that is too busy for the load that it takes, a run proves nothing, or is given up.
            if verdict.get("proves_nothing").or(verdict.get("failed")).is_none() {
                return (output, report);
            }
            assert_eq!(output.status.code(), Some(69), "{output:?}");
            unproved = verdict.clone();
        }
    };
    let Some((output, report)) = Clock::boot().timeout(LIMIT, proved).await else {
        panic!("no run within {LIMIT:?} proved anything, the last one by: {unproved}")
    };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        text(&output.stdout).lines().next_back().unwrap(),
        format!("{}: index.html, report.md, report.json", out.display())
    );
    let run = &report["runs"][0];
    assert_eq!((run["backend"].as_str(), run["fault"].as_str()), (Some("redis"), Some("server-restarted-empty")));
    assert!(run["outcome"]["measured"]["before_per_second"].as_f64().unwrap() >= 50.0, "{run}");

    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert_eq!(page.matches("<svg role=\"img\"").count(), 1);
    for outside in [" src=", "<link", "<script", "url(", "href=\"http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    let command = "cargo xtask failover --backend redis --fault server-restarted-empty";
    for text in [page, fs::read_to_string(out.join("report.md")).unwrap()] {
        assert!(text.contains(command), "{text}");
    }
}

#[tokio::test]
async fn a_key_that_is_unknown_is_answered_with_those_that_are_known() {
    let dir = TempDir::new().unwrap();
    for (option, wrong, known) in [("--backend", "zk4", "redlock5"), ("--fault", "server-kiled", "server-killed")] {
        let refused = failover(&[option, wrong], dir.path()).await;
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(text(&refused.stderr).contains(wrong) && text(&refused.stderr).contains(known), "{refused:?}");
    }
}

#[tokio::test]
async fn what_does_not_apply_is_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let refused = failover(&["--backend", "zk3", "--fault", "script-flush"], dir.path()).await;
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(64), &[][..]), "{refused:?}");
    assert!(text(&refused.stderr).contains("does not apply to zk3: "), "{refused:?}");
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_found_before_the_first_run() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = failover(&["--backend", "redis", "--fault", "holder-killed"], &file).await;
    assert_eq!((refused.status.code(), &*refused.stdout), (Some(71), &[][..]), "{refused:?}");
    assert!(text(&refused.stderr).contains(file.to_str().unwrap()), "{refused:?}");
}

#[tokio::test]
async fn an_interrupted_matrix_ends_its_servers_and_writes_what_is_finished() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let mut running = lab(&["failover", "--backend", "redis", "--out", out])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = running.id().expect("it runs");
    let mut lines = BufReader::new(running.stdout.take().expect("a pipe")).lines();
    let first = within(lines.next_line()).await.unwrap().expect("a line for the first run");
    // Between two runs there may be none for a moment.
    let children = within(async {
        loop {
            match children(pid) {
                none if none.is_empty() => tokio::task::yield_now().await,
                some => break some,
            }
        }
    });
    let children = children.await;
    assert!(within(Command::new("kill").args(["-INT", &pid.to_string()]).status()).await.unwrap().success());
    assert_eq!(within(running.wait()).await.unwrap().code(), Some(130));
    let gone = || children.iter().all(|child| !Path::new("/proc").join(child).join("exe").exists());
    within(async {
        while !gone() {
            tokio::task::yield_now().await;
        }
    })
    .await;

    let report: serde_json::Value = serde_json::from_slice(&fs::read(dir.path().join("report.json")).unwrap()).unwrap();
    assert_eq!(report["interrupted"], true);
    assert!(!report["runs"].as_array().unwrap().is_empty(), "{first}");
    assert!(fs::read_to_string(dir.path().join("index.html")).unwrap().contains("Interrupted"));
}
