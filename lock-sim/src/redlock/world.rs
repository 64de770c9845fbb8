//! The world of a schedule: nodes, clients, what is on its way between them, and what goes wrong.

use lock_core::BootInstant;
use lock_redlock::protocol::ballots::Ballot;

use super::{
    client::Client,
    faults::Loses,
    grants::Grants,
    members::Members,
    node::{Call, Node, Said, TOMBSTONE},
    round::Round,
    rules::Rules,
    weather::{Kind, Weather},
};
use crate::{Agenda, Chance, Counts, LocalClock, MS, Outcome, Pipe, SECOND, Time, Trace, Violation, clock};

/// What is counted, by its place.
pub(super) mod fact {
    use crate::{Fact, Sort};

    pub(crate) const LOST: usize = 0;
    pub(crate) const STRAY: usize = 1;
    pub(crate) const TWICE: usize = 2;
    pub(crate) const RESTART: usize = 3;
    pub(crate) const FORGOT: usize = 4;
    pub(crate) const COUNTER: usize = 5;
    pub(crate) const JUMP: usize = 6;
    pub(crate) const PAUSE: usize = 7;
    pub(crate) const DEATH: usize = 8;
    pub(crate) const APART: usize = 9;
    pub(crate) const WRITER: usize = 10;
    pub(crate) const READER: usize = 11;
    pub(crate) const RENEWED: usize = 12;
    pub(crate) const REJOINED: usize = 13;
    pub(crate) const LATE_JOIN: usize = 14;
    pub(crate) const DOWNGRADED: usize = 15;
    pub(crate) const WRITTEN_BACK: usize = 16;
    pub(crate) const RENUMBERED: usize = 17;
    pub(crate) const LEASE_LOST: usize = 18;
    pub(crate) const QUARANTINED: usize = 19;
    pub(crate) const UNDONE: usize = 20;
    pub(crate) const WOKEN: usize = 21;
    pub(crate) const TOO_LATE: usize = 22;
    pub(crate) const DELETED: usize = 23;
    pub(crate) const PASSED_BY: usize = 24;
    pub(crate) const REPLACED: usize = 25;
    pub(crate) const MOVED: usize = 26;
    pub(crate) const STRANGER: usize = 27;

    const fn fault(name: &'static str) -> Fact {
        Fact { name, sort: Sort::Fault }
    }

    const fn situation(name: &'static str) -> Fact {
        Fact { name, sort: Sort::Coverage }
    }

    pub(crate) const FACTS: &[Fact] = &[
        fault("a message lost"),
        fault("a request that arrived after its connection broke"),
        fault("a request that arrived twice"),
        fault("a node restarted"),
        fault("a node without its data, or with an old state of it"),
        fault("a counter lost"),
        fault("a node's clock jumped"),
        fault("a program stopped for a while"),
        fault("a program died"),
        fault("two held after a jump or a deletion (recorded)"),
        situation("a writer granted"),
        situation("a reader granted"),
        situation("a lease renewed by a majority"),
        situation("a node taken again"),
        situation("a node that granted late joined"),
        situation("a writer became a reader"),
        situation("a token written back"),
        situation("a reader's number proposed anew"),
        situation("a lease lost while it was held"),
        situation("a vote refused in quarantine"),
        situation("an acquisition after its undo"),
        situation("a waiter woken"),
        situation("a vote won too late"),
        fault("a lock deleted on a node by somebody"),
        situation("a node that granted late by a number above the token"),
        situation("a server made a member in the place of another"),
        situation("a lease moved to another generation of the members"),
        situation("a vote or renewal of another generation refused"),
    ];
}

/// What a request is about, within its round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Vote,
    Settle(u8),
    Join,
    Renewal(u16),
    Downgrade,
    Undo(u16),
}

/// What a client wakes up for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Alarm {
    /// Its next round, unless it has begun since: of that many rounds.
    Begin(u32),
    /// An answer that did not come is not waited for any longer.
    Limit(Stage),
    Renew,
    Downgrade,
    Release,
    /// Nothing new is begun, and what waits stops.
    Stop,
}

/// What happens. `Replace`: an operator has a member replaced, or completes that. `Mark`: a server is told of a generation by a
/// client or, `by` nobody, by the operator's tool, and is made a member of it if this `enlists`. `Identify`: a client looks
/// which server is which.
#[derive(Debug)]
pub(super) enum Event {
    Request { to: To, round: u16, stage: Stage, call: Call, is_answered: bool },
    Answer { client: u8, node: u8, generation: u8, round: u16, stage: Stage, said: Option<Said> },
    News { client: u8 },
    Alarm { client: u8, round: u16, alarm: Alarm },
    Fault,
    Restart { node: u8, loses: Loses },
    Pause,
    Replace,
    Mark { server: u8, generation: u8, by: Option<u8>, enlists: bool },
    Marked { server: u8, generation: u8, by: Option<u8> },
    Identify { client: u8 },
}

/// By whom a request comes, and to whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct To {
    client: u8,
    /// The place, and which server is there in this generation.
    node: u8,
    generation: u8,
    server: u8,
    /// The process to which it is connected.
    boot: u32,
}

pub(super) struct Server {
    pub(super) node: Node,
    pub(super) clock: LocalClock,
    pub(super) is_up: bool,
    /// Which process it is.
    pub(super) boot: u32,
    pub(super) snapshot: (Node, usize),
    /// The generation of its stamp.
    pub(super) told: usize,
    pub(super) has_failed: bool,
}

pub(super) struct World<'t> {
    pub(super) agenda: Agenda<Event>,
    pub(super) chance: Chance,
    pub(super) trace: &'t mut Trace,
    pub(super) rules: Rules,
    pub(super) weather: Weather,
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    pub(super) rounds: Vec<Round>,
    pub(super) grants: Grants,
    pub(super) members: Members,
    pub(super) violation: Option<Violation>,
    pub(super) counts: Counts,
    steps: u64,
    pub(super) is_calm: bool,
    /// Whether a proxy keeps the clients' connections while a server restarts.
    is_proxied: bool,
}

/// When wall clocks begin.
const EPOCH: Time = 1_600_000_000 * SECOND;

impl<'t> World<'t> {
    pub(super) fn new(seed: u64, rules: Rules, trace: &'t mut Trace) -> Self {
        let mut chance = Chance::new(seed);
        let weather = Weather::draw(&mut chance);
        // By the seed and not by chance, so that the schedules are the same that they were without proxies.
        let is_proxied = seed.is_multiple_of(3);
        let server = |chance: &mut Chance, boot: u32| {
            let offset = chance.signed(-weather.offset, weather.offset) * 1_000;
            let clock =
                LocalClock::new(EPOCH.saturating_add_signed(offset), chance.signed(-weather.drift, weather.drift));
            let node = Node::marked(boot, weather.max_ttl);
            Server { snapshot: (node.clone(), 0), node, clock, is_up: true, boot, told: 0, has_failed: false }
        };
        let mut servers: Vec<Server> =
            (0..weather.nodes).map(|node| server(&mut chance, 100 * (u32::try_from(node).unwrap_or(0) + 1))).collect();
        // One more than compete: it looks in the end whether the lock can be had.
        let clients = (0..=weather.clients).map(|client| Client::new(client, &weather, &mut chance)).collect();
        let members = Members::new(weather.nodes, Members::are_replaced(seed, weather.kind));
        for newcomer in 0..members.newcomers() {
            let mut server = server(&mut chance, 1_000 * (u32::try_from(newcomer).unwrap_or(0) + 1));
            server.node.forget(true);
            server.save();
            servers.push(server);
        }
        Self {
            agenda: Agenda::default(),
            chance,
            trace,
            rules,
            weather,
            servers,
            clients,
            rounds: Vec::with_capacity(32),
            grants: Grants::default(),
            members,
            violation: None,
            counts: Counts::default(),
            steps: 0,
            is_calm: false,
            is_proxied,
        }
    }

    pub(super) fn play(mut self) -> Outcome {
        let Weather { kind, nodes, ttl, max_ttl, .. } = self.weather;
        self.note("world", |_| format!("{kind:?}, {nodes} nodes, ttl {ttl:?}, max_ttl {max_ttl} ms"));
        self.plan();
        self.run();
        if self.violation.is_none() {
            self.check_that_nothing_is_left();
        }
        if self.violation.is_none() {
            self.probe();
        }
        let grants = self.grants.count();
        Outcome { violation: self.violation, grants, steps: self.steps, counts: self.counts }
    }

    fn plan(&mut self) {
        let Weather { kind, end, faults, clients, .. } = self.weather;
        for client in 0..clients {
            let is_late_writer = kind == Kind::Crowd && client + 1 == clients;
            let at = if is_late_writer { 150 * MS } else { self.chance.mostly_short(end / 2) };
            self.alarm_at(client, 0, at, Alarm::Begin(0));
            self.alarm_at(client, 0, end, Alarm::Stop);
        }
        let faults = match kind {
            Kind::Jumps => self.chance.between(1, 4),
            Kind::Deletions => self.chance.between(4, 14),
            Kind::Resent => {
                self.raise_counters();
                self.chance.between(10, 60)
            }
            _ => faults,
        };
        for _ in 0..faults {
            let at = self.chance.below(end);
            self.agenda.at(at, Event::Fault);
        }
        if self.members.may_change() {
            self.plan_replacements();
        }
        if self.weather.stops {
            for _ in 0..self.chance.between(1, 3) {
                let at = self.chance.below(end);
                self.agenda.at(at, Event::Pause);
            }
        }
    }

    fn run(&mut self) {
        while self.violation.is_none() {
            let Some(event) = self.agenda.next_event() else { return };
            self.steps += 1;
            self.is_calm |= self.now() >= self.weather.end;
            // No schedule goes on for ever.
            if self.steps > 20_000 {
                return self.violate("P", "it does not come to an end".to_owned());
            }
            self.happen(event);
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { to, round, stage, call, is_answered } => {
                let server = &self.servers[usize::from(to.server)];
                // A restart breaks every connection, unless a proxy keeps the clients'.
                if server.is_up && (server.boot == to.boot || self.is_proxied) {
                    self.serve(to, round, stage, &call, is_answered);
                }
            }
            Event::Answer { client, .. }
            | Event::News { client }
            | Event::Alarm { client, .. }
            | Event::Identify { client }
            | Event::Marked { by: Some(client), .. } => {
                let it = &self.clients[usize::from(client)];
                if it.is_dead {
                    return;
                }
                // A program that is stopped finds everything when it goes on.
                if it.stopped_until > self.now() {
                    return self.agenda.at(it.stopped_until, event);
                }
                clock::show(BootInstant::from_nanos(it.clock.at(self.now())));
                match event {
                    Event::Answer { client, node, generation, round, stage, said } => {
                        if matches!(said, Some(Said::Ballot(Ballot::Stranger(_)))) {
                            self.met_a_stranger(client.into(), node.into(), generation.into());
                        }
                        self.answered(round.into(), node.into(), stage, said);
                    }
                    Event::News { client } => self.heard_news(client.into()),
                    Event::Identify { client } => self.identify(client.into()),
                    Event::Marked { server, generation, by } => self.marked(server.into(), generation.into(), by),
                    Event::Alarm { client, round, alarm } => self.rang(client.into(), round.into(), alarm),
                    _ => {}
                }
            }
            Event::Fault => self.fault(),
            Event::Restart { node, loses } => self.restart(node.into(), loses),
            Event::Pause => self.pause(),
            Event::Replace => self.replace(),
            Event::Mark { server, generation, by, enlists } => self.mark(server, generation, by, enlists),
            Event::Marked { server, generation, by: None } => self.marked(server.into(), generation.into(), None),
        }
    }

    fn serve(&mut self, to: To, round: u16, stage: Stage, call: &Call, is_answered: bool) {
        let To { client, node, generation, server, .. } = to;
        let now = self.now();
        let is_stranger = self.is_stranger(to, call);
        let server = &mut self.servers[usize::from(server)];
        let at = server.clock.at(now) / 1_000;
        let is_marked = server.node.is_marked();
        let said = if is_stranger {
            server.node.woken = 0;
            Said::Ballot(Ballot::Stranger(server.told.to_string()))
        } else {
            server.node.take(at, server.boot, call, self.rules.checks)
        };
        let woken = server.node.woken;
        if !is_marked && !self.members.may_change() {
            // Its client finds out what the server is; where a majority has lost its data, the operator does.
            server.node.enlist(at, server.boot, self.weather.max_ttl, self.rules.checks);
        }
        self.note_served(to.server, client, call, &said);
        self.count_said(&said);
        for waiter in 0..self.clients.len() {
            if woken & (1 << waiter) != 0 {
                self.counts.add(fact::WOKEN);
                let delay = self.weather.wire.delay(&mut self.chance);
                self.agenda.after(delay, Event::News { client: u8::try_from(waiter).unwrap_or(0) });
            }
        }
        if !is_answered {
            return;
        }
        if !self.is_calm && self.chance.per_mille(self.weather.wire.lost_per_mille) {
            return self.counts.add(fact::LOST);
        }
        let delay = self.delay();
        let at = self.clients[usize::from(client)].answers[usize::from(node)].arrival(now, delay);
        self.agenda.at(at, Event::Answer { client, node, generation, round, stage, said: Some(said) });
    }

    /// Whether the server has the stamp of another generation than the client, and so answers to nothing that counts.
    fn is_stranger(&mut self, to: To, call: &Call) -> bool {
        let stamp = self.servers[usize::from(to.server)].stamp();
        let is_stranger = self.rules.generation
            && !matches!(call, Call::Undo { .. })
            && stamp.is_some_and(|stamp| stamp != usize::from(to.generation));
        if is_stranger {
            self.counts.add(fact::STRANGER);
        }
        is_stranger
    }

    fn count_said(&mut self, said: &Said) {
        match said {
            Said::Ballot(Ballot::Quarantined(_)) => self.counts.add(fact::QUARANTINED),
            Said::Ballot(Ballot::Undone) => self.counts.add(fact::UNDONE),
            _ => {}
        }
    }

    /// Sends a request to a node.
    pub(super) fn ask(&mut self, round: usize, node: usize, stage: Stage, call: Call) {
        let client = self.rounds[round].client;
        let now = self.now();
        let (wire, stray) = (self.weather.wire, self.weather.stray_per_mille);
        let generation = self.clients[client].generation;
        let server = self.members.server(generation, node);
        let round = u16::try_from(round).unwrap_or(0);
        let [from, number, generation, place] =
            [client, node, generation, server].map(|number| u8::try_from(number).unwrap_or(0));
        let server = &self.servers[server];
        if !server.is_up && !matches!(stage, Stage::Undo(_)) && self.chance.one_in(2) {
            let delay = self.delay();
            self.agenda
                .after(delay, Event::Answer { client: from, node: number, generation, round, stage, said: None });
            return;
        }
        let to = To { client: from, node: number, generation, server: place, boot: server.boot };
        let request = |is_answered| Event::Request { to, round, stage, call, is_answered };
        if !self.is_calm && self.chance.per_mille(wire.lost_per_mille) {
            return self.counts.add(fact::LOST);
        }
        if !self.is_calm && self.chance.per_mille(stray) {
            self.counts.add(fact::STRAY);
            // It is not on its way for longer than an undo is tried, and that is not for longer than a tombstone is kept.
            let late = self.chance.below(self.weather.ttl().min(TOMBSTONE * MS * 4 / 5));
            return self.agenda.after(late, request(false));
        }
        let delay = self.delay();
        let at = self.clients[client].requests[node].arrival(now, delay);
        self.agenda.at(at, request(true));
        if !self.is_calm && self.chance.per_mille(wire.twice_per_mille) {
            self.counts.add(fact::TWICE);
            let late = self.chance.mostly_short(2 * self.weather.ttl());
            self.agenda.at(at + late, request(true));
        }
    }

    pub(super) fn delay(&mut self) -> Time {
        if self.is_calm { self.chance.between(100_000, MS) } else { self.weather.wire.delay(&mut self.chance) }
    }

    /// When all have given up what they had, and nobody was kept from doing so, nothing is left; not only after a ttl.
    fn check_that_nothing_is_left(&mut self) {
        let resent = self.weather.wire.twice_per_mille > 0;
        if resent || self.clients.iter().any(|client| client.is_dead || client.stopped_until > 0) {
            return;
        }
        let now = self.now();
        // What a server has that was replaced is left to its end.
        let left = |server: &usize| {
            let server = &self.servers[*server];
            !server.has_failed && server.node.is_held(server.clock.at(now) / MS)
        };
        let node = self.members.servers(self.members.last()).find(left);
        if let Some(node) = node {
            self.violate("O", format!("node {node} still keeps the lock for somebody when all have given it back"));
        }
    }

    /// Whatever came before, the lock can be had while a majority is up, once all leases and quarantines have ended.
    fn probe(&mut self) {
        let client = self.weather.clients;
        let pause = (self.weather.max_ttl + self.weather.ttl_ms()) * MS * 11 / 10;
        self.clients[client].is_probe = true;
        self.complete_replacements();
        let at = self.now() + pause;
        self.weather.end = Time::MAX;
        self.alarm_at(client, 0, at, Alarm::Begin(0));
        let before = self.grants.count();
        self.run();
        if self.violation.is_none() && self.grants.count() == before {
            self.violate("P", "nobody holds the lock, a majority is up, and it cannot be had".to_owned());
        }
    }

    pub(super) fn violate(&mut self, invariant: &'static str, text: String) {
        let at = self.now();
        self.violation.get_or_insert(Violation { invariant, text, at });
    }

    pub(super) const fn now(&self) -> Time {
        self.agenda.now()
    }

    /// What the clock of a client shows.
    pub(super) fn local(&self, client: usize) -> BootInstant {
        BootInstant::from_nanos(self.clients[client].clock.at(self.now()))
    }

    pub(super) fn alarm_at(&mut self, client: usize, round: usize, at: Time, alarm: Alarm) {
        let (client, round) = (u8::try_from(client).unwrap_or(0), u16::try_from(round).unwrap_or(0));
        self.agenda.at(at, Event::Alarm { client, round, alarm });
    }

    pub(super) fn alarm(&mut self, round: usize, delay: Time, alarm: Alarm) {
        let at = self.now().saturating_add(delay);
        self.alarm_at(self.rounds[round].client, round, at, alarm);
    }

    pub(super) fn note(&mut self, who: &str, what: impl FnOnce(&Self) -> String) {
        if self.trace.is_kept() {
            let text = what(self);
            self.trace.note(self.agenda.now(), who, format_args!("{text}"));
        }
    }

    fn note_served(&mut self, node: u8, client: u8, call: &Call, said: &Said) {
        let now = self.agenda.now();
        self.trace.note(now, format_args!("node {node}"), format_args!("client {client}: {call:?} -> {said:?}"));
    }
}

/// The wall clock of somebody whose clock is wrong by `offset` microseconds, in microseconds.
pub(super) const fn wall(now: Time, offset: i64) -> u64 {
    ((EPOCH + now) / 1_000).saturating_add_signed(offset)
}

/// Both directions of a client's connections.
pub(super) type Pipes = [Pipe; 5];
