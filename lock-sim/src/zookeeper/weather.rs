//! What goes wrong, and how often.

use super::{
    fact::Seen,
    message::{Answer, Event, Forward},
    server::Role,
    tree::Effect,
    world::World,
};
use crate::{Chance, MS, Time, US};

/// What a schedule is like.
#[derive(Debug)]
pub(super) struct Weather {
    /// The mean time between two faults.
    pub(super) pause: Time,
    /// How many of a hundred commits a follower works through late.
    pub(super) lag: u64,
    /// How many writers, readers and permits are asked for.
    pub(super) mix: (u64, u64, u64),
    /// The permits that most believe in; and one in how many believes in which other number.
    pub(super) permits: (u32, u64, u32),
    /// Whether somebody who is no contender deletes and writes.
    pub(super) foreign: bool,
}

impl Weather {
    pub(super) fn draw(chance: &mut Chance, tick: Time) -> Self {
        let pause = chance.one_of(&[tick, 2 * tick, 5 * tick]);
        let lag = chance.one_of(&[0, 10, 40]);
        let mix = chance.one_of(&[(1, 0, 0), (1, 1, 0), (1, 3, 0), (0, 0, 1), (0, 0, 1), (1, 1, 2)]);
        // One that counts on being alone, among those who count on three, is the worst that can be believed: with two and
        // three the second one is never out of step with enough of the others.
        let permits = chance.one_of(&[(2, 12, 3), (3, 12, 1), (3, 2, 1)]);
        Self { pause, lag, mix, permits, foreign: chance.one_in(2) }
    }
}

impl World<'_> {
    /// How long a message takes between two servers.
    pub(super) fn peer_delay(&mut self) -> Time {
        let most = if self.chance.one_in(40) { self.settings.tick / 16 } else { MS };
        self.chance.between(50 * US, most)
    }

    /// How long a message takes between a client and its server.
    pub(super) fn client_delay(&mut self) -> Time {
        let most = if self.chance.one_in(40) { self.settings.tick / 8 } else { MS };
        self.chance.between(50 * US, most)
    }

    /// One more thing goes wrong.
    pub(super) fn change_weather(&mut self) {
        if self.is_calm() {
            return;
        }
        let pause = self.chance.below(self.weather.pause * 2) + MS;
        self.agenda.after(pause, Event::Weather);
        match self.chance.below(16) {
            0 => self.crash_server(),
            1 | 2 => self.pause_server(),
            3 | 4 => {
                let server = self.unlucky_server();
                self.cut_server(server);
            }
            5 | 6 => {
                let client = self.chance.place(self.clients.len());
                self.cut_client(client);
            }
            7..=9 => self.reset_connection(),
            10 | 11 => self.pause_client(),
            12 => self.take_session_over(),
            _ if self.weather.foreign => self.meddle(),
            _ => {}
        }
    }

    /// The leader mostly.
    fn unlucky_server(&mut self) -> usize {
        let any = self.chance.place(self.servers.len());
        let leader = self.leader.as_ref().map_or(any, |leader| leader.server);
        if self.chance.one_in(2) { leader } else { any }
    }

    fn crash_server(&mut self) {
        let server = self.unlucky_server();
        if self.servers[server].role == Role::Down {
            return;
        }
        self.counts.add(Seen::ServerCrash as usize);
        self.note(format_args!("server {server}"), format_args!("crashes"));
        if self.is_leader(server) {
            self.leader = None;
        }
        self.servers[server].role = Role::Down;
        self.drop_conns(server);
        let down = self.chance.mostly_short(self.settings.timeout);
        self.agenda.after(down, Event::Heal { server });
    }

    fn pause_server(&mut self) {
        let server = self.unlucky_server();
        // A pause is not made longer: what waits for its end would come out of order.
        if self.servers[server].deaf_until > self.now() {
            return;
        }
        self.counts.add(Seen::ServerPause as usize);
        let most = self.chance.one_of(&[self.settings.tick, self.settings.sync_limit, self.settings.timeout * 2]);
        let until = self.now() + self.chance.below(most);
        self.note(format_args!("server {server}"), format_args!("stops for a while"));
        // The worst moment for somebody to be cut off is that in which a leader wakes.
        if self.chance.one_in(3) {
            let (other, moment) = (self.chance.place(self.servers.len()), until + self.chance.below(2 * MS));
            self.agenda.at(moment, Event::Cut { server: other });
        }
        let deaf = if self.chance.one_in(2) { 0 } else { self.chance.below(2 * MS) };
        let this = &mut self.servers[server];
        (this.paused_until, this.deaf_until) = (until, until + deaf);
    }

    fn cut_server(&mut self, server: usize) {
        let both = self.chance.below(3);
        self.cut_server_off(server, both);
    }

    /// The others do not hear it any more: what it has to tell of its sessions is lost.
    pub(super) fn mute_server(&mut self, server: usize) {
        if !self.is_calm() {
            self.cut_server_off(server, 2);
        }
    }

    /// One way (1: it does not hear, 2: it is not heard) or both (0).
    fn cut_server_off(&mut self, server: usize, both: u64) {
        self.counts.add(Seen::ServerCut as usize);
        self.note(format_args!("server {server}"), format_args!("is cut off ({both})"));
        let this = &mut self.servers[server];
        (this.mute, this.deaf) = (both != 1, both != 2);
        let long = self.chance.mostly_short(self.settings.sync_limit * 2);
        self.agenda.after(long, Event::Heal { server });
    }

    /// What was cut is heard again, and what was down starts.
    pub(super) fn heal(&mut self, server: usize) {
        let this = &mut self.servers[server];
        (this.mute, this.deaf) = (false, false);
        if this.role == Role::Down {
            this.role = Role::Looking;
        }
        self.note(format_args!("server {server}"), format_args!("is all right again"));
    }

    /// A client is cut off in the very moment in which it has a session, now and then.
    pub(super) fn is_unlucky(&mut self, client: usize) {
        if !self.is_calm() && self.chance.one_in(10) {
            self.cut_client(client);
        }
    }

    fn cut_client(&mut self, client: usize) {
        self.counts.add(Seen::ClientCut as usize);
        let both = self.chance.below(3);
        self.note(format_args!("client {client}"), format_args!("is cut off ({both})"));
        let this = &mut self.clients[client];
        (this.mute, this.deaf) = (both != 1, both != 2);
        let long = self.chance.mostly_short(self.settings.timeout * 3);
        self.agenda.after(long, Event::HealClient { client });
    }

    pub(super) fn heal_client(&mut self, client: usize) {
        let this = &mut self.clients[client];
        (this.mute, this.deaf) = (false, false);
        self.note(format_args!("client {client}"), format_args!("is heard again"));
    }

    fn reset_connection(&mut self) {
        let client = self.chance.place(self.clients.len());
        let super::client::Link::Up { conn, server } = self.clients[client].link else { return };
        self.counts.add(Seen::ConnectionReset as usize);
        // The server may go on with what it has received for a moment.
        if self.chance.one_in(2) {
            self.servers[server].conns.retain(|other| other.id != conn);
        }
        self.agenda.after(0, Event::HungUp { client, conn });
    }

    fn pause_client(&mut self) {
        let client = self.chance.place(self.clients.len());
        if self.clients[client].paused_until > self.now() {
            return;
        }
        self.counts.add(Seen::ClientPause as usize);
        let until = self.now() + self.chance.mostly_short(self.settings.timeout * 2);
        self.note(format_args!("client {client}"), format_args!("is stopped for a while"));
        self.clients[client].paused_until = until;
    }

    /// Somebody connects with the session's id and password, at some server.
    fn take_session_over(&mut self) {
        let (client, server) = (self.chance.place(self.clients.len()), self.chance.place(self.servers.len()));
        let id = self.clients[client].session_id();
        let serves = matches!(self.servers[server].role, Role::Leading(_) | Role::Following);
        if id == 0 || !serves || self.servers[server].deaf_until > self.now() {
            return;
        }
        self.counts.add(Seen::TakeOver as usize);
        self.note(format_args!("session {id}"), format_args!("is taken over at server {server}"));
        // One connection for a session, as for its own client.
        self.servers[server].conns.retain(|conn| conn.session != id);
        self.forward(server, Forward::Revalidate { conn: 0, session: id });
    }

    /// Somebody who is no contender deletes a node, or writes to one. Not to a writer's: that is the mark.
    fn meddle(&mut self) {
        let Some(leader) = &self.leader else { return };
        let children = &leader.tree.children;
        if children.is_empty() || self.servers[leader.server].paused_until > self.now() {
            return;
        }
        let name = children[self.chance.place(children.len())].name.clone();
        let writers = name.split('-').nth(2) == Some("x");
        let (effect, seen) = if writers || self.chance.one_in(2) {
            (Effect::Delete(name), Seen::ForeignDelete)
        } else {
            (Effect::Write(name), Seen::ForeignWrite)
        };
        self.counts.add(seen as usize);
        self.append(effect, None, Ok(Answer::Done), 0, true);
    }
}
