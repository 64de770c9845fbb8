//! The simulator's model of a node beside a real server: the same requests in any order, with what else happens to a
//! node, have to be answered alike, to wake the same waiters and to leave the same.

use std::{fmt::Write as _, time::Duration};

use futures::StreamExt;
use lock_core::{BootInstant, Clock, Context, LockName};
use lock_lab::servers::Redis;
use lock_redis::node::{Node, NodeConfig, ScriptCall};
use lock_redlock::{
    Config,
    nodes::scripts::{self, Claim, LockKeys, QueueChange, ballot, held, renumbered},
    protocol::{ballots::Ballot, deployment::Deployment, kind::LockKind},
};
use lock_sim::{
    Chance,
    redlock::node::{self, Call, Kept, Line, Place, Reserved, Said, Value, Vote, Waiter},
};
use redis::{
    FromRedisValue,
    aio::{MultiplexedConnection, PubSub},
};

/// How many sequences of requests are compared, and how long they are.
const SEQUENCES: u64 = 100;
const LENGTH: u32 = 40;
/// What a node keeps for the shortest time, but for a reservation, it keeps for longer than this. What is seen later in a
/// sequence is not compared.
const TIME: Duration = Duration::from_secs(4);
/// Longer than anything here takes, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(30);
/// A reservation is kept for longer than this.
const RESERVED: Duration = Duration::from_millis(9);
const TTL: u64 = 60_000;
const RUN_KEY: &str = "redlock:run";
const QUARANTINE: &str = "redlock:quarantine";
/// The process that the model is, and another.
const RUN: u32 = 1;
const OTHER_RUN: u32 = 2;
/// Waiters below this listen.
const LISTENERS: Waiter = 2;
const WAITERS: u64 = 4;
const VALUES: u64 = 4;

/// Something that happens to a node.
#[derive(Debug, Clone, Copy)]
enum Step {
    Call(Call),
    /// What the node knows of its process is of another one.
    Restart,
    /// A node that has lost its data is made a member again.
    Enlist,
    EndWriter,
    EndReader(Value),
    EndAll,
    EndReservation,
    ForgetCounter,
    RaiseCounter(u64),
    Flush,
}

/// A real server, and its model.
struct Pair {
    _redis: Redis,
    connection: MultiplexedConnection,
    real: Node,
    keys: LockKeys,
    deployment: Deployment,
    news: PubSub,
    model: node::Node,
    chance: Chance,
    /// The server's clock in microseconds when the sequence began: the model stays at that time, so that nothing ends.
    began: u64,
    /// Until when what is seen is compared.
    until: BootInstant,
    log: String,
}

impl Pair {
    async fn start() -> Self {
        let redis = Redis::start().await.unwrap();
        let mut config = NodeConfig::new("127.0.0.1", redis.port());
        config.response_timeout = LIMIT;
        let real = Node::new(config, Context::current());
        let keys = LockKeys::new("lock", &LockName::new("a").unwrap());
        let nodes = [1, 2, 3].map(|port| NodeConfig::new("h", port)).into();
        let deployment = Deployment::new("test".to_owned(), &Config::new(nodes).unwrap());
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", redis.port())).unwrap();
        let mut news = client.get_async_pubsub().await.unwrap();
        for waiter in 0..LISTENERS {
            news.subscribe(keys.channel(&channel(waiter))).await.unwrap();
        }
        Self {
            connection: redis.connection().await.unwrap(),
            _redis: redis,
            real,
            keys,
            deployment,
            news,
            model: node::Node::default(),
            chance: Chance::new(0),
            began: 0,
            until: Clock::boot().now(),
            log: String::new(),
        }
    }

    /// Begins anew, with empty nodes that are members.
    async fn begin(&mut self, seed: u64) {
        self.run(&["FLUSHALL"]).await;
        self.until = Clock::boot().now().saturating_add(TIME);
        self.mark_member(Duration::ZERO).await;
        self.model = node::Node::marked(RUN, TTL);
        self.model.listeners = (1 << LISTENERS) - 1;
        self.chance = Chance::new(seed);
        self.began = self.time().await;
        self.log = format!("sequence {seed}\n");
    }

    async fn mark_member(&self, absence: Duration) {
        let call = scripts::mark_member(&self.deployment, 1, "", absence);
        assert!(held(&self.real.call(call).await.unwrap()).unwrap());
    }

    async fn run(&self, words: &[&str]) -> redis::Value {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    async fn get<T: FromRedisValue>(&self, words: &[&str]) -> T {
        T::from_redis_value(self.run(words).await).unwrap()
    }

    async fn time(&self) -> u64 {
        let (seconds, micros): (u64, u64) = self.get(&["TIME"]).await;
        seconds * 1_000_000 + micros
    }

    fn is_in_time(&self) -> bool {
        Clock::boot().now() < self.until
    }

    fn key(part: &str) -> String {
        format!("{{lock:a}}{part}")
    }

    /// One that wants to read, or to write: nobody waits for both.
    fn waiter(&mut self, reads: bool) -> Waiter {
        Waiter::try_from(2 * self.chance.below(WAITERS / 2)).unwrap() + Waiter::from(reads)
    }

    fn value(&mut self) -> Value {
        1 + Value::try_from(self.chance.below(VALUES)).unwrap()
    }

    /// They came one after the other, so far apart that the time of this test changes nothing about it.
    fn place(waiter: Waiter) -> Place {
        Place { waiter, waited: 10_000 * (1 + u64::from(waiter)) }
    }

    fn line(&mut self) -> Line {
        let reads = self.chance.one_in(2);
        let waiter = self.waiter(reads);
        match self.chance.below(3) {
            0 => Line::None,
            1 => Line::Stay { reads, place: Self::place(waiter) },
            _ => Line::Leave { reads, waiter },
        }
    }

    /// A number that somebody could name: one that the node gave, or another.
    fn number(&mut self, value: Value) -> u64 {
        let kept = self.model.kept();
        let counter = kept.counter.unwrap_or(self.began);
        let given = kept.held.filter(|held| held.0 == value).map(|held| held.1);
        let given = given.or_else(|| kept.readers.get(&value).copied());
        match (self.chance.below(4), given) {
            (0..=2, Some(number)) => number,
            (0, None) => counter,
            _ => counter + self.chance.below(5) - self.chance.below(3),
        }
    }

    fn step(&mut self) -> Step {
        let (value, reads) = (self.value(), self.chance.one_in(2));
        match self.chance.below(40) {
            0..14 => Step::Call(Call::Vote(self.vote(value, reads))),
            14..17 => {
                let (number, token) = (self.number(value), self.number(value) + self.chance.below(3));
                Step::Call(Call::Renumber { reads, value, number, token })
            }
            17..20 => Step::Call(Call::Extend { reads, value, ttl: TTL, number: self.number(value) }),
            20..23 => Step::Call(Call::Rejoin { reads, value, ttl: TTL, token: self.number(value) }),
            23..26 => {
                let (number, token) = (self.number(value), self.number(value));
                Step::Call(Call::Downgrade { value, ttl: TTL, number, token })
            }
            26..34 => {
                let tombstone = self.chance.one_in(5);
                Step::Call(Call::Undo { value, tombstone, line: self.line() })
            }
            34 if self.chance.one_in(8) => Step::Restart,
            34 => Step::Enlist,
            35 => Step::EndWriter,
            36 => Step::EndReader(value),
            37 => Step::EndReservation,
            38 => Step::RaiseCounter(self.number(value) + self.chance.below(1_000)),
            _ => match self.chance.below(8) {
                0 => Step::Flush,
                1..4 => Step::ForgetCounter,
                _ => Step::EndAll,
            },
        }
    }

    fn vote(&mut self, value: Value, reads: bool) -> Vote {
        // The server's clock goes on, and a reservation ends by it.
        let proposal = match self.chance.below(8) {
            0 if !self.model.is_reserved() => 5,
            1 if !self.model.is_reserved() => self.began + 3_600_000_000,
            _ => self.began + 10_000_000 + self.chance.below(1_000),
        };
        let waiter = self.waiter(reads);
        let place = self.chance.one_in(2).then(|| Self::place(waiter));
        Vote { reads, value, ttl: TTL, proposal, place }
    }

    /// Takes a step with both, and compares.
    async fn take(&mut self, step: Step) {
        writeln!(self.log, "{step:?}").unwrap();
        let sent = Clock::boot().now();
        match step {
            Step::Call(call) => self.call(&call).await,
            other => self.happen(other).await,
        }
        // A reservation does not end by itself: that would be a matter of luck.
        let kept_on: u8 = self.get(&["PEXPIRE", &Self::key(":reserved"), "60000"]).await;
        let took = Clock::boot().now().saturating_since(sent);
        if kept_on == 0 && self.model.is_reserved() && took > RESERVED {
            self.model.end_reservation();
        }
        let kept = self.kept().await;
        if self.is_in_time() {
            assert_eq!(self.model.kept(), kept, "the model, the server, after:\n{}", self.log);
        }
    }

    async fn call(&mut self, call: &Call) {
        let before = self.time().await;
        let answer = self.real.call(self.script(call)).await.unwrap();
        let after = self.time().await;
        let said = match call {
            Call::Vote(_) | Call::Rejoin { .. } => Said::Ballot(ballot(&answer).unwrap()),
            Call::Renumber { reads: true, .. } => Said::Renumbered(renumbered(&answer).unwrap()),
            // That it has lost everything is a denial.
            Call::Extend { .. } => Said::Done(answer == redis::Value::Int(1)),
            _ => Said::Done(held(&answer).unwrap()),
        };
        let now = self.now(call, &said, before, after);
        let modelled = self.model.take(now, RUN, call, node::ALL);
        if !self.is_in_time() {
            return;
        }
        assert_eq!(timeless(modelled), timeless(said), "the model, the server, after:\n{}", self.log);
        let woken = self.model.woken;
        self.hear(woken).await;
    }

    /// The time of the model: where the server gave a number by its clock, the one that this was.
    fn now(&self, call: &Call, said: &Said, before: u64, after: u64) -> u64 {
        let (Call::Vote(vote), Said::Ballot(Ballot::Granted(number))) = (call, said) else { return self.began };
        let ahead = if vote.proposal > after + 60_000_000 { 60_000_000 } else { 0 };
        let by_clock = ahead > 0 || vote.proposal < self.began;
        let now = number.saturating_sub(ahead);
        if by_clock && (before..=after).contains(&now) { now } else { self.began }
    }

    fn script(&self, call: &Call) -> ScriptCall {
        let kind = |reads: bool| if reads { LockKind::Reader } else { LockKind::Writer };
        let claim = |reads, value: u32| Claim {
            kind: kind(reads),
            keys: self.keys.clone(),
            value: value.to_string(),
            ttl: Duration::from_millis(TTL),
            payload: b"who".as_slice().into(),
        };
        let stamp = &self.deployment.stamp(1);
        match *call {
            Call::Vote(Vote { reads, value, proposal, place, .. }) => {
                claim(reads, value).vote(proposal, place.map(real_place).as_ref(), stamp)
            }
            Call::Renumber { reads, value, number, token } => claim(reads, value).renumber(number, token, stamp),
            Call::Extend { reads, value, number, .. } => claim(reads, value).extend(number, stamp),
            Call::Rejoin { reads, value, token, .. } => claim(reads, value).rejoin(token, stamp),
            Call::Downgrade { value, number, token, .. } => claim(false, value).downgrade(number, token, stamp),
            Call::Undo { value, tombstone, line } => match line {
                Line::None => claim(false, value).undo(tombstone, QueueChange::None),
                Line::Stay { reads, place } => {
                    claim(reads, value).undo(tombstone, QueueChange::Stay(&real_place(place)))
                }
                Line::Leave { reads, waiter } => {
                    let entry = real_place(Self::place(waiter));
                    claim(reads, value).undo(tombstone, QueueChange::Leave(&entry))
                }
            },
        }
    }

    /// What is no request of a client of the lock.
    async fn happen(&mut self, step: Step) {
        let (lock, readers, reading) = (Self::key(""), Self::key(":readers"), Self::key(":reading"));
        match step {
            Step::Call(_) => {}
            Step::Restart => {
                if self.model.is_marked() {
                    self.run(&["SET", RUN_KEY, "another process"]).await;
                    self.model.is_of_run(OTHER_RUN);
                }
            }
            Step::Enlist => {
                self.mark_member(Duration::from_millis(TTL)).await;
                self.model.enlist(self.began, RUN, TTL, node::ALL);
            }
            Step::EndWriter => {
                self.run(&["DEL", &lock]).await;
                self.model.end_writer();
            }
            Step::EndReader(value) => {
                self.run(&["ZREM", &readers, &value.to_string()]).await;
                self.run(&["HDEL", &reading, &value.to_string()]).await;
                self.model.end_reader(value);
            }
            Step::EndAll => {
                self.run(&["DEL", &lock, &readers, &reading]).await;
                self.model.end_all();
            }
            Step::EndReservation => {
                self.run(&["DEL", &Self::key(":reserved")]).await;
                self.model.end_reservation();
            }
            Step::ForgetCounter => {
                self.run(&["DEL", &Self::key(":token")]).await;
                self.model.forget_counter();
            }
            Step::RaiseCounter(number) => {
                let number = number.max(self.model.counter().unwrap_or(0));
                self.run(&["HSET", &Self::key(":token"), "counter", &number.to_string()]).await;
                self.model.raise_counter(number);
            }
            Step::Flush => {
                self.run(&["FLUSHALL"]).await;
                self.model.forget(true);
            }
        }
    }

    /// Those who were woken hear of it, each once; that nobody else does is seen at the next news.
    async fn hear(&mut self, woken: u64) {
        let mut heard = 0;
        let mut news = self.news.on_message();
        for _ in 0..woken.count_ones() {
            let message = Clock::boot().timeout(LIMIT, news.next()).await;
            let message = message.unwrap_or_else(|| panic!("nobody is woken, after:\n{}", self.log)).unwrap();
            let waiter = (0..LISTENERS).find(|waiter| {
                message.get_channel_name() == self.keys.channel(&channel(*waiter))
                    && message.get_payload_bytes().is_empty()
            });
            heard |= 1_u64 << waiter.unwrap_or(63);
        }
        assert_eq!(heard, woken, "who was woken on the server, in the model, after:\n{}", self.log);
    }

    /// Hears all that was published. In a sequence that was compared nobody was woken beside those who were heard of.
    async fn end(&mut self, is_compared: bool) {
        self.run(&["PUBLISH", &self.keys.channel(&channel(0)), "the end"]).await;
        loop {
            let message = Clock::boot().timeout(LIMIT, self.news.on_message().next()).await.flatten().unwrap();
            if message.get_payload_bytes() == b"the end" {
                return;
            }
            assert!(!is_compared, "somebody was woken, after:\n{}", self.log);
        }
    }

    async fn names(&self, part: &str) -> Vec<String> {
        self.get(&["ZRANGE", &Self::key(part), "0", "-1"]).await
    }

    /// What the server keeps.
    async fn kept(&self) -> Kept {
        let (counter, value, number): (Option<u64>, Option<Value>, Option<u64>) =
            self.get(&["HMGET", &Self::key(":token"), "counter", "value", "held"]).await;
        let reservation: Option<String> = self.get(&["GET", &Self::key(":reserved")]).await;
        let waiting: Vec<(String, i64)> = self.get(&["ZRANGE", &Self::key(":waiting"), "0", "-1", "WITHSCORES"]).await;
        let undone: Vec<String> = self.get(&["KEYS", &Self::key(":undone:*")]).await;
        let mut kept = Kept {
            lock: self.get(&["GET", &Self::key("")]).await,
            counter,
            held: value.zip(number),
            tombstones: undone.iter().filter_map(|key| key.rsplit(':').next()?.parse().ok()).collect(),
            waiters: self.names(":waiters").await.iter().filter_map(|name| waiter(name)).collect(),
            waiting: waiting.iter().filter_map(|(name, came)| Some((waiter(name)?, *came < 0))).collect(),
            intents: self.names(":writers").await.iter().filter_map(|name| waiter(name)).collect(),
            reservation: reservation.map(|name| waiter(&name).map_or(Reserved::Readers, Reserved::For)),
            quarantine: self.get(&["EXISTS", QUARANTINE]).await,
            ..Kept::default()
        };
        let readers: Vec<Value> = self.get(&["ZRANGE", &Self::key(":readers"), "0", "-1"]).await;
        for value in readers {
            let note: String = self.get(&["HGET", &Self::key(":reading"), &value.to_string()]).await;
            kept.readers.insert(value, note.split(' ').next().unwrap().parse().unwrap());
        }
        kept
    }
}

/// Where a waiter listens.
fn channel(waiter: Waiter) -> String {
    format!("c.{waiter}")
}

/// The waiter of that name.
fn waiter(name: &str) -> Option<Waiter> {
    name.split_once('@')?.1.parse().ok()
}

fn real_place(place: Place) -> scripts::WaiterEntry {
    let Place { waiter, waited } = place;
    scripts::WaiterEntry {
        waiter: format!("{}@{waiter}", channel(waiter)),
        waited: Duration::from_millis(waited),
        ttl: Duration::from_millis(TTL),
    }
}

/// An answer without the times in it: the model's clock stands.
fn timeless(said: Said) -> Said {
    match said {
        Said::Ballot(Ballot::Held { holder, .. }) => Said::Ballot(Ballot::Held { remaining: None, holder }),
        Said::Ballot(Ballot::Read(_)) => Said::Ballot(Ballot::Read(Duration::ZERO)),
        Said::Ballot(Ballot::Behind(_)) => Said::Ballot(Ballot::Behind(Duration::ZERO)),
        Said::Ballot(Ballot::Reserved(_)) => Said::Ballot(Ballot::Reserved(Duration::ZERO)),
        Said::Ballot(Ballot::Quarantined(_)) => Said::Ballot(Ballot::Quarantined(Duration::ZERO)),
        other => other,
    }
}

#[tokio::test]
async fn the_model_of_a_node_answers_and_keeps_what_a_real_server_does() {
    let mut pair = Pair::start().await;
    let (mut compared, mut seed) = (0, 0);
    while compared < SEQUENCES {
        assert!(seed < 4 * SEQUENCES, "the machine is too busy to compare anything in {TIME:?}");
        pair.begin(seed).await;
        seed += 1;
        let mut length = 0;
        while length < LENGTH && pair.is_in_time() {
            let step = pair.step();
            pair.take(step).await;
            length += 1;
        }
        let is_compared = pair.is_in_time();
        pair.end(is_compared).await;
        compared += u64::from(is_compared);
    }
}
