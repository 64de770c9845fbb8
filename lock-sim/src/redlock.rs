//! Redlock as it is shipped, on three or five simulated servers: clients that compete, servers that restart without their
//! data, one after the other or several at once, and an operator who replaces members.
//!
//! What is checked beside what every contest checks (T): a holder believes in its grant for no longer than a majority of
//! the members gives no vote to anybody whom it excludes, because they keep the grant, or are kept from voting.

mod aim;
mod kept;
mod operator;
pub mod safeguards;
mod weather;

use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};

use futures::future::LocalBoxFuture;
use lock_core::{Context, Locks, LocksOptions};
use lock_redis::{
    node::NodeConfig,
    wire::{Address, Network},
};
use lock_redlock::Config;

use self::{
    aim::Director,
    kept::Records,
    operator::{Order, Orders},
    weather::{Aim, Kind, Weather},
};
use crate::{
    Chance, Fact, MS, Machine, Outcome, SECOND, Safeguard, Sort, Time, Trace,
    contest::{Grant, Oracle, Scene, Stage, Without, compete, faults},
    redis::{Fleet, HostNetwork, Loses, address},
    world::{HostClocks, HostId, ServerId, Stop, World},
};

/// A deployment of servers, and clients that compete for a lock on it.
#[derive(Debug)]
pub struct Redlock;

const ROLLING: usize = faults::fact::COUNT;
const DELETED: usize = ROLLING + 1;
const JUMPED: usize = ROLLING + 2;
const REPLACED: usize = ROLLING + 3;
const REFUSED: usize = ROLLING + 4;
const INIT: usize = ROLLING + 5;
const RESET: usize = ROLLING + 6;
const FORGETFUL: usize = ROLLING + 7;
const OVERTAKEN: usize = ROLLING + 8;
const KEPT_OUT: usize = ROLLING + 9;

const FACTS: [Fact; faults::fact::COUNT + 10] = {
    let mut facts = [Fact { name: "", sort: Sort::Fault }; faults::fact::COUNT + 10];
    let mut place = 0;
    while place < faults::fact::COUNT {
        facts[place] = faults::fact::FACTS[place];
        place += 1;
    }
    facts[ROLLING] = Fact { name: "all servers restarted one after the other", sort: Sort::Fault };
    facts[DELETED] = Fact { name: "somebody deleted the lock on servers", sort: Sort::Fault };
    facts[JUMPED] = Fact { name: "a server's clock jumped", sort: Sort::Fault };
    facts[REPLACED] = Fact { name: "a server made a member in the place of another", sort: Sort::Coverage };
    facts[REFUSED] = Fact { name: "a change of the members refused or broken off", sort: Sort::Fault };
    facts[RESET] = Fact { name: "a deployment that could only be reset in the end", sort: Sort::Fault };
    facts[FORGETFUL] =
        Fact { name: "a server lost its data when it was told of a change of the members", sort: Sort::Fault };
    facts[OVERTAKEN] =
        Fact { name: "a vote that arrived when others had held behind its holder's back", sort: Sort::Coverage };
    facts[KEPT_OUT] = Fact { name: "a holder kept from joining a server that stays", sort: Sort::Coverage };
    facts[INIT] = Fact { name: "a deployment marked again in the end", sort: Sort::Coverage };
    facts
};

impl Machine for Redlock {
    fn name(&self) -> &'static str {
        "redlock"
    }

    fn about(&self) -> &'static str {
        "the shipped Redlock backend on three or five servers"
    }

    fn tested(&self) -> u64 {
        300
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
        let mut aims = Chance::new(!seed);
        let mut weather = Weather::draw(seed, &mut chance, &mut aims);
        without.change(&mut weather.wires);
        weather.keeps_stamps = without.keeps_disks();
        let (stage, mut scene) = prepare(weather, &without, [chance, aims], std::mem::take(trace));
        let (outcome, told) = stage.play(&mut scene);
        *trace = told;
        outcome
    }
}

/// The servers of a schedule of Redlock, and what faults have done to them.
struct Deployment {
    weather: Weather,
    orders: Orders,
    /// Who has lost data, or was replaced: what is left there says nothing.
    failed: Vec<ServerId>,
    director: Director,
    records: Records,
}

fn prepare(weather: Weather, without: &Without, [mut chance, aims]: [Chance; 2], trace: Trace) -> (Stage, Deployment) {
    let oracle = Oracle::new(trace);
    oracle.note("world", format_args!("{weather:?}"));
    let mut world = World::new(Chance::new(chance.below(u64::MAX)), weather.wires);
    let clients: Vec<HostId> = (0..weather.clients).map(|_| world.add_host(weather.clocks(&mut chance))).collect();
    let operator = world.add_host(HostClocks::true_time());
    let mut fleet = Fleet::default();
    let newcomers = if weather.is_replacing { 2 } else { 0 };
    let servers: Vec<ServerId> = (0..weather.servers + newcomers)
        .map(|_| fleet.add(&mut world, weather.server_clock(&mut chance), without.removal()))
        .collect();
    let (end, wires) = (weather.end, weather.wires);
    let mut stage = Stage {
        world,
        fleet,
        oracle,
        clients,
        operator,
        servers,
        end,
        is_calm: false,
        was_cut_off: !matches!(weather.aim, Aim::Nothing | Aim::Strays),
        is_lasting: weather.resets > 0 || !matches!(weather.aim, Aim::Nothing | Aim::Strays),
        most_pause: Time::MAX,
        server_stood_still: false,
        wires,
    };
    let members = stage.servers[..weather.servers].to_vec();
    let orders: Orders = Rc::new(RefCell::new(Order::new(members)));
    operator::spawn(&mut stage, &weather, &orders);
    let director = Director::new(aims);
    let scene = Deployment { weather, orders, failed: Vec::new(), director, records: Records::default() };
    for host in stage.clients.clone() {
        begin(&mut stage, &scene, host, &mut chance);
    }
    plan(&mut stage, &weather, &scene.orders, &mut chance);
    (stage, scene)
}

/// The configuration of a client on that host, with the servers that are members now.
fn config(weather: &Weather, servers: &[ServerId], host: HostId) -> Config {
    let node = |server: &ServerId| {
        let Address { host, port, .. } = address(*server);
        NodeConfig::new(host, port)
    };
    let mut config = Config::new(servers.iter().map(node).collect()).unwrap_or_else(|error| panic!("{error}"));
    config.max_ttl = Some(Duration::from_nanos(weather.max_ttl));
    let network: Arc<dyn Network> = Arc::new(HostNetwork(host));
    config.with_network(&network)
}

fn begin(stage: &mut Stage, scene: &Deployment, host: HostId, chance: &mut Chance) {
    let weather = scene.weather;
    let ttl = if weather.ttls_differ { chance.one_of(&[300, 1_000]) * MS } else { weather.ttl };
    let mut habits = Stage::habits(chance, ttl, weather.end, faults::fact::HABITS, weather.shares);
    habits.least = Duration::from_nanos(ttl / 3);
    habits.crowds = weather.is_crowded;
    if weather.resets > 0 {
        (habits.hold, habits.pause) = (chance.one_of(&[30 * MS, 2 * ttl]), 50 * MS);
    }
    let is_last = host.place() + 1 == weather.clients;
    // Few clients connect to servers that are no members yet: what is asked of these says little, but where members are
    // replaced.
    let waits = chance.below(4) > 0 && !weather.is_replacing;
    match weather.aim {
        Aim::Nothing | Aim::Forgetful => {}
        Aim::Lapse => (habits.hold, habits.pause) = (2 * ttl, 50 * MS),
        // One holds for long, and others look often whether they may.
        Aim::Behind | Aim::Replaced | Aim::Strays if host.place() == 0 => {
            (habits.hold, habits.pause, habits.tries) = (4 * ttl.min(SECOND), 10 * MS, 50);
            if weather.shares && chance.one_in(2) {
                (habits.hold, habits.reads, habits.downgrades) = (2 * ttl.min(SECOND), 0, 100);
            }
        }
        Aim::Behind | Aim::Replaced | Aim::Strays => {
            (habits.hold, habits.pause, habits.tries) = (20 * MS, 100 * MS, 100);
        }
    }
    let context = stage.world.context(host);
    let limits = [chance.one_of(&[200, 1_000]), chance.one_of(&[60, 200, 1_000])].map(Duration::from_millis);
    let (oracle, own, orders) = (stage.oracle.clone(), Chance::new(chance.below(u64::MAX)), Rc::clone(&scene.orders));
    oracle.begins(host);
    stage.world.spawn(host, async move {
        let clock = context.clock();
        while waits && !orders.borrow().is_marked {
            clock.sleep(Duration::from_millis(10)).await;
        }
        // Somebody who connects when the members have changed.
        while weather.aim == Aim::Forgetful
            && is_last
            && orders.borrow().members == orders.borrow().generations[0]
            && crate::world::true_time() < weather.end / 2
        {
            clock.sleep(Duration::from_millis(20)).await;
        }
        loop {
            let mut config = config(&weather, &orders.borrow().members, host);
            [config.connect_timeout, config.node_timeout] = limits;
            config.ttl = Some(Duration::from_nanos(ttl));
            match lock_redlock::Redlock::connect_in(config, context.clone()).await {
                Ok(redlock) => {
                    let options = LocksOptions::default().with_outage_timeout(limits[0]);
                    return compete(Locks::with_options(redlock, options), clock, host, habits, oracle, own).await;
                }
                Err(_) => clock.sleep(Duration::from_millis(100)).await,
            }
            // One that has never connected has nothing to come to an end with.
            if crate::world::true_time() > habits.until {
                return oracle.ends(host, true);
            }
        }
    });
}

fn plan(stage: &mut Stage, weather: &Weather, orders: &Orders, chance: &mut Chance) {
    let (clients, servers) = (stage.clients.clone(), stage.servers.clone());
    for _ in 0..weather.faults {
        let at = chance.below(weather.end);
        let fault = match faults::Fault::draw(chance, &clients, &servers, weather.ttl) {
            faults::Fault::Restart(server, stop, _, length) => {
                faults::Fault::Restart(server, stop, weather.loses(chance), length)
            }
            // Where a majority may lose its counters, or be replaced, tokens rise by the clocks alone.
            faults::Fault::Jump(host, by) if weather.kind == Kind::Usual => faults::Fault::Jump(host, -by.abs()),
            fault => fault,
        };
        stage.world.at(at, faults::Own::Fault(fault));
        if chance.one_in(3) {
            let save = faults::Fault::Save(chance.one_of(&servers));
            stage.world.at(chance.below(weather.end), faults::Own::Fault(save));
        }
    }
    for _ in 0..weather.resets {
        let server = chance.one_of(&servers);
        let reset = if chance.one_in(3) { faults::Fault::Reset(server) } else { faults::Fault::BreakOff(server) };
        stage.world.at(chance.below(weather.end), faults::Own::Fault(reset));
    }
    if weather.aim == Aim::Replaced {
        stage.world.at(chance.between(400 * MS, 1_500 * MS), faults::Own::Scene(0));
        let newcomers = servers[weather.servers..].iter().copied();
        let silent = chance.one_of(&servers[..weather.servers]);
        orders.borrow_mut().without_lease = Some(silent);
        for server in newcomers.chain([silent]) {
            stage.world.at(0, faults::Own::Fault(faults::Fault::Block(clients[0], server, [true; 2], weather.end)));
        }
    }
    if weather.aim == Aim::Forgetful {
        stage.world.at(chance.between(200 * MS, 1_000 * MS), faults::Own::Scene(0));
    }
    if weather.aim != Aim::Nothing {
        return;
    }
    // Somebody holds with a bare majority, of which a member is replaced.
    for _ in 0..if weather.is_replacing { 3 } else { 0 } {
        let (host, server) = (chance.one_of(&clients), chance.one_of(&servers));
        let block = faults::Fault::Block(host, server, [true; 2], chance.below(3 * weather.ttl));
        stage.world.at(chance.below(weather.end), faults::Own::Fault(block));
    }
    if weather.is_rolling {
        stage.oracle.count(ROLLING);
        let (mut at, gap) = (chance.below(weather.end / 2), chance.below(weather.max_ttl / 2));
        for server in servers {
            let (stop, length) = (Stop::Process, chance.mostly_short(weather.ttl));
            let restart = faults::Fault::Restart(server, stop, weather.loses(chance), length);
            stage.world.at(at, faults::Own::Fault(restart));
            at += length + chance.mostly_short(gap + MS);
        }
    }
    let times = if weather.kind != Kind::Usual || weather.is_replacing { chance.between(1, 4) } else { 0 };
    for _ in 0..times {
        let number = u32::try_from(chance.below(10_000)).unwrap_or(0);
        stage.world.at(chance.below(weather.end), faults::Own::Scene(number));
    }
    // The operator reaches some of the members only.
    let (operator, members) = (stage.operator, &stage.servers[..weather.servers]);
    for _ in 0..if weather.is_replacing { 2 } else { 0 } {
        let length = chance.below(4 * weather.max_ttl);
        let block = faults::Fault::Block(operator, chance.one_of(members), [true; 2], length);
        stage.world.at(chance.below(weather.end), faults::Own::Fault(block));
    }
}

impl Deployment {
    fn delete_lock(&mut self, stage: &mut Stage, server: ServerId) {
        self.failed.push(server);
        let now = stage.world.now();
        for key in kept::holding_keys() {
            stage.fleet.at(server, now).store_mut().remove(key.as_bytes());
        }
    }
}

impl Scene for Deployment {
    fn kept(&mut self, stage: &mut Stage, grant: &Grant) -> Time {
        kept::until(stage, &mut self.records, &self.orders.borrow().generations, self.weather.max_ttl, grant)
    }

    fn residue(&mut self, stage: &mut Stage, at_once: bool) -> Option<String> {
        let orders = self.orders.borrow();
        let Stage { fleet, world, servers, .. } = stage;
        servers.iter().find_map(|server| {
            let is_meant =
                orders.members.contains(server) && fleet.process(*server) == 1 && !self.failed.contains(server);
            if at_once && !is_meant {
                return None;
            }
            let left = kept::residue(fleet, world.now(), *server, at_once)?;
            Some(format!("{left} on server {}", server.place()))
        })
    }

    fn strike(&mut self, stage: &mut Stage, number: u32) {
        let now = stage.world.now();
        let server = stage.servers[number as usize % stage.servers.len()];
        match self.weather.kind {
            Kind::Usual => {
                let orders = self.orders.borrow().wants.clone();
                orders.notify_one();
            }
            Kind::Jumps => {
                stage.oracle.excuse();
                stage.oracle.count(JUMPED);
                let by = i64::from(number % 2_000) * 1_000_000;
                stage
                    .oracle
                    .note("world", format_args!("the clock of {} jumps by {} ms", server.place(), by / 1_000_000));
                stage.fleet.jump(server, now, by);
            }
            Kind::Deletions if self.weather.aim == Aim::Behind => {
                stage.oracle.excuse();
                stage.oracle.count(DELETED);
                for server in stage.servers.clone().into_iter().filter(|server| number >> server.place() & 1 == 1) {
                    stage.oracle.note("world", format_args!("the lock is deleted on {}", server.place()));
                    self.delete_lock(stage, server);
                }
            }
            Kind::Deletions => {
                stage.oracle.excuse();
                stage.oracle.count(DELETED);
                let all = number.is_multiple_of(2);
                stage.oracle.note("world", format_args!("the lock is deleted on {}, on all: {all}", server.place()));
                for other in stage.servers.clone().into_iter().filter(|other| all || *other == server) {
                    self.delete_lock(stage, other);
                }
            }
        }
    }

    fn calm(&mut self, _: &mut Stage) {
        self.orders.borrow_mut().is_calm = true;
        self.orders.borrow().wants.notify_one();
    }

    fn look(&mut self, stage: &mut Stage) {
        let Self { weather, orders, director, records, .. } = self;
        director.look(stage, weather, orders);
        // Servers that do not keep their stamps may come to the same, which is to be found.
        if orders.borrow().is_stuck && weather.keeps_stamps {
            let mut orders = orders.borrow_mut();
            orders.can_only_be_reset = kept::is_forgotten(stage, records, &orders.generations, &orders.members);
        }
        // An operator may take some time to empty what was replaced.
        if self.weather.aim == Aim::Forgetful && !self.orders.borrow().is_calm {
            return;
        }
        let emptied = std::mem::take(&mut self.orders.borrow_mut().to_empty);
        for server in emptied {
            stage.oracle.note("operator", format_args!("empties server {}", server.place()));
            let now = stage.world.now();
            stage.fleet.at(server, now).store_mut().flush();
            if !stage.world.is_stopped(server) {
                stage.fleet.stop(&mut stage.world, server, Stop::Process);
            }
            stage.fleet.start(&mut stage.world, server, Loses::Everything);
        }
    }

    fn recovery(&self) -> Duration {
        // What is mended last, a quarantine, the longest ttl, a tombstone, and notes of those who wait.
        Duration::from_nanos(2 * self.weather.max_ttl) + Duration::from_secs(90)
    }

    fn connect(&self, host: HostId, context: Context) -> LocalBoxFuture<'static, Option<Locks>> {
        let config = config(&self.weather, &self.orders.borrow().members, host);
        Box::pin(async move {
            lock_redlock::Redlock::connect_in(config, context).await.ok().map(|redlock| Locks::new(redlock))
        })
    }
}
