//! Sixteen clients that each hold one lock for a millisecond, again and again: the share of time in which the lock is held.

use std::{sync::Arc, time::Duration};

use comfy_table::Table;
use lock_core::{BootInstant, Clock, FencingToken};
use lock_lab::{
    history::{Grant, History},
    load::work_for,
    servers::Redis,
};
use tokio::{sync::Barrier, task::JoinSet};

use crate::{
    contestants::{Contestant, Kind},
    goal::{Figure, Goal, median, rounds},
};

const NAME: &str = "contended";
const CLIENTS: usize = 16;
const HOLD: Duration = Duration::from_millis(1);
/// Who asks so much earlier is ahead on the server, too. A turn of all clients takes three times as long.
const LEAD: Duration = Duration::from_millis(5);

/// The figures of one contended lock on Redis.
pub(crate) async fn on_redis(is_test: bool) -> Vec<Figure> {
    let servers = [Redis::start().await.expect("redis-server starts")];
    let time = Duration::from_millis(if is_test { 50 } else { 2_000 });
    let mut contests = [Kind::Ours, Kind::Rslock, Kind::Minimal].map(|kind| (kind, Vec::new()));
    for _ in 0..rounds(is_test) {
        for (kind, contests) in &mut contests {
            contests.push(contest(*kind, &servers, time).await);
        }
    }
    let mut table = Table::new();
    table.set_header(["", "utilisation %", "hand-offs a second", "requests per grant", "overtakes per grant"]);
    for (kind, contests) in &contests {
        let figures = [Contest::utilisation, Contest::hand_offs, Contest::requests, Contest::overtakes];
        let medians = figures.map(|figure| format!("{:.2}", median(&contests.iter().map(figure).collect::<Vec<_>>())));
        table.add_row([kind.title().to_owned()].into_iter().chain(medians));
    }
    println!(
        "Redis: {CLIENTS} clients that hold one lock for {HOLD:?}; rslock polls each 200 ms, the minimal lock each 1 ms"
    );
    println!("{table}\n");
    let [(_, ours), ..] = &contests;
    let overtakes: f64 = ours.iter().map(Contest::overtakes).sum();
    let figure = |what: &str, figure: fn(&Contest) -> f64, digits, goal| {
        Figure::new(format!("Redis: {CLIENTS} clients, {what}"), ours.iter().map(figure).collect(), digits, goal)
    };
    vec![
        figure("utilisation in %", Contest::utilisation, 1, Goal::AtLeast(85.0)),
        figure("requests for each grant", Contest::requests, 2, Goal::AtMost(3.0)),
        // A single one in any round is one too many.
        Figure::new(format!("Redis: {CLIENTS} clients, overtakes"), vec![overtakes], 4, Goal::AtMost(0.0)),
    ]
}

/// What the clients of one contestant did in one round.
struct Contest {
    history: History,
    /// When the clients were told to stop; those that wait then get their turn.
    until: BootInstant,
    requests: u64,
}

impl Contest {
    /// What happened while all contended.
    fn contended(&self) -> History {
        let contended = self.history.grants().iter().filter(|grant| grant.granted < self.until);
        History::new(contended.copied().collect())
    }

    /// The share of time in which the lock was held while all contended, in per cent.
    fn utilisation(&self) -> f64 {
        self.contended().utilisation() * 100.0
    }

    /// How many times in a second the lock went from one client to another one: who releases it and has it again at once, past
    /// all who wait, keeps it in use, too.
    fn hand_offs(&self) -> f64 {
        let contended = self.contended();
        contended.moves() as f64 / contended.span().as_secs_f64()
    }

    /// For each grant.
    fn requests(&self) -> f64 {
        self.requests as f64 / self.history.grants().len() as f64
    }

    /// For each grant: how many had asked before its holder, and still waited.
    fn overtakes(&self) -> f64 {
        self.history.overtakes_by(LEAD) as f64 / self.history.grants().len() as f64
    }
}

/// Has clients of that kind contend for that long.
async fn contest(kind: Kind, servers: &[Redis; 1], time: Duration) -> Contest {
    let [server] = servers;
    let start = Arc::new(Barrier::new(CLIENTS + 1));
    let mut clients = JoinSet::new();
    let mut sends_set = false;
    for number in 0..CLIENTS {
        let contestant = kind.connect(&server.url(), servers).await;
        sends_set = contestant.sends_set();
        clients.spawn(client(number, contestant, Arc::clone(&start), time));
    }
    start.wait().await;
    // What a client sends once, before it first waits, counts for no grant.
    let before = requests(server, sends_set).await;
    start.wait().await;
    let until = Clock::boot().now().saturating_add(time);
    let grants = clients.join_all().await.into_iter().flatten().collect();
    let requests = requests(server, sends_set).await - before;
    Contest { history: History::new(grants), until, requests }
}

/// Holds the lock again and again.
async fn client(number: usize, contestant: Arc<dyn Contestant>, start: Arc<Barrier>, time: Duration) -> Vec<Grant> {
    let clock = Clock::boot();
    let mut grants = Vec::new();
    // Twice, because the very first one has not waited yet.
    for _ in 0..2 {
        contestant.hold(NAME, Box::pin(work_for(HOLD))).await;
    }
    start.wait().await;
    start.wait().await;
    let until = clock.now().saturating_add(time);
    while clock.now() < until {
        let requested = clock.now();
        let (mut granted, mut ended) = (requested, requested);
        let work = Box::pin(async {
            granted = clock.now();
            work_for(HOLD).await;
            ended = clock.now();
        });
        contestant.hold(NAME, work).await;
        // The others have none.
        let token = FencingToken { era: 0, number: 0 };
        grants.push(Grant { client: number, requested, granted, ended, token });
    }
    grants
}

/// How many commands clients have sent to a server.
async fn requests(server: &Redis, sends_set: bool) -> u64 {
    let counts = server.command_counts().await.expect("the server is there");
    counts.requests() + if sends_set { counts.of("set").calls } else { 0 }
}
