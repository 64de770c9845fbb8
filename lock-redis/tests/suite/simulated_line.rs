//! The simulator's model of the line of `queue=fifo` beside a real server: the same requests in any order, late ones and
//! ones that are sent again among them, have to be answered alike, to tell the same waiters and to leave the same. The
//! server's clock stands, and is moved by the test: whatever ends by time ends with both in the same millisecond.

use std::{fmt::Write as _, time::Duration};

use futures::StreamExt;
use lock_core::{Clock, Context, LockName};
use lock_lab::servers::{Redis, RedisOptions};
use lock_redis::{
    fifo::{
        Rhythm,
        scripts::{Standing, beat, enter, leave, standing},
    },
    keys::Keys,
    node::{Node, NodeConfig, ScriptCall},
    scripts::{Acquired, Ask, Attempt, InLine, TOMBSTONE, acquired, held},
};
use lock_sim::{
    Chance,
    fifo::server::{ALL, Call, Kept, Ms, Said, Server, Value},
};
use redis::{
    AsyncConnectionConfig, FromRedisValue,
    aio::{MultiplexedConnection, PubSub},
};

/// How many sequences of requests are compared, and how long they are.
const SEQUENCES: u64 = 150;
const LENGTH: u32 = 60;
/// Longer than anything here takes, however busy the machine is.
const LIMIT: Duration = Duration::from_secs(30);
const CONTENDERS: u64 = 5;
const CHANNEL: &str = "lock:grants:test";
/// When the first sequence begins, in microseconds since 1970.
const BEGINNING: u64 = 2_000_000_000_000_000;

/// What a server keeps: the holder with what it has left, the counter, who stands in line with until when each counts as
/// alive, the tombstones with what they have left, and for how many it is known that they are alive and who they are.
const KEPT: &str = "
    local lock, token, queue, fresh, waiters = unpack(KEYS)
    local holder, line, undone = redis.call('GET', lock), {}, {}
    for _, value in ipairs(redis.call('ZRANGE', queue, 0, -1)) do
      line[#line + 1], line[#line + 2] = value, redis.call('ZSCORE', fresh, value)
    end
    for _, key in ipairs(redis.call('KEYS', ARGV[1])) do
      undone[#undone + 1], undone[#undone + 2] = key, redis.call('PTTL', key)
    end
    return {holder and {holder, redis.call('PTTL', lock)} or {}, redis.call('HGET', token, 'counter'), line, undone,
      {redis.call('ZCARD', fresh), redis.call('HLEN', waiters)}}";

/// What [`KEPT`] answers.
type Answer = (Vec<u64>, Option<u64>, Vec<(Value, Ms)>, Vec<(String, Ms)>, [usize; 2]);

/// A real server, and its model.
struct Pair {
    redis: Redis,
    connection: MultiplexedConnection,
    real: Node,
    keys: Keys,
    told: PubSub,
    model: Server,
    chance: Chance,
    /// The server's clock in microseconds.
    now: u64,
    /// The present attempt of each contender.
    attempts: Vec<Value>,
    newest: Value,
    /// What was asked so far, to be asked again.
    asked: Vec<Call>,
    ttl: Ms,
    log: String,
}

impl Pair {
    async fn start() -> Self {
        let redis = Redis::start_as_told(RedisOptions::default().with_own_clock(true)).await.unwrap();
        let mut config = NodeConfig::new("127.0.0.1", redis.port());
        config.response_timeout = LIMIT;
        let limits = AsyncConnectionConfig::new().set_response_timeout(Some(LIMIT));
        let client = redis::Client::open(redis.url()).unwrap();
        let mut told = client.get_async_pubsub().await.unwrap();
        told.subscribe(CHANNEL).await.unwrap();
        Self {
            connection: client.get_multiplexed_async_connection_with_config(&limits).await.unwrap(),
            redis,
            real: Node::new(config, Context::current()),
            keys: Keys::new("lock", &LockName::new("a").unwrap()),
            told,
            model: Server::default(),
            chance: Chance::new(0),
            now: BEGINNING,
            attempts: Vec::new(),
            newest: 0,
            asked: Vec::new(),
            ttl: 0,
            log: String::new(),
        }
    }

    /// Begins anew, with an empty server.
    async fn begin(&mut self, seed: u64) {
        self.get::<()>(&["FLUSHALL"]).await;
        self.model = Server::default();
        self.chance = Chance::new(seed);
        self.ttl = self.chance.one_of(&[100, 1_000, 8_000, 60_000]);
        self.asked.clear();
        self.attempts.clear();
        for _ in 0..CONTENDERS {
            self.newest += 1;
            self.attempts.push(self.newest);
        }
        self.log = format!("sequence {seed}\n");
        self.pass(self.now + 1_000_000);
    }

    async fn get<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.query_async(&mut self.connection.clone()).await.unwrap()
    }

    /// Moves the clocks.
    fn pass(&mut self, to: u64) {
        self.now = to;
        self.redis.stop_clock_at(Duration::from_micros(to)).unwrap();
        writeln!(self.log, "at {} ms and {} us", to / 1_000, to % 1_000).unwrap();
    }

    /// A time that comes: often one at which something ends, or a moment before or after that.
    fn later(&mut self) -> u64 {
        let Kept { lock, line, tombstones, .. } = self.model.kept(self.now / 1_000);
        let lease = lock.into_iter().map(|(_, ends)| ends);
        let ends: Vec<Ms> = lease.chain(line.iter().map(|(_, dies)| *dies)).chain(tombstones.into_values()).collect();
        let place = self.chance.place(ends.len());
        let at = match (self.chance.below(4), ends.get(place)) {
            (0, _) | (_, None) => self.now + self.chance.mostly_short(2_000 * self.ttl),
            (1, Some(end)) => (*end + 1) * 1_000,
            (2, Some(end)) => *end * 1_000 + self.chance.below(1_000),
            (_, Some(end)) => (*end).saturating_sub(1) * 1_000 + self.chance.below(1_000),
        };
        at.max(self.now)
    }

    /// A request of any contender, or one that was sent before.
    fn call(&mut self) -> Call {
        if !self.asked.is_empty() && self.chance.one_in(6) {
            // The last ones mostly: what is sent twice comes soon.
            let back = self.chance.mostly_short(self.asked.len() as u64);
            return self.asked[self.asked.len() - 1 - usize::try_from(back).unwrap()];
        }
        let who = self.chance.place(self.attempts.len());
        let value = self.attempts[who];
        let ttl = if self.chance.one_in(8) { 3_000 } else { self.ttl };
        let rhythm = Rhythm::of(Duration::from_millis(ttl));
        let (claim, alive) = (millis(rhythm.claim), millis(rhythm.alive));
        match self.chance.below(16) {
            0..6 => Call::Enter { value, ttl, claim, alive, waits: !self.chance.one_in(6) },
            6..9 => Call::Beat { value, ttl, alive },
            9..12 => Call::Renew { value, ttl, number: self.number() },
            _ => {
                // The next request of this contender is of a new attempt, mostly.
                if !self.chance.one_in(4) {
                    self.newest += 1;
                    self.attempts[who] = self.newest;
                }
                Call::Leave { value, is_undo: self.chance.one_in(3) }
            }
        }
    }

    /// Of which grant a renewal is.
    fn number(&mut self) -> Option<u64> {
        let counter = self.model.kept(self.now / 1_000).counter;
        match self.chance.below(4) {
            0 | 1 => None,
            2 => counter,
            _ => counter.map(|counter| counter - 1),
        }
    }

    /// Lets time pass or asks something, and compares.
    async fn step(&mut self) {
        if self.chance.one_in(3) {
            let later = self.later();
            self.pass(later);
        } else {
            let call = self.call();
            self.asked.push(call);
            writeln!(self.log, "{call:?}").unwrap();
            let said = self.ask(call).await;
            let modelled = self.model.take(self.now, call, ALL);
            assert_eq!(modelled, said, "the model, the server, after:\n{}", self.log);
            self.hear().await;
        }
        let modelled = self.model.kept(self.now / 1_000);
        assert_eq!(modelled, self.kept().await, "the model, the server, after:\n{}", self.log);
    }

    async fn ask(&mut self, call: Call) -> Said {
        let script = self.script(call);
        let answer = self.real.call(script).await.unwrap();
        let line = |InLine { ahead, left, newest }: InLine| Said::InLine {
            ahead: usize::try_from(ahead).unwrap(),
            left: millis(left.unwrap()),
            newest,
        };
        match call {
            Call::Enter { .. } => match acquired(&answer).unwrap() {
                Acquired::Granted(number) => Said::Granted(number),
                Acquired::InLine(at) => line(at),
                Acquired::Held(_) => Said::Held,
                Acquired::Undone => Said::Undone,
                Acquired::Permits(_) => panic!("a lock is no semaphore"),
            },
            Call::Beat { .. } => match standing(&answer).unwrap() {
                Standing::Granted(number) => Said::Granted(number),
                Standing::InLine(at) => line(at),
                Standing::Gone => Said::Gone,
            },
            Call::Renew { .. } | Call::Leave { .. } => Said::Done(held(&answer).unwrap()),
        }
    }

    fn script(&mut self, call: Call) -> ScriptCall {
        let attempt = |value: Value| Attempt::known(self.keys.clone(), value.to_string());
        match call {
            Call::Enter { value, ttl, waits, .. } => {
                // The clock of a client that is behind: one that is ahead is tested where the arithmetic is.
                let proposal = self.now - self.chance.below(2_000_000);
                enter(&attempt(value), &Ask::new(Duration::from_millis(ttl), proposal, b"who"), waits, CHANNEL)
            }
            Call::Beat { value, ttl, .. } => beat(&attempt(value), Duration::from_millis(ttl), Duration::ZERO),
            Call::Renew { value, ttl, number } => {
                attempt(value).renew(Duration::from_millis(ttl), Duration::ZERO, number)
            }
            Call::Leave { value, is_undo } => leave(&attempt(value), if is_undo { TOMBSTONE } else { Duration::ZERO }),
        }
    }

    /// Those to whom the lock was handed over are told, each once and in this order; that nobody else is is seen at the
    /// next news.
    async fn hear(&mut self) {
        let mut news = self.told.on_message();
        for (value, number) in &self.model.told {
            let message = Clock::boot().timeout(LIMIT, news.next()).await;
            let message = message.unwrap_or_else(|| panic!("nobody is told, after:\n{}", self.log)).unwrap();
            let message = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            assert_eq!(message, format!("{value} {number}"), "after:\n{}", self.log);
        }
    }

    /// Nobody was told beside those who were heard of.
    async fn end(&mut self) {
        self.get::<u64>(&["PUBLISH", CHANNEL, "the end"]).await;
        let message = Clock::boot().timeout(LIMIT, self.told.on_message().next()).await.flatten().unwrap();
        assert_eq!(message.get_payload_bytes(), b"the end", "somebody was told, after:\n{}", self.log);
    }

    /// What the server keeps.
    async fn kept(&self) -> Kept {
        let ([queue, fresh, waiters], ms) = (self.keys.queue(), self.now / 1_000);
        let (token, undone) = (self.keys.token(), self.keys.tombstone("*"));
        let (lock, counter, line, undone, counts): Answer =
            self.get(&["EVAL", KEPT, "5", self.keys.lock(), &token, &queue, &fresh, &waiters, &undone]).await;
        assert_eq!(counts, [line.len(); 2], "who is alive and who each is, after:\n{}", self.log);
        let attempt = |key: String| key.rsplit(':').next().unwrap().parse().unwrap();
        Kept {
            lock: lock.first().map(|value| (Value::try_from(*value).unwrap(), ms + lock[1])),
            counter,
            line,
            tombstones: undone.into_iter().map(|(key, left)| (attempt(key), ms + left)).collect(),
        }
    }
}

fn millis(time: Duration) -> Ms {
    Ms::try_from(time.as_millis()).unwrap()
}

#[tokio::test]
async fn the_model_of_the_line_answers_and_keeps_what_a_real_server_does() {
    let mut pair = Pair::start().await;
    for seed in 0..SEQUENCES {
        pair.begin(seed).await;
        for _ in 0..LENGTH {
            pair.step().await;
        }
        pair.end().await;
    }
}
