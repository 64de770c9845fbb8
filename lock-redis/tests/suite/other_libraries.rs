//! The strategy `plain` beside another library's lock on the same key: redis-py's `Lock`.

use std::{process::Stdio, time::Duration};

use crate::common::{Server, connect, server, soon};
use lock_core::{Clock, Locks};
use lock_redis::Strategy;
use redis::{AsyncCommands, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, Command},
};

/// How often each of two increments a counter.
const TIMES: u64 = 100;

/// The key of the lock, and its name.
const KEY: &str = "orders";

/// Debian's, which has Debian's redis-py.
const PYTHON: &str = "/usr/bin/python3";

/// Increments the counter in turns, by redis-py's lock.
const COUNT: &str = "
import redis, sys, time
r = redis.Redis(port=int(sys.argv[1]))
for _ in range(int(sys.argv[3])):
    while r.get('last') != b'ours':
        time.sleep(0.0005)
    with r.lock(sys.argv[2], timeout=30, sleep=0.001):
        r.set('last', 'other')
        count = int(r.get('count') or 0)
        time.sleep(0.002)
        r.set('count', count + 1)
";

/// Says whether it can take the lock, and keeps it until a line comes.
const HOLD: &str = "
import redis, sys
lock = redis.Redis(port=int(sys.argv[1])).lock(sys.argv[2], timeout=30)
held = lock.acquire(blocking=False)
print('held' if held else 'refused', flush=True)
sys.stdin.readline()
if held:
    lock.release()
";

fn python(script: &str, server: &Server, times: u64) -> Child {
    let mut python = Command::new(PYTHON);
    python.args(["-c", script, &server.redis.port().to_string(), KEY, &times.to_string()]);
    python.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    python.spawn().expect("python3 is installed")
}

/// The word that the script says first.
async fn says(python: &mut Child) -> String {
    let mut line = String::new();
    soon(BufReader::new(python.stdout.take().unwrap()).read_line(&mut line)).await.unwrap();
    line.trim().to_owned()
}

async fn end(python: Child) {
    let ended = soon(python.wait_with_output()).await.unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

async fn ours(server: &Server) -> Locks {
    let look_again = Duration::from_millis(10);
    connect(server.patient().with_prefix("").with_strategy(Strategy::Plain { look_again })).await
}

/// Resolves when the other one has been in. It holds the lock then, most of the time.
async fn turn(connection: &mut MultiplexedConnection, after: &str) {
    soon(async {
        while connection.get::<_, Option<String>>("last").await.unwrap().as_deref() != Some(after) {
            Clock::boot().sleep(Duration::from_micros(500)).await;
        }
    })
    .await;
}

/// What is done under the lock: a second holder would read the same count.
async fn increment(connection: &mut MultiplexedConnection, who: &str) {
    () = connection.set("last", who).await.unwrap();
    let count: Option<u64> = connection.get("count").await.unwrap();
    Clock::boot().sleep(Duration::from_millis(2)).await;
    () = connection.set("count", count.unwrap_or_default() + 1).await.unwrap();
}

/// Increments the counter in turns, by a lock of this library.
async fn count(server: &Server) {
    let locks = ours(server).await;
    let mut connection = server.redis.connection().await.unwrap();
    for _ in 0..TIMES {
        turn(&mut connection, "other").await;
        let guard = soon(locks.mutex(KEY).lock()).await.unwrap();
        increment(&mut connection, "ours").await;
        guard.release().await.unwrap();
    }
}

async fn counted(server: &mut Server) -> u64 {
    server.ask(&["GET", "count"]).await
}

#[tokio::test]
async fn two_hundred_alternating_increments_with_redis_py_lose_none() {
    let mut server = server().await;
    server.ask::<()>(&["SET", "last", "other"]).await;
    let python = python(COUNT, &server, TIMES);
    count(&server).await;
    end(python).await;
    assert_eq!(counted(&mut server).await, 2 * TIMES);
}

#[tokio::test]
async fn redis_py_and_this_library_keep_each_other_out() {
    let server = server().await;
    let locks = ours(&server).await;
    let mut holder = python(HOLD, &server, 0);
    assert_eq!(says(&mut holder).await, "held");
    assert!(locks.mutex(KEY).try_lock().await.unwrap().is_none());
    assert_eq!(locks.inspect(KEY).await.unwrap().holders[0].token, None, "a holder of another library");
    let mutex = locks.mutex(KEY);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    holder.stdin.take().unwrap().write_all(b"\n").await.unwrap();
    let guard = soon(waiting).await.unwrap().unwrap();
    end(holder).await;
    let mut holder = python(HOLD, &server, 0);
    assert_eq!(says(&mut holder).await, "refused");
    end(holder).await;
    assert!(guard.is_valid());
    guard.release().await.unwrap();
}
