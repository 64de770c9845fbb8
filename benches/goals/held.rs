//! Ten thousand held locks of one client: what their renewal takes of its processor, and they of its memory.
//!
//! The client is a program of its own, this one again, so that memory that others have used before is not taken for free.

use std::{env, fs, time::Duration};

use comfy_table::Table;
use futures::{StreamExt, stream};
use lock_core::{Clock, Guard};
use lock_lab::servers::{Redis, connect_to_redis};
use redis::Script;
use rustix::time::{ClockId, clock_gettime};
use tokio::process::Command;

use crate::{
    contestants::patient,
    goal::{Figure, Goal, median, rounds},
};

/// The argument that makes this program the client.
pub(crate) const ARGUMENT: &str = "--hold";

const LOCKS: usize = 10_000;
const TTL: Duration = Duration::from_secs(30);
/// A renewal comes round this often in a ttl.
const RENEWALS_PER_TTL: u32 = 3;
/// How many acquisitions are under way at once.
const AT_ONCE: usize = 64;
/// How many renewals go out at once.
const BATCH: usize = 256;
const CLOSE_LIMIT: Duration = Duration::from_secs(10);

/// What a client measured of itself.
#[derive(Debug, Clone, Copy)]
struct Load {
    /// What it took of a processor while it renewed, in per cent.
    percent: f64,
    /// What the same renewals took as bare requests.
    bare: f64,
    /// Memory for each lock.
    kibibytes: f64,
}

/// The figures of held locks on Redis.
pub(crate) async fn on_redis(is_test: bool) -> Vec<Figure> {
    let server = Redis::start().await.expect("redis-server starts");
    let (locks, ttl) = if is_test { (100, TTL / 5) } else { (LOCKS, TTL) };
    let mut loads = Vec::new();
    for _ in 0..rounds(is_test) {
        loads.push(client(&server.url(), locks, ttl).await);
    }
    let of = |figure: fn(&Load) -> f64| loads.iter().map(figure).collect::<Vec<_>>();
    let [percent, bare, kibibytes] = [of(|load| load.percent), of(|load| load.bare), of(|load| load.kibibytes)];
    let mut table = Table::new();
    table.set_header(["", "% of a processor", "KiB for each lock"]);
    table.add_row(["ours", &format!("{:.2}", median(&percent)), &format!("{:.2}", median(&kibibytes))]);
    table.add_row(["the same renewals as bare requests", &format!("{:.2}", median(&bare)), ""]);
    println!("Redis: a client that holds {locks} locks with a ttl of {ttl:?}\n{table}\n");
    vec![
        Figure::new(format!("Redis: {locks} held locks, % of a processor"), percent, 2, Goal::AtMost(1.1)),
        Figure::new(format!("Redis: {locks} held locks, KiB for each"), kibibytes, 2, Goal::AtMost(1.8)),
    ]
}

/// Starts a client that holds so many locks, and reads what it measured.
async fn client(url: &str, locks: usize, ttl: Duration) -> Load {
    let mut program = Command::new(env::current_exe().expect("this program has a path"));
    program.args([ARGUMENT, url, &locks.to_string(), &ttl.as_millis().to_string()]);
    let output = program.kill_on_drop(true).output().await.expect("this program starts again");
    let text = String::from_utf8(output.stdout).expect("it prints figures");
    let figures: Vec<f64> = text.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    let [percent, bare, kibibytes] = figures[..] else {
        panic!("{} printed {text:?} and {}", output.status, String::from_utf8_lossy(&output.stderr));
    };
    Load { percent, bare, kibibytes }
}

/// What this program does as the client: holds locks, renews them for as long as a renewal comes round once, and prints what it
/// measured.
pub(crate) async fn hold(arguments: Vec<String>) {
    let [url, locks, ttl] = &arguments[..] else { panic!("a URL, how many locks, and their ttl: {arguments:?}") };
    let count: usize = locks.parse().expect("a number of locks");
    let ttl = Duration::from_millis(ttl.parse().expect("a number of milliseconds"));
    let every = ttl / RENEWALS_PER_TTL;
    let locks =
        lock::connect(&patient(&format!("{url}?ttl={}ms", ttl.as_millis()))).await.expect("the server is there");
    let acquire = |name: String| {
        let locks = locks.clone();
        async move { locks.mutex(name).lock().await.expect("nobody else takes it") }
    };
    // By then the connection is there, and the scripts are loaded.
    acquire("first".to_owned()).await.release().await.expect("it is held");

    let before = resident();
    let acquisitions = stream::iter(0..count).map(|number| acquire(format!("held/{number}")));
    let guards: Vec<Guard> = acquisitions.buffer_unordered(AT_ONCE).collect().await;
    let kibibytes = (resident() - before) / count as f64;

    let begin = worked();
    Clock::boot().sleep(every).await;
    let percent = (worked() - begin).as_secs_f64() / every.as_secs_f64() * 100.0;
    assert!(guards.iter().all(Guard::is_valid), "all were renewed");
    drop(guards);
    locks.close(CLOSE_LIMIT).await.expect("all are released");

    let bare = bare(url, count, ttl).await.as_secs_f64() / every.as_secs_f64() * 100.0;
    println!("{percent} {bare} {kibibytes}");
}

/// What so many renewals take of a processor as requests by the client crate and nothing else.
async fn bare(url: &str, count: usize, ttl: Duration) -> Duration {
    let mut connection = connect_to_redis(url).await.expect("the server is there");
    let renew = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end",
    );
    renew.prepare_invoke().load_async(&mut connection).await.expect("the server is there");
    let value = "0123456789abcdef0123456789abcdef";
    let names: Vec<String> = (0..count).map(|number| format!("{{bare:held/{number}}}")).collect();
    let mut taken = Duration::ZERO;
    for names in names.chunks(BATCH) {
        let mut set = redis::pipe();
        names.iter().for_each(|name| {
            set.cmd("SET").arg(name).arg(value).arg("PX").arg(60_000).ignore();
        });
        set.exec_async(&mut connection).await.expect("the server is there");
        let begin = worked();
        let mut batch = redis::pipe();
        names.iter().for_each(|name| {
            let ttl = ttl.as_millis().to_string();
            batch.cmd("EVALSHA").arg(renew.get_hash()).arg(1).arg(name).arg(value).arg(ttl);
        });
        let renewed: Vec<u32> = batch.query_async(&mut connection).await.expect("the server is there");
        taken += worked() - begin;
        assert!(renewed.iter().all(|&renewed| renewed == 1), "all are there");
    }
    taken
}

/// How long the threads of this program have worked so far.
fn worked() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("it has worked")
}

/// How many KiB of this program are in memory.
fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux shows a program its own state");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|kibibytes| kibibytes.trim().strip_suffix(" kB")?.parse().ok()).expect("a program is in memory")
}
