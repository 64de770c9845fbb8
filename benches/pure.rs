//! The parts without a wire: what a contender computes between two messages.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use lock_core::{Clock, Validity, validity::deadline};
use lock_redlock::protocol::{
    token::{NodeNumber, settle},
    votes::{Vote, Votes},
};
use lock_zk::protocol::queue;

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
            .map(|n| format!("{}{n:010}", queue::prefix(&format!("{n:032x}"), 7, queue::ContenderKind::Exclusive)))
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

criterion_group!(pure, validity, queue_order, quorum);
criterion_main!(pure);
