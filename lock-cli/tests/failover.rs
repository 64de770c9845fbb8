//! `lock failover` on real servers.

mod common;

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::common::{Output, Running, finish, lock, within};

async fn failover(arguments: &[&str], out: &Path) -> Output {
    let out = out.to_str().expect("a path in UTF-8");
    // The backend of the environment is not asked for: it starts servers of its own.
    finish(lock("memory://unused", &["failover", "--out", out]).args(arguments)).await
}

/// The processes that this one started and that run: servers and workers.
fn children(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    children.flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

#[tokio::test]
async fn one_fault_on_one_arrangement_makes_a_whole_report() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().join("new/report");
    let output = failover(&["--backend", "redis", "--fault", "server-restarted-empty"], &out).await;
    assert_eq!(output.status, Some(0), "{output:?}");
    assert_eq!(
        output.stdout.lines().next_back().unwrap(),
        format!("{}: index.html, report.md, report.json", out.display())
    );

    let report: serde_json::Value = serde_json::from_slice(&fs::read(out.join("report.json")).unwrap()).unwrap();
    let run = &report["runs"][0];
    assert_eq!((run["backend"].as_str(), run["fault"].as_str()), (Some("redis"), Some("server-restarted-empty")));
    assert!(run["outcome"]["measured"]["before_per_second"].as_f64().unwrap() >= 50.0, "{run}");

    let page = fs::read_to_string(out.join("index.html")).unwrap();
    assert_eq!(page.matches("<svg class=\"run\"").count(), 1);
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
        assert_eq!(refused.status, Some(64), "{refused:?}");
        assert!(refused.stderr.contains(wrong) && refused.stderr.contains(known), "{refused:?}");
    }
}

#[tokio::test]
async fn what_does_not_apply_is_refused_with_the_reason() {
    let dir = TempDir::new().unwrap();
    let refused = failover(&["--backend", "zk3", "--fault", "script-flush"], dir.path()).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(64), ""), "{refused:?}");
    assert!(refused.stderr.contains("does not apply to zk3: "), "{refused:?}");
}

#[tokio::test]
async fn a_report_that_cannot_be_written_is_found_before_the_first_run() {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = failover(&["--backend", "redis", "--fault", "holder-killed"], &file).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(71), ""), "{refused:?}");
    assert!(refused.stderr.contains(file.to_str().unwrap()), "{refused:?}");
}

#[tokio::test]
async fn an_interrupted_matrix_ends_its_servers_and_writes_what_is_finished() {
    let dir = TempDir::new().unwrap();
    let out = dir.path().to_str().unwrap();
    let mut running = Running::spawn(&mut lock("memory://unused", &["failover", "--backend", "redis", "--out", out]));
    let first = running.line().await.expect("a line for the first run");
    // Between two runs there may be none for a moment.
    let children = within(async {
        loop {
            match children(running.pid()) {
                none if none.is_empty() => tokio::task::yield_now().await,
                some => break some,
            }
        }
    });
    let children = children.await;
    running.signal("INT");
    running.all_end().await;
    assert_eq!(running.end().await.code(), Some(130));
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
