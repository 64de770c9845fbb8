//! The servers of the laboratory: real, controllable, and never left behind.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use lock_core::Clock;
use lock_lab::servers::{Redis, RedisNodes, RedisOptions, ZooKeeper};

/// Generous: it only ends a test that has failed.
const LIMIT: Duration = Duration::from_secs(60);

async fn set(server: &Redis, value: &str) {
    let mut connection = server.connection().await.unwrap();
    redis::cmd("SET").arg("key").arg(value).exec_async(&mut connection).await.unwrap();
}

async fn get(server: &Redis) -> Option<String> {
    let mut connection = server.connection().await.unwrap();
    redis::cmd("GET").arg("key").query_async(&mut connection).await.unwrap()
}

#[tokio::test]
async fn the_answering_redis_is_the_one_that_was_started() {
    let server = Redis::start().await.unwrap();
    assert_eq!(server.info("server").await.unwrap()["process_id"], server.pid().unwrap().to_string());
    assert!(server.port() < 32_768);
    assert!(server.version().await.unwrap().contains('.'));
}

#[tokio::test]
async fn a_redis_in_memory_forgets_in_a_restart_and_a_durable_one_does_not() {
    let mut volatile = Redis::start().await.unwrap();
    let mut durable = Redis::start_durable().await.unwrap();
    for server in [&mut volatile, &mut durable] {
        let (port, pid) = (server.port(), server.pid());
        set(server, "kept").await;
        server.restart().await.unwrap();
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
    }
    assert_eq!(get(&volatile).await, None);
    assert_eq!(get(&durable).await.as_deref(), Some("kept"));
    durable.restart_empty().await.unwrap();
    assert_eq!(get(&durable).await, None);
}

#[tokio::test]
async fn a_killed_redis_refuses_connections() {
    let mut server = Redis::start().await.unwrap();
    server.kill();
    assert!(server.connection().await.is_err());
    assert_eq!(server.pid(), None);
}

#[tokio::test]
async fn a_stopped_redis_answers_when_it_goes_on() {
    let server = Redis::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    server.stop().unwrap();
    let mut ping = Box::pin(async move { redis::cmd("PING").query_async::<String>(&mut connection).await });
    assert!(Clock::boot().timeout(Duration::from_millis(100), &mut ping).await.is_none());
    server.cont().unwrap();
    assert_eq!(ping.await.unwrap(), "PONG");
}

#[tokio::test]
async fn redis_nodes_know_nothing_of_each_other() {
    let mut nodes = RedisNodes::start(3).await.unwrap();
    set(&nodes.nodes()[0], "only here").await;
    assert_eq!(get(&nodes.nodes()[1]).await, None);
    nodes.nodes_mut()[0].restart().await.unwrap();
    assert_eq!(get(&nodes.nodes()[0]).await, None);
    assert_eq!(nodes.url().matches(',').count(), 2);
}

#[tokio::test]
async fn scripts_are_counted_as_one_request_each() {
    let server = Redis::start().await.unwrap();
    let mut connection = server.connection().await.unwrap();
    let before = server.commands().await.unwrap();
    for _ in 0..5 {
        let script = "return redis.call('SET', 'a', '1')";
        redis::cmd("EVAL").arg(script).arg(0).exec_async(&mut connection).await.unwrap();
    }
    assert_eq!(server.commands().await.unwrap() - before, 5);
}

#[tokio::test]
async fn a_single_zookeeper_leads_itself_and_counts_packets() {
    let mut server = ZooKeeper::start(1).await.unwrap();
    assert_eq!(server.leader().await, Some(0));
    assert!(server.version().await.unwrap().contains('.'));
    let pid = server.pid(0).unwrap();
    server.packets().await.unwrap();
    server.restart(0).await.unwrap();
    assert_ne!(server.pid(0).unwrap(), pid);
    server.restart_empty(0).await.unwrap();
    server.kill(0);
    assert_eq!(server.leader().await, None);
}

#[tokio::test]
async fn an_ensemble_elects_another_leader_when_its_leader_is_killed_or_frozen() {
    let mut ensemble = ZooKeeper::start(3).await.unwrap();
    let first = ensemble.leader().await.unwrap();
    ensemble.kill(first);
    let second = another_leader(&ensemble, first).await;
    ensemble.restart(first).await.unwrap();
    ensemble.stop(second).unwrap();
    let third = another_leader(&ensemble, second).await;
    assert_ne!(third, second);
    ensemble.cont(second).unwrap();
}

async fn another_leader(ensemble: &ZooKeeper, than: usize) -> usize {
    let clock = Clock::boot();
    let search = async {
        loop {
            match ensemble.leader().await {
                Some(leader) if leader != than => return leader,
                _ => clock.sleep(Duration::from_millis(10)).await,
            }
        }
    };
    clock.timeout(LIMIT, search).await.expect("a new leader")
}

#[tokio::test]
async fn a_server_outlives_the_thread_that_started_it() {
    let start = || tokio::runtime::Runtime::new().unwrap().block_on(Redis::start()).unwrap();
    let server = std::thread::spawn(start).join().unwrap();
    set(&server, "still there").await;
    assert_eq!(get(&server).await.as_deref(), Some("still there"));
}

/// In the child: starts servers, says which, then ends as it is told.
async fn be_the_child(ending: &str) {
    let redis = Redis::start().await.unwrap();
    let zookeeper = ZooKeeper::start(1).await.unwrap();
    println!("\nservers {} {}", redis.pid().unwrap(), zookeeper.pid(0).unwrap());
    match ending {
        "panic" => panic!("as told"),
        "exit" => std::process::exit(0),
        _ => std::future::pending().await,
    }
}

/// Starts this very test in a second process that becomes the child.
fn child(test: &str, ending: &str) -> (Child, Vec<String>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env("LOCK_LAB_CHILD", ending)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let said = lines.find_map(|line| line.strip_prefix("servers ").map(String::from)).expect("the child's servers");
    let pids: Vec<String> = said.split(' ').map(String::from).collect();
    (child, pids)
}

fn runs(pid: &str) -> bool {
    // A zombie has ended; whether somebody waits for it is not our business.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

async fn nothing_is_left(pids: &[String], dirs: &[std::path::PathBuf]) {
    let clock = Clock::boot();
    let gone = async {
        while pids.iter().any(|pid| runs(pid)) || dirs.iter().any(|dir| dir.exists()) {
            clock.sleep(Duration::from_millis(5)).await;
        }
    };
    clock.timeout(LIMIT, gone).await.expect("servers and directories outlived their program");
}

/// Where the servers work; unknown for one that has ended already.
fn directories(pids: &[String]) -> Vec<std::path::PathBuf> {
    pids.iter().filter_map(|pid| fs::read_link(Path::new("/proc").join(pid).join("cwd")).ok()).collect()
}

#[tokio::test]
async fn servers_end_with_a_program_that_is_killed() {
    if let Ok(ending) = std::env::var("LOCK_LAB_CHILD") {
        return be_the_child(&ending).await;
    }
    let (mut child, pids) = child("servers::servers_end_with_a_program_that_is_killed", "wait");
    let dirs = directories(&pids);
    assert_eq!((dirs.len(), pids.iter().all(|pid| runs(pid))), (2, true));
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&pids, &dirs).await;
}

#[tokio::test]
async fn servers_end_with_a_program_that_panics() {
    if let Ok(ending) = std::env::var("LOCK_LAB_CHILD") {
        return be_the_child(&ending).await;
    }
    let (mut child, pids) = child("servers::servers_end_with_a_program_that_panics", "panic");
    let dirs = directories(&pids);
    assert!(!child.wait().unwrap().success());
    nothing_is_left(&pids, &dirs).await;
}

#[tokio::test]
async fn servers_end_with_a_program_that_exits_without_unwinding() {
    if let Ok(ending) = std::env::var("LOCK_LAB_CHILD") {
        return be_the_child(&ending).await;
    }
    let (mut child, pids) = child("servers::servers_end_with_a_program_that_exits_without_unwinding", "exit");
    let dirs = directories(&pids);
    child.wait().unwrap();
    nothing_is_left(&pids, &dirs).await;
}

#[tokio::test]
async fn a_jump_of_the_wall_clock_counts_at_once_and_only_on_that_server() {
    let options = RedisOptions::default().with_own_clock(true);
    let (server, other) = (Redis::start_as_told(options).await.unwrap(), Redis::start_as_told(options).await.unwrap());
    for one in [&server, &other] {
        () = one.ask("SET", &["key", "value", "PX", "60000"]).await.unwrap();
    }
    server.set_clock_ahead(Duration::from_secs(30)).unwrap();
    let left: [i64; 2] = [server.ask("PTTL", &["key"]).await.unwrap(), other.ask("PTTL", &["key"]).await.unwrap()];
    assert!(left[0] <= 30_000 && left[1] > 30_000, "{left:?}");
    server.set_clock_ahead(Duration::ZERO).unwrap();
    assert!(server.ask::<i64>("PTTL", &["key"]).await.unwrap() > 30_000);
    let usual = Redis::start().await.unwrap();
    assert!(usual.set_clock_ahead(Duration::ZERO).unwrap_err().to_string().contains("machine's clock"));
}

#[tokio::test]
async fn a_wall_clock_that_was_stopped_stands_where_it_was_put() {
    let server = Redis::start_as_told(RedisOptions::default().with_own_clock(true)).await.unwrap();
    () = server.ask("SET", &["key", "value", "PX", "60000"]).await.unwrap();
    let time = Duration::from_micros(4_000_000_000_123_456);
    server.stop_clock_at(time).unwrap();
    for _ in 0..2 {
        let (seconds, micros): (u64, u64) = server.ask("TIME", &[]).await.unwrap();
        assert_eq!(Duration::from_micros(seconds * 1_000_000 + micros), time);
    }
    assert_eq!(server.ask::<i64>("PTTL", &["key"]).await.unwrap(), -2);
    server.stop_clock_at(Duration::ZERO).unwrap();
    let (seconds, _): (u64, u64) = server.ask("TIME", &[]).await.unwrap();
    assert!(seconds < time.as_secs(), "it runs again");
}
