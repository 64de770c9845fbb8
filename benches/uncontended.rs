//! What an uncontended pair, an acquisition and its release, costs on Redis and on Redlock, beside what others take for it in
//! the same run: the crate `rslock`, a minimal lock (`SET NX PX`, and a script that compares and deletes) on the client crate
//! that ours has, and on one server the floor, two scripts that do no more than a lock with a counter has to.
//!
//! They play in turns, round after round; each figure is the median of the rounds. The goal of a figure stands beside it.
//! `cargo bench --bench uncontended`; with `--test` for one short round.

use std::{collections::BTreeMap, fs, time::Duration};

use comfy_table::Table;
use futures::future::{BoxFuture, join_all};
use lock::Locks;
use lock_core::Clock;
use lock_lab::servers::{Redis, RedisNodes};
use redis::{Script, aio::MultiplexedConnection};
use rslock::LockManager;

const TTL: Duration = Duration::from_secs(30);
const ROUNDS: usize = 5;
const BLOCKS: usize = 60;
/// How many pairs one plays in a row.
const BLOCK: usize = 50;

/// What the figures of ours are to be at most.
struct Goals {
    /// The ratio to `rslock` in time.
    to_rslock: f64,
    /// The ratio to the floor in the server's time, where there is a floor.
    to_floor: Option<f64>,
    commands: f64,
}

/// One that locks and unlocks.
trait Contestant: Send + Sync {
    fn pair(&self) -> BoxFuture<'_, ()>;

    /// Whether it sends `SET` by itself; in a script its time is part of the script's.
    fn sends_set(&self) -> bool {
        false
    }
}

struct Ours(Locks);

impl Contestant for Ours {
    fn pair(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let guard = self.0.mutex("uncontended").lock().await.expect("nobody else takes it");
            guard.release().await.expect("it is held");
        })
    }
}

struct Rslock(LockManager);

impl Contestant for Rslock {
    fn sends_set(&self) -> bool {
        true
    }

    fn pair(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let held = self.0.lock(b"uncontended-rslock", TTL).await.expect("nobody else takes it");
            self.0.unlock(&held).await;
        })
    }
}

const DELETE: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end";

/// A lock on the client crate and nothing else.
struct Minimal {
    connections: Vec<MultiplexedConnection>,
    release: Script,
}

impl Contestant for Minimal {
    fn sends_set(&self) -> bool {
        true
    }

    fn pair(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let acquired = self.connections.iter().map(|connection| async move {
                let mut command = redis::cmd("SET");
                command.arg("uncontended-minimal").arg("value").arg("NX").arg("PX").arg(30_000);
                command.query_async::<Option<String>>(&mut connection.clone()).await.expect("the server is there")
            });
            assert!(join_all(acquired).await.iter().all(Option::is_some), "nobody else takes it");
            let released = self.connections.iter().map(|connection| async {
                let mut release = self.release.key("uncontended-minimal");
                release.arg("value").invoke_async::<u32>(&mut connection.clone()).await.expect("the server is there")
            });
            assert!(join_all(released).await.iter().all(|&deleted| deleted == 1), "it is held");
        })
    }
}

/// The keys and the value of the floor, as long as ours.
const KEY: &str = "{floor:uncontended}";
const COUNTER: &str = "{floor:uncontended}:token";
const VALUE: &str = "0123456789abcdef0123456789abcdef";

/// The two scripts without which no lock with a fencing token gets by.
struct Floor {
    connection: MultiplexedConnection,
    acquire: Script,
    release: Script,
}

impl Contestant for Floor {
    fn pair(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut connection = self.connection.clone();
            let mut acquire = self.acquire.key(KEY);
            let number: u64 = acquire
                .key(COUNTER)
                .arg(VALUE)
                .arg(30_000)
                .invoke_async(&mut connection)
                .await
                .expect("the server is there");
            assert!(number > 0, "nobody else takes it");
            let mut release = self.release.key(KEY);
            let deleted: u32 = release.arg(VALUE).invoke_async(&mut connection).await.expect("the server is there");
            assert_eq!(deleted, 1, "it is held");
        })
    }
}

const TAKE_AND_COUNT: &str = "if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then \
                              return redis.call('INCR', KEYS[2]) else return 0 end";

/// What a pair took in one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The median time of a pair.
    time: Duration,
    /// What the servers worked on it, all together.
    server: Duration,
    /// The commands that the servers ran, those in scripts included.
    commands: f64,
    /// How often a thread of this program gave up its processor to wait.
    waits: f64,
}

/// What a contestant has taken so far in a round.
#[derive(Debug, Default)]
struct Taken {
    times: Vec<Duration>,
    server: f64,
    commands: f64,
    waits: f64,
}

impl Taken {
    /// Adds a block of pairs.
    async fn play(&mut self, contestant: &dyn Contestant, servers: &[Redis], pairs: usize) {
        let sends_set = contestant.sends_set();
        let before = (worked(servers, sends_set).await, waits());
        for _ in 0..pairs {
            let started = Clock::boot().now();
            contestant.pair().await;
            self.times.push(Clock::boot().now().saturating_since(started));
        }
        let after = (waits(), worked(servers, sends_set).await);
        self.server += after.1.0 - before.0.0;
        self.commands += after.1.1 - before.0.1;
        self.waits += after.0 - before.1;
    }

    fn cost(mut self) -> Cost {
        self.times.sort_unstable();
        let pairs = self.times.len() as f64;
        Cost {
            time: self.times[self.times.len() / 2],
            server: Duration::from_secs_f64(self.server / pairs / 1e6),
            commands: self.commands / pairs,
            waits: self.waits / pairs,
        }
    }
}

/// One round: all play in turns, block after block, so that what else happens on the machine meets them alike.
async fn round(contestants: &[(&str, Box<dyn Contestant>)], servers: &[Redis], blocks: usize) -> Vec<Cost> {
    let mut taken: Vec<Taken> = contestants.iter().map(|_| Taken::default()).collect();
    for _ in 0..blocks {
        for (taken, (_, contestant)) in taken.iter_mut().zip(contestants) {
            contestant.pair().await;
            taken.play(contestant.as_ref(), servers, BLOCK).await;
        }
    }
    taken.into_iter().map(Taken::cost).collect()
}

/// How many microseconds the servers have worked on requests about locks, and how many commands they have run.
async fn worked(servers: &[Redis], sends_set: bool) -> (f64, f64) {
    let mut all = (0.0, 0.0);
    for server in servers {
        for (command, figures) in server.info("commandstats").await.expect("the server is there") {
            let figure = |name: &str| -> f64 {
                let value = figures.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
                value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
            };
            match command.trim_start_matches("cmdstat_") {
                "info" | "ping" | "client|setinfo" => continue,
                "eval" | "evalsha" => all.0 += figure("usec"),
                "set" if sends_set => all.0 += figure("usec"),
                _ => {}
            }
            all.1 += figure("calls");
        }
    }
    all
}

/// How often the threads of this program have waited so far, by the kernel's count.
fn waits() -> f64 {
    let threads = fs::read_dir("/proc/self/task").expect("Linux shows a program its threads");
    let statuses = threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok());
    let count = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    statuses.map(count).sum()
}

fn median<T: PartialOrd>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("no figure is missing"));
    let middle = values.len() / 2;
    values.swap_remove(middle)
}

/// Plays all in turns, and prints what each took.
async fn compare(
    title: &str,
    goals: &Goals,
    contestants: &[(&str, Box<dyn Contestant>)],
    servers: &[Redis],
    is_test: bool,
) {
    let (rounds, blocks) = if is_test { (1, 1) } else { (ROUNDS, BLOCKS) };
    let mut costs: BTreeMap<&str, Vec<Cost>> = BTreeMap::new();
    for _ in 0..rounds {
        for ((name, _), cost) in contestants.iter().zip(round(contestants, servers, blocks).await) {
            costs.entry(name).or_default().push(cost);
        }
    }
    let of = |name: &str, figure: fn(&Cost) -> f64| median(costs[name].iter().map(figure).collect());
    let ratio = |to: &str, figure: fn(&Cost) -> f64| {
        median(costs["ours"].iter().zip(&costs[to]).map(|(ours, other)| figure(ours) / figure(other)).collect())
    };
    let time = |cost: &Cost| cost.time.as_secs_f64() * 1e6;
    let server = |cost: &Cost| cost.server.as_secs_f64() * 1e6;
    let mut table = Table::new();
    table.set_header(["per pair", "p50 us", "server us", "commands", "waits of threads"]);
    for (name, _) in contestants {
        let figures = [of(name, time), of(name, server), of(name, |cost| cost.commands), of(name, |cost| cost.waits)];
        table.add_row([(*name).to_owned()].into_iter().chain(figures.map(|figure| format!("{figure:.1}"))));
    }
    println!("{title}: medians of {rounds} rounds of {} pairs\n{table}", blocks * BLOCK);
    let Goals { to_rslock, to_floor, commands } = goals;
    println!("  p50 to rslock {:.2}, goal at most {to_rslock}", ratio("rslock", time));
    println!("  p50 to the minimal lock {:.2}", ratio("minimal", time));
    if let Some(to_floor) = to_floor {
        println!("  server time to the floor {:.2}, goal at most {to_floor}", ratio("floor", server));
    }
    println!("  commands {:.1}, goal at most {commands}\n", of("ours", |cost| cost.commands));
}

async fn on_redis(is_test: bool) {
    let server = Redis::start().await.expect("redis-server starts");
    let ours = lock::connect(&server.url()).await.expect("it was just started");
    let connection = server.connection().await.expect("it was just started");
    let rslock = LockManager::new(vec![format!("redis://127.0.0.1:{}/", server.port())]);
    let minimal = Minimal { connections: vec![connection.clone()], release: Script::new(DELETE) };
    let floor = Floor { connection, acquire: Script::new(TAKE_AND_COUNT), release: Script::new(DELETE) };
    let contestants: [(&str, Box<dyn Contestant>); 4] = [
        ("ours", Box::new(Ours(ours))),
        ("rslock", Box::new(Rslock(rslock))),
        ("minimal", Box::new(minimal)),
        ("floor", Box::new(floor)),
    ];
    let goals = Goals { to_rslock: 1.35, to_floor: Some(2.0), commands: 9.0 };
    compare("Redis", &goals, &contestants, &[server], is_test).await;
}

async fn on_redlock(is_test: bool) {
    let deployment = RedisNodes::start(5).await.expect("redis-server starts");
    let servers = deployment.nodes();
    let ours = lock::connect(&deployment.url()).await.expect("they were just started");
    let addresses: Vec<_> = deployment.ports().into_iter().map(|port| format!("redis://127.0.0.1:{port}/")).collect();
    let connections =
        join_all(servers.iter().map(|server| async { server.connection().await.expect("it was just started") }));
    let rslock = LockManager::new(addresses);
    let contestants: [(&str, Box<dyn Contestant>); 3] = [
        ("ours", Box::new(Ours(ours))),
        ("rslock", Box::new(Rslock(rslock))),
        ("minimal", Box::new(Minimal { connections: connections.await, release: Script::new(DELETE) })),
    ];
    let goals = Goals { to_rslock: 1.25, to_floor: None, commands: 60.0 };
    compare("Redlock of 5", &goals, &contestants, servers, is_test).await;
}

fn main() {
    let is_test = std::env::args().any(|argument| argument == "--test");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Spawned, as an application's own tasks are: the thread that blocks on a runtime is none of its workers.
    let all: BoxFuture<'static, ()> = Box::pin(async move {
        on_redis(is_test).await;
        on_redlock(is_test).await;
    });
    runtime.block_on(runtime.spawn(all)).expect("the comparison ends");
}
