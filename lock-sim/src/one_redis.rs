//! One Redis server: the shipped backend with either strategy, its clients and its server under faults.

mod kept;
mod line;
mod plain;
pub mod safeguards;
mod weather;

use std::{sync::Arc, time::Duration};

use futures::future::LocalBoxFuture;
use lock_core::{Context, Locks, LocksOptions};
use lock_redis::{Config, Redis, Strategy, protocol::TOMBSTONE, wire::UNACKNOWLEDGED};

use self::{
    line::{Lines, Patience},
    plain::Plain,
    weather::{Kind, Weather},
};
use crate::{
    Chance, Counts, Fact, LocalClock, MS, Machine, Outcome, SECOND, Safeguard, Sort, Time, Trace,
    contest::{Grant, Oracle, Placed, Scene, Stage, Without, compete, faults, nanos},
    redis::{Fleet, HostNetwork, Loses, address},
    world::{HostClocks, HostId, ServerId, Stop, Wires, World},
};

/// A server, and clients that compete for a lock on it.
#[derive(Debug)]
pub struct OneRedis {
    is_plain: bool,
}

impl OneRedis {
    /// In line on the server.
    pub const QUEUE: Self = Self { is_plain: false };

    /// By the strategy `plain`, beside clients of other libraries.
    pub const PLAIN: Self = Self { is_plain: true };
}

const LOST: usize = faults::fact::COUNT;
const DELETED: usize = LOST + 1;
const JUMPED: usize = LOST + 2;
const SEMAPHORE: usize = LOST + 3;
const DELAYED: usize = LOST + 4;
const HEAD_LOST: usize = LOST + 5;
const FOREIGN: usize = LOST + 6;

const FACTS: [Fact; FOREIGN + 1] = {
    let mut facts = [Fact { name: "", sort: Sort::Fault }; FOREIGN + 1];
    let mut place = 0;
    while place < faults::fact::COUNT {
        facts[place] = faults::fact::FACTS[place];
        place += 1;
    }
    facts[LOST] = Fact { name: "the server lost its data", sort: Sort::Fault };
    facts[DELETED] = Fact { name: "somebody deleted the lock", sort: Sort::Fault };
    facts[JUMPED] = Fact { name: "the server's clock jumped", sort: Sort::Fault };
    facts[SEMAPHORE] = Fact { name: "a contest for permits", sort: Sort::Coverage };
    facts[HEAD_LOST] = Fact { name: "somebody deleted the head", sort: Sort::Fault };
    facts[DELAYED] = Fact { name: "a contest with lock delays", sort: Sort::Coverage };
    facts[FOREIGN] = Fact { name: "another library's client granted", sort: Sort::Coverage };
    facts
};

/// The facts that come about in line: all but the last one.
const IN_LINE: &[Fact] = FACTS.split_at(FOREIGN).0;

/// Those of the strategy `plain`, which knows no readers, no permits, and no lock delays.
const PLAIN_PLACES: [usize; 16] = {
    use faults::fact::{LOST_LEASE, WRITER};
    [0, 1, 2, 3, 4, 5, 6, 7, 8, WRITER, LOST_LEASE, LOST, DELETED, JUMPED, HEAD_LOST, FOREIGN]
};

const PLAIN_FACTS: [Fact; PLAIN_PLACES.len()] = {
    let mut facts = [FACTS[0]; PLAIN_PLACES.len()];
    let mut place = 0;
    while place < PLAIN_PLACES.len() {
        facts[place] = FACTS[PLAIN_PLACES[place]];
        place += 1;
    }
    facts
};

/// From here on the number of a strike is for how many milliseconds, beyond this, a client of another library takes the lock.
const FOREIGN_TAKES: u32 = 1_000;

/// The strike by which it gives the lock back.
const FOREIGN_RELEASES: u32 = u32::MAX;

impl Machine for OneRedis {
    fn name(&self) -> &'static str {
        if self.is_plain { "redis-plain" } else { "redis" }
    }

    fn about(&self) -> &'static str {
        if self.is_plain {
            "the shipped backend on one Redis, by the strategy plain"
        } else {
            "the shipped backend on one Redis"
        }
    }

    fn tested(&self) -> u64 {
        300
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        if self.is_plain { &safeguards::PLAIN_SAFEGUARDS } else { &safeguards::SAFEGUARDS }
    }

    fn facts(&self) -> &'static [Fact] {
        if self.is_plain { &PLAIN_FACTS } else { IN_LINE }
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        let all: &'static [Placed] = if self.is_plain { &safeguards::PLAIN } else { &safeguards::ALL };
        let without = Without::taking_out(all, without);
        let mut chance = Chance::new(seed);
        let mut weather = Weather::draw(&mut chance);
        if self.is_plain {
            weather = weather.exclusive();
        }
        without.change(&mut weather.wires);
        let (stage, mut scene) = prepare(self.is_plain, weather, &without, chance, std::mem::take(trace));
        let (mut outcome, told) = stage.play(&mut scene);
        if self.is_plain {
            let all = outcome.counts;
            outcome.counts = Counts::default();
            for (place, its) in PLAIN_PLACES.into_iter().enumerate() {
                outcome.counts.0[place] = all.0[its];
            }
        }
        *trace = told;
        outcome
    }
}

/// The one Redis server of a schedule, and what its clients are configured with.
struct OneServer {
    weather: Weather,
    server: ServerId,
    config: Config,
    line: Lines,
    /// With the strategy `plain`.
    plain: Option<Plain>,
    /// By how much the clock of the server has jumped, by all its jumps.
    jumped: Time,
}

fn prepare(
    is_plain: bool,
    weather: Weather,
    without: &Without,
    mut chance: Chance,
    trace: Trace,
) -> (Stage, OneServer) {
    let oracle = Oracle::new(trace);
    oracle.note("world", format_args!("{weather:?}"));
    let mut world = World::new(Chance::new(chance.below(u64::MAX)), weather.wires);
    let clients: Vec<HostId> = (0..weather.clients).map(|_| world.add_host(weather.clocks(&mut chance))).collect();
    let operator = world.add_host(HostClocks::true_time());
    let mut fleet = Fleet::default();
    let server = fleet.add(&mut world, weather.server_clock(&mut chance), without.removal());
    let at = address(server);
    let mut config = Config::new(at.host, at.port);
    if is_plain {
        let look_again = Duration::from_millis(chance.one_of(&[20, 100, 500]));
        config = config.with_strategy(Strategy::Plain { look_again });
    }
    let mut stage = Stage {
        world,
        fleet,
        oracle,
        clients,
        operator,
        servers: vec![server],
        end: weather.end,
        is_calm: false,
        was_cut_off: false,
        is_lasting: false,
        most_pause: if weather.ttls_differ || weather.ttl > SECOND {
            nanos(TOMBSTONE - UNACKNOWLEDGED)
        } else {
            Time::MAX
        },
        server_stood_still: false,
        wires: weather.wires,
    };
    let plain = is_plain.then(Plain::default);
    let scene = OneServer { weather, server, config, line: Lines::default(), plain, jumped: 0 };
    oracle_begins(&mut stage, &scene, &mut chance);
    plan(&mut stage, &weather, &mut chance);
    if is_plain {
        plan_foreign(&mut stage, &weather, &mut chance);
    }
    (stage, scene)
}

fn oracle_begins(stage: &mut Stage, scene: &OneServer, chance: &mut Chance) {
    let weather = scene.weather;
    if weather.kind == Kind::Losing {
        stage.oracle.revives();
    }
    for (fact, is_so) in [(SEMAPHORE, weather.permits.is_some()), (DELAYED, weather.delay > 0)] {
        if is_so {
            stage.oracle.count(fact);
        }
    }
    for host in stage.clients.clone() {
        let ttl = if weather.ttls_differ { chance.one_of(&[300, 1_000, 4_000]) * MS } else { weather.ttl };
        let mut habits = Stage::habits(chance, ttl, weather.end, faults::fact::HABITS, weather.shares);
        habits.crowds = weather.shares && weather.is_crowded;
        habits.permits = weather.permits;
        habits.delay = (weather.delay > 0).then(|| Duration::from_nanos(weather.delay));
        if weather.resets > 0 {
            (habits.hold, habits.pause) = (30 * MS, 50 * MS);
        }
        let context = stage.world.context(host);
        let config = weather.limits(scene.config.clone(), chance).with_ttl(Duration::from_nanos(ttl));
        let config = config.with_network(Arc::new(HostNetwork(host)));
        let (oracle, own) = (stage.oracle.clone(), Chance::new(chance.below(u64::MAX)));
        oracle.begins(host);
        stage.world.spawn(host, async move {
            let clock = context.clock();
            loop {
                match Redis::connect_in(config.clone(), context.clone()).await {
                    Ok(redis) => {
                        let options = LocksOptions::default().with_outage_timeout(config.node.connect_timeout);
                        return compete(Locks::with_options(redis, options), clock, host, habits, oracle, own).await;
                    }
                    Err(_) => clock.sleep(Duration::from_millis(200)).await,
                }
            }
        });
    }
}

fn plan(stage: &mut Stage, weather: &Weather, chance: &mut Chance) {
    let (clients, servers) = (stage.clients.clone(), stage.servers.clone());
    for _ in 0..weather.faults {
        let at = chance.below(weather.end);
        let fault = faults::Fault::draw(chance, &clients, &servers, weather.ttl);
        // Where the counter is lost, tokens rise by the clocks alone.
        if weather.kind == Kind::Losing && matches!(fault, faults::Fault::Jump(..)) {
            continue;
        }
        stage.world.at(at, faults::Own::Fault(fault));
    }
    for _ in 0..weather.resets {
        let server = chance.one_of(&servers);
        let reset = if chance.one_in(3) { faults::Fault::Reset(server) } else { faults::Fault::BreakOff(server) };
        stage.world.at(chance.below(weather.end), faults::Own::Fault(reset));
    }
    for host in clients.iter().take(if weather.is_deadly() { 2 } else { 0 }) {
        let at = chance.between(weather.end / 4, weather.end / 2);
        stage.world.at(at, faults::Own::Fault(faults::Fault::Kill(*host, Stop::Machine)));
    }
    for _ in 0..if weather.is_late_in_line() { 6 } else { 0 } {
        let (host, length) = (chance.one_of(&clients), chance.between(500, 1_200) * MS);
        stage.world.at(chance.below(weather.end), faults::Own::Fault(faults::Fault::Pause(host, length)));
    }
    if weather.kind != Kind::Usual {
        for _ in 0..chance.between(1, 3) {
            let at = chance.below(weather.end);
            stage.world.at(at, faults::Own::Scene(u32::try_from(chance.below(1_000)).unwrap_or(0)));
        }
    }
}

/// Clients of other libraries, which come, hold, and go.
fn plan_foreign(stage: &mut Stage, weather: &Weather, chance: &mut Chance) {
    for _ in 0..chance.below(5) {
        let (at, ms) = (chance.below(weather.end), chance.between(10, 1_500));
        stage.world.at(at, faults::Own::Scene(FOREIGN_TAKES + u32::try_from(ms).unwrap_or(0)));
        if chance.one_in(2) {
            stage.world.at(at + chance.below(ms * MS), faults::Own::Scene(FOREIGN_RELEASES));
        }
    }
}

impl OneServer {
    /// Whether the strike is of a client of another library.
    fn strike_foreign(&mut self, stage: &mut Stage, number: u32) -> bool {
        let (now, server) = (stage.world.now(), self.server);
        let Some(plain) = self.plain.as_mut().filter(|_| number >= FOREIGN_TAKES) else { return false };
        if number == FOREIGN_RELEASES {
            plain.release_foreign(&mut stage.fleet, now, server);
            stage.oracle.note("another library", format_args!("releases"));
        } else if plain.take_foreign(&mut stage.fleet, now, server, (number - FOREIGN_TAKES).into()) {
            stage.oracle.count(FOREIGN);
            stage.oracle.note("another library", format_args!("holds for {} ms", number - FOREIGN_TAKES));
        }
        true
    }

    fn delete_head(&mut self, stage: &mut Stage) {
        let (now, server) = (stage.world.now(), self.server);
        match &mut self.plain {
            Some(plain) => plain.delete_record(&mut stage.fleet, now, server),
            None => {
                stage.fleet.at(server, now).store_mut().remove(kept::TOKEN.as_bytes());
            }
        }
    }

    fn delete_lock(&mut self, stage: &mut Stage) {
        let (now, server) = (stage.world.now(), self.server);
        if let Some(plain) = &mut self.plain {
            return plain.delete_lock(&mut stage.fleet, now, server);
        }
        for keys in &*kept::LINES {
            for key in [&keys.lock, &keys.members, &keys.notes] {
                stage.fleet.at(server, now).store_mut().remove(key.as_bytes());
            }
        }
    }
}

impl Scene for OneServer {
    fn kept(&mut self, stage: &mut Stage, grant: &Grant) -> Time {
        let now = stage.world.now();
        match &self.plain {
            Some(plain) => plain.until(&mut stage.fleet, now, self.server, grant),
            None => kept::until(&mut stage.fleet, now, self.server, grant),
        }
    }

    fn residue(&mut self, stage: &mut Stage, at_once: bool) -> Option<String> {
        if at_once && self.weather.kind == Kind::Losing {
            // A server that comes back with old data has what was given back since.
            return None;
        }
        let residue = if self.plain.is_some() { Plain::residue } else { kept::residue };
        residue(&mut stage.fleet, stage.world.now(), self.server, at_once)
    }

    fn strike(&mut self, stage: &mut Stage, number: u32) {
        if self.strike_foreign(stage, number) {
            return;
        }
        let (now, server) = (stage.world.now(), self.server);
        if self.weather.kind == Kind::Losing && number % 4 == 1 {
            // Nobody loses anything by that.
            stage.oracle.count(HEAD_LOST);
            stage.oracle.note("world", format_args!("the head is deleted"));
            return self.delete_head(stage);
        }
        stage.oracle.excuse();
        match self.weather.kind {
            Kind::Usual => {}
            Kind::Losing => {
                stage.oracle.count(LOST);
                if number.is_multiple_of(3) {
                    self.delete_lock(stage);
                    stage.fleet.at(server, now).store_mut().flush();
                    return stage.oracle.note("world", format_args!("the server is flushed"));
                }
                let loses = if number.is_multiple_of(2) { Loses::Newest } else { Loses::Everything };
                if number.is_multiple_of(5) {
                    stage.fleet.save(server);
                }
                let length = Time::from(number) * MS;
                stage.strike(faults::Fault::Restart(server, Stop::Process, loses, length));
            }
            Kind::Meddled if number.is_multiple_of(2) => {
                stage.oracle.count(DELETED);
                stage.oracle.note("world", format_args!("somebody deletes the lock"));
                self.delete_lock(stage);
            }
            Kind::Meddled => {
                stage.oracle.count(JUMPED);
                let by = i64::from(number) * 4_000_000;
                stage.oracle.note("world", format_args!("the server's clock jumps by {} ms", by / 1_000_000));
                stage.fleet.jump(server, now, by);
                self.jumped += by.unsigned_abs();
                // Tombstones end too early by that much. By its own clock the server stood still for as long.
                stage.is_lasting |= stage.most_pause < Time::MAX;
                stage.was_cut_off |= self.jumped > stage.most_pause;
            }
        }
    }

    fn calm(&mut self, _: &mut Stage) {}

    fn look(&mut self, stage: &mut Stage) {
        if let Some(plain) = &mut self.plain {
            if let Some(text) = plain.look(&mut stage.fleet, stage.world.now(), self.server) {
                stage.oracle.violate("M", text);
            }
            return;
        }
        // Where data is lost or deleted nobody is promised a place in line.
        if self.weather.kind != Kind::Usual {
            return;
        }
        let now = stage.world.now();
        let longest = if self.weather.ttls_differ { 4_000 * MS } else { self.weather.ttl };
        let Wires { most, late, .. } = self.weather.wires;
        // A server that stood still hears of what was sent to it before when it goes on.
        let patience = (!stage.server_stood_still).then_some(Patience { alive: longest / 4 * 3, late: most + late });
        let store = stage.fleet.store(self.server, now);
        if let Some(text) = self.line.look(store, now, patience, &stage.oracle) {
            stage.oracle.violate("P", text);
        }
    }

    fn recovery(&self) -> Duration {
        // The longest ttl, a lock delay, and a tombstone.
        Duration::from_secs(4 + 2 + 5)
    }

    fn connect(&self, host: HostId, context: Context) -> LocalBoxFuture<'static, Option<Locks>> {
        let config = self.config.clone().with_network(Arc::new(HostNetwork(host)));
        Box::pin(async move { Redis::connect_in(config, context).await.ok().map(|redis| Locks::new(redis)) })
    }
}

/// A clock on the wall in 2020.
fn wall(offset: i64, drift: i64) -> LocalClock {
    LocalClock::new((1_600_000_000 * SECOND).saturating_add_signed(offset), drift)
}
