//! The strategy `plain` beside other libraries on the same key, each in a process of its own: redis-py's `Lock`, node's `redlock`
//! on one server, and `rslock`.

use std::{env, path::Path, process::Stdio, time::Duration};

use crate::common::{LIMIT, Server, connect, server, soon};
use lock_core::{Clock, Locks};
use lock_redis::Strategy;
use redis::{AsyncCommands, AsyncConnectionConfig, aio::MultiplexedConnection};
use rslock::LockManager;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

/// How often each of two increments a counter.
const TIMES: u64 = 100;

/// The key of the lock, and its name.
const KEY: &str = "orders";

/// Debian's, which has Debian's redis-py.
const PYTHON: &str = "/usr/bin/python3";

/// Tells the test of `rslock` that it is the other process, and where the server is.
const CHILD: &str = "LOCK_REDIS_CHILD";

const RSLOCK: [&str; 2] =
    ["two_hundred_alternating_increments_with_rslock_lose_none", "rslock_and_this_library_keep_each_other_out"];

/// Increments the counter in turns, by redis-py's lock. Each who has the lock gives the turn away and keeps the lock for a moment,
/// into which the next one would come if the lock did not keep it out.
const COUNT_BY_REDIS_PY: &str = "
import redis, sys, time
r = redis.Redis(port=int(sys.argv[1]))
for _ in range(int(sys.argv[3])):
    r.blpop('turn:other')
    with r.lock(sys.argv[2], timeout=30, sleep=0.001):
        r.rpush('turn:ours', 1)
        count = int(r.get('count') or 0)
        time.sleep(0.002)
        r.set('count', count + 1)
";

/// Says whether it can take the lock, and keeps it until a line comes.
const HOLD_BY_REDIS_PY: &str = "
import redis, sys
lock = redis.Redis(port=int(sys.argv[1])).lock(sys.argv[2], timeout=30)
held = lock.acquire(blocking=False)
print('held' if held else 'refused', flush=True)
sys.stdin.readline()
if held:
    lock.release()
";

const COUNT_BY_REDLOCK: &str = "
const [port, key, times] = process.argv.slice(1)
const redis = new (require('ioredis'))(Number(port))
const redlock = new (require('redlock'))([redis], { retryCount: -1, retryDelay: 1, retryJitter: 1 })
const pause = ms => new Promise(done => setTimeout(done, ms))
async function count() {
    for (let time = 0; time < Number(times); time++) {
        await redis.blpop('turn:other', 0)
        const lock = await redlock.lock(key, 30000)
        await redis.rpush('turn:ours', 1)
        const count = Number(await redis.get('count'))
        await pause(2)
        await redis.set('count', count + 1)
        await lock.unlock()
    }
}
count().then(() => redis.disconnect(), error => { console.error(error); process.exit(1) })
";

const HOLD_BY_REDLOCK: &str = "
const [port, key] = process.argv.slice(1)
const redis = new (require('ioredis'))(Number(port))
const redlock = new (require('redlock'))([redis], { retryCount: 0 })
async function hold() {
    const lock = await redlock.lock(key, 30000).catch(error => {
        if (error.name !== 'LockError') throw error
    })
    console.log(lock ? 'held' : 'refused')
    await new Promise(done => process.stdin.once('data', done).once('end', done))
    if (lock) await lock.unlock()
}
hold().then(() => process.exit(0), error => { console.error(error); process.exit(1) })
";

/// What another library is told to do.
#[derive(Clone, Copy)]
enum Task {
    /// Increment the counter in turns.
    Count,
    /// Say whether it can take the lock, and keep it until a line comes.
    Hold,
}

/// A process that locks by another library.
#[derive(Clone, Copy)]
enum Other {
    RedisPy,
    Redlock,
    Rslock,
}

impl Other {
    fn start(self, task: Task, server: &Server) -> Child {
        let mut command = self.command(task, server.redis.port());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().expect("python3 and node are installed: cargo xtask setup")
    }

    fn command(self, task: Task, port: u16) -> Command {
        let (port, times) = (port.to_string(), TIMES.to_string());
        let (program, option, script) = match (self, task) {
            (Self::RedisPy, Task::Count) => (PYTHON, "-c", COUNT_BY_REDIS_PY),
            (Self::RedisPy, Task::Hold) => (PYTHON, "-c", HOLD_BY_REDIS_PY),
            (Self::Redlock, Task::Count) => ("node", "-e", COUNT_BY_REDLOCK),
            (Self::Redlock, Task::Hold) => ("node", "-e", HOLD_BY_REDLOCK),
            (Self::Rslock, task) => {
                let mut command = Command::new(env::current_exe().unwrap());
                let test = format!("other_libraries::{}", RSLOCK[task as usize]);
                command.args(["--exact", &test, "--nocapture"]).env(CHILD, port);
                return command;
            }
        };
        let mut command = Command::new(program);
        // There npm has installed its packages.
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/node"));
        command.args([option, script, &port, KEY, &times]);
        command
    }
}

/// Waits until the process says whether it holds the lock.
async fn holds(other: &mut Child) -> bool {
    let mut lines = BufReader::new(other.stdout.as_mut().unwrap()).lines();
    loop {
        match soon(lines.next_line()).await.unwrap().as_deref() {
            Some("held") => return true,
            Some("refused") => return false,
            // The test harness talks, too.
            Some(_) => {}
            None => {
                let mut error = String::new();
                other.stderr.take().unwrap().read_to_string(&mut error).await.unwrap();
                panic!("{error}");
            }
        }
    }
}

/// Has it go on, and waits for its end.
async fn end(mut other: Child) {
    if let Some(mut stdin) = other.stdin.take() {
        // What counts may have ended already.
        let _ = stdin.write_all(b"\n").await;
    }
    let ended = soon(other.wait_with_output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

async fn ours(server: &Server) -> Locks {
    let look_again = Duration::from_millis(10);
    connect(server.patient().with_prefix("").with_strategy(Strategy::Plain { look_again })).await
}

/// A connection on which one waits for its turn for as long as that takes.
async fn counting(port: u16) -> MultiplexedConnection {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).unwrap();
    let patient = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    client.get_multiplexed_async_connection_with_config(&patient).await.unwrap()
}

/// Resolves when whoever was before has the lock and has given the turn to `who`.
async fn turn(connection: &mut MultiplexedConnection, who: &str) {
    let _: (String, u32) = soon(connection.blpop(format!("turn:{who}"), 0.0)).await.unwrap();
}

/// What is done under the lock: a second holder would read the same count.
async fn increment(connection: &mut MultiplexedConnection, next: &str) {
    () = connection.rpush(format!("turn:{next}"), 1).await.unwrap();
    let count: Option<u64> = connection.get("count").await.unwrap();
    // The moment into which the next one would come; nothing waits for it.
    Clock::boot().sleep(Duration::from_millis(2)).await;
    () = connection.set("count", count.unwrap_or_default() + 1).await.unwrap();
}

/// In the other process.
async fn be_the_child(task: Task, port: u16) {
    let url = format!("redis://127.0.0.1:{port}/");
    let mut manager = LockManager::new(vec![url.as_str()]);
    let (key, ttl) = (KEY.as_bytes(), Duration::from_secs(30));
    if matches!(task, Task::Hold) {
        // It counts tries. Some may find no answer within its half of a second, on a machine that stands still.
        manager.set_retry(10, Duration::from_millis(100));
        let lock = manager.lock(key, ttl).await;
        println!("\n{}", if lock.is_ok() { "held" } else { "refused" });
        let mut line = String::new();
        BufReader::new(tokio::io::stdin()).read_line(&mut line).await.unwrap();
        if let Ok(lock) = lock {
            manager.unlock(&lock).await;
        }
        return;
    }
    manager.set_retry(u32::MAX, Duration::from_millis(2));
    let mut connection = counting(port).await;
    for _ in 0..TIMES {
        turn(&mut connection, "other").await;
        let lock = manager.lock(key, ttl).await.unwrap();
        increment(&mut connection, "ours").await;
        manager.unlock(&lock).await;
    }
}

/// A counter that this library and another one increment in turns.
async fn assert_none_is_lost(other: Other) {
    let mut server = server().await;
    server.ask::<()>(&["RPUSH", "turn:ours", "1"]).await;
    let other = other.start(Task::Count, &server);
    let locks = ours(&server).await;
    let mut connection = counting(server.redis.port()).await;
    for _ in 0..TIMES {
        turn(&mut connection, "ours").await;
        let guard = soon(locks.mutex(KEY).lock()).await.unwrap();
        increment(&mut connection, "other").await;
        guard.release().await.unwrap();
    }
    end(other).await;
    assert_eq!(server.ask::<u64>(&["GET", "count"]).await, 2 * TIMES);
}

async fn assert_exclusion(other: Other) {
    let server = server().await;
    let locks = ours(&server).await;
    let mut holder = other.start(Task::Hold, &server);
    assert!(holds(&mut holder).await);
    assert!(locks.mutex(KEY).try_lock().await.unwrap().is_none());
    let shown = locks.inspect(KEY).await.unwrap();
    let [held] = shown.holders.as_slice() else { panic!("{shown:?}") };
    assert_eq!(held.token, None, "a holder of another library");
    assert!(held.remaining.unwrap() <= Duration::from_secs(30));
    let mutex = locks.mutex(KEY);
    let waiting = tokio::spawn(async move { mutex.timeout(LIMIT).lock().await });
    end(holder).await;
    let guard = soon(waiting).await.unwrap().unwrap();
    let mut refused = other.start(Task::Hold, &server);
    assert!(!holds(&mut refused).await);
    end(refused).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
    let mut next = other.start(Task::Hold, &server);
    assert!(holds(&mut next).await);
    end(next).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_redis_py_lose_none() {
    assert_none_is_lost(Other::RedisPy).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_redlock_of_node_lose_none() {
    assert_none_is_lost(Other::Redlock).await;
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_rslock_lose_none() {
    match env::var(CHILD) {
        Ok(port) => be_the_child(Task::Count, port.parse().unwrap()).await,
        Err(_) => assert_none_is_lost(Other::Rslock).await,
    }
}

#[tokio::test]
async fn redis_py_and_this_library_keep_each_other_out() {
    assert_exclusion(Other::RedisPy).await;
}

#[tokio::test]
async fn redlock_of_node_and_this_library_keep_each_other_out() {
    assert_exclusion(Other::Redlock).await;
}

#[tokio::test]
async fn rslock_and_this_library_keep_each_other_out() {
    match env::var(CHILD) {
        Ok(port) => be_the_child(Task::Hold, port.parse().unwrap()).await,
        Err(_) => assert_exclusion(Other::Rslock).await,
    }
}
