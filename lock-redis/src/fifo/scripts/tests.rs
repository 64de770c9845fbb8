//! The scripts of the queue on a real server, against a model of it, under random schedules; and their readers.

#[path = "../../../tests/suite/fixtures/mod.rs"]
mod fixtures;

use std::sync::{Arc, Mutex};

use lock_core::{Clock, Context, LockName};
use lock_lab::servers;
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use redis::{FromRedisValue, aio::MultiplexedConnection};

use super::*;
use crate::{
    node::{Node, NodeConfig},
    scripts::{Acquired, acquired, held},
    token,
};

/// So long that the server ends nothing by itself in a test.
const TTL: Duration = Duration::from_secs(24 * 60 * 60);
const CHANNEL: &str = "lock:grants:test";
const FOREIGN: &str = "of another library";

/// One step. Contenders are named by small numbers.
#[derive(Debug, Clone, Copy)]
enum Step {
    Enter {
        who: usize,
        waits: bool,
    },
    Beat(usize),
    Leave {
        who: usize,
        tombstone: bool,
    },
    /// It counts as dead from now on, unless it speaks again.
    Die(usize),
    /// The holder's lease ends.
    Lapse,
    /// Somebody who knows nothing of the queue takes the lock if it is free.
    Barge,
}

const CONTENDERS: usize = 6;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..CONTENDERS;
    let step = prop_oneof![
        6 => (who.clone(), prop::bool::weighted(0.8)).prop_map(|(who, waits)| Step::Enter { who, waits }),
        3 => who.clone().prop_map(Step::Beat),
        5 => (who.clone(), prop::bool::weighted(0.1)).prop_map(|(who, tombstone)| Step::Leave { who, tombstone }),
        2 => who.prop_map(Step::Die),
        2 => Just(Step::Lapse),
        1 => Just(Step::Barge),
    ];
    prop::collection::vec(step, 60)
}

/// What the server should keep.
#[derive(Debug, Default)]
struct Model {
    holder: Option<String>,
    /// Who stands in line, and whether it counts as alive.
    line: Vec<(String, bool)>,
    undone: Vec<String>,
    /// To whom the lock was handed over, in this order.
    told: Vec<String>,
}

impl Model {
    fn promote(&mut self) {
        self.line.retain(|(_, alive)| *alive);
        if self.holder.is_none() && !self.line.is_empty() {
            let (first, _) = self.line.remove(0);
            self.told.push(first.clone());
            self.holder = Some(first);
        }
    }

    fn holds(&self, value: &str) -> bool {
        self.holder.as_deref() == Some(value)
    }

    fn place(&self, value: &str) -> Option<usize> {
        self.line.iter().position(|(other, _)| other == value)
    }

    fn enter(&mut self, value: &str, waits: bool) -> &'static str {
        self.promote();
        if self.holds(value) {
            return "granted";
        }
        if self.undone.iter().any(|undone| undone == value) {
            return "undone";
        }
        if self.holder.is_none() {
            self.holder = Some(value.to_owned());
            return "granted";
        }
        if !waits {
            return "held";
        }
        match self.place(value) {
            Some(at) => self.line[at].1 = true,
            None => self.line.push((value.to_owned(), true)),
        }
        "in line"
    }

    fn beat(&mut self, value: &str) -> Result<usize, &'static str> {
        if let Some(at) = self.place(value) {
            self.line[at].1 = true;
        }
        self.promote();
        match self.place(value) {
            Some(at) => Ok(at),
            None if self.holds(value) => Err("granted"),
            None => Err("gone"),
        }
    }

    fn leave(&mut self, value: &str, tombstone: bool) -> bool {
        let (held, place) = (self.holds(value), self.place(value));
        if held {
            self.holder = None;
        } else if let Some(at) = place {
            self.line.remove(at);
        }
        if tombstone {
            self.undone.push(value.to_owned());
        }
        self.promote();
        held || place.is_some()
    }
}

/// A lock name of its own on a server.
struct Bench {
    node: Node,
    control: MultiplexedConnection,
    keys: Keys,
    values: [String; CONTENDERS],
    model: Model,
    newest: u64,
}

/// Keeps everything that the server would end by itself, so that only the steps of a schedule end anything.
const FREEZE: &str = "
    for _, key in ipairs(KEYS) do redis.call('PERSIST', key) end
    for _, value in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
      if tonumber(redis.call('ZSCORE', KEYS[3], value)) > 1 then redis.call('ZADD', KEYS[3], 9e14, value) end
    end
    return 1";

impl Bench {
    fn new(node: &Node, control: &MultiplexedConnection, case: usize) -> Self {
        Self {
            node: node.clone(),
            control: control.clone(),
            keys: Keys::new("lock", &LockName::new(format!("case {case}")).unwrap()),
            values: std::array::from_fn(|who| format!("{case}.{who}.0")),
            model: Model::default(),
            newest: 0,
        }
    }

    async fn ask<T: FromRedisValue>(&mut self, command: &[&str]) -> T {
        redis::cmd(command[0]).arg(&command[1..]).query_async(&mut self.control).await.unwrap()
    }

    fn attempt(&self, who: usize) -> Attempt {
        Attempt { in_line: true, ..Attempt::known(self.keys.clone(), self.values[who].clone()) }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Enter { who, waits } => self.enter(who, waits).await,
            Step::Beat(who) => self.beat(who).await,
            Step::Leave { who, tombstone } => self.leave(who, tombstone).await,
            Step::Die(who) => {
                let [_, fresh, _] = self.keys.queue();
                let value = self.values[who].clone();
                self.ask::<u64>(&["ZADD", &fresh, "XX", "1", &value]).await;
                if let Some(at) = self.model.place(&value) {
                    self.model.line[at].1 = false;
                }
            }
            Step::Lapse => {
                let lock = self.keys.lock().to_owned();
                self.ask::<u64>(&["DEL", &lock]).await;
                self.model.holder = None;
            }
            Step::Barge => {
                let lock = self.keys.lock().to_owned();
                let taken: Option<String> = self.ask(&["SET", &lock, FOREIGN, "NX"]).await;
                assert_eq!(taken.is_some(), self.model.holder.is_none());
                self.model.holder.get_or_insert_with(|| FOREIGN.to_owned());
            }
        }
    }

    async fn enter(&mut self, who: usize, waits: bool) {
        let attempt = self.attempt(who);
        let before = self.model.holder.clone();
        let call = enter(&attempt, &Ask::new(TTL, 0, b"payload"), waits, CHANNEL);
        let answer = acquired(&self.node.call(call).await.unwrap()).unwrap();
        let expected = self.model.enter(&attempt.value, waits);
        match answer {
            Acquired::Granted(number) => {
                assert_eq!(expected, "granted");
                let is_new = before.as_deref() != Some(attempt.value.as_str());
                self.numbered(number, is_new).await;
            }
            Acquired::InLine(_) => assert_eq!(expected, "in line"),
            Acquired::Held(_) => assert_eq!(expected, "held"),
            Acquired::Undone => assert_eq!(expected, "undone"),
            Acquired::Permits(_) => panic!("a lock is no semaphore"),
        }
        self.compare().await;
    }

    async fn beat(&mut self, who: usize) {
        let attempt = self.attempt(who);
        let answer = self.node.call(beat(&attempt, TTL, Duration::ZERO)).await.unwrap();
        match (standing(&answer).unwrap(), self.model.beat(&attempt.value)) {
            (Standing::InLine(at), Ok(place)) => assert_eq!((at.ahead, at.newest), (place as u64, self.number().await)),
            (Standing::Granted(number), Err("granted")) => self.numbered(number, false).await,
            (Standing::Gone, Err("gone")) => {}
            (answer, expected) => panic!("{answer:?}, expected {expected:?}"),
        }
        self.compare().await;
    }

    async fn leave(&mut self, who: usize, tombstone: bool) {
        let attempt = self.attempt(who);
        let call = if tombstone { attempt.undo(Duration::ZERO) } else { attempt.release(Duration::ZERO) };
        let had = held(&self.node.call(call).await.unwrap()).unwrap();
        assert_eq!(had, self.model.leave(&attempt.value, tombstone));
        let tombstone = self.keys.tombstone(&attempt.value);
        self.ask::<u64>(&["PERSIST", &tombstone]).await;
        if self.model.undone.contains(&attempt.value) && fastrand::bool() {
            self.values[who].push('+');
        }
        self.compare().await;
    }

    /// The newest number that was given out.
    async fn number(&mut self) -> u64 {
        let token = self.keys.token();
        self.ask::<Option<u64>>(&["HGET", &token, "counter"]).await.unwrap_or(0)
    }

    /// Checks the number of a grant, and whether that is one that was made just now.
    async fn numbered(&mut self, number: u64, is_new: bool) {
        let token = self.keys.token();
        assert_eq!(
            number,
            self.ask::<u64>(&["HGET", &token, "counter"]).await,
            "the newest grant has the newest number"
        );
        assert!(number > self.newest || (!is_new && number == self.newest), "{number} after {}", self.newest);
        self.newest = number;
    }

    /// Compares what the server keeps with the model, after a script has run.
    async fn compare(&mut self) {
        let (lock, [queue, fresh, waiters]) = (self.keys.lock().to_owned(), self.keys.queue());
        let holder: Option<String> = self.ask(&["GET", &lock]).await;
        assert_eq!(holder, self.model.holder);
        let line: Vec<String> = self.ask(&["ZRANGE", &queue, "0", "-1"]).await;
        assert!(line.iter().eq(self.model.line.iter().map(|(value, _)| value)), "{line:?}, expected {:?}", self.model);
        assert!(holder.is_some() || line.is_empty(), "nobody holds it, and somebody waits");
        for (what, key) in [("ZCARD", &fresh), ("HLEN", &waiters)] {
            assert_eq!(self.ask::<usize>(&[what, key]).await, line.len(), "{what} {key}");
        }
        self.ask::<u64>(&["EVAL", FREEZE, "4", &lock, &queue, &fresh, &waiters]).await;
    }
}

/// A machine that stands still for a second is no reason for it to give up.
fn node(port: u16) -> Node {
    let limit = Duration::from_secs(20);
    let config = NodeConfig { response_timeout: limit, connect_timeout: limit, ..NodeConfig::new("127.0.0.1", port) };
    Node::new(config, Context::current())
}

#[tokio::test]
async fn under_any_schedule_the_scripts_do_what_the_model_of_the_queue_does() {
    let server = servers::Redis::start().await.unwrap();
    let node = node(server.port());
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let mut listening = node.subscribe_each(CHANNEL, {
        let heard = Arc::clone(&heard);
        Arc::new(move |message: &[u8]| heard.lock().unwrap().push(String::from_utf8_lossy(message).into_owned()))
    });
    listening.confirmed().await;
    let control = server.connection().await.unwrap();
    let mut runner = TestRunner::deterministic();
    let mut told = Vec::new();
    for case in 0..150 {
        let schedule = steps().new_tree(&mut runner).unwrap().current();
        let mut bench = Bench::new(&node, &control, case);
        for step in schedule {
            bench.take(step).await;
        }
        told.append(&mut bench.model.told);
    }
    let clock = Clock::boot();
    let all = async {
        while heard.lock().unwrap().len() < told.len() {
            clock.sleep(Duration::from_millis(1)).await;
        }
    };
    clock.timeout(Duration::from_secs(30), all).await.expect("somebody was not told of its grant");
    let heard = heard.lock().unwrap();
    let values: Vec<_> = heard.iter().map(|message| message.split(' ').next().unwrap()).collect();
    assert_eq!(values, told, "each is told once, and nobody else");
}

#[tokio::test]
async fn a_grant_that_was_handed_over_has_the_number_that_the_arithmetic_says() {
    let server = servers::Redis::start().await.unwrap();
    let node = node(server.port());
    let mut control = server.connection().await.unwrap();
    let micros = async |control: &mut MultiplexedConnection| -> u64 {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(control).await.unwrap();
        seconds * 1_000_000 + micros
    };
    let now = micros(&mut control).await;
    for (at, (stored, proposal)) in [
        (None, 0),
        (None, now + 5_000_000),
        (None, u64::MAX / 2),
        (Some(now + 9_000_000), 0),
        (Some(7), now - 9_000_000),
    ]
    .into_iter()
    .enumerate()
    {
        let keys = Keys::new("lock", &LockName::new(format!("name {at}")).unwrap());
        let (holder, waiter) = (Attempt::new(keys.clone()).in_line(), Attempt::new(keys.clone()).in_line());
        node.call(enter(&holder, &Ask::new(TTL, 0, b""), true, CHANNEL)).await.unwrap();
        node.call(enter(&waiter, &Ask::new(TTL, proposal, b""), true, CHANNEL)).await.unwrap();
        redis::cmd("DEL").arg(keys.token()).exec_async(&mut control).await.unwrap();
        if let Some(stored) = stored {
            redis::cmd("HSET").arg(keys.token()).arg("counter").arg(stored).exec_async(&mut control).await.unwrap();
        }
        let before = micros(&mut control).await;
        node.call(holder.release(Duration::ZERO)).await.unwrap();
        let after = micros(&mut control).await;
        let number: u64 = redis::cmd("HGET").arg(keys.token()).arg("held").query_async(&mut control).await.unwrap();
        let expected = |now: u64| token::next(stored, proposal, now);
        assert!((expected(before)..=expected(after)).contains(&number), "{number} for {stored:?} and {proposal}");
        let left: u64 = redis::cmd("PTTL").arg(keys.lock()).query_async(&mut control).await.unwrap();
        assert!(left <= 4_000, "handed over for {left} ms before its first renewal");
    }
}

proptest! {
    #[test]
    fn no_answer_makes_a_reader_panic_and_none_but_a_grant_is_one(
        answer in fixtures::answer(&["granted", "in line", "gone", "held", "0"]),
    ) {
        if let Ok(Standing::Granted(number)) = standing(&answer) {
            let Value::Array(parts) = &answer else { panic!("{answer:?}") };
            prop_assert_eq!(text(&parts[0]), Some("granted"));
            prop_assert_eq!(text(&parts[1]).map(str::parse), Some(Ok(number)));
        }
        let _ = seen(&answer);
    }
}
