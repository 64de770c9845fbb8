//! Sixty-four tasks that share a connection and acquire and release locks of many names, none of which anybody else wants: how
//! many pairs go through in a second.

use std::sync::Arc;

use comfy_table::Table;
use futures::future::join_all;
use lock_core::Clock;
use lock_lab::servers::Redis;
use tokio::task::JoinSet;

use crate::{
    contestants::{Contestant, Kind},
    goal::{Figure, Goal, median, rounds},
};

const KINDS: [Kind; 3] = [Kind::Ours, Kind::Rslock, Kind::Minimal];
const TASKS: usize = 64;
/// How many names each task has.
const NAMES: usize = 16;
/// How many pairs each task plays in a row.
const BLOCK: usize = 50;
const BLOCKS: usize = 5;

/// Which names are locked.
#[derive(Debug, Clone, Copy)]
enum Names {
    /// Those of each task, over and over.
    Known,
    /// Each once, as where an order is locked by its number.
    Fresh,
}

impl Names {
    fn title(self) -> &'static str {
        match self {
            Self::Known => "known names",
            Self::Fresh => "fresh names",
        }
    }

    /// The pairs a second of the build before the rework of Redis, to those of the minimal lock beside it: commit 8917c21, on
    /// 2026-11-23, in one program with commit 9e7998c and the minimal lock in turns, the median of seven rounds.
    fn before(self) -> f64 {
        match self {
            Self::Known => 0.21,
            Self::Fresh => 0.22,
        }
    }
}

/// The figures of many locks on one Redis server.
pub(crate) async fn on_redis(is_test: bool) -> Vec<Figure> {
    let server = Redis::start().await.expect("redis-server starts");
    let (url, servers) = (server.url(), [server]);
    let contestants = join_all(KINDS.iter().map(|kind| kind.connect(&url, &servers))).await;
    let mut table = Table::new();
    table.set_header(["pairs a second"].into_iter().chain(KINDS.map(Kind::title)));
    let mut figures = Vec::new();
    for names in [Names::Known, Names::Fresh] {
        let speeds = speeds(&contestants, names, is_test).await;
        table.add_row(
            [names.title().to_owned()]
                .into_iter()
                .chain(speeds.each_ref().map(|speeds| format!("{:.0}", median(speeds)))),
        );
        let [ours, _, minimal] = speeds;
        let ratios = ours.iter().zip(minimal).map(|(ours, minimal)| ours / minimal).collect();
        let what = format!("Redis: pairs a second of {TASKS} tasks, {}, to the minimal lock", names.title());
        figures.push(Figure::new(what, ratios, 2, Goal::AtLeast(2.0 * names.before())));
    }
    println!("Redis: {TASKS} tasks by one connection, on {} known names or on fresh names\n{table}\n", TASKS * NAMES);
    figures
}

/// The pairs a second of each kind, for each round.
async fn speeds(contestants: &[Arc<dyn Contestant>], names: Names, is_test: bool) -> [Vec<f64>; KINDS.len()] {
    let blocks = if is_test { 1 } else { BLOCKS };
    let mut number = 0;
    for contestant in contestants {
        block(contestant, names, number).await;
    }
    let mut speeds = KINDS.map(|_| Vec::new());
    for _ in 0..rounds(is_test) {
        let mut seconds = KINDS.map(|_| 0.0);
        // In turns, so that what else happens on the machine meets them alike.
        for _ in 0..blocks {
            number += 1;
            for (seconds, contestant) in seconds.iter_mut().zip(contestants) {
                *seconds += block(contestant, names, number).await;
            }
        }
        for (speeds, seconds) in speeds.iter_mut().zip(seconds) {
            speeds.push((TASKS * BLOCK * blocks) as f64 / seconds);
        }
    }
    speeds
}

/// How many seconds a block of pairs takes.
async fn block(contestant: &Arc<dyn Contestant>, names: Names, number: usize) -> f64 {
    let started = Clock::boot().now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let contestant = Arc::clone(contestant);
        tasks.spawn(async move {
            for pair in 0..BLOCK {
                let name = match names {
                    Names::Known => format!("known/{task}/{}", pair % NAMES),
                    Names::Fresh => format!("fresh/{task}/{number}/{pair}"),
                };
                contestant.pair(&name).await;
            }
        });
    }
    tasks.join_all().await;
    Clock::boot().now().saturating_since(started).as_secs_f64()
}
