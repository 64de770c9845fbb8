//! One server: its connections, what it has applied, and what it answers by itself.

use std::{collections::VecDeque, rc::Rc};

use super::{
    fact::FactKind,
    message::{
        Answer, ClientMessage, Down, EnsembleEvent, FollowerMessage, LeaderMessage, News, Op, Refusal, Reply,
        SessionId, Stat,
    },
    state::{PendingRequest, Schedule, ServerConnection, ServerRole},
    tree::{TreeChange, TreeNode},
};
use crate::{Pipe, Time};

impl TreeNode {
    pub(super) fn stat(&self) -> Stat {
        let num_children = i32::try_from(self.children.len()).unwrap_or(i32::MAX);
        Stat { session: self.owner, czxid: self.czxid, version: self.version, num_children }
    }
}

impl Schedule<'_> {
    pub(super) fn conn(&mut self, server: usize, conn: u32) -> Option<&mut ServerConnection> {
        self.servers[server].conns.iter_mut().find(|other| other.id == conn)
    }

    /// A client's message has arrived.
    pub(super) fn arrive(&mut self, server: usize, conn: u32, message: &ClientMessage) {
        if !matches!(self.servers[server].role, ServerRole::Leading(_) | ServerRole::Following) {
            if let ClientMessage::Connect { client, .. } = message {
                self.hang_up(*client, conn);
            }
            return;
        }
        match message {
            ClientMessage::Connect { client, session, seen, timeout } => {
                self.welcome(server, conn, *client, *session, *seen, *timeout);
            }
            ClientMessage::Request { number, op } => self.request(server, conn, *number, op),
        }
    }

    fn welcome(&mut self, server: usize, id: u32, client: usize, session: SessionId, seen: u64, asked: Time) {
        // A client never sees the servers go back.
        if self.servers[server].zxid < seen {
            return self.hang_up(client, id);
        }
        let timeout = asked.clamp(self.settings.tick * 2, self.servers[server].longest);
        // One connection for a session: what the old one still brings is not heard.
        self.servers[server].conns.retain(|conn| session == 0 || conn.session != session);
        let conn = ServerConnection {
            id,
            client,
            session,
            timeout,
            open: false,
            broken: false,
            down: Pipe::default(),
            pending: VecDeque::new(),
            nodes: Vec::new(),
            children: Vec::new(),
        };
        self.servers[server].conns.push(conn);
        let message = if session == 0 {
            FollowerMessage::Open { conn: id, timeout }
        } else {
            FollowerMessage::Revalidate { conn: id, session, timeout }
        };
        self.forward(server, message);
    }

    fn request(&mut self, server: usize, id: u32, number: u32, op: &Op) {
        let leads = matches!(self.servers[server].role, ServerRole::Leading(_));
        let Some(conn) = self.conn(server, id).filter(|conn| conn.open) else { return };
        let (session, timeout) = (conn.session, conn.timeout);
        // A leader that is asked for a sync takes its own word for the newest.
        let upto = (leads && matches!(op, Op::Sync)).then_some(0);
        conn.pending.push_back(PendingRequest { number, op: op.clone(), reply: None, upto });
        self.requests += u64::from(!matches!(op, Op::Ping));
        self.servers[server].is_active(session, timeout);
        if leads && self.is_leader(server) {
            self.touch(session, timeout);
        }
        match op {
            Op::Sync if !leads => self.forward(server, FollowerMessage::Sync { conn: id, number }),
            op if op.is_write() => {
                self.forward(server, FollowerMessage::Write { conn: id, number, session, op: op.clone() });
            }
            _ => {}
        }
        self.pump(server, id);
    }

    /// Sends something to the leader, which may be the server itself.
    pub(super) fn forward(&mut self, server: usize, message: FollowerMessage) {
        match self.servers[server].role {
            ServerRole::Leading(epoch) if self.is_leader(server) && epoch == self.epoch => {
                self.leader_hears(server, message);
            }
            // A deposed leader believes what it has. What it would write is never committed.
            ServerRole::Leading(_) => {
                if let FollowerMessage::Revalidate { conn, session, .. } = message {
                    self.revalidated(server, conn, session, true);
                }
            }
            ServerRole::Following => self.send_up(server, message),
            ServerRole::Looking | ServerRole::Down => {}
        }
    }

    fn send_up(&mut self, server: usize, message: FollowerMessage) {
        let Some(leader) = self.leader.as_ref().map(|leader| leader.server) else { return };
        if !self.follows(server) || !self.is_heard(server, leader) {
            self.servers[server].link.up_broken = true;
        }
        if self.servers[server].link.up_broken {
            return;
        }
        let (now, delay) = (self.now(), self.peer_delay());
        let link = &mut self.servers[server].link;
        let (at, link) = (link.up.arrival(now, delay), link.number);
        self.world.at(at, EnsembleEvent::ToLeader { from: server, link, message });
    }

    /// The leader's word has arrived.
    pub(super) fn follower_hears(&mut self, server: usize, message: LeaderMessage) {
        match message {
            LeaderMessage::Commit { upto } => {
                let lags = self.world.chance().percent(self.faults.lag);
                let lag = if lags { self.world.chance().mostly_short(self.settings.tick) } else { 0 };
                let now = self.now();
                let link = &mut self.servers[server].link;
                let (at, link) = (link.work.arrival(now, lag), link.number);
                if at > now {
                    self.world.at(at, EnsembleEvent::Apply { server, link, upto });
                } else {
                    self.apply(server, upto);
                }
            }
            LeaderMessage::Ping => {
                self.servers[server].heard = self.now();
                let active = std::mem::take(&mut self.servers[server].active);
                self.forward(server, FollowerMessage::Active(active));
            }
            LeaderMessage::Synced { conn, number, upto } => {
                if let Some(conn) = self.conn(server, conn)
                    && let Some(pending) = conn.pending.iter_mut().find(|pending| pending.number == number)
                {
                    pending.upto = Some(upto);
                }
                self.pump(server, conn);
            }
            LeaderMessage::Revalidated { conn, session, alive } => self.revalidated(server, conn, session, alive),
        }
    }

    pub(super) fn revalidated(&mut self, server: usize, id: u32, session: SessionId, alive: bool) {
        let Some(conn) = self.conn(server, id) else { return };
        conn.open = alive;
        let timeout = conn.timeout;
        if alive {
            self.servers[server].is_active(session, timeout);
        }
        self.say(server, id, if alive { Down::Connected { session, timeout } } else { Down::Expired });
    }

    /// Works through the log up to there: fires watches, answers those who asked for it.
    pub(super) fn apply(&mut self, server: usize, upto: usize) {
        while self.servers[server].applied < upto {
            let entry = Rc::clone(&self.log[self.servers[server].applied]);
            let mut heard = Vec::new();
            let this = &mut self.servers[server];
            this.applied += 1;
            this.zxid = entry.zxid;
            this.tree.apply(entry.zxid, &entry.changes, |news| heard.push(news));
            for news in heard {
                self.fire(server, &news);
            }
            if let Some(origin) = entry.origin.filter(|origin| origin.server == server) {
                if entry.opens != 0 {
                    self.opened(server, origin.conn, entry.opens);
                } else if let Some(conn) = self.conn(server, origin.conn)
                    && let Some(pending) = conn.pending.iter_mut().find(|pending| pending.number == origin.number)
                {
                    pending.reply = Some(entry.reply.clone());
                }
            }
            if let [TreeChange::Close(session)] = entry.changes.as_slice() {
                self.session_is_closed(server, *session);
            }
        }
        for place in 0..self.servers[server].conns.len() {
            let waiting = self.servers[server].conns.get(place).filter(|conn| !conn.pending.is_empty());
            if let Some(id) = waiting.map(|conn| conn.id) {
                self.pump(server, id);
            }
        }
    }

    /// The connection of a session that has ended is answered what it has asked for, and closed.
    fn session_is_closed(&mut self, server: usize, session: SessionId) {
        let Some(conn) = self.servers[server].conns.iter().find(|conn| conn.session == session) else { return };
        let (id, client) = (conn.id, conn.client);
        self.pump(server, id);
        self.servers[server].conns.retain(|conn| conn.id != id);
        self.hang_up(client, id);
    }

    fn opened(&mut self, server: usize, id: u32, session: SessionId) {
        let Some(conn) = self.conn(server, id) else { return };
        (conn.open, conn.session) = (true, session);
        let timeout = conn.timeout;
        self.say(server, id, Down::Connected { session, timeout });
    }

    /// Tells whoever watches, once.
    fn fire(&mut self, server: usize, news: &News) {
        for place in 0..self.servers[server].conns.len() {
            let conn = &mut self.servers[server].conns[place];
            let fires = match news {
                News::Children(path) => forget(&mut conn.children, path),
                News::Created(path) | News::Changed(path) => forget(&mut conn.nodes, path),
                // Told once to whoever watches both.
                News::Deleted(path) => forget(&mut conn.nodes, path) | forget(&mut conn.children, path),
            };
            if fires {
                let (id, zxid) = (conn.id, self.servers[server].zxid);
                self.say(server, id, Down::News { news: news.clone(), zxid });
            }
        }
    }

    /// Answers what can be answered, in the order in which it was asked.
    pub(super) fn pump(&mut self, server: usize, id: u32) {
        loop {
            let (applied, zxid) = (self.servers[server].applied, self.servers[server].zxid);
            let Some(conn) = self.conn(server, id) else { return };
            let Some(front) = conn.pending.front() else { return };
            let ready = match &front.op {
                Op::Sync => front.upto.is_some_and(|upto| applied >= upto),
                op if op.is_write() => front.reply.is_some(),
                _ => true,
            };
            if !ready {
                return;
            }
            let Some(PendingRequest { number, op, reply, .. }) = conn.pending.pop_front() else { return };
            let reply = match (reply, op) {
                (Some(reply), _) => reply,
                (None, Op::SetWatches { nodes, missing, children, since }) => {
                    self.watch_again(server, id, &nodes, &missing, &children, since);
                    Ok(Answer::Done)
                }
                (None, op) => self.read(server, id, op),
            };
            if reply.as_ref().is_err_and(|refusal| *refusal == Refusal::Unknown) {
                // The session is another server's now.
                let client = self.conn(server, id).map(|conn| conn.client);
                self.servers[server].conns.retain(|conn| conn.id != id);
                if let Some(client) = client {
                    self.hang_up(client, id);
                }
                return;
            }
            self.say(server, id, Down::Reply { number, reply, zxid });
        }
    }

    fn read(&mut self, server: usize, id: u32, op: Op) -> Reply {
        let tree = &self.servers[server].tree;
        let node = |path: &str| tree.get(path).map(|node| Answer::Node(node.data.to_vec(), node.stat()));
        match op {
            Op::List(path) => tree.children(&path).map(Answer::List).ok_or(Refusal::NoNode),
            Op::Read(path) => node(&path).ok_or(Refusal::NoNode),
            Op::WatchChildren(path) => {
                let list = tree.children(&path).map(Answer::List).ok_or(Refusal::NoNode)?;
                self.watches(server, id, |conn| &mut conn.children, path);
                Ok(list)
            }
            Op::Watch(path) => {
                let found = node(&path).ok_or(Refusal::NoNode)?;
                self.watches(server, id, |conn| &mut conn.nodes, path);
                Ok(found)
            }
            Op::WatchExistence(path) => {
                let found = tree.get(&path).map_or(Answer::Missing, |node| Answer::Node(Vec::new(), node.stat()));
                self.watches(server, id, |conn| &mut conn.nodes, path);
                Ok(found)
            }
            _ => Ok(Answer::Done),
        }
    }

    fn watches(
        &mut self,
        server: usize,
        id: u32,
        which: impl Fn(&mut ServerConnection) -> &mut Vec<String>,
        path: String,
    ) {
        if let Some(conn) = self.conn(server, id) {
            let watched = which(conn);
            if !watched.contains(&path) {
                watched.push(path);
            }
        }
    }

    /// Sets the watches of an earlier connection; what they have missed is told at once.
    fn watch_again(
        &mut self,
        server: usize,
        id: u32,
        nodes: &[String],
        missing: &[String],
        children: &[String],
        since: u64,
    ) {
        let zxid = self.servers[server].zxid;
        for path in nodes {
            let missed = match self.servers[server].tree.get(path) {
                None => Some(News::Deleted(path.clone())),
                Some(node) if node.mzxid > since => Some(News::Changed(path.clone())),
                Some(_) => None,
            };
            match missed {
                Some(news) => self.say(server, id, Down::News { news, zxid }),
                None => self.watches(server, id, |conn| &mut conn.nodes, path.clone()),
            }
        }
        for path in missing {
            if self.servers[server].tree.get(path).is_some() {
                self.say(server, id, Down::News { news: News::Created(path.clone()), zxid });
            } else {
                self.watches(server, id, |conn| &mut conn.nodes, path.clone());
            }
        }
        for path in children {
            let missed = match self.servers[server].tree.get(path) {
                None => Some(News::Deleted(path.clone())),
                // Safeguard: who sets a watch anew is told what it has missed, and nothing else (simulator)
                Some(node) if node.pzxid > since => Some(News::Children(path.clone())),
                Some(_) => None,
            };
            match missed {
                Some(news) => self.say(server, id, Down::News { news, zxid }),
                None => self.watches(server, id, |conn| &mut conn.children, path.clone()),
            }
        }
    }

    /// Says something to a client.
    fn say(&mut self, server: usize, id: u32, message: Down) {
        let (now, delay) = (self.now(), self.client_delay());
        let Some(conn) = self.servers[server].conns.iter_mut().find(|conn| conn.id == id) else { return };
        let host = &self.hosts[self.clients.get(conn.client).map_or(0, |client| client.host)];
        let mut from = now;
        if host.deaf {
            match host.sends_again_at {
                Some(at) => from = at,
                None => conn.broken = true,
            }
        }
        if conn.broken {
            self.counts.add(FactKind::LostAnswer as usize);
            return;
        }
        let at = conn.down.arrival(from, delay);
        self.world.at(at, EnsembleEvent::Deliver { client: conn.client, conn: id, message: Rc::new(message) });
    }

    /// Closes a client's connection, which it learns a little later.
    pub(super) fn hang_up(&mut self, client: usize, conn: u32) {
        if !self.clients.get(client).is_some_and(|client| self.hosts[client.host].deaf) {
            let delay = self.client_delay();
            self.world.after(delay, EnsembleEvent::HungUp { client, conn });
        }
    }

    /// Closes all connections.
    pub(super) fn drop_conns(&mut self, server: usize) {
        for conn in std::mem::take(&mut self.servers[server].conns) {
            if !conn.broken {
                self.hang_up(conn.client, conn.id);
            }
        }
        self.servers[server].active.clear();
    }
}

fn forget(watched: &mut Vec<String>, path: &str) -> bool {
    let before = watched.len();
    watched.retain(|other| other != path);
    watched.len() < before
}
