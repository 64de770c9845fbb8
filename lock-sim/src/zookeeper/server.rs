//! One server: its connections, what it has applied, and what it answers by itself.

use std::collections::VecDeque;

use super::{
    fact::Seen,
    message::{Answer, Down, Event, Follow, Forward, Op, Refusal, Reply, Up},
    tree::{News, SessionId, Tree},
    world::World,
};
use crate::{LocalClock, Pipe, Time};

/// What a server is at the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Of that epoch, which may be over without its knowing.
    Leading(u32),
    Following,
    /// Without a leader: it serves nobody.
    Looking,
    Down,
}

#[derive(Debug)]
pub(super) struct Server {
    pub(super) role: Role,
    /// It does nothing until then.
    pub(super) paused_until: Time,
    /// It hears nothing until then: who wakes from a pause may judge before it listens.
    pub(super) deaf_until: Time,
    /// The other servers do not hear it.
    pub(super) mute: bool,
    /// It does not hear the other servers.
    pub(super) deaf: bool,
    pub(super) link: Link,
    /// When its leader was last heard; for a leader, when it last had a follower.
    pub(super) heard: Time,
    pub(super) tree: Tree,
    /// How much of the log is in that.
    pub(super) applied: usize,
    pub(super) zxid: u64,
    pub(super) conns: Vec<Conn>,
    /// Which sessions were active since the leader was last told.
    pub(super) active: u128,
    pub(super) clock: LocalClock,
}

/// A follower's connection to its leader.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) number: u32,
    /// Of the leader at the other end.
    pub(super) epoch: u32,
    pub(super) up: Pipe,
    pub(super) down: Pipe,
    /// How far the follower is with its work.
    pub(super) work: Pipe,
    /// Something was lost on it: nothing comes after that.
    pub(super) up_broken: bool,
    pub(super) down_broken: bool,
    /// When the leader last had an answer to a ping.
    pub(super) answered: Time,
}

/// A client's connection, as the server has it.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: u32,
    pub(super) client: usize,
    pub(super) session: SessionId,
    pub(super) open: bool,
    pub(super) broken: bool,
    pub(super) down: Pipe,
    pub(super) pending: VecDeque<Pending>,
    /// The nodes whose data are watched.
    pub(super) nodes: Vec<String>,
    pub(super) children: bool,
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) number: u32,
    pub(super) op: Op,
    pub(super) reply: Option<Reply>,
    /// A sync is answered when that much of the log is applied.
    pub(super) upto: Option<usize>,
}

const fn bit(session: SessionId) -> u128 {
    1 << (session % 128)
}

impl World<'_> {
    pub(super) fn conn(&mut self, server: usize, conn: u32) -> Option<&mut Conn> {
        self.servers[server].conns.iter_mut().find(|other| other.id == conn)
    }

    /// A client's message has arrived.
    pub(super) fn arrive(&mut self, server: usize, conn: u32, message: Up) {
        if !matches!(self.servers[server].role, Role::Leading(_) | Role::Following) {
            if let Up::Connect { client, .. } = message {
                self.hang_up(client, conn);
            }
            return;
        }
        match message {
            Up::Connect { client, session, seen } => self.welcome(server, conn, client, session, seen),
            Up::Request { number, op } => self.request(server, conn, number, op),
        }
    }

    fn welcome(&mut self, server: usize, id: u32, client: usize, session: SessionId, seen: u64) {
        // A client never sees the servers go back.
        if self.servers[server].zxid < seen {
            return self.hang_up(client, id);
        }
        // One connection for a session: what the old one still brings is not heard.
        self.servers[server].conns.retain(|conn| session == 0 || conn.session != session);
        let conn = Conn {
            id,
            client,
            session,
            open: false,
            broken: false,
            down: Pipe::default(),
            pending: VecDeque::new(),
            nodes: Vec::new(),
            children: false,
        };
        self.servers[server].conns.push(conn);
        let message = if session == 0 { Forward::Open { conn: id } } else { Forward::Revalidate { conn: id, session } };
        self.forward(server, message);
    }

    fn request(&mut self, server: usize, id: u32, number: u32, op: Op) {
        let leads = matches!(self.servers[server].role, Role::Leading(_));
        let Some(conn) = self.conn(server, id).filter(|conn| conn.open) else { return };
        let session = conn.session;
        // A leader that is asked for a sync takes its own word for the newest.
        let upto = (leads && matches!(op, Op::Sync)).then_some(0);
        conn.pending.push_back(Pending { number, op: op.clone(), reply: None, upto });
        self.servers[server].active |= bit(session);
        if leads {
            self.touch_at(server, session);
        }
        match op {
            Op::Sync if !leads => self.forward(server, Forward::Sync { conn: id, number }),
            op if op.is_write() => self.forward(server, Forward::Write { conn: id, number, session, op }),
            _ => {}
        }
        self.pump(server, id);
    }

    /// Sends something to the leader, which may be the server itself.
    pub(super) fn forward(&mut self, server: usize, message: Forward) {
        match self.servers[server].role {
            Role::Leading(epoch) if self.is_leader(server) && epoch == self.epoch => {
                self.leader_hears(server, message);
            }
            // A deposed leader believes what it has. What it would write is never committed.
            Role::Leading(_) => {
                if let Forward::Revalidate { conn, session } = message {
                    self.revalidated(server, conn, session, true);
                }
            }
            Role::Following => self.send_up(server, message),
            Role::Looking | Role::Down => {}
        }
    }

    fn send_up(&mut self, server: usize, message: Forward) {
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
        self.agenda.at(at, Event::ToLeader { from: server, link, message });
    }

    /// The leader's word has arrived.
    pub(super) fn follower_hears(&mut self, server: usize, message: Follow) {
        match message {
            Follow::Commit { upto } => {
                let lags = self.chance.percent(self.weather.lag);
                let lag = if lags { self.chance.mostly_short(self.settings.tick) } else { 0 };
                let now = self.now();
                let link = &mut self.servers[server].link;
                let (at, link) = (link.work.arrival(now, lag), link.number);
                if at > now {
                    self.agenda.at(at, Event::Apply { server, link, upto });
                } else {
                    self.apply(server, upto);
                }
            }
            Follow::Ping => {
                self.servers[server].heard = self.now();
                let active = std::mem::take(&mut self.servers[server].active);
                self.forward(server, Forward::Active(active));
            }
            Follow::Synced { conn, number, upto } => {
                if let Some(conn) = self.conn(server, conn)
                    && let Some(pending) = conn.pending.iter_mut().find(|pending| pending.number == number)
                {
                    pending.upto = Some(upto);
                }
                self.pump(server, conn);
            }
            Follow::Revalidated { conn, session, alive } => self.revalidated(server, conn, session, alive),
        }
    }

    pub(super) fn revalidated(&mut self, server: usize, id: u32, session: SessionId, alive: bool) {
        let Some(conn) = self.conn(server, id) else { return };
        conn.open = alive;
        self.say(server, id, if alive { Down::Connected { session } } else { Down::Expired });
    }

    /// Works through the log up to there: fires watches, answers those who asked for it.
    pub(super) fn apply(&mut self, server: usize, upto: usize) {
        while self.servers[server].applied < upto {
            let entry = std::rc::Rc::clone(&self.log[self.servers[server].applied]);
            let mut heard = Vec::new();
            let this = &mut self.servers[server];
            this.applied += 1;
            this.zxid = entry.zxid;
            this.tree.apply(entry.zxid, &entry.effect, |news| heard.push(news));
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
        }
        for place in 0..self.servers[server].conns.len() {
            let waiting = self.servers[server].conns.get(place).filter(|conn| !conn.pending.is_empty());
            if let Some(id) = waiting.map(|conn| conn.id) {
                self.pump(server, id);
            }
        }
    }

    fn opened(&mut self, server: usize, id: u32, session: SessionId) {
        let Some(conn) = self.conn(server, id) else { return };
        (conn.open, conn.session) = (true, session);
        self.say(server, id, Down::Connected { session });
    }

    /// Tells whoever watches, once.
    fn fire(&mut self, server: usize, news: &News) {
        for place in 0..self.servers[server].conns.len() {
            let conn = &mut self.servers[server].conns[place];
            let fires = match news {
                News::Children => std::mem::take(&mut conn.children),
                News::Changed(name) | News::Deleted(name) => {
                    let before = conn.nodes.len();
                    conn.nodes.retain(|node| node != name);
                    conn.nodes.len() < before
                }
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
            let Some(Pending { number, op, reply, .. }) = conn.pending.pop_front() else { return };
            let reply = match (reply, op) {
                (Some(reply), _) => reply,
                (None, Op::SetWatches { nodes, children, since }) => {
                    self.watch_again(server, id, &nodes, children, since);
                    Ok(Answer::Done)
                }
                (None, op) => self.read(server, id, &op),
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

    fn read(&mut self, server: usize, id: u32, op: &Op) -> Reply {
        let directory = self.servers[server].tree.directory;
        match op {
            Op::List | Op::ListAndWatch if !directory => Err(Refusal::NoNode),
            Op::List => Ok(Answer::List(self.servers[server].tree.names())),
            Op::ListAndWatch => {
                if let Some(conn) = self.conn(server, id) {
                    conn.children = true;
                }
                Ok(Answer::List(self.servers[server].tree.names()))
            }
            Op::Watch(name) | Op::Read(name) => {
                let Some(child) = self.servers[server].tree.child(name) else { return Err(Refusal::NoNode) };
                let answer = Answer::Node {
                    name: child.name.clone(),
                    session: child.session,
                    czxid: child.czxid,
                    version: child.version,
                };
                if matches!(op, Op::Watch(_))
                    && let Some(conn) = self.conn(server, id)
                {
                    conn.nodes.push(name.clone());
                }
                Ok(answer)
            }
            _ => Ok(Answer::Done),
        }
    }

    /// Sets the watches of an earlier connection; what they have missed is told at once.
    fn watch_again(&mut self, server: usize, id: u32, nodes: &[String], children: bool, since: u64) {
        for name in nodes {
            let missed = match self.servers[server].tree.child(name) {
                None => Some(News::Deleted(name.clone())),
                Some(child) if child.mzxid > since => Some(News::Changed(name.clone())),
                Some(_) => None,
            };
            let zxid = self.servers[server].zxid;
            if let Some(news) = missed {
                self.say(server, id, Down::News { news, zxid });
            } else if let Some(conn) = self.conn(server, id) {
                conn.nodes.push(name.clone());
            }
        }
        if children {
            let (tree, zxid) = (&self.servers[server].tree, self.servers[server].zxid);
            if !tree.directory || tree.pzxid > since {
                self.say(server, id, Down::News { news: News::Children, zxid });
            } else if let Some(conn) = self.conn(server, id) {
                conn.children = true;
            }
        }
    }

    /// Says something to a client.
    fn say(&mut self, server: usize, id: u32, message: Down) {
        let (now, delay) = (self.now(), self.client_delay());
        let Some(conn) = self.servers[server].conns.iter_mut().find(|conn| conn.id == id) else { return };
        if self.clients[conn.client].deaf {
            conn.broken = true;
        }
        if conn.broken {
            self.counts.add(Seen::LostAnswer as usize);
            return;
        }
        let at = conn.down.arrival(now, delay);
        self.agenda.at(at, Event::Deliver { client: conn.client, conn: id, message });
    }

    /// Closes a client's connection, which it learns a little later.
    pub(super) fn hang_up(&mut self, client: usize, conn: u32) {
        if !self.clients[client].deaf {
            let delay = self.client_delay();
            self.agenda.after(delay, Event::HungUp { client, conn });
        }
    }

    /// Closes all connections.
    pub(super) fn drop_conns(&mut self, server: usize) {
        for conn in std::mem::take(&mut self.servers[server].conns) {
            if !conn.broken {
                self.hang_up(conn.client, conn.id);
            }
        }
        self.servers[server].active = 0;
    }
}
