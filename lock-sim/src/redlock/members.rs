//! Which server is at which place. An operator puts another server in the place of a member, by a tool that may stop in the
//! middle and be called again, and the clients follow: `replace.rs` and `member.rs` of lock-redlock.
//!
//! The stamp of a server is the generation that it was told of; the server itself is the member. A number that is given to
//! one server only is the server's own plus one.

use lock_redlock::protocol::votes::majority;

use super::{
    faults::Loses,
    node::Checks,
    weather::Kind,
    world::{Event, Server, World, fact},
};
use crate::{MS, Time};

/// How many servers may come to the place of another.
const NEWCOMERS: usize = 2;
/// For how long after one look a client does not look again which server is which, as in lock-redlock.
const IDENTIFIED: Time = 100 * MS;

/// The generations of the record, and the tool that makes the last of them known.
#[derive(Debug)]
pub(super) struct Members {
    /// Which server is at each place.
    generations: Vec<[u8; 5]>,
    nodes: usize,
    /// How many servers wait for a place.
    newcomers: usize,
    /// Who has told the tool that it knows of the last generation: a bit for each server.
    told: u16,
    /// When the tool stops, whatever it has done by then.
    until: Time,
    /// Whether it has made the new server a member.
    is_enlisting: bool,
}

impl Members {
    /// Those of a new deployment.
    pub(super) fn new(nodes: usize, is_replacing: bool) -> Self {
        let newcomers = if is_replacing { NEWCOMERS } else { 0 };
        let first = [0, 1, 2, 3, 4];
        Self { generations: vec![first], nodes, newcomers, told: 0, until: 0, is_enlisting: false }
    }

    /// Whether members are replaced in this schedule. By the seed and not by chance, so that the schedules of all other
    /// seeds are the same that they were without.
    pub(super) fn are_replaced(seed: u64, kind: Kind) -> bool {
        kind == Kind::Usual && seed % 4 == 3
    }

    pub(super) const fn may_change(&self) -> bool {
        self.newcomers > 0
    }

    pub(super) fn newcomers(&self) -> usize {
        self.newcomers
    }

    pub(super) fn last(&self) -> usize {
        self.generations.len() - 1
    }

    /// The server at a place.
    pub(super) fn server(&self, generation: usize, place: usize) -> usize {
        self.generations[generation][place].into()
    }

    /// The servers at all places.
    pub(super) fn servers(&self, generation: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        self.generations[generation].into_iter().take(self.nodes).map(usize::from)
    }

    /// The numbers of the members at all places.
    pub(super) fn numbers(&self, generation: usize) -> impl Iterator<Item = u32> + use<> {
        self.generations[generation].into_iter().take(self.nodes).map(|server| u32::from(server) + 1)
    }

    pub(super) fn number(&self, generation: usize, place: usize) -> u32 {
        u32::from(self.generations[generation][place]) + 1
    }

    fn has(&self, generation: usize, server: usize) -> bool {
        self.servers(generation).any(|other| other == server)
    }

    /// The server that came with this generation.
    fn newcomer(&self, generation: usize) -> Option<usize> {
        self.servers(generation).find(|server| !self.has(generation.saturating_sub(1), *server))
    }
}

impl Server {
    /// The generation of its stamp, if it has one.
    pub(super) fn stamp(&self) -> Option<usize> {
        self.node.is_marked().then_some(self.told)
    }
}

impl World<'_> {
    pub(super) fn plan_replacements(&mut self) {
        for _ in 0..self.chance.between(2, 5) {
            let at = self.chance.below(self.weather.end);
            self.agenda.at(at, Event::Replace);
        }
    }

    /// Whether so many of these servers have the stamp of the generation and are its members that no other counts.
    fn is_known(&self, generation: usize, servers: impl Iterator<Item = usize>) -> bool {
        let knows =
            |server: &usize| self.members.has(generation, *server) && self.servers[*server].stamp() == Some(generation);
        servers.filter(knows).count() >= majority(self.weather.nodes)
    }

    /// An operator begins to replace a member, or completes what was begun.
    pub(super) fn replace(&mut self) {
        let known = self.members.last();
        let servers = self.members.servers(known);
        let is_known = self.is_known(known, servers.filter(|server| self.servers[*server].is_up));
        let is_begun = known > 0 && (!is_known || self.chance.one_in(2));
        if !is_begun && !self.begin_to_replace(known) {
            return;
        }
        let now = self.now();
        self.members.told = 0;
        self.members.is_enlisting = false;
        self.members.until =
            if self.chance.one_in(4) { now + self.chance.below(self.weather.ttl()) } else { Time::MAX };
        let generation = self.members.last();
        let newcomer = self.members.newcomer(generation);
        for server in self.members.servers(generation - 1) {
            self.tool_marks(server, generation, false);
        }
        if !self.rules.newcomer_after_majority
            && let Some(newcomer) = newcomer
        {
            self.members.is_enlisting = true;
            self.tool_marks(newcomer, generation, true);
        }
    }

    /// False when nothing would be granted meanwhile, or there is no server for it.
    fn begin_to_replace(&mut self, known: usize) -> bool {
        if known == self.members.newcomers() {
            return false;
        }
        let place = self.chance.place(self.weather.nodes);
        let leaving = self.members.server(known, place);
        let now = self.now();
        let votes = |server: &usize| {
            let other = &self.servers[*server];
            let at = other.clock.at(now) / MS;
            let is_quiet = other.node.is_silent_until(other.boot).is_some_and(|until| until >= at);
            *server != leaving && other.is_up && other.stamp() == Some(known) && !is_quiet
        };
        if self.members.servers(known).filter(votes).count() < majority(self.weather.nodes) {
            return false;
        }
        let mut next = self.members.generations[known];
        next[place] = u8::try_from(self.weather.nodes + known).unwrap_or(0);
        self.note("world", |_| format!("node {} is to take the place of node {leaving}", next[place]));
        self.members.generations.push(next);
        true
    }

    fn tool_marks(&mut self, server: usize, generation: usize, enlists: bool) {
        if !self.is_calm && self.chance.one_in(6) {
            return self.counts.add(fact::LOST);
        }
        let delay = self.tool_delay();
        self.mark_after(delay, server, generation, None, enlists);
    }

    fn tool_delay(&mut self) -> Time {
        if self.chance.one_in(4) { self.chance.below(self.weather.ttl()) } else { self.delay() }
    }

    fn mark_after(&mut self, delay: Time, server: usize, generation: usize, by: Option<u8>, enlists: bool) {
        let [server, generation] = [server, generation].map(|number| u8::try_from(number).unwrap_or(0));
        self.agenda.after(delay, Event::Mark { server, generation, by, enlists });
    }

    /// A server is told of a generation (`enlist.lua`), by a client or by the tool.
    pub(super) fn mark(&mut self, number: u8, generation: u8, by: Option<u8>, enlists: bool) {
        let (server, told) = (usize::from(number), usize::from(generation));
        if !self.servers[server].is_up {
            return;
        }
        match self.servers[server].stamp() {
            None if enlists => self.enlist(server, told),
            Some(stamp) if stamp < told && !enlists => {
                self.servers[server].told = told;
                self.note("world", |_| format!("node {server} is told of generation {told}"));
            }
            Some(stamp) if stamp == told => {}
            _ => return,
        }
        let delay = if by.is_some() { self.delay() } else { self.tool_delay() };
        self.agenda.after(delay, Event::Marked { server: number, generation, by });
    }

    fn enlist(&mut self, server: usize, generation: usize) {
        let now = self.now();
        let is_new = server >= self.weather.nodes;
        let quarantine = self.rules.checks.quarantine && (self.rules.newcomer_quarantine || !is_new);
        let checks = Checks { quarantine, ..self.rules.checks };
        let it = &mut self.servers[server];
        it.node.enlist(it.clock.at(now) / 1_000, it.boot, self.weather.max_ttl, checks);
        it.told = generation;
        if is_new {
            self.counts.add(fact::REPLACED);
        }
        self.note("world", |_| format!("node {server} is made a member, of generation {generation}"));
    }

    /// A server has said that it knows of a generation now.
    pub(super) fn marked(&mut self, server: usize, generation: usize, by: Option<u8>) {
        if let Some(client) = by.map(usize::from) {
            if self.clients[client].generation == generation
                && let Some(place) = self.members.servers(generation).position(|other| other == server)
            {
                self.clients[client].strangers &= !(1 << place);
            }
            return;
        }
        let newcomer = self.members.newcomer(generation);
        if self.members.last() != generation || self.now() > self.members.until || !self.members.has(generation, server)
        {
            return;
        }
        if Some(server) != newcomer {
            self.members.told |= 1 << server;
        }
        let up = self.members.servers(generation).filter(|server| self.servers[*server].is_up);
        // One that has lost its data since may have been made a member of the generation before again.
        let is_known = !self.rules.told_still || self.is_known(generation, up);
        let is_told = self.members.told.count_ones() as usize >= majority(self.weather.nodes) && is_known;
        if let Some(newcomer) = newcomer.filter(|_| is_told && !self.members.is_enlisting) {
            self.members.is_enlisting = true;
            self.tool_marks(newcomer, generation, true);
        }
    }

    /// A server was no member as that it was asked, or another one than the client thought: the client finds out.
    pub(super) fn met_a_stranger(&mut self, client: usize, place: usize, generation: usize) {
        // Elsewhere whoever has lost its data is a member again at once.
        if self.members.may_change() && self.clients[client].generation == generation {
            self.clients[client].strangers |= 1 << place;
        }
        self.look_around(client);
    }

    /// A client asks the servers that it does not know as members what they are, unless it is at it.
    pub(super) fn look_around(&mut self, client: usize) {
        if self.clients[client].strangers == 0 || self.clients[client].looks {
            return;
        }
        let at = (self.now() + self.delay()).max(self.clients[client].looked + IDENTIFIED);
        let it = &mut self.clients[client];
        it.looks = true;
        self.agenda.at(at, Event::Identify { client: u8::try_from(client).unwrap_or(0) });
    }

    /// What a client makes of what the servers are now.
    pub(super) fn identify(&mut self, client: usize) {
        let now = self.now();
        let it = &mut self.clients[client];
        (it.looks, it.looked) = (false, now);
        let known = it.generation;
        let answered = self.who_answers();
        let answers = move |server: &usize| answered & (1 << server) != 0;
        let listed = self.members.servers(known).filter(answers);
        let later = (known..=self.members.last()).find(|generation| self.is_known(*generation, listed.clone()));
        let generation = later.unwrap_or(known);
        if generation != known {
            self.move_on(client, generation);
        }
        let members: Vec<usize> = self.members.servers(generation).collect();
        for (place, server) in members.iter().enumerate().filter(|(_, server)| answers(server)) {
            if self.servers[*server].stamp() == Some(generation) {
                self.clients[client].strangers &= !(1 << place);
            } else {
                self.clients[client].strangers |= 1 << place;
            }
        }
        if !self.is_known(generation, members.iter().copied().filter(answers)) {
            return;
        }
        // Those that have lost their data are made members again, and those that do not know of the generation are told.
        for server in members.into_iter().filter(answers) {
            let stamp = self.servers[server].stamp();
            if stamp.is_none_or(|stamp| stamp < generation) {
                let delay = self.delay();
                self.mark_after(delay, server, generation, u8::try_from(client).ok(), stamp.is_none());
            }
        }
    }

    /// A bit for each server.
    fn who_answers(&mut self) -> u16 {
        let lost = if self.is_calm { 0 } else { self.weather.wire.lost_per_mille };
        let mut answered = 0;
        for (server, it) in self.servers.iter().enumerate() {
            answered |= u16::from(it.is_up && !self.chance.per_mille(lost)) << server;
        }
        answered
    }

    /// A client goes on with the servers of another generation. What these are, each has to say.
    fn move_on(&mut self, client: usize, generation: usize) {
        let known = self.clients[client].generation;
        for place in 0..self.weather.nodes {
            if self.members.server(known, place) != self.members.server(generation, place) {
                let it = &mut self.clients[client];
                (it.requests[place], it.answers[place]) = Default::default();
            }
            self.clients[client].strangers |= 1 << place;
        }
        self.clients[client].generation = generation;
        self.note(&format!("client {client}"), |_| format!("goes on with generation {generation}"));
    }

    /// In the end the operator completes what was begun, and whoever connects then has the new list.
    pub(super) fn complete_replacements(&mut self) {
        if !self.members.may_change() {
            return;
        }
        let last = self.members.last();
        for server in self.members.servers(last) {
            // Before a majority was told nothing can be completed, and so nothing while too many are down.
            if last > 0 && !self.servers[server].is_up {
                self.restart(server, Loses::Nothing);
            }
            match self.servers[server].stamp() {
                _ if !self.servers[server].is_up => {}
                None => self.enlist(server, last),
                Some(_) => self.servers[server].told = last,
            }
        }
        for client in &mut self.clients {
            (client.generation, client.strangers) = (last, 0);
        }
    }
}
