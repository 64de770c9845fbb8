//! The example program `counter`, as eight processes at once.

use std::{fs, path::Path, process::Stdio, time::Duration};

use lock::Clock;
use lock_lab::servers::{Redis, RedisNodes, ZooKeeper};
use tokio::process::{Child, Command};

use crate::example::program;

const PROCESSES: u64 = 8;
const TIMES: u64 = 100;

/// How long all of it may take; some seconds are usual.
const LIMIT: Duration = Duration::from_secs(180);

#[tokio::test]
async fn no_update_is_lost_on_zookeeper() {
    let servers = ZooKeeper::start(1).await.unwrap();
    assert_eq!(counted(Some(&servers.url())).await, PROCESSES * TIMES);
}

#[tokio::test]
async fn no_update_is_lost_on_redis() {
    let server = Redis::start().await.unwrap();
    // The servers answer, if late: the machine is busy, or stands still.
    assert_eq!(counted(Some(&format!("{}?response_timeout=20s", server.url()))).await, PROCESSES * TIMES);
}

#[tokio::test]
async fn no_update_is_lost_on_redlock() {
    let nodes = RedisNodes::start(5).await.unwrap();
    assert_eq!(counted(Some(&format!("{}?node_timeout=20s", nodes.url()))).await, PROCESSES * TIMES);
}

#[tokio::test]
async fn no_update_is_lost_on_local_files() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("local://{}", directory.path().display());
    assert_eq!(counted(Some(&url)).await, PROCESSES * TIMES);
}

/// Without this, the others could not have failed.
#[tokio::test]
async fn without_the_lock_updates_are_lost() {
    let counted = counted(None).await;
    assert!(counted < PROCESSES * TIMES, "{counted} of {}", PROCESSES * TIMES);
}

/// The number in the file after all processes have counted, with the lock service at `url` or without a lock.
async fn counted(url: Option<&str>) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("number");
    fs::write(&file, "0\n").unwrap();
    let processes: Vec<Child> = (0..PROCESSES).map(|_| start(&file, url)).collect();
    for process in processes {
        let ended = Clock::boot().timeout(LIMIT, process.wait_with_output()).await.expect("it ends in time").unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }
    fs::read_to_string(&file).unwrap().trim().parse().unwrap()
}

fn start(file: &Path, url: Option<&str>) -> Child {
    let mut counter = Command::new(program("counter"));
    counter.arg(file).arg(TIMES.to_string()).env_remove("LOCK_CONFIG").stderr(Stdio::piped()).kill_on_drop(true);
    match url {
        Some(url) => counter.env("LOCK_URL", url),
        None => counter.arg("--without-lock"),
    };
    counter.spawn().expect("the example runs")
}
