//! What an uncontended pair, an acquisition and its release, costs on Redis and on Redlock, beside what others take for it, and
//! on one server beside the floor, two scripts that do no more than a lock with a counter has to.

use std::{fs, sync::Arc, time::Duration};

use comfy_table::Table;
use futures::future::join_all;
use lock_core::Clock;
use lock_lab::servers::{CommandCount, Redis, RedisNodes};

use crate::{
    contestants::{Contestant, Kind},
    goal::{Figure, Goal, median, rounds},
};

const NAME: &str = "uncontended";
const BLOCKS: usize = 60;
/// How many pairs one plays in a row.
const BLOCK: usize = 50;

/// The figures of a pair on one server.
pub(crate) async fn on_redis(is_test: bool) -> Vec<Figure> {
    let server = Redis::start().await.expect("redis-server starts");
    let kinds = [Kind::Ours, Kind::Rslock, Kind::Minimal, Kind::Floor];
    let costs = Costs::measure("Redis", &kinds, &server.url(), &[server], is_test).await;
    let [time, server] = [costs.to(Kind::Rslock, Cost::time), costs.to(Kind::Floor, Cost::server)];
    vec![
        Figure::new("Redis: p50 of a pair, to rslock", time, 2, Goal::AtMost(1.35)),
        Figure::new("Redis: server time of a pair, to the floor", server, 2, Goal::AtMost(2.0)),
        Figure::new("Redis: commands of a pair", costs.of(Kind::Ours, Cost::commands), 1, Goal::AtMost(9.0)),
    ]
}

/// The figures of a pair on five nodes.
pub(crate) async fn on_redlock(is_test: bool) -> Vec<Figure> {
    let nodes = RedisNodes::start(5).await.expect("redis-server starts");
    let kinds = [Kind::Ours, Kind::Rslock, Kind::Minimal];
    let costs = Costs::measure("Redlock of 5", &kinds, &nodes.url(), nodes.nodes(), is_test).await;
    let time = costs.to(Kind::Rslock, Cost::time);
    vec![
        Figure::new("Redlock of 5: p50 of a pair, to rslock", time, 2, Goal::AtMost(1.25)),
        Figure::new("Redlock of 5: commands of a pair", costs.of(Kind::Ours, Cost::commands), 1, Goal::AtMost(60.0)),
    ]
}

/// What a pair took in one round.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// The median time of a pair, in microseconds.
    time: f64,
    /// What the servers worked on it, all together, in microseconds.
    server: f64,
    /// The commands that the servers ran, those in scripts included.
    commands: f64,
    /// How often a thread of this program gave up its processor to wait.
    waits: f64,
}

impl Cost {
    fn time(&self) -> f64 {
        self.time
    }

    fn server(&self) -> f64 {
        self.server
    }

    fn commands(&self) -> f64 {
        self.commands
    }

    fn waits(&self) -> f64 {
        self.waits
    }
}

/// What the pairs of each contestant took, round after round.
struct Costs(Vec<(Kind, Vec<Cost>)>);

impl Costs {
    /// Has all contestants play in turns, and prints what each took.
    async fn measure(title: &str, kinds: &[Kind], url: &str, servers: &[Redis], is_test: bool) -> Self {
        let contestants = join_all(kinds.iter().map(|kind| kind.connect(url, servers))).await;
        let (rounds, blocks) = (rounds(is_test), if is_test { 1 } else { BLOCKS });
        let mut costs = Self(kinds.iter().map(|kind| (*kind, Vec::new())).collect());
        for _ in 0..rounds {
            for ((_, costs), cost) in costs.0.iter_mut().zip(round(&contestants, servers, blocks).await) {
                costs.push(cost);
            }
        }
        println!("{title}: medians of {rounds} rounds of {} pairs\n{}\n", blocks * BLOCK, costs.table());
        costs
    }

    /// A figure of one contestant, for each round.
    fn of(&self, kind: Kind, figure: fn(&Cost) -> f64) -> Vec<f64> {
        let costs = self.0.iter().find(|(known, _)| *known == kind);
        costs.expect("it has played").1.iter().map(figure).collect()
    }

    /// The ratio of a figure of ours to that of another one, for each round.
    fn to(&self, other: Kind, figure: fn(&Cost) -> f64) -> Vec<f64> {
        self.of(Kind::Ours, figure).iter().zip(self.of(other, figure)).map(|(ours, other)| ours / other).collect()
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.set_header(["per pair", "p50 us", "server us", "commands", "waits of threads"]);
        let figures = [Cost::time, Cost::server, Cost::commands, Cost::waits];
        for (kind, _) in &self.0 {
            let medians = figures.map(|figure| format!("{:.1}", median(&self.of(*kind, figure))));
            table.add_row([kind.title().to_owned()].into_iter().chain(medians));
        }
        table
    }
}

/// One round: all play in turns, block after block, so that what else happens on the machine meets them alike.
async fn round(contestants: &[Arc<dyn Contestant>], servers: &[Redis], blocks: usize) -> Vec<Cost> {
    let mut taken: Vec<Taken> = contestants.iter().map(|_| Taken::default()).collect();
    for _ in 0..blocks {
        for (taken, contestant) in taken.iter_mut().zip(contestants) {
            contestant.pair(NAME).await;
            taken.play(contestant.as_ref(), servers, BLOCK).await;
        }
    }
    taken.into_iter().map(Taken::cost).collect()
}

/// What a contestant has taken so far in a round.
#[derive(Debug, Default)]
struct Taken {
    times: Vec<Duration>,
    server: CommandCount,
    waits: f64,
}

impl Taken {
    /// Adds a block of pairs.
    async fn play(&mut self, contestant: &dyn Contestant, servers: &[Redis], pairs: usize) {
        let before = (worked(servers, contestant).await, waits());
        for _ in 0..pairs {
            let started = Clock::boot().now();
            contestant.pair(NAME).await;
            self.times.push(Clock::boot().now().saturating_since(started));
        }
        let after = (waits(), worked(servers, contestant).await);
        self.server.calls += after.1.calls - before.0.calls;
        self.server.micros += after.1.micros - before.0.micros;
        self.waits += after.0 - before.1;
    }

    fn cost(mut self) -> Cost {
        self.times.sort_unstable();
        let pairs = self.times.len() as f64;
        Cost {
            time: self.times[self.times.len() / 2].as_secs_f64() * 1e6,
            server: self.server.micros as f64 / pairs,
            commands: self.server.calls as f64 / pairs,
            waits: self.waits / pairs,
        }
    }
}

/// What the servers have worked on requests about locks, and how many commands they have run.
async fn worked(servers: &[Redis], contestant: &dyn Contestant) -> CommandCount {
    let mut all = CommandCount::default();
    for server in servers {
        let counts = server.command_counts().await.expect("the server is there");
        all.calls += counts.of_all(|command| !["info", "ping", "client|setinfo"].contains(&command)).calls;
        let is_sent =
            |command: &str| ["eval", "evalsha"].contains(&command) || command == "set" && contestant.sends_set();
        all.micros += counts.of_all(is_sent).micros;
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
