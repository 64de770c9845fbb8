//! A server: connections in, answers out.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    commands::in_capitals,
    lua::{self, Removal},
    reply::{Reply, Requests},
    store::{Keys, Store},
};

/// What is to be sent on which connection.
pub type Output = (u32, Vec<u8>);

/// One server process with its data. Connections are known by numbers, and its clock by what it is told.
#[derive(Debug)]
pub struct RedisServer {
    store: Store,
    clients: BTreeMap<u32, Client>,
    /// The scripts that it knows, by their hashes.
    scripts: BTreeSet<Vec<u8>>,
    without: Option<&'static Removal>,
    /// What has happened so far, if somebody wants to know.
    record: Option<Vec<Recorded>>,
}

/// Something that has happened to a server, to be compared with what another one makes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recorded {
    /// Somebody has connected.
    Connected(u32),
    /// A connection is over.
    Ended(u32),
    /// Bytes have come on a connection.
    Arrived {
        /// What the clock showed, in microseconds.
        at: u64,
        /// On which one.
        connection: u32,
        /// The bytes.
        bytes: Vec<u8>,
        /// What was sent on which connection then.
        outputs: Vec<Output>,
    },
}

/// One connection to a simulated server: what came on it and is not carried out yet, and the channels that it listens to.
#[derive(Debug, Default)]
struct Client {
    requests: Requests,
    channels: Vec<Vec<u8>>,
}

impl RedisServer {
    /// A server without data, which says that its run id is this.
    #[must_use]
    pub fn new(run_id: impl Into<String>) -> Self {
        let store = Store::new(run_id.into());
        Self { store, clients: BTreeMap::new(), scripts: BTreeSet::new(), without: None, record: None }
    }

    /// Has its scripts run without a safeguard.
    pub const fn set_without(&mut self, removal: Option<&'static Removal>) {
        self.without = removal;
    }

    /// Has it keep a record of what happens from now on.
    pub fn keep_record(&mut self) {
        self.record = Some(Vec::new());
    }

    /// What has happened since the record was begun.
    pub fn take_record(&mut self) -> Vec<Recorded> {
        self.record.take().unwrap_or_default()
    }

    /// What it keeps.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// What it keeps, to be changed behind everybody's back.
    pub const fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    /// As after `SCRIPT FLUSH`.
    pub fn forget_scripts(&mut self) {
        self.scripts.clear();
    }

    /// Its clock shows this, in microseconds since 1970.
    pub const fn set_clock(&mut self, micros: u64) {
        self.store.now = micros;
    }

    /// Another process comes in its place, with `keys` for its data. Whoever was connected is not.
    pub fn restart(&mut self, run_id: impl Into<String>, keys: Keys) {
        self.store.run_id = run_id.into();
        self.store.channels.clear();
        self.store.told.clear();
        self.store.restore(keys);
        self.clients.clear();
        self.scripts.clear();
    }

    /// Somebody has connected.
    pub fn connected(&mut self, connection: u32) {
        self.clients.insert(connection, Client::default());
        if let Some(record) = &mut self.record {
            record.push(Recorded::Connected(connection));
        }
    }

    /// A connection is over.
    pub fn ended(&mut self, connection: u32) {
        let Some(client) = self.clients.remove(&connection) else { return };
        if let Some(record) = &mut self.record {
            record.push(Recorded::Ended(connection));
        }
        for channel in client.channels {
            self.leave(connection, &channel);
        }
    }

    /// Bytes have come on a connection: what is sent on which then.
    pub fn received(&mut self, connection: u32, bytes: &[u8]) -> Vec<Output> {
        let Some(client) = self.clients.get_mut(&connection) else { return Vec::new() };
        let mut requests = std::mem::take(&mut client.requests);
        requests.feed(bytes);
        let mut answers = Vec::new();
        while let Some(words) = requests.next_request() {
            self.serve(connection, &words, &mut answers);
        }
        if let Some(client) = self.clients.get_mut(&connection) {
            client.requests = requests;
        }
        let mut all = vec![(connection, answers)];
        all.append(&mut self.store.told);
        if let Some(record) = &mut self.record {
            let (at, bytes, outputs) = (self.store.now, bytes.to_vec(), all.clone());
            record.push(Recorded::Arrived { at, connection, bytes, outputs });
        }
        all
    }

    /// Runs a command as if somebody had sent it.
    pub fn command(&mut self, words: &[&[u8]]) -> Reply {
        let Some((name, arguments)) = words.split_first() else { return Reply::err("no command") };
        match &*in_capitals(name) {
            b"EVAL" => match arguments.first() {
                Some(source) => {
                    let hash = lua::load(source);
                    self.scripts.insert(hash.to_vec());
                    self.run(&hash, &arguments[1..])
                }
                None => Reply::err("no script"),
            },
            b"EVALSHA" => match arguments.first() {
                Some(hash) if self.scripts.contains(*hash) => self.run(hash, &arguments[1..]),
                _ => Reply::Error("NOSCRIPT No matching script. Please use EVAL.".to_owned()),
            },
            b"SCRIPT" => {
                self.forget_scripts();
                Reply::ok()
            }
            b"HELLO" => {
                let pairs = ["server", "redis", "version", "7.0.15", "proto"].map(Reply::bulk).into_iter();
                let rest = [Reply::Int(2), Reply::bulk("role"), Reply::bulk("master")];
                Reply::Array(pairs.chain(rest).collect())
            }
            b"ROLE" => Reply::Array(vec![Reply::bulk("master"), Reply::Int(0), Reply::Array(Vec::new())]),
            b"SELECT" | b"AUTH" | b"CLIENT" => Reply::ok(),
            _ => self.store.command(words),
        }
    }

    fn run(&mut self, hash: &[u8], arguments: &[&[u8]]) -> Reply {
        let Some((count, rest)) = arguments.split_first() else { return Reply::err("no number of keys") };
        let count = std::str::from_utf8(count).ok().and_then(|count| count.parse().ok());
        let Some((keys, arguments)) = count.and_then(|count| rest.split_at_checked(count)) else {
            return Reply::err("Number of keys can't be greater than number of args");
        };
        lua::run(&mut self.store, hash, keys, arguments, self.without)
    }

    fn serve(&mut self, connection: u32, words: &[&[u8]], answers: &mut Vec<u8>) {
        match &*in_capitals(words.first().copied().unwrap_or_default()) {
            b"SUBSCRIBE" => {
                for channel in &words[1..] {
                    self.join(connection, channel);
                    self.confirm(connection, "subscribe", channel, answers);
                }
            }
            b"UNSUBSCRIBE" => {
                for channel in &words[1..] {
                    self.leave(connection, channel);
                    if let Some(client) = self.clients.get_mut(&connection) {
                        client.channels.retain(|its| its != channel);
                    }
                    self.confirm(connection, "unsubscribe", channel, answers);
                }
            }
            b"PING" if self.clients.get(&connection).is_some_and(|client| !client.channels.is_empty()) => {
                Reply::Array(vec![Reply::bulk("pong"), Reply::bulk("")]).write(answers);
            }
            _ => self.command(words).write(answers),
        }
    }

    fn join(&mut self, connection: u32, channel: &[u8]) {
        let listeners = self.store.channels.entry(channel.to_vec()).or_default();
        if listeners.contains(&connection) {
            return;
        }
        listeners.push(connection);
        if let Some(client) = self.clients.get_mut(&connection) {
            client.channels.push(channel.to_vec());
        }
    }

    fn leave(&mut self, connection: u32, channel: &[u8]) {
        if let Some(listeners) = self.store.channels.get_mut(channel) {
            listeners.retain(|listener| *listener != connection);
            if listeners.is_empty() {
                self.store.channels.remove(channel);
            }
        }
    }

    fn confirm(&self, connection: u32, what: &str, channel: &[u8], answers: &mut Vec<u8>) {
        let count = self.clients.get(&connection).map_or(0, |client| client.channels.len());
        Reply::Array(vec![Reply::bulk(what), Reply::bulk(channel), Reply::count(count)]).write(answers);
    }
}
