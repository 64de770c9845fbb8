//! The simulator's servers beside a real one: the same requests of several sessions, with connections and sessions that
//! end among them, have to be answered alike, with the same transaction numbers, and to fire the same watches in the same
//! order on each connection.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use lock_lab::servers;
use lock_sim::{
    Chance, Trace,
    zookeeper::{Answer, Down, Made, News, Op, Refusal, Reply, SessionId, Stat, alone::Servers},
};

use crate::raw::{Body, Connected, Connection, Message, Parts, Session, kind};

/// How many sequences of requests are compared, and how long they are.
const SEQUENCES: u64 = 40;
const LENGTH: u32 = 80;
const CLIENTS: usize = 4;
const NO_NODE: i32 = -101;
const NODE_EXISTS: i32 = -110;
const NO_CHILDREN: i32 = -108;
/// Kinds of events.
const CREATED: i32 = 1;
const DELETED: i32 = 2;
const CHANGED: i32 = 3;
const CHILDREN: i32 = 4;

/// What comes over a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Heard {
    Created(String),
    Changed(String),
    Deleted(String),
    Children(String),
    Reply { number: u32, reply: String, zxid: u64 },
}

/// A client of both.
#[derive(Debug, Default)]
struct Client {
    real: Session,
    simulated: SessionId,
    connections: Option<(Connection, u32)>,
    /// What it has asked over this connection and is not answered yet.
    asked: BTreeMap<u32, Op>,
    /// What it may have watched.
    nodes: BTreeSet<String>,
    is_closed: bool,
}

/// A real server, and the simulated ones.
struct Pair<'a> {
    port: u16,
    /// Somebody who is always connected.
    outsider: Connection,
    simulated: Servers<'a>,
    chance: Chance,
    clients: Vec<Client>,
    directory: String,
    /// The real server's newest transaction when the sequence began.
    base: u64,
    /// The number of the last request.
    number: u32,
    log: String,
}

impl<'a> Pair<'a> {
    /// Begins a sequence, in a directory of its own.
    async fn begin(port: u16, mut outsider: Connection, seed: u64, trace: &'a mut Trace) -> Self {
        outsider.send(1, kind::SYNC, &Body::default().text("/")).await;
        let Some(Message::Reply { zxid, .. }) = outsider.message().await else { panic!("no answer") };
        Self {
            port,
            outsider,
            simulated: Servers::new(seed, trace),
            chance: Chance::new(seed),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            directory: format!("/sequence-{seed}"),
            base: u64::try_from(zxid).unwrap(),
            number: 1,
            log: format!("sequence {seed}\n"),
        }
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    async fn step(&mut self) {
        let at = self.chance.place(CLIENTS);
        let is_empty = self.simulated.directory(&self.directory).is_some_and(|names| names.is_empty());
        if is_empty && self.chance.one_in(12) {
            return self.reap().await;
        }
        if self.clients[at].connections.is_none() {
            return self.connect(at).await;
        }
        match self.chance.below(24) {
            0 => self.disconnect(at),
            1 => self.connect(at).await,
            2 => self.close(at).await,
            _ => self.ask(at).await,
        }
    }

    /// Connects with the session that the client has, or with a new one. An earlier connection of that session is closed.
    async fn connect(&mut self, at: usize) {
        let (known, now) = (self.clients[at].simulated, self.simulated.zxid());
        // It cannot have seen more than there is; a server that is asked by such a one is behind.
        let seen = if known == 0 {
            0
        } else if self.chance.one_in(8) {
            now + 1
        } else {
            now - self.chance.below(6).min(now)
        };
        writeln!(self.log, "{at} connects, with session {known}, and has seen {seen}").unwrap();
        let conn = self.simulated.connect(known, seen);
        let said = self.simulated.settle();
        let zxid = if known == 0 { 0 } else { i64::try_from(self.base + seen).unwrap() };
        let real = Connection::open(self.port, &self.clients[at].real, zxid).await;
        let this = &mut self.clients[at];
        match (real, said.as_slice()) {
            (Connected::Open(connection, session), [(of, Some(Down::Connected { session: simulated, .. }))])
                if *of == conn =>
            {
                assert!(known == 0 || (session.id, *simulated) == (this.real.id, known), "after:\n{}", self.log);
                let earlier = this.connections.replace((connection, conn));
                (this.real, this.simulated) = (session, *simulated);
                this.asked.clear();
                if let Some((mut earlier, _)) = earlier {
                    assert!(earlier.is_left().await, "one connection for a session, after:\n{}", self.log);
                }
                if known != 0 {
                    self.watch_again(at, seen).await;
                }
                self.compare().await;
            }
            (Connected::Expired, [(of, Some(Down::Expired))]) if *of == conn => self.clients[at] = Client::default(),
            // Its earlier connection, if there is one, stays.
            (Connected::HungUp, [(of, None)]) if *of == conn => {}
            (real, said) => panic!("{said:?}, but the server: {real:?}, after:\n{}", self.log),
        }
    }

    /// Sets the watches of a lost connection anew: any, whether they were set or not.
    async fn watch_again(&mut self, at: usize, since: u64) {
        let known: Vec<String> = self.clients[at].nodes.iter().cloned().collect();
        let nodes: Vec<String> = known.into_iter().filter(|_| self.chance.one_in(2)).collect();
        let missing = nodes.iter().filter(|_| self.chance.one_in(4)).cloned().collect();
        let children = if self.chance.one_in(2) { vec![self.directory.clone()] } else { Vec::new() };
        self.send(at, Op::SetWatches { nodes, missing, children, since }).await;
    }

    fn disconnect(&mut self, at: usize) {
        writeln!(self.log, "{at} loses its connection").unwrap();
        if let Some((_, conn)) = self.clients[at].connections.take() {
            self.simulated.disconnect(conn);
        }
    }

    /// Ends a session. The nodes of a session are deleted in any order.
    async fn close(&mut self, at: usize) {
        writeln!(self.log, "{at} closes its session").unwrap();
        let (mut connection, conn) = self.clients[at].connections.take().expect("a connection");
        connection.send(0, kind::CLOSE, &Body::default()).await;
        while connection.message().await.is_some() {}
        self.simulated.disconnect(conn);
        self.simulated.close(self.clients[at].simulated);
        // It comes back with that session, which is over, or as a new one.
        self.clients[at].is_closed = true;
        if self.chance.one_in(2) {
            self.clients[at] = Client::default();
        }
        self.compare_in_any_order().await;
    }

    /// The directory is removed, as a server does with a container that is empty.
    async fn reap(&mut self) {
        writeln!(self.log, "the directory is removed").unwrap();
        self.outsider.send(1, kind::DELETE, &Body::default().delete(&self.directory)).await;
        let Some(Message::Reply { error: 0, .. }) = self.outsider.message().await else { panic!("it is not empty") };
        self.simulated.reap(&self.directory);
        self.compare().await;
    }

    /// Sends one request, or two at once.
    async fn ask(&mut self, at: usize) {
        for _ in 0..=self.chance.below(2) {
            let op = self.op();
            self.send(at, op).await;
        }
        self.compare().await;
    }

    /// The path of a node that is there, mostly.
    fn name(&mut self) -> String {
        let names = self.simulated.directory(&self.directory).unwrap_or_default();
        let gone = names.is_empty() || self.chance.one_in(8);
        let name = if gone { "gone-0000000099".to_owned() } else { names[self.chance.place(names.len())].clone() };
        self.path(&name)
    }

    fn plain(&mut self) -> String {
        let number = self.chance.below(3);
        self.path(&format!("plain-{number}"))
    }

    fn op(&mut self) -> Op {
        let directory = self.directory.clone();
        // It is no container, so that the server does not remove it by itself.
        let make = Op::Create { path: directory.clone(), data: b"who".to_vec(), made: Made::Persistent };
        if self.simulated.directory(&directory).is_none() && !self.chance.one_in(4) {
            return make;
        }
        let (who, again) = (b"who".to_vec(), b"again".to_vec());
        match self.chance.below(26) {
            0..4 => {
                let prefix = self.chance.one_of(&["a-", "b-"]);
                Op::Create { path: self.path(prefix), data: who, made: Made::Sequential }
            }
            4 => Op::Create { path: self.plain(), data: who, made: Made::Ephemeral },
            5..7 => Op::Delete(self.name()),
            7 => Op::Marked(self.name(), again),
            8..10 => Op::Write(self.name(), again),
            10..12 => Op::Replace { deleted: self.name(), created: self.plain(), data: who },
            12 => make,
            13 => Op::Sync,
            14 => Op::List(directory),
            15..18 => Op::WatchChildren(directory),
            18..23 => Op::Watch(self.name()),
            23 => Op::WatchExistence(if self.chance.one_in(2) { directory } else { self.plain() }),
            24 => Op::Create { path: format!("{}/below", self.name()), data: who, made: Made::Ephemeral },
            _ => Op::Read(self.name()),
        }
    }

    /// Asks both the same.
    async fn send(&mut self, at: usize, op: Op) {
        self.number += 1;
        let number = self.number;
        writeln!(self.log, "{at} asks {number}: {op:?}").unwrap();
        if let Op::Watch(path) | Op::WatchExistence(path) = &op {
            self.clients[at].nodes.insert(path.clone());
        }
        let (kind, body) = self.request(&op);
        let this = &mut self.clients[at];
        let (connection, conn) = this.connections.as_mut().expect("a connection");
        connection.send(i32::try_from(number).unwrap(), kind, &body).await;
        self.simulated.ask(*conn, number, op.clone());
        this.asked.insert(number, op);
    }

    /// The request as the backend sends it.
    fn request(&self, op: &Op) -> (i32, Body) {
        let body = Body::default();
        match op {
            Op::Create { path, made, .. } => (kind::CREATE, body.create(path, real_mode(*made))),
            Op::Delete(path) => (kind::DELETE, body.delete(path)),
            Op::Write(path, _) => (kind::SET_DATA, body.write(path)),
            Op::Marked(path, _) => {
                let body = body.part(kind::SET_DATA, |body| body.write(path));
                (kind::MULTI, body.part(kind::DELETE, |body| body.delete(path)).end())
            }
            Op::Replace { created, deleted, .. } => {
                let body = body.part(kind::CREATE, |body| body.create(created, crate::raw::Made::Ephemeral));
                (kind::MULTI, body.part(kind::DELETE, |body| body.delete(deleted)).end())
            }
            Op::Sync => (kind::SYNC, body.text(&self.directory)),
            Op::List(path) => (kind::GET_CHILDREN, body.text(path).flag(false)),
            Op::WatchChildren(path) => (kind::GET_CHILDREN, body.text(path).flag(true)),
            Op::Watch(path) => (kind::GET_DATA, body.text(path).flag(true)),
            Op::WatchExistence(path) => (kind::EXISTS, body.text(path).flag(true)),
            Op::Read(path) => (kind::GET_DATA, body.text(path).flag(false)),
            Op::SetWatches { nodes, missing, children, since } => {
                let body = body.long(i64::try_from(self.base + since).unwrap());
                (kind::SET_WATCHES, body.texts(nodes).texts(missing).texts(children))
            }
            Op::Ping | Op::Close => unreachable!("it is no request about the directory"),
        }
    }

    /// What both say on each connection is the same, in the same order.
    async fn compare(&mut self) {
        let (simulated, real) = self.hear().await;
        assert_eq!(simulated, real, "the simulated servers, the real one, after:\n{}", self.log);
    }

    async fn compare_in_any_order(&mut self) {
        let (mut simulated, mut real) = self.hear().await;
        simulated.iter_mut().chain(&mut real).for_each(|heard| heard.sort());
        assert_eq!(simulated, real, "the simulated servers, the real one, after:\n{}", self.log);
    }

    /// What was said to each client.
    async fn hear(&mut self) -> (Vec<Vec<Heard>>, Vec<Vec<Heard>>) {
        let mut simulated = vec![Vec::new(); CLIENTS];
        for (conn, down) in self.simulated.settle() {
            let is_its = |client: &Client| client.connections.as_ref().is_some_and(|(_, own)| *own == conn);
            let at = self.clients.iter().position(is_its).expect("nobody else is talked to");
            simulated[at].push(heard(down.expect("nobody is hung up on")));
        }
        // Whoever waits for an answer first: when it has that, all is done, and what others are told is on its way to them.
        let (asking, others): (Vec<usize>, Vec<usize>) =
            (0..CLIENTS).partition(|at| !self.clients[*at].asked.is_empty());
        let mut real = vec![Vec::new(); CLIENTS];
        for some in [asking, others] {
            for at in &some {
                if let Some((connection, _)) = &mut self.clients[*at].connections {
                    connection.ping().await;
                }
            }
            for at in some {
                let Some((connection, _)) = &mut self.clients[at].connections else { continue };
                for message in connection.said().await {
                    real[at].push(self.real(at, message));
                }
            }
        }
        (simulated, real)
    }

    fn real(&mut self, at: usize, message: Message) -> Heard {
        match message {
            Message::Event { kind: CREATED, path } => Heard::Created(path),
            Message::Event { kind: CHANGED, path } => Heard::Changed(path),
            Message::Event { kind: DELETED, path } => Heard::Deleted(path),
            Message::Event { kind: CHILDREN, path } => Heard::Children(path),
            Message::Event { kind, path } => panic!("event {kind} of {path}, after:\n{}", self.log),
            Message::Reply { number, zxid, error, body } => {
                let number = u32::try_from(number).unwrap();
                let op = self.clients[at].asked.remove(&number).expect("a request");
                let reply = self.reply(&op, error, &mut Parts(&body));
                Heard::Reply { number, reply: told(reply), zxid: u64::try_from(zxid).unwrap() - self.base }
            }
        }
    }

    fn reply(&self, op: &Op, error: i32, body: &mut Parts<'_>) -> Reply {
        let error = match op {
            Op::Marked(..) | Op::Replace { .. } if error == 0 => body.failure(),
            _ => error,
        };
        match error {
            0 => {}
            NO_NODE if matches!(op, Op::WatchExistence(_)) => return Ok(Answer::Missing),
            NO_NODE => return Err(Refusal::NoNode),
            NO_CHILDREN => return Err(Refusal::NoChildren),
            NODE_EXISTS => return Err(Refusal::NodeExists),
            other => panic!("{op:?} is answered {other}, after:\n{}", self.log),
        }
        Ok(match op {
            Op::Create { .. } => {
                let path = body.text();
                Answer::Created(path, self.stat(body))
            }
            Op::Watch(_) | Op::Read(_) => {
                let data = body.bytes().to_vec();
                Answer::Node(data, self.stat(body))
            }
            // Its data are not told.
            Op::WatchExistence(_) => Answer::Node(Vec::new(), self.stat(body)),
            Op::List(_) | Op::WatchChildren(_) => Answer::List(body.texts()),
            _ => Answer::Done,
        })
    }

    fn stat(&self, body: &mut Parts<'_>) -> Stat {
        let stat = body.stat();
        let owner = self.clients.iter().find(|client| client.real.id == stat.owner && stat.owner != 0);
        let czxid = u64::try_from(stat.czxid).unwrap() - self.base;
        let session = owner.map_or(0, |client| client.simulated);
        Stat { session, czxid, version: stat.version, num_children: stat.num_children }
    }

    /// Ends all sessions: none of them ends by time in a later sequence.
    async fn end(mut self) -> Connection {
        for at in 0..CLIENTS {
            while self.clients[at].simulated != 0
                && !self.clients[at].is_closed
                && self.clients[at].connections.is_none()
            {
                self.connect(at).await;
            }
            if self.clients[at].connections.is_some() {
                self.close(at).await;
            }
        }
        self.outsider
    }
}

const fn real_mode(made: Made) -> crate::raw::Made {
    match made {
        Made::Persistent | Made::Container => crate::raw::Made::Persistent,
        Made::Ephemeral => crate::raw::Made::Ephemeral,
        Made::Sequential => crate::raw::Made::EphemeralSequential,
    }
}

fn heard(down: Down) -> Heard {
    match down {
        Down::News { news: News::Created(path), .. } => Heard::Created(path),
        Down::News { news: News::Changed(path), .. } => Heard::Changed(path),
        Down::News { news: News::Deleted(path), .. } => Heard::Deleted(path),
        Down::News { news: News::Children(path), .. } => Heard::Children(path),
        Down::Reply { number, reply, zxid } => Heard::Reply { number, reply: told(reply), zxid },
        other => panic!("{other:?} is said to one that is connected"),
    }
}

/// A reply with lists in one order: a server's is any.
fn told(mut reply: Reply) -> String {
    if let Ok(Answer::List(names)) = &mut reply {
        names.sort();
    }
    format!("{reply:?}")
}

#[tokio::test]
async fn the_simulated_servers_answer_and_tell_what_a_real_server_does() {
    let server = servers::ZooKeeper::start(1).await.unwrap();
    let port = server.ports()[0];
    let Connected::Open(mut outsider, _) = Connection::open(port, &Session::default(), 0).await else {
        panic!("no connection")
    };
    for seed in 0..SEQUENCES {
        let mut trace = Trace::silent();
        let mut pair = Pair::begin(port, outsider, seed, &mut trace).await;
        for _ in 0..LENGTH {
            pair.step().await;
        }
        outsider = pair.end().await;
    }
}
