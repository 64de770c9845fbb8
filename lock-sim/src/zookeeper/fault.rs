//! What goes wrong, and how often.

use super::{
    fact::FactKind,
    message::{Answer, EnsembleEvent, FollowerMessage},
    profile::ScheduleAim,
    program::NAME,
    state::{ClientLink, Schedule, ServerRole},
    tree::{TreeChange, split},
};
use crate::{MS, Time, US, world::Stop};

impl Schedule<'_> {
    /// How long a message takes between two servers.
    pub(super) fn peer_delay(&mut self) -> Time {
        let tick = self.settings.tick;
        let chance = self.world.chance();
        let most = if chance.one_in(40) { tick / 16 } else { MS };
        chance.between(50 * US, most)
    }

    /// How long a message takes between a client and its server.
    pub(super) fn client_delay(&mut self) -> Time {
        let (tick, slow) = (self.settings.tick, self.faults.slow);
        let chance = self.world.chance();
        let most = if chance.one_in(slow) { tick / 8 } else { MS };
        chance.between(50 * US, most)
    }

    /// One more thing goes wrong, or two at once.
    pub(super) fn go_wrong(&mut self) {
        if self.is_calm() {
            return;
        }
        let pause = self.world.chance().below(self.faults.pause * 2) + MS;
        self.world.after(pause, EnsembleEvent::Fault);
        self.one_goes_wrong();
        if self.world.chance().one_in(6) {
            self.one_goes_wrong();
        }
    }

    fn one_goes_wrong(&mut self) {
        match self.world.chance().below(17) {
            0 => {
                let server = self.unlucky_server();
                self.crash_server(server);
            }
            1 | 2 => self.pause_server(),
            3 | 4 => {
                let server = self.unlucky_server();
                let way = self.world.chance().below(3);
                self.cut_server_off(server, way);
            }
            5 | 6 => {
                let host = self.world.chance().place(self.hosts.len());
                self.cut_host(host);
            }
            7..=9 => self.reset_connection(),
            10 | 11 => self.pause_host(),
            12 => self.take_session_over(),
            13 if self.faults.kills => self.kill_host(),
            14 => self.roll_on(),
            _ if self.faults.foreign => self.meddle(),
            _ => {}
        }
    }

    /// The leader mostly.
    fn unlucky_server(&mut self) -> usize {
        let servers = self.servers.len();
        let any = self.world.chance().place(servers);
        let leader = self.leader.as_ref().map_or(any, |leader| leader.server);
        if self.world.chance().one_in(2) { leader } else { any }
    }

    /// The next server is restarted.
    fn roll_on(&mut self) {
        if let Some(server) = self.faults.rolling {
            self.faults.rolling = Some((server + 1) % self.servers.len());
            self.crash_server(server);
        }
    }

    fn crash_server(&mut self, server: usize) {
        if self.servers[server].role == ServerRole::Down {
            return;
        }
        self.counts.add(FactKind::ServerCrash as usize);
        self.take_server_down(server);
        let down = self.world.chance().mostly_short(self.settings.timeout);
        self.world.after(down, EnsembleEvent::Heal { server });
        if self.faults.limits && self.world.chance().one_in(2) {
            let ticks = self.world.chance().between(3, 10);
            let longest = self.settings.tick * if self.world.chance().one_in(3) { 20 } else { ticks };
            if longest != self.servers[server].longest {
                self.counts.add(FactKind::OtherLimit as usize);
                self.note(
                    format_args!("server {server}"),
                    format_args!("will come back with a limit of {} ms", longest / MS),
                );
                self.servers[server].longest = longest;
            }
        }
    }

    pub(super) fn take_server_down(&mut self, server: usize) {
        self.note(format_args!("server {server}"), format_args!("crashes"));
        if self.is_leader(server) {
            self.leader = None;
        }
        self.servers[server].role = ServerRole::Down;
        self.drop_conns(server);
    }

    fn pause_server(&mut self) {
        let server = self.unlucky_server();
        // A pause is not made longer: what waits for its end would come out of order.
        if self.servers[server].deaf_until > self.now() {
            return;
        }
        self.counts.add(FactKind::ServerPause as usize);
        let lengths = [self.settings.tick, self.settings.sync_limit, self.settings.timeout * 2];
        let most = self.world.chance().one_of(&lengths);
        let until = self.now() + self.world.chance().below(most);
        self.note(format_args!("server {server}"), format_args!("stops for a while"));
        // The worst moment for somebody to be cut off is that in which a leader wakes.
        if self.world.chance().one_in(2) {
            let servers = self.servers.len();
            let (other, moment) = (self.world.chance().place(servers), until + self.world.chance().below(2 * MS));
            self.world.at(moment, EnsembleEvent::Cut { server: other });
        }
        let deaf = if self.world.chance().one_in(2) { 0 } else { self.world.chance().below(2 * MS) };
        let this = &mut self.servers[server];
        (this.paused_until, this.deaf_until) = (until, until + deaf);
    }

    /// The others do not hear it any more: what it has to tell of its sessions is lost.
    pub(super) fn mute_server(&mut self, server: usize) {
        if !self.is_calm() {
            self.cut_server_off(server, 2);
        }
    }

    /// One way (1: it does not hear, 2: it is not heard) or both (0).
    fn cut_server_off(&mut self, server: usize, way: u64) {
        self.counts.add(FactKind::ServerCut as usize);
        self.note(format_args!("server {server}"), format_args!("is cut off ({way})"));
        let this = &mut self.servers[server];
        (this.mute, this.deaf) = (way != 1, way != 2);
        let long = self.world.chance().mostly_short(self.settings.sync_limit * 2);
        self.world.after(long, EnsembleEvent::Heal { server });
    }

    /// What was cut is heard again, and what was down starts.
    pub(super) fn heal(&mut self, server: usize) {
        let this = &mut self.servers[server];
        (this.mute, this.deaf) = (false, false);
        if this.role == ServerRole::Down {
            this.role = ServerRole::Looking;
        }
        self.note(format_args!("server {server}"), format_args!("is all right again"));
    }

    /// A client is cut off in the very moment in which it has a session, now and then; or its server is, a little later,
    /// and has not told of the session's activity by then.
    pub(super) fn is_unlucky(&mut self, host: usize, server: usize) {
        if self.is_calm() {
            return;
        }
        if self.world.chance().one_in(10) {
            self.cut_host(host);
        }
        if self.world.chance().one_in(10) {
            let soon = self.world.chance().below(self.settings.tick / 2);
            self.world.after(soon, EnsembleEvent::Cut { server });
        }
    }

    fn cut_host(&mut self, host: usize) {
        if self.hosts[host].mute || self.hosts[host].deaf {
            return;
        }
        let way = self.world.chance().below(3);
        // A kernel sends again what was lost, also when its program has given the connection up; or a router in between says
        // that there is no such connection.
        let long = self.world.chance().mostly_short(self.settings.timeout * 3);
        let sends_again = self.world.chance().one_in(2);
        self.cut_host_off(host, way, long, sends_again);
    }

    /// One way (1: it does not hear, 2: it is not heard) or both (0), for so long.
    fn cut_host_off(&mut self, host: usize, way: u64, long: Time, sends_again: bool) {
        self.counts.add(FactKind::HostCut as usize);
        self.note(format_args!("host {host}"), format_args!("is cut off ({way})"));
        let at = self.now() + long;
        let this = &mut self.hosts[host];
        (this.mute, this.deaf) = (way != 1, way != 2);
        this.sends_again_at = sends_again.then_some(at);
        self.world.at(at, EnsembleEvent::HealHost { host });
    }

    /// What the schedule aims at goes wrong.
    pub(super) fn strike(&mut self) {
        if self.is_calm() {
            return;
        }
        let timeout = self.settings.timeout;
        match self.faults.aim {
            ScheduleAim::WakingLeader => self.pause_leader_with_requests(),
            ScheduleAim::OutlivingSession => self.cut_waiting_host_off(),
            ScheduleAim::Nothing | ScheduleAim::SilentHolders | ScheduleAim::MissedNews => return,
        }
        let pause = timeout * 2 + self.world.chance().below(timeout);
        self.world.after(pause, EnsembleEvent::Strike);
    }

    /// The leader stops for so long that requests wait for it together, and when it wakes another server is not heard, which
    /// has told it nothing of its sessions since.
    fn pause_leader_with_requests(&mut self) {
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        if self.servers[leader].deaf_until > self.now() {
            return;
        }
        self.counts.add(FactKind::ServerPause as usize);
        self.note(format_args!("server {leader}"), format_args!("stops for a while"));
        // A client waits no longer than that for an answer before it connects anew.
        let (least, most) = (self.settings.tick * 3 / 2, self.settings.timeout * 2 / 5 - self.settings.tick / 4);
        let until = self.now() + self.world.chance().between(least, most);
        let this = &mut self.servers[leader];
        (this.paused_until, this.deaf_until) = (until, until);
        let others: Vec<usize> = (0..self.servers.len()).filter(|server| *server != leader).collect();
        let server = self.world.chance().one_of(&others);
        self.world.at(until, EnsembleEvent::Cut { server });
        // By then they have the answers.
        let soon = until + self.world.chance().between(4 * MS, 10 * MS);
        self.world.at(soon, EnsembleEvent::CutClients { server });
    }

    /// The clients of a server are cut off for longer than their sessions.
    pub(super) fn cut_clients_off(&mut self, server: usize) {
        if self.is_calm() {
            return;
        }
        for host in 0..self.hosts.len() {
            let is_client = self.connections(host).contains(&server);
            if is_client && !self.hosts[host].mute && !self.hosts[host].deaf {
                self.cut_host_off(host, 0, self.settings.timeout * 3 / 2, false);
            }
        }
    }

    /// A host with a contender that waits is cut off until its client takes the session for ended. Before the servers do, the
    /// leader crashes.
    fn cut_waiting_host_off(&mut self) {
        let waiting: Vec<usize> = (0..self.hosts.len()).filter(|host| self.has_waiting(*host)).collect();
        if waiting.is_empty() {
            return;
        }
        let host = self.world.chance().one_of(&waiting);
        if self.hosts[host].mute || self.hosts[host].deaf || self.hosts[host].is_dead {
            return;
        }
        let timeout = self.settings.timeout;
        let long = timeout / 20 * self.world.chance().between(29, 33);
        self.cut_host_off(host, 0, long, false);
        let crash = timeout / 20 * self.world.chance().between(10, 18);
        self.world.after(crash, EnsembleEvent::CrashLeader);
    }

    pub(super) fn crash_leader(&mut self) {
        if let Some(leader) = self.leader.as_ref().map(|leader| leader.server)
            && !self.is_calm()
        {
            self.crash_server(leader);
        }
    }

    /// A contender of that host has just been granted the lock.
    pub(super) fn strike_at_grant(&mut self, host: usize) {
        let is_cut = self.hosts[host].mute || self.hosts[host].deaf;
        if self.faults.aim == ScheduleAim::SilentHolders && !is_cut && !self.is_calm() {
            let long = self.settings.timeout / 10 * self.world.chance().between(12, 20);
            self.cut_host_off(host, 0, long, false);
        }
    }

    pub(super) fn heal_host(&mut self, host: usize) {
        let this = &mut self.hosts[host];
        (this.mute, this.deaf, this.sends_again_at) = (false, false, None);
        self.note(format_args!("host {host}"), format_args!("is heard again"));
    }

    fn reset_connection(&mut self) {
        let up: Vec<(usize, u32, usize)> = (0..self.clients.len())
            .filter_map(|client| match self.clients[client].link {
                ClientLink::Up { conn, server } => Some((client, conn, server)),
                _ => None,
            })
            .collect();
        if up.is_empty() {
            return;
        }
        let (client, conn, server) = up[self.world.chance().place(up.len())];
        self.counts.add(FactKind::ConnectionReset as usize);
        // The server may go on with what it has received for a moment.
        if self.world.chance().one_in(2) {
            self.servers[server].conns.retain(|other| other.id != conn);
        }
        self.world.after(0, EnsembleEvent::HungUp { client, conn });
    }

    fn pause_host(&mut self) {
        let host = self.world.chance().place(self.hosts.len());
        if self.hosts[host].paused_until > self.now() || self.hosts[host].is_dead {
            return;
        }
        self.counts.add(FactKind::HostPause as usize);
        let until = self.now() + self.world.chance().mostly_short(self.settings.timeout * 2);
        self.note(format_args!("host {host}"), format_args!("is stopped for a while"));
        self.hosts[host].paused_until = until;
        let id = self.hosts[host].id;
        self.world.pause_host(id);
        self.world.at(until, EnsembleEvent::ResumeHost { host });
    }

    pub(super) fn resume_host(&mut self, host: usize) {
        if !self.hosts[host].is_dead {
            let id = self.hosts[host].id;
            self.hosts[host].resumed = self.now();
            self.world.resume_host(id);
        }
    }

    fn kill_host(&mut self) {
        let host = self.world.chance().place(self.hosts.len());
        let alive = self.hosts.iter().filter(|host| !host.is_dead).count();
        if self.hosts[host].is_dead || alive < 2 {
            return;
        }
        self.counts.add(FactKind::HostKill as usize);
        self.note(format_args!("host {host}"), format_args!("is killed"));
        let is_told = self.world.chance().one_in(2);
        self.hosts[host].is_dead = true;
        let id = self.hosts[host].id;
        self.world.kill_host(id, if is_told { Stop::Process } else { Stop::Machine });
        self.clients_die(host, is_told);
        self.contenders_die(host);
    }

    /// Somebody connects with the session's id and password, at some server.
    fn take_session_over(&mut self) {
        let up: Vec<(u32, Time)> = self
            .clients
            .iter()
            .filter(|client| client.session != 0 && matches!(client.link, ClientLink::Up { .. }))
            .map(|client| (client.session, client.timeout))
            .collect();
        let servers = self.servers.len();
        let server = self.world.chance().place(servers);
        let serves = matches!(self.servers[server].role, ServerRole::Leading(_) | ServerRole::Following);
        if up.is_empty() || !serves || self.servers[server].deaf_until > self.now() {
            return;
        }
        let (session, timeout) = up[self.world.chance().place(up.len())];
        if timeout > self.servers[server].longest {
            // Whoever does that with the session's password may end the session as well.
            return;
        }
        self.counts.add(FactKind::TakeOver as usize);
        self.note(format_args!("session {session}"), format_args!("is taken over at server {server}"));
        // One connection for a session, as for its own client.
        self.servers[server].conns.retain(|conn| conn.session != session);
        self.forward(server, FollowerMessage::Revalidate { conn: 0, session, timeout });
    }

    /// Somebody who is no contender deletes a node, or writes to one. Not to a writer's: that is the mark.
    fn meddle(&mut self) {
        let Some(leader) = &self.leader else { return };
        let owned = leader.tree.nodes.iter().filter(|(path, node)| node.owner != 0 && path.contains(NAME));
        let paths: Vec<_> = owned.map(|(path, _)| std::rc::Rc::clone(path)).collect();
        if paths.is_empty() || self.servers[leader.server].paused_until > self.now() {
            return;
        }
        let path = paths[self.world.chance().place(paths.len())].clone();
        let may_be_written = matches!(split(&path).1.split('-').nth(2), Some(kind) if kind != "x");
        let (change, seen) = if !may_be_written || self.world.chance().one_in(2) {
            (TreeChange::Delete { path }, FactKind::ForeignDelete)
        } else {
            let data = leader_data(self, &path);
            (TreeChange::Write { path, data }, FactKind::ForeignWrite)
        };
        self.counts.add(seen as usize);
        self.append(vec![change], None, Ok(Answer::Done), 0, true);
    }
}

/// What a node holds: whoever writes to it writes that again.
fn leader_data(schedule: &Schedule<'_>, path: &str) -> std::rc::Rc<[u8]> {
    let node = schedule.leader.as_ref().and_then(|leader| leader.tree.get(path));
    node.map_or_else(|| std::rc::Rc::from([]), |node| std::rc::Rc::clone(&node.data))
}
