//! A connection to a ZooKeeper server at the level of its messages, in the order in which they come: a client would tell
//! of its watches and of its answers apart.

use std::{net::Ipv4Addr, time::Duration};

use lock_core::Clock;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Longer than anything here takes, however busy the machine is; sessions do not end in a sequence.
const LIMIT: Duration = Duration::from_secs(30);
const TIMEOUT_MS: i32 = 120_000;
/// The number of an event, and of the answer to a ping.
const EVENT: i32 = -1;
const PONG: i32 = -2;

/// What a request is, for the servers.
pub(crate) mod kind {
    pub(crate) const DELETE: i32 = 2;
    pub(crate) const EXISTS: i32 = 3;
    pub(crate) const GET_DATA: i32 = 4;
    pub(crate) const SET_DATA: i32 = 5;
    pub(crate) const GET_CHILDREN: i32 = 8;
    pub(crate) const SYNC: i32 = 9;
    pub(crate) const PING: i32 = 11;
    pub(crate) const MULTI: i32 = 14;
    pub(crate) const CREATE: i32 = 15;
    pub(crate) const SET_WATCHES: i32 = 101;
    pub(crate) const CLOSE: i32 = -11;
}

/// How a node is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Made {
    Persistent = 0,
    Ephemeral = 1,
    EphemeralSequential = 3,
}

/// A session, for a later connection.
#[derive(Debug, Clone, Default)]
pub(crate) struct Session {
    pub(crate) id: i64,
    password: Vec<u8>,
}

/// How an attempt to connect ends.
#[derive(Debug)]
pub(crate) enum Connected {
    Open(Connection, Session),
    Expired,
    HungUp,
}

/// What a server says.
#[derive(Debug)]
pub(crate) enum Message {
    Event { kind: i32, path: String },
    Reply { number: i32, zxid: i64, error: i32, body: Vec<u8> },
}

#[derive(Debug)]
pub(crate) struct Connection(TcpStream);

impl Connection {
    /// Connects, with that session or with a new one, as a client that has seen that transaction.
    pub(crate) async fn open(port: u16, session: &Session, seen: i64) -> Connected {
        let mut connection = Self(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap());
        connection.0.set_nodelay(true).unwrap();
        let password = if session.id == 0 { vec![0; 16] } else { session.password.clone() };
        let request = Body::default().int(0).long(seen).int(TIMEOUT_MS).long(session.id).bytes(&password).flag(false);
        connection.write(&request).await;
        let Some(answer) = connection.frame().await else { return Connected::HungUp };
        let mut answer = Parts(&answer);
        let (_, _, id) = (answer.int(), answer.int(), answer.long());
        match id {
            0 => Connected::Expired,
            id => Connected::Open(connection, Session { id, password: answer.bytes().to_vec() }),
        }
    }

    pub(crate) async fn send(&mut self, number: i32, kind: i32, body: &Body) {
        let mut request = Body::default().int(number).int(kind);
        request.0.extend(&body.0);
        self.write(&request).await;
    }

    async fn write(&mut self, request: &Body) {
        self.try_to_write(request).await.unwrap();
    }

    async fn try_to_write(&mut self, request: &Body) -> std::io::Result<()> {
        let length = i32::try_from(request.0.len()).unwrap();
        self.0.write_all(&[&length.to_be_bytes(), request.0.as_slice()].concat()).await
    }

    /// Whether the server hangs up here without a word, since the session has another connection. It does so by itself; once, on
    /// a busy machine, it had not for half a minute. To a request for a session that has moved it has to.
    pub(crate) async fn is_left(&mut self) -> bool {
        // It may have hung up.
        let _ = self.try_to_write(&Body::default().int(PONG).int(kind::PING)).await;
        self.message().await.is_none()
    }

    /// The next message; `None` when the server has hung up.
    pub(crate) async fn message(&mut self) -> Option<Message> {
        let frame = self.frame().await?;
        let mut parts = Parts(&frame);
        let (number, zxid, error) = (parts.int(), parts.long(), parts.int());
        if number != EVENT {
            return Some(Message::Reply { number, zxid, error, body: parts.0.to_vec() });
        }
        let (kind, _) = (parts.int(), parts.int());
        Some(Message::Event { kind, path: parts.text() })
    }

    pub(crate) async fn ping(&mut self) {
        self.send(PONG, kind::PING, &Body::default()).await;
    }

    /// What comes before the answer to a ping: all that was said until then.
    pub(crate) async fn said(&mut self) -> Vec<Message> {
        let mut said = Vec::new();
        loop {
            match self.message().await.expect("an answer to a ping") {
                Message::Reply { number: PONG, .. } => return said,
                message => said.push(message),
            }
        }
    }

    async fn frame(&mut self) -> Option<Vec<u8>> {
        let read = async {
            let length = usize::try_from(self.0.read_i32().await.ok()?).unwrap();
            let mut frame = vec![0; length];
            self.0.read_exact(&mut frame).await.ok()?;
            Some(frame)
        };
        Clock::boot().timeout(LIMIT, read).await.expect("the server says nothing")
    }
}

/// What a request consists of.
#[derive(Debug, Default)]
pub(crate) struct Body(Vec<u8>);

impl Body {
    pub(crate) fn int(mut self, number: i32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn long(mut self, number: i64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub(crate) fn flag(mut self, flag: bool) -> Self {
        self.0.push(u8::from(flag));
        self
    }

    pub(crate) fn bytes(self, bytes: &[u8]) -> Self {
        let mut this = self.int(i32::try_from(bytes.len()).unwrap());
        this.0.extend(bytes);
        this
    }

    pub(crate) fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    pub(crate) fn texts(self, texts: &[String]) -> Self {
        texts.iter().fold(self.int(i32::try_from(texts.len()).unwrap()), |body, text| body.text(text))
    }

    pub(crate) fn create(self, path: &str, made: Made) -> Self {
        let everybody = |body: Self| body.int(1).int(31).text("world").text("anyone");
        everybody(self.text(path).bytes(b"who")).int(made as i32)
    }

    /// Of any version.
    pub(crate) fn delete(self, path: &str) -> Self {
        self.text(path).int(-1)
    }

    /// Of any version.
    pub(crate) fn write(self, path: &str) -> Self {
        self.text(path).bytes(b"again").int(-1)
    }

    /// One request of a transaction.
    pub(crate) fn part(self, kind: i32, of: impl FnOnce(Self) -> Self) -> Self {
        of(self.int(kind).flag(false).int(-1))
    }

    /// The end of a transaction.
    pub(crate) fn end(self) -> Self {
        self.int(-1).flag(true).int(-1)
    }
}

/// What a node's status says.
#[derive(Debug)]
pub(crate) struct Stat {
    pub(crate) czxid: i64,
    pub(crate) version: i32,
    pub(crate) owner: i64,
    pub(crate) num_children: i32,
}

/// What an answer consists of.
#[derive(Debug)]
pub(crate) struct Parts<'a>(pub &'a [u8]);

impl<'a> Parts<'a> {
    fn take(&mut self, length: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        taken
    }

    pub(crate) fn int(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    pub(crate) fn long(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }

    pub(crate) fn bytes(&mut self) -> &'a [u8] {
        let length = self.int();
        self.take(usize::try_from(length).unwrap_or(0))
    }

    pub(crate) fn text(&mut self) -> String {
        String::from_utf8(self.bytes().to_vec()).unwrap()
    }

    pub(crate) fn texts(&mut self) -> Vec<String> {
        (0..self.int()).map(|_| self.text()).collect()
    }

    pub(crate) fn stat(&mut self) -> Stat {
        let czxid = self.long();
        self.take(24);
        let version = self.int();
        self.take(8);
        let (owner, _, num_children) = (self.long(), self.int(), self.int());
        self.take(8);
        Stat { czxid, version, owner, num_children }
    }

    /// The first error of a transaction; 0 when it was done.
    pub(crate) fn failure(&mut self) -> i32 {
        // Behind the request that failed stand those that were not tried, which say so; before it those that would have been.
        const NOT_TRIED: i32 = -2;
        const FAILED: i32 = -1;
        loop {
            let (kind, done, _) = (self.int(), self.take(1) == [1], self.int());
            if done || kind != FAILED {
                return 0;
            }
            match self.int() {
                0 | NOT_TRIED => {}
                error => return error,
            }
        }
    }
}
