//! One Redis server: the shipped backend with either way to wait, its clients and its server under faults.

mod kept;
mod line;
mod safeguards;
mod weather;

use std::{sync::Arc, time::Duration};

use futures::future::LocalBoxFuture;
use lock_core::{Context, Locks};
use lock_redis::{Config, Redis};

use self::{
    line::{Lines, Patience},
    weather::{Kind, Weather},
};
use crate::{
    Chance, Fact, LocalClock, MS, Machine, Outcome, SECOND, Safeguard, Sort, Time, Trace,
    contest::{Grant, Oracle, Scene, Stage, Without, compete, faults},
    redis::{Fleet, HostNetwork, Loses, address},
    world::{HostClocks, HostId, ServerId, Stop, Wires, World},
};

/// A server, and clients that compete for a lock on it.
#[derive(Debug)]
pub struct OneRedis;

const LOST: usize = faults::fact::COUNT;
const DELETED: usize = LOST + 1;
const JUMPED: usize = LOST + 2;
const SEMAPHORE: usize = LOST + 3;
const DELAYED: usize = LOST + 4;
const HEAD_LOST: usize = LOST + 5;

const FACTS: [Fact; faults::fact::COUNT + 6] = {
    let mut facts = [Fact { name: "", sort: Sort::Fault }; faults::fact::COUNT + 6];
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
    facts
};

impl Machine for OneRedis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn about(&self) -> &'static str {
        "the shipped backend on one Redis"
    }

    fn tested(&self) -> u64 {
        600
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        &safeguards::SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        &FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        let without = Without::taking_out(&safeguards::ALL, without);
        let mut chance = Chance::new(seed);
        let mut weather = Weather::draw(&mut chance);
        without.change(&mut weather.wires);
        let (stage, mut scene) = prepare(weather, &without, chance, std::mem::take(trace));
        let (outcome, told) = stage.play(&mut scene);
        *trace = told;
        outcome
    }
}

struct Only {
    weather: Weather,
    server: ServerId,
    config: Config,
    line: Lines,
}

fn prepare(weather: Weather, without: &Without, mut chance: Chance, trace: Trace) -> (Stage, Only) {
    let oracle = Oracle::new(trace);
    oracle.note("world", format_args!("{weather:?}"));
    let mut world = World::new(Chance::new(chance.below(u64::MAX)), weather.wires);
    let clients: Vec<HostId> = (0..weather.clients).map(|_| world.add_host(weather.clocks(&mut chance))).collect();
    let operator = world.add_host(HostClocks::true_time());
    let mut fleet = Fleet::default();
    let server = fleet.add(&mut world, weather.server_clock(&mut chance), without.removal());
    let at = address(server);
    let config = Config::new(at.host, at.port);
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
        server_stood_still: false,
        wires: weather.wires,
    };
    let scene = Only { weather, server, config, line: Lines::default() };
    oracle_begins(&mut stage, &scene, &mut chance);
    plan(&mut stage, &weather, &mut chance);
    (stage, scene)
}

fn oracle_begins(stage: &mut Stage, scene: &Only, chance: &mut Chance) {
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
                    Ok(redis) => return compete(Locks::new(redis), clock, host, habits, oracle, own).await,
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

impl Scene for Only {
    fn kept(&mut self, stage: &mut Stage, grant: &Grant) -> Time {
        kept::until(&mut stage.fleet, stage.world.now(), self.server, grant)
    }

    fn residue(&mut self, stage: &mut Stage, at_once: bool) -> Option<String> {
        if at_once && self.weather.kind == Kind::Losing {
            // A server that comes back with old data has what was given back since.
            return None;
        }
        kept::residue(&mut stage.fleet, stage.world.now(), self.server, at_once)
    }

    fn strike(&mut self, stage: &mut Stage, number: u32) {
        let (now, server) = (stage.world.now(), self.server);
        if self.weather.kind == Kind::Losing && number % 4 == 1 {
            // Nobody loses anything by that.
            stage.oracle.count(HEAD_LOST);
            stage.oracle.note("world", format_args!("the head is deleted"));
            stage.fleet.at(server, now).store_mut().remove(kept::keys().token().as_bytes());
            return;
        }
        stage.oracle.excuse();
        match self.weather.kind {
            Kind::Usual => {}
            Kind::Losing => {
                stage.oracle.count(LOST);
                if number.is_multiple_of(3) {
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
                for keys in kept::lines() {
                    for key in [keys.lock, keys.members, keys.notes] {
                        stage.fleet.at(server, now).store_mut().remove(key.as_bytes());
                    }
                }
            }
            Kind::Meddled => {
                stage.oracle.count(JUMPED);
                let by = i64::from(number) * 4_000_000;
                stage.oracle.note("world", format_args!("the server's clock jumps by {} ms", by / 1_000_000));
                stage.fleet.jump(server, now, by);
            }
        }
    }

    fn calm(&mut self, _: &mut Stage) {}

    fn look(&mut self, stage: &mut Stage) {
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
