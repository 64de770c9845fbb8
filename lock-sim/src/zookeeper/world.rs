//! Everything together, and what happens next.

use std::{fmt, rc::Rc};

use lock_zk::protocol::queue::NUMBERS_END;

use super::{
    client::Client,
    contender::{Phase, Slot},
    ensemble::{Entry, Leader},
    fact::Seen,
    guard::Guard,
    message::Event,
    oracle::Oracle,
    server::{Link, Role, Server},
    tree::Tree,
    weather::Weather,
};
use crate::{Agenda, Chance, Counts, LocalClock, MS, Outcome, SECOND, Time, Trace};

/// What the operators have chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    pub(super) tick: Time,
    /// Of a session.
    pub(super) timeout: Time,
    /// For how long a follower and a leader do without each other.
    pub(super) sync_limit: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Active,
    /// Nothing goes wrong any more, nobody comes, and nobody lets go.
    Calm,
    /// The holders release.
    Ending,
    Over,
}

pub(super) struct World<'a> {
    pub(super) agenda: Agenda<Event>,
    pub(super) chance: Chance,
    pub(super) trace: &'a mut Trace,
    pub(super) counts: Counts,
    pub(super) grants: u64,
    without: Option<usize>,
    pub(super) settings: Settings,
    pub(super) weather: Weather,
    pub(super) servers: Vec<Server>,
    pub(super) leader: Option<Leader>,
    pub(super) epoch: u32,
    pub(super) log: Vec<Rc<Entry>>,
    pub(super) committed: usize,
    pub(super) zxid: u64,
    pub(super) sessions: u32,
    pub(super) links: u32,
    pub(super) clients: Vec<Client>,
    pub(super) conns: u32,
    pub(super) timers: u32,
    pub(super) chores: u32,
    pub(super) uniques: u32,
    pub(super) oracle: Oracle,
    stage: Stage,
    deadline: Time,
    /// How many changes there were at the last look, and for how many looks that has stayed so.
    quiet: (u64, u32),
}

/// What a tick lasts: all else is in proportion.
const TICK: Time = 100 * MS;

fn drift(chance: &mut Chance) -> i64 {
    if chance.one_in(2) { chance.one_of(&[-4_500, 4_500]) } else { chance.signed(-4_500, 4_500) }
}

impl<'a> World<'a> {
    pub(super) fn new(seed: u64, without: Option<usize>, trace: &'a mut Trace) -> Self {
        let mut chance = Chance::new(seed);
        let settings = Settings {
            tick: TICK,
            timeout: TICK * chance.one_of(&[4, 4, 6, 10]),
            sync_limit: TICK * chance.one_of(&[2, 5]),
        };
        let weather = Weather::draw(&mut chance, TICK);
        let counter = if chance.one_in(2) { NUMBERS_END - 3 } else { 0 };
        let directory = !chance.one_in(4);
        let tree = Tree { directory, counter, children: Vec::new(), pzxid: 0 };
        let mut clock = || LocalClock::new(10 * SECOND + chance.below(SECOND), drift(&mut chance));
        let servers = (0..3).map(|_| Server::new(tree.clone(), clock())).collect();
        let clocks = [clock(), clock(), clock(), clock()];
        let programs = usize::try_from(chance.between(2, 4)).unwrap_or(2);
        let clients = clocks[..programs].iter().map(|clock| {
            let slots = (0..chance.between(1, 2)).map(|_| Slot::new()).collect();
            Client::new(*clock, slots)
        });
        let clients = clients.collect();
        Self {
            agenda: Agenda::default(),
            chance,
            trace,
            counts: Counts::default(),
            grants: 0,
            without,
            settings,
            weather,
            servers,
            leader: None,
            epoch: 0,
            log: Vec::new(),
            committed: 0,
            zxid: 0,
            sessions: 0,
            links: 0,
            clients,
            conns: 0,
            timers: 0,
            chores: 0,
            uniques: 0,
            oracle: Oracle::default(),
            stage: Stage::Active,
            deadline: 0,
            quiet: (0, 0),
        }
    }

    /// Whether that safeguard is in place.
    pub(super) fn has(&self, guard: Guard) -> bool {
        self.without != Some(guard as usize)
    }

    pub(super) fn now(&self) -> Time {
        self.agenda.now()
    }

    pub(super) fn note(&mut self, who: impl fmt::Display, what: fmt::Arguments<'_>) {
        self.trace.note(self.agenda.now(), who, what);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.stage != Stage::Active
    }

    pub(super) fn is_ending(&self) -> bool {
        self.stage == Stage::Ending
    }

    pub(super) fn play(mut self) -> Outcome {
        self.prepare();
        let mut steps = 0;
        while self.stage != Stage::Over && self.oracle.violation.is_none() {
            let Some(event) = self.agenda.next_event() else { break };
            steps += 1;
            if let Some((until, event)) = self.postponed(event) {
                self.agenda.at(until, event);
            }
        }
        Outcome { violation: self.oracle.violation, grants: self.grants, steps, counts: self.counts }
    }

    fn prepare(&mut self) {
        self.elect(0, &[0, 1, 2]);
        self.counts = Counts::default();
        for server in 0..self.servers.len() {
            self.agenda.after(self.settings.tick / 2, Event::Check { server });
        }
        for client in 0..self.clients.len() {
            self.connect_soon(client);
            self.agenda.after(0, Event::Beat { client });
            for slot in 0..self.clients[client].slots.len() {
                self.agenda.after(0, Event::Timer { client, slot, timer: 0 });
            }
        }
        self.agenda.after(self.settings.tick, Event::Weather);
        self.agenda.after(self.settings.timeout, Event::Reap);
        let active = self.settings.timeout * 2 + self.chance.below(self.settings.timeout * 3);
        self.agenda.after(active, Event::Stage);
    }

    /// Plays an event; or gives it back, with the time at which whom it concerns goes on.
    fn postponed(&mut self, event: Event) -> Option<(Time, Event)> {
        let now = self.now();
        let leader = self.leader.as_ref().map(|leader| leader.server);
        let until = match &event {
            Event::Arrive { server, .. } | Event::ToFollower { server, .. } | Event::Apply { server, .. } => {
                self.servers[*server].deaf_until
            }
            Event::ToLeader { .. } => leader.map_or(0, |leader| self.servers[leader].deaf_until),
            Event::Check { server } => self.servers[*server].paused_until,
            Event::Commit { .. } | Event::Expire { .. } | Event::LeaderTick { .. } | Event::Reap => {
                leader.map_or(0, |leader| self.servers[leader].paused_until)
            }
            Event::Deliver { client, .. }
            | Event::HungUp { client, .. }
            | Event::Beat { client }
            | Event::Connect { client, .. }
            | Event::Timer { client, .. }
            | Event::Chore { client, .. } => self.clients[*client].paused_until,
            Event::Weather | Event::Cut { .. } | Event::Heal { .. } | Event::HealClient { .. } | Event::Stage => 0,
        };
        if until > now {
            return Some((until, event));
        }
        self.happen(event);
        None
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive { server, conn, message } => self.arrive(server, conn, message),
            Event::Deliver { client, conn, message } => self.deliver(client, conn, message),
            Event::HungUp { client, conn } => self.hung_up(client, conn),
            Event::ToLeader { from, link, message } if self.is_linked(from, link) && self.follows(from) => {
                self.leader_hears(from, message);
            }
            Event::ToFollower { server, link, message } if self.is_linked(server, link) => {
                self.follower_hears(server, message);
            }
            Event::Apply { server, link, upto } if self.is_linked(server, link) => self.apply(server, upto),
            Event::Commit { epoch, upto } if epoch == self.epoch => self.commit(upto),
            Event::Expire { epoch, session } if epoch == self.epoch => self.expire(session),
            Event::LeaderTick { epoch } if epoch == self.epoch => self.leader_tick(),
            Event::Check { server } => self.check(server),
            Event::Reap => self.reap(),
            Event::Beat { client } => self.beat(client),
            Event::Connect { client, attempt } => self.connect(client, attempt),
            Event::Timer { client, slot, timer } => self.timer(client, slot, timer),
            Event::Chore { client, chore } => self.do_chore(client, chore),
            Event::Weather => self.change_weather(),
            Event::Cut { server } => self.mute_server(server),
            Event::Heal { server } => self.heal(server),
            Event::HealClient { client } => self.heal_client(client),
            Event::Stage => self.next_stage(),
            // Of a connection or an epoch that is over.
            _ => {}
        }
    }

    fn is_linked(&self, server: usize, link: u32) -> bool {
        self.servers[server].role == Role::Following && self.servers[server].link.number == link
    }

    fn next_stage(&mut self) {
        match self.stage {
            Stage::Active => self.calm_down(),
            Stage::Calm | Stage::Ending => self.look_for_rest(),
            Stage::Over => {}
        }
    }

    fn calm_down(&mut self) {
        self.stage = Stage::Calm;
        self.note("-", format_args!("nothing goes wrong any more, nobody comes, and nobody lets go"));
        for server in 0..self.servers.len() {
            self.heal(server);
        }
        for client in 0..self.clients.len() {
            self.heal_client(client);
        }
        self.wait_for_rest();
    }

    fn wait_for_rest(&mut self) {
        self.quiet = (self.oracle.changes, 0);
        self.deadline = self.now() + self.settings.timeout * 6 + self.settings.sync_limit * 2 + self.settings.tick * 20;
        self.agenda.after(self.settings.tick, Event::Stage);
    }

    /// Looks whether all is quiet, and as it should be then.
    fn look_for_rest(&mut self) {
        let looks = if self.quiet.0 == self.oracle.changes { self.quiet.1 + 1 } else { 0 };
        self.quiet = (self.oracle.changes, looks);
        let unrest = self.unrest();
        let quiet = looks >= 2 && unrest.is_none();
        match self.stage {
            Stage::Calm if quiet => {
                if self.somebody_waits() {
                    self.counts.add(Seen::SleptInPeace as usize);
                }
                self.let_go();
            }
            Stage::Ending if quiet && self.is_over() => self.stage = Stage::Over,
            _ if self.now() > self.deadline => {
                let (invariant, text) = unrest.unwrap_or_else(|| ("P", "it never becomes quiet".to_owned()));
                self.violate(invariant, text);
            }
            _ => self.agenda.after(self.settings.tick, Event::Stage),
        }
    }

    fn let_go(&mut self) {
        self.stage = Stage::Ending;
        self.note("-", format_args!("those who hold let go"));
        for client in 0..self.clients.len() {
            for slot in 0..self.clients[client].slots.len() {
                if self.clients[client].slots[slot].phase == Phase::Holding {
                    self.release(client, slot);
                }
            }
        }
        self.wait_for_rest();
    }
}

impl Server {
    fn new(tree: Tree, clock: LocalClock) -> Self {
        Self {
            role: Role::Looking,
            paused_until: 0,
            deaf_until: 0,
            mute: false,
            deaf: false,
            link: Link::default(),
            heard: 0,
            tree,
            applied: 0,
            zxid: 0,
            conns: Vec::new(),
            active: 0,
            clock,
        }
    }
}
