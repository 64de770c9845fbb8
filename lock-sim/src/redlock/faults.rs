//! What goes wrong with servers and programs.

use super::{
    weather::Kind,
    world::{Event, Server, World, fact, wall},
};
use crate::{MS, SECOND};

/// What a restart costs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Loses {
    Nothing,
    /// All since its last snapshot.
    Newest,
    Everything,
}

impl Server {
    /// What it comes back with when it loses what is newer.
    pub(super) fn save(&mut self) {
        self.snapshot = (self.node.clone(), self.told);
    }
}

impl World<'_> {
    pub(super) fn fault(&mut self) {
        // A minority of the nodes fails.
        let place = self.chance.place(self.weather.nodes / 2);
        // Of the servers that were at a place one fails as well as another.
        let generation = match self.members.last() {
            0 => 0,
            last => self.chance.place(last + 1),
        };
        let node = self.members.server(generation, place);
        self.servers[node].has_failed = true;
        if self.weather.kind == Kind::Jumps {
            let by = self.chance.signed(0, i64::try_from(self.weather.ttl()).unwrap_or(0) * 2);
            self.counts.add(fact::JUMP);
            self.servers[node].clock.jump(self.agenda.now(), by);
            return self.note("world", |_| format!("the clock of node {node} jumps by {} ms", by / 1_000_000));
        }
        if matches!(self.weather.kind, Kind::Deletions | Kind::Resent) {
            return self.meddle();
        }
        if self.weather.kind == Kind::Evictions {
            self.counts.add(fact::COUNTER);
            self.servers[node].node.forget_counter();
            return self.note("world", |_| format!("node {node} loses its counter"));
        }
        match self.chance.below(10) {
            0 => self.servers[node].save(),
            1..3 => {
                self.counts.add(fact::FORGOT);
                self.servers[node].node.forget(true);
                self.note("world", |_| format!("node {node} is flushed"));
            }
            _ if self.servers[node].is_up => {
                let loses = match self.chance.below(3) {
                    0 => Loses::Nothing,
                    1 => Loses::Newest,
                    _ => Loses::Everything,
                };
                self.servers[node].is_up = false;
                if self.chance.one_in(2) {
                    self.servers[node].save();
                }
                self.note("world", |_| format!("node {node} stops"));
                let most = if self.chance.one_in(4) { self.weather.ttl() } else { 30 * MS };
                let down = self.chance.below(most);
                // In the end it is back, or it stays away.
                if self.now() + down < self.weather.end || self.chance.one_in(2) {
                    let node = u8::try_from(node).unwrap_or(0);
                    self.agenda.after(down, Event::Restart { node, loses });
                }
            }
            _ => {}
        }
    }

    /// A client whose clock was fast was granted by some nodes.
    pub(super) fn raise_counters(&mut self) {
        let number = wall(10 * SECOND, 0);
        for server in &mut self.servers {
            if self.chance.one_in(2) {
                server.node.raise_counter(number);
            }
        }
    }

    /// Somebody deletes the lock on a node or on all of them, or a counter is ahead, as votes for other attempts leave it.
    fn meddle(&mut self) {
        let node = self.chance.place(self.weather.nodes);
        if self.weather.kind == Kind::Deletions && self.chance.one_in(2) {
            let ahead = self.chance.below(SECOND / 1_000);
            self.servers[node].node.raise_counter(wall(self.agenda.now(), 0) + ahead);
            return;
        }
        self.counts.add(fact::DELETED);
        let all = self.chance.one_in(2);
        for (_, server) in self.servers.iter_mut().enumerate().filter(|(other, _)| all || *other == node) {
            server.node.end_all();
            server.has_failed = true;
        }
        self.note("world", |_| format!("somebody deletes the lock on node {node}, on all others: {all}"));
    }

    pub(super) fn restart(&mut self, node: usize, loses: Loses) {
        let server = &mut self.servers[node];
        server.boot += 1;
        server.is_up = true;
        let listeners = server.node.listeners;
        match loses {
            Loses::Nothing => {}
            Loses::Newest => {
                let (node, told) = server.snapshot.clone();
                server.node = node;
                if !self.rules.stamp_kept {
                    server.told = told;
                }
            }
            Loses::Everything => server.node.forget(true),
        }
        server.node.listeners = listeners;
        self.counts.add(fact::RESTART);
        if !matches!(loses, Loses::Nothing) {
            self.counts.add(fact::FORGOT);
        }
        self.note("world", |_| format!("node {node} starts again and has lost: {loses:?}"));
    }

    pub(super) fn pause(&mut self) {
        let client = self.chance.place(self.weather.clients);
        if self.chance.one_in(6) {
            self.counts.add(fact::DEATH);
            self.grants.died(client, self.now());
            self.clients[client].is_dead = true;
            for server in &mut self.servers {
                server.node.listeners &= !(1 << client);
            }
            return self.note("world", |_| format!("client {client} dies"));
        }
        self.counts.add(fact::PAUSE);
        let length = self.chance.below(2 * self.weather.ttl());
        self.clients[client].stopped_until = self.now() + length;
        self.note("world", |_| format!("client {client} stops for {} ms", length / MS));
    }
}
