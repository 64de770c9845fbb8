//! Acquire and release on each backend, beside the bare requests of the same protocol on the same client crate: what
//! the abstraction costs is the difference of the two. One client, nobody else contends, all servers on this machine.
//!
//! Times on a shared machine are worth little; the ratio of two rows of one run is what to quote.

use std::{hint::black_box, time::Duration};

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use futures::future::join_all;
use lock_lab::servers::{Redis, RedisNodes, ZooKeeper};
use lock_redis::protocol::{answers::done, packed::pack};
use redis::{Script, Value, aio::MultiplexedConnection};
use tokio::runtime::Runtime;
use zookeeper_client::{Acls, Client, CreateMode};

const TTL_MS: u64 = 30_000;

fn ours(group: &mut BenchmarkGroup<'_, WallTime>, runtime: &Runtime, row: &str, url: &str) {
    let locks = runtime.block_on(lock::connect(url)).expect("the server was just started");
    let mutex = locks.mutex("bench");
    // The first acquisition makes the connection and loads the scripts.
    runtime.block_on(async { mutex.lock().await.unwrap().release().await.unwrap() });
    group.bench_function(row, |bencher| {
        bencher.to_async(runtime).iter(|| async {
            let guard = mutex.lock().await.unwrap();
            black_box(guard.token());
            guard.release().await.unwrap();
        });
    });
    runtime.block_on(locks.close(Duration::from_secs(5))).unwrap();
}

/// The scripts of `lock-redis`, called through the client crate and nothing else.
struct BareRedis {
    acquire: Script,
    release: Script,
}

/// A script of `lock-redis`, out of its files.
macro_rules! script {
    ($($part:literal),+) => {
        Script::new(concat!($(include_str!(concat!("../lock-redis/src/protocol/scripts/", $part))),+))
    };
}

const BARE_KEY: &str = "{bare:bench}";
const VALUE: &str = "0123456789abcdef0123456789abcdef";

impl BareRedis {
    fn new() -> Self {
        Self {
            acquire: script!("enter_short.lua", "line.lua", "enter.lua"),
            release: script!("release_short.lua", "line.lua", "release.lua"),
        }
    }

    async fn acquire(&self, mut connection: MultiplexedConnection) {
        let mut call = self.acquire.prepare_invoke();
        // Proposal, lock delay, permits, for how long it counts as alive, length of a claim.
        let numbers = [0, 0, 0, 6_000_000, 4_000].map(pack).concat();
        call.key(BARE_KEY).arg([b"w", numbers.as_slice()].concat()).arg(VALUE).arg(TTL_MS);
        let granted: u64 = call.invoke_async(&mut connection).await.unwrap();
        assert!(granted > 0);
    }

    async fn release(&self, mut connection: MultiplexedConnection) {
        let mut call = self.release.prepare_invoke();
        // Kind and lock delay.
        call.key(BARE_KEY).arg("w0").arg(VALUE);
        let released: Value = call.invoke_async(&mut connection).await.unwrap();
        assert!(done(&released).unwrap().had);
    }
}

fn memory(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let mut group = criterion.benchmark_group("memory");
    ours(&mut group, &runtime, "acquire and release", "memory://bench");
}

fn redis(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let server = runtime.block_on(Redis::start()).unwrap();
    let mut group = criterion.benchmark_group("redis");
    ours(&mut group, &runtime, "acquire and release", &server.url());
    let connection = runtime.block_on(server.connection()).unwrap();
    let bare = BareRedis::new();
    group.bench_function("bare requests", |bencher| {
        bencher.to_async(&runtime).iter(|| async {
            bare.acquire(connection.clone()).await;
            bare.release(connection.clone()).await;
        });
    });
}

fn redlock(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let servers = runtime.block_on(RedisNodes::start(5)).unwrap();
    let mut group = criterion.benchmark_group("redlock of 5");
    ours(&mut group, &runtime, "acquire and release", &servers.url());
    let connections: Vec<_> = servers.nodes().iter().map(|node| runtime.block_on(node.connection()).unwrap()).collect();
    let bare = BareRedis::new();
    group.bench_function("bare requests, all answers awaited", |bencher| {
        bencher.to_async(&runtime).iter(|| async {
            join_all(connections.iter().map(|connection| bare.acquire(connection.clone()))).await;
            join_all(connections.iter().map(|connection| bare.release(connection.clone()))).await;
        });
    });
}

fn zookeeper(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    for members in [1, 3] {
        let servers = runtime.block_on(ZooKeeper::start(members)).unwrap();
        let mut group = criterion.benchmark_group(format!("zookeeper of {members}"));
        ours(&mut group, &runtime, "acquire and release", &servers.url());
        let address = format!("127.0.0.1:{}", servers.ports()[0]);
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let client = runtime.block_on(async {
            let client = Client::connect(&address).await.unwrap();
            let directory = CreateMode::Persistent.with_acls(Acls::anyone_all());
            client.create("/bare", b"", &directory).await.unwrap();
            client
        });
        group.bench_function("bare requests", |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                // Both are on their way before either is answered, as in the lock.
                let create = client.create("/bare/contender-", b"", &options);
                let list = client.list_children("/bare");
                let (_, sequence) = create.await.unwrap();
                assert_eq!(list.await.unwrap().len(), 1);
                client.delete(&format!("/bare/contender-{sequence}"), None).await.unwrap();
            });
        });
    }
}

criterion_group! {
    name = backends;
    config = Criterion::default().sample_size(30).measurement_time(Duration::from_secs(5));
    targets = memory, redis, redlock, zookeeper
}
criterion_main!(backends);
