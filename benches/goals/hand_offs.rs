//! How many times in a second a lock goes from one holder to the next, by how many wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use comfy_table::Table;
use lock::Locks;
use lock_core::{Clock, WriteGuard};
use lock_lab::servers::Redis;
use tokio::{sync::watch, task::JoinSet};

use crate::{
    contestants::patient,
    goal::{Figure, Goal, median, rounds},
};

const NAME: &str = "handed over";
const WAITERS: [usize; 3] = [10, 100, 1_000];
/// How many connections they share.
const CONNECTIONS: usize = 10;
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// With a hundred times as many who wait, nine tenths of the hand-offs: no script's cost depends on their number, but the sorted
/// sets on the server grow, and each waiter sends a beat each two seconds.
const FLAT: f64 = 0.9;

/// Who waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiters {
    Writers,
    /// Every second one is a reader.
    Mixed,
}

/// The figures of hand-offs on Redis.
pub(crate) async fn on_redis(is_test: bool) -> Vec<Figure> {
    let server = Redis::start().await.expect("redis-server starts");
    let (counts, hand_offs) = if is_test { (&WAITERS[..2], 100) } else { (&WAITERS[..], 4_000) };
    let mut figures = Vec::new();
    for waiters in [Waiters::Writers, Waiters::Mixed] {
        let mut speeds = vec![Vec::new(); counts.len()];
        for _ in 0..rounds(is_test) {
            for (speeds, count) in speeds.iter_mut().zip(counts) {
                speeds.push(speed(&server.url(), waiters, *count, hand_offs).await);
            }
        }
        let who = if waiters == Waiters::Writers { "writers" } else { "writers and as many readers" };
        let mut table = Table::new();
        table.set_header(["waiters", "grants a second"]);
        for (count, speeds) in counts.iter().zip(&speeds) {
            table.add_row([count.to_string(), format!("{:.0}", median(speeds))]);
        }
        println!("Redis: grants while so many wait, {who}, by {CONNECTIONS} connections\n{table}\n");
        for (count, many) in counts.iter().zip(&speeds).skip(1) {
            let ratios = many.iter().zip(&speeds[0]).map(|(many, few)| many / few).collect();
            let what = format!("Redis: grants a second with {count} waiters, to {}, {who}", counts[0]);
            figures.push(Figure::new(what, ratios, 2, Goal::AtLeast(FLAT)));
        }
    }
    figures
}

/// What the tasks that contend have in common.
struct Contest {
    grants: AtomicUsize,
    is_over: AtomicBool,
    /// Told of each mark that the number of grants has reached.
    reached: watch::Sender<usize>,
    marks: [usize; 2],
}

/// Grants in a second while `count` wait.
async fn speed(url: &str, waiters: Waiters, count: usize, hand_offs: usize) -> f64 {
    // Each has had the lock twice by the first mark, so all stand in line.
    let warm = 2 * (count + 1);
    let marks = [warm, warm + hand_offs];
    let contest =
        Contest { grants: AtomicUsize::new(0), is_over: AtomicBool::new(false), reached: watch::Sender::new(0), marks };
    let contest = Arc::new(contest);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(lock::connect(&patient(url)).await.expect("the server is there"));
    }
    let mut tasks = JoinSet::new();
    for (number, locks) in (0..=count).zip(connections.iter().cycle()) {
        let reads = waiters == Waiters::Mixed && number % 2 == 1;
        tasks.spawn(contend(locks.clone(), reads, Arc::clone(&contest)));
    }
    let mut reached = contest.reached.subscribe();
    let mut moments = Vec::new();
    for mark in marks {
        reached.wait_for(|reached| *reached >= mark).await.expect("the sender is here");
        moments.push(Clock::boot().now());
    }
    contest.is_over.store(true, Ordering::Relaxed);
    tasks.join_all().await;
    for locks in connections {
        locks.close(CLOSE_LIMIT).await.expect("nothing is held");
    }
    hand_offs as f64 / moments[1].saturating_since(moments[0]).as_secs_f64()
}

/// Acquires and releases until it is over.
async fn contend(locks: Locks, reads: bool, contest: Arc<Contest>) {
    let lock = locks.rwlock(NAME);
    while !contest.is_over.load(Ordering::Relaxed) {
        let guard = if reads { lock.read().await } else { lock.write().await.map(WriteGuard::into_guard) };
        let guard = guard.expect("the server is there");
        let grants = contest.grants.fetch_add(1, Ordering::Relaxed) + 1;
        if contest.marks.contains(&grants) {
            contest.reached.send_replace(grants);
        }
        guard.release().await.expect("it is held");
    }
}
