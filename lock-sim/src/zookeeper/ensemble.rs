//! The ensemble: the leader with its sessions and its log, and who leads.

use std::rc::Rc;

use lock_zk::protocol::queue::NUMBERS_END;

use super::{
    fact::FactKind,
    message::{Answer, EnsembleEvent, FollowerMessage, LeaderMessage, Made, Op, Refusal, Reply, SessionId, Stat},
    state::{Leader, LeaderLink, LeaderSession, LogEntry, RequestOrigin, Schedule, ServerRole},
    tree::{NodeTree, TreeChange, split},
};
use crate::{MS, Pipe, Time};

impl Schedule<'_> {
    pub(super) fn is_leader(&self, server: usize) -> bool {
        self.leader.as_ref().is_some_and(|leader| leader.server == server)
    }

    /// Whether what one server says arrives at another.
    pub(super) fn is_heard(&self, from: usize, to: usize) -> bool {
        !self.servers[from].mute && !self.servers[to].deaf
    }

    /// Whether a server follows the present leader: one that has slept through an election follows an earlier one.
    pub(super) fn follows(&self, server: usize) -> bool {
        self.servers[server].role == ServerRole::Following && self.servers[server].link.epoch == self.epoch
    }

    fn is_connected(&self, one: usize, other: usize) -> bool {
        self.is_heard(one, other) && self.is_heard(other, one)
    }

    /// What the leader's clients see.
    pub(super) fn leader_tree(&self) -> Option<&NodeTree> {
        self.leader.as_ref().map(|leader| &self.servers[leader.server].tree)
    }

    /// Something has arrived at the leader.
    pub(super) fn leader_hears(&mut self, from: usize, message: FollowerMessage) {
        match message {
            FollowerMessage::Active(active) => {
                self.servers[from].link.answered = self.now();
                for (id, timeout) in active {
                    self.touch(id, timeout);
                }
            }
            FollowerMessage::Sync { conn, number } => {
                let upto = self.log.len();
                self.send_down(from, LeaderMessage::Synced { conn, number, upto });
            }
            FollowerMessage::Open { conn, timeout } => {
                self.timeouts.push(timeout);
                let id = SessionId::try_from(self.timeouts.len()).unwrap_or(SessionId::MAX);
                self.track(id, Some(from));
                let origin = Some(RequestOrigin { server: from, conn, number: 0, session: 0 });
                self.append(Vec::new(), origin, Ok(Answer::Done), id, false);
            }
            FollowerMessage::Revalidate { conn, session, timeout } => {
                let alive = self.session(session).is_some_and(|tracked| !tracked.closing);
                if alive {
                    self.touch(session, timeout);
                    if let Some(tracked) = self.session(session) {
                        tracked.owner = Some(from);
                    }
                }
                if self.is_leader(from) {
                    self.revalidated(from, conn, session, alive);
                } else {
                    self.send_down(from, LeaderMessage::Revalidated { conn, session, alive });
                }
            }
            FollowerMessage::Write { conn, number, session, op } => {
                let origin = Some(RequestOrigin { server: from, conn, number, session });
                let (changes, reply) = match self.session(session) {
                    Some(tracked) if tracked.closing => (Vec::new(), Err(Refusal::SessionEnded)),
                    None => (Vec::new(), Err(Refusal::SessionEnded)),
                    Some(tracked) if tracked.owner.is_some_and(|owner| owner != from) => {
                        (Vec::new(), Err(Refusal::Unknown))
                    }
                    Some(tracked) if matches!(op, Op::Close) => {
                        tracked.closing = true;
                        (vec![TreeChange::Close(session)], Ok(Answer::Done))
                    }
                    Some(_) => match self.judge(session, op) {
                        Ok((changes, answer)) => (changes, Ok(answer)),
                        Err(refusal) => (Vec::new(), Err(refusal)),
                    },
                };
                self.append(changes, origin, reply, 0, false);
            }
        }
    }

    /// What a write does, by all that was proposed before it.
    fn judge(&mut self, session: SessionId, op: Op) -> Result<(Vec<TreeChange>, Answer), Refusal> {
        let Some(leader) = &self.leader else { return Err(Refusal::Unknown) };
        let (tree, zxid) = (&leader.tree, self.zxid + 1);
        let there = |path: &str| if tree.get(path).is_some() { Ok(()) } else { Err(Refusal::NoNode) };
        match op {
            Op::Create { path, data, made } => {
                let ends = matches!(made, Made::Ephemeral | Made::Sequential);
                let parent = tree.get(split(&path).0).ok_or(Refusal::NoNode)?;
                let path = if made == Made::Sequential { format!("{path}{:010}", parent.counter) } else { path };
                let is_near_the_end = parent.counter >= NUMBERS_END;
                may_be_created(tree, &path)?;
                if is_near_the_end {
                    self.counts.add(FactKind::OutOfNumbers as usize);
                }
                let owner = if ends { session } else { 0 };
                let answer =
                    Answer::Created(path.clone(), Stat { session: owner, czxid: zxid, version: 0, num_children: 0 });
                let is_container = made == Made::Container;
                Ok((vec![TreeChange::Create { path: path.into(), data: data.into(), owner, is_container }], answer))
            }
            Op::Delete(path) => {
                let node = tree.get(&path).ok_or(Refusal::NoNode)?;
                if !node.children.is_empty() {
                    return Err(Refusal::NotEmpty);
                }
                Ok((vec![TreeChange::Delete { path: path.into() }], Answer::Done))
            }
            Op::Write(path, data) => {
                there(&path)?;
                Ok((vec![TreeChange::Write { path: path.into(), data: data.into() }], Answer::Done))
            }
            Op::Marked(path, data) => {
                there(&path)?;
                let path: Rc<str> = path.into();
                let write = TreeChange::Write { path: Rc::clone(&path), data: data.into() };
                Ok((vec![write, TreeChange::Delete { path }], Answer::Done))
            }
            Op::Replace { created, data, deleted } => {
                may_be_created(tree, &created)?;
                there(&deleted)?;
                let create =
                    TreeChange::Create { path: created.into(), data: data.into(), owner: session, is_container: false };
                Ok((vec![create, TreeChange::Delete { path: deleted.into() }], Answer::Done))
            }
            _ => Ok((Vec::new(), Answer::Done)),
        }
    }

    /// Proposes a transaction. It is committed when a majority has it.
    pub(super) fn append(
        &mut self,
        changes: Vec<TreeChange>,
        origin: Option<RequestOrigin>,
        reply: Reply,
        opens: SessionId,
        foreign: bool,
    ) {
        self.zxid += 1;
        let (zxid, epoch, delay, now) = (self.zxid, self.epoch, self.peer_delay() + self.peer_delay(), self.now());
        let Some(leader) = &mut self.leader else { return };
        leader.tree.apply(zxid, &changes, |_| {});
        self.log.push(Rc::new(LogEntry { zxid, changes, origin, reply, opens, foreign }));
        let at = leader.commits.arrival(now, delay);
        let upto = self.log.len();
        self.world.at(at, EnsembleEvent::Commit { epoch, upto });
    }

    /// A majority should have that much of the log by now.
    pub(super) fn commit(&mut self, upto: usize) {
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        let now = self.now();
        let holds = |server: usize| {
            let link = &self.servers[server].link;
            server != leader
                && self.follows(server)
                && !link.up_broken
                && !link.down_broken
                && self.servers[server].paused_until <= now
                && self.is_connected(server, leader)
        };
        if !(0..self.servers.len()).any(holds) {
            let epoch = self.epoch;
            self.world.after(self.settings.tick / 8, EnsembleEvent::Commit { epoch, upto });
            return;
        }
        self.committed_now(upto);
        self.apply(leader, upto.max(self.servers[leader].applied));
        for server in 0..self.servers.len() {
            if server != leader && self.follows(server) {
                self.send_down(server, LeaderMessage::Commit { upto });
            }
        }
    }

    fn committed_now(&mut self, upto: usize) {
        while self.committed < upto {
            let entry = Rc::clone(&self.log[self.committed]);
            self.committed += 1;
            self.note_commit(&entry);
        }
    }

    fn send_down(&mut self, server: usize, message: LeaderMessage) {
        if self.is_leader(server) {
            return self.follower_hears(server, message);
        }
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        if !self.follows(server) || !self.is_heard(leader, server) {
            self.servers[server].link.down_broken = true;
        }
        if self.servers[server].link.down_broken {
            return;
        }
        let (now, delay) = (self.now(), self.peer_delay());
        let link = &mut self.servers[server].link;
        let (at, link) = (link.down.arrival(now, delay), link.number);
        self.world.at(at, EnsembleEvent::ToFollower { server, link, message });
    }

    pub(super) fn session(&mut self, id: SessionId) -> Option<&mut LeaderSession> {
        self.leader.as_mut()?.sessions.iter_mut().find(|tracked| tracked.id == id)
    }

    /// The time-out that a session was opened with.
    pub(super) fn timeout_of(&self, id: SessionId) -> Time {
        let place = usize::try_from(id).unwrap_or(0).checked_sub(1);
        place.and_then(|place| self.timeouts.get(place)).copied().unwrap_or(self.settings.timeout)
    }

    fn track(&mut self, id: SessionId, owner: Option<usize>) {
        if let Some(leader) = &mut self.leader {
            leader.sessions.push(LeaderSession { id, expires: 0, owner, closing: false });
        }
        let timeout = self.timeout_of(id);
        self.touch(id, timeout);
        let epoch = self.epoch;
        self.world.after(timeout / 2, EnsembleEvent::Expire { epoch, session: id });
    }

    /// The time-out counts anew, up to the end of a tick, in the milliseconds in which the servers count.
    pub(super) fn touch(&mut self, id: SessionId, timeout: Time) {
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        let (now, tick) = (self.servers[leader].clock.at(self.now()) / MS * MS, self.settings.tick);
        let expires = ((now + timeout) / tick + 1) * tick;
        if let Some(tracked) = self.session(id) {
            tracked.expires = expires;
        }
    }

    pub(super) fn expire(&mut self, id: SessionId) {
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        let (epoch, clock) = (self.epoch, self.servers[leader].clock);
        let now = clock.at(self.now());
        let most = self.settings.tick / 2;
        let Some(tracked) = self.session(id).filter(|tracked| !tracked.closing) else { return };
        if now < tracked.expires {
            // A session that moves to a server with another limit may end earlier.
            let at = clock.when(tracked.expires.min(now + most));
            self.world.at(at, EnsembleEvent::Expire { epoch, session: id });
            return;
        }
        tracked.closing = true;
        self.counts.add(FactKind::SessionExpired as usize);
        self.note("leader", format_args!("ends session {id}"));
        self.append(vec![TreeChange::Close(id)], None, Ok(Answer::Done), 0, false);
    }

    pub(super) fn leader_tick(&mut self) {
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        for server in 0..self.servers.len() {
            if server != leader && self.follows(server) {
                self.send_down(server, LeaderMessage::Ping);
                if self.now() - self.servers[server].link.answered < self.settings.sync_limit {
                    self.servers[leader].heard = self.now();
                }
            }
        }
        let epoch = self.epoch;
        self.world.after(self.settings.tick / 2, EnsembleEvent::LeaderTick { epoch });
    }

    /// A server looks whether it still has a leader, or is one.
    pub(super) fn check(&mut self, server: usize) {
        let quarter = self.settings.tick / 4;
        let pause = quarter + self.world.chance().below(quarter);
        self.world.after(pause, EnsembleEvent::Check { server });
        let silent = self.now() - self.servers[server].heard > self.settings.sync_limit;
        let cut = self.servers[server].mute || self.servers[server].deaf;
        match self.servers[server].role {
            ServerRole::Leading(epoch) if epoch != self.epoch || !self.is_leader(server) => {
                if silent || !cut {
                    self.resign(server);
                }
            }
            ServerRole::Leading(_) if silent => {
                self.leader = None;
                self.resign(server);
            }
            ServerRole::Following => {
                // A leader that is gone closes its connections.
                let gone = self.leader.is_none() || !self.follows(server);
                if silent || (!cut && gone) {
                    self.resign(server);
                }
            }
            ServerRole::Looking => self.find_leader(server),
            ServerRole::Leading(_) | ServerRole::Down => {}
        }
    }

    /// Serves nobody until there is a leader.
    fn resign(&mut self, server: usize) {
        self.note(format_args!("server {server}"), format_args!("looks for a leader"));
        self.servers[server].role = ServerRole::Looking;
        self.drop_conns(server);
    }

    fn find_leader(&mut self, server: usize) {
        let now = self.now();
        let answers = |other: &usize| self.servers[*other].paused_until <= now;
        let leader = self.leader.as_ref().map(|leader| leader.server).filter(answers);
        if let Some(leader) = leader.filter(|leader| self.is_connected(*leader, server)) {
            return self.join(server, leader);
        }
        let looking = |other: &usize| {
            self.servers[*other].role == ServerRole::Looking && answers(other) && self.is_connected(*other, server)
        };
        let candidates: Vec<usize> =
            (0..self.servers.len()).filter(|other| *other == server || looking(other)).collect();
        if candidates.len() > self.servers.len() / 2 && self.is_connected(server, server) {
            let chosen = candidates[self.world.chance().place(candidates.len())];
            self.elect(chosen, &candidates);
        }
    }

    pub(super) fn join(&mut self, server: usize, leader: usize) {
        let (tree, applied, zxid) = {
            let leader = &self.servers[leader];
            (leader.tree.clone(), leader.applied, leader.zxid)
        };
        self.links += 1;
        let now = self.now();
        let this = &mut self.servers[server];
        this.role = ServerRole::Following;
        this.link = LeaderLink { number: self.links, epoch: self.epoch, answered: now, ..LeaderLink::default() };
        (this.tree, this.applied, this.zxid, this.heard) = (tree, applied, zxid, now);
        self.note(format_args!("server {server}"), format_args!("follows server {leader}"));
    }

    /// A new leader. What was committed is known to every majority; what was not may be or not.
    pub(super) fn elect(&mut self, chosen: usize, followers: &[usize]) {
        self.counts.add(FactKind::Election as usize);
        self.epoch += 1;
        let uncommitted = self.log.len() - self.committed;
        let kept = self.committed + self.world.chance().place(uncommitted + 1);
        self.log.truncate(kept);
        let now = self.now();
        let epoch = self.epoch;
        self.note(format_args!("server {chosen}"), format_args!("leads epoch {epoch}"));
        self.servers[chosen].role = ServerRole::Leading(epoch);
        self.servers[chosen].heard = now;
        self.committed_now(kept);
        self.apply(chosen, kept);
        let tree = self.servers[chosen].tree.clone();
        self.leader = Some(Leader { server: chosen, tree, sessions: Vec::new(), commits: Pipe::default() });
        let alive: Vec<SessionId> = self.invariants.alive.iter().copied().collect();
        for id in alive {
            self.track(id, None);
        }
        for follower in followers.iter().filter(|other| **other != chosen) {
            self.join(*follower, chosen);
        }
        self.world.after(0, EnsembleEvent::LeaderTick { epoch });
    }

    pub(super) fn reap(&mut self) {
        let double = self.settings.timeout * 2;
        let pause = double + self.world.chance().below(double);
        self.world.after(pause, EnsembleEvent::Reap);
        let empty = self.leader.as_ref().map(|leader| leader.tree.empty_containers()).unwrap_or_default();
        for path in empty {
            self.counts.add(FactKind::Reaped as usize);
            self.append(vec![TreeChange::Delete { path }], None, Ok(Answer::Done), 0, false);
        }
    }
}

fn may_be_created(tree: &NodeTree, path: &str) -> Result<(), Refusal> {
    let parent = tree.get(split(path).0).ok_or(Refusal::NoNode)?;
    if tree.get(path).is_some() {
        return Err(Refusal::NodeExists);
    }
    if parent.owner != 0 { Err(Refusal::NoChildren) } else { Ok(()) }
}
