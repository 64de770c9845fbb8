//! The parts without a wire: what a contender computes between two messages.

use std::{hint::black_box, time::Duration};

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use lock_core::{
    Clock, Locks, Validity,
    memory::{Config, Memory, MemoryServer},
    validity::deadline,
};
use lock_redlock::protocol::{
    token::{NodeNumber, settle},
    votes::{Vote, Votes},
};
use lock_zk::protocol::queue;
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::EnvFilter;

fn validity(criterion: &mut Criterion) {
    let clock = Clock::boot();
    let hour = Duration::from_secs(3600);
    let validity = Validity::new(clock, clock.now().saturating_add(hour));
    let mut group = criterion.benchmark_group("validity");
    group.bench_function("check", |bencher| bencher.iter(|| black_box(&validity).is_valid()));
    group.bench_function("renewal", |bencher| {
        bencher.iter(|| {
            let observed = validity.observe().unwrap();
            validity.advance(observed, deadline(clock.now(), hour))
        });
    });
}

fn queue_order(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue order");
    for contenders in [1_u32, 16, 1000] {
        let children: Vec<String> = (0..contenders)
            .rev()
            .map(|n| {
                format!(
                    "{}{n:010}",
                    queue::prefix(queue::NameForm::Native, &format!("{n:032x}"), 7, queue::ContenderKind::Exclusive)
                )
            })
            .collect();
        let last = children[0].clone();
        group.bench_function(format!("find the predecessor among {contenders}"), |bencher| {
            bencher.iter(|| black_box(queue::position(black_box(&children), black_box(&last))));
        });
    }
}

fn quorum(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("quorum");
    for nodes in [3, 5, 9] {
        group.bench_function(format!("count the votes of {nodes}"), |bencher| {
            bencher.iter(|| {
                let mut votes = Votes::new(nodes);
                for node in 0..nodes {
                    votes.record(black_box(node), Vote::Granted);
                    black_box(votes.verdict());
                }
            });
        });
        let answers: Vec<_> = (0..nodes).map(|node| NodeNumber { node, number: 7 + u64::from(node == 0) }).collect();
        group.bench_function(format!("settle the token of {nodes}"), |bencher| {
            bencher.iter(|| black_box(settle(black_box(&answers), nodes)));
        });
    }
}

/// A pair of lock and release that nobody contends for, on the memory backend: all that is not the wire.
fn pair(bencher: &mut Bencher<'_>, runtime: &Runtime) {
    let locks = runtime.block_on(async { Locks::new(Memory::connect(Config::new(MemoryServer::new())).unwrap()) });
    let mutex = locks.mutex("bench");
    bencher.to_async(runtime).iter(|| async {
        let guard = mutex.lock().await.unwrap();
        black_box(guard.token());
        guard.release().await.unwrap();
    });
    runtime.block_on(locks.close(Duration::from_secs(5))).unwrap();
}

/// What observers cost. Without the feature `metrics` the first row is the price of a program that wants none.
fn observers(criterion: &mut Criterion) {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut group = criterion.benchmark_group("lock and release");
    group.bench_function("nobody observes", |bencher| pair(bencher, &runtime));
    group.bench_function("a log of warnings", |bencher| with_log("warn", || pair(bencher, &runtime)));
    group.bench_function("a log of INFO with its spans", |bencher| with_log("info", || pair(bencher, &runtime)));
    #[cfg(feature = "metrics")]
    group.bench_function("metrics for Prometheus", |bencher| {
        let recorder = metrics_exporter_prometheus::PrometheusBuilder::new()
            .set_buckets(&[0.001, 0.01, 0.1, 1.0, 10.0])
            .unwrap()
            .build_recorder();
        metrics::with_local_recorder(&recorder, || pair(bencher, &runtime));
    });
}

fn with_log(filter: &str, work: impl FnOnce()) {
    let log = tracing_subscriber::fmt().with_env_filter(EnvFilter::new(filter)).with_writer(std::io::sink).finish();
    tracing::subscriber::with_default(log, work);
}

criterion_group!(pure, validity, queue_order, quorum, observers);
criterion_main!(pure);
