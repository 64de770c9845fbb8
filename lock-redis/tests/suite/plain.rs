//! The strategy `plain`: its scripts, one branch after the other, and what it promises on one server.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::common::{self, LIMIT, Server, connect, keys, patient_node, server, soon};
use futures::StreamExt;
use lock_core::{Backend, Context, Error, LockName, Locks, LocksOptions, Loss};
use lock_lab::wait::renewed;
use lock_redis::{
    Config, Redis, Strategy,
    keys::Keys,
    node::{Node, ScriptCall, Value},
    protocol::{
        answers::{Entered, done, entered},
        attempt::{Attempt, Kind},
        packed::pack,
    },
    token,
};
use proptest::{
    prelude::{Just, prop, prop_oneof},
    strategy::{Strategy as _, ValueTree},
    test_runner::TestRunner,
};

const TTL: Duration = Duration::from_secs(10);
const NONE: Duration = Duration::ZERO;

/// Nobody who looks again after this does so within a test.
const NEVER: Strategy = Strategy::Plain { look_again: Duration::from_secs(60) };

/// The keys of a name without a prefix.
fn bare(name: &str) -> Keys {
    Keys::plain("", &LockName::new(name).unwrap()).unwrap()
}

fn attempt(name: &str, number: u32) -> Attempt {
    Attempt::new(bare(name), Kind::Plain, format!("{number:032}"), TTL, NONE)
}

/// A server, and a client that runs scripts on it.
struct Bench {
    server: Server,
    node: Node,
}

impl Bench {
    async fn new() -> Self {
        let server = server().await;
        let node = Node::new(patient_node(server.redis.port()), Context::current());
        Self { server, node }
    }

    async fn take(&self, attempt: &Attempt, waits: Duration) -> Entered {
        entered(&self.node.call(attempt.take(0, b"who", waits)).await.unwrap()).unwrap()
    }

    async fn granted(&self, attempt: &Attempt) -> u64 {
        match self.take(attempt, NONE).await {
            Entered::Granted(number) => number,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn had(&self, call: ScriptCall) -> bool {
        done(&self.node.call(call).await.unwrap()).unwrap().had
    }

    async fn renewed(&self, attempt: &Attempt, number: u64) -> bool {
        self.node.call(attempt.renew(number)).await.unwrap() == Value::Int(1)
    }

    /// What the lock key of a name holds.
    async fn holder(&mut self, name: &str) -> Option<String> {
        self.server.ask(&["GET", name]).await
    }
}

fn config(server: &Server) -> Config {
    server.patient().with_prefix("").with_strategy(NEVER)
}

async fn locks(server: &Server) -> Locks {
    connect(config(server)).await
}

/// Waits until releases of `name` are published.
async fn until_somebody_waits(server: &mut Server, name: &str) {
    let record = bare(name).token();
    soon(async {
        loop {
            let record: Option<Vec<u8>> = server.ask(&["GET", &record]).await;
            if record.is_some_and(|record| record[49..57] != [0; 8]) {
                return;
            }
        }
    })
    .await;
}

/// How often each command was carried out, inside of scripts, too.
async fn counts(server: &Server) -> BTreeMap<String, u64> {
    let stats = server.redis.info("commandstats").await.unwrap();
    let count = |(name, stat): (String, String)| {
        let calls = stat.strip_prefix("calls=")?.split(',').next()?.parse().ok()?;
        Some((name.strip_prefix("cmdstat_")?.to_owned(), calls))
    };
    stats.into_iter().filter_map(count).filter(|(name, _)| name != "info").collect()
}

#[tokio::test]
async fn an_uncontended_pair_is_two_requests_and_eight_commands_and_publishes_nothing() {
    let server = server().await;
    let locks = locks(&server).await;
    // The first use of scripts and of a name costs more.
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let before = counts(&server).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    let after = counts(&server).await;
    let more = after.into_iter().map(|(name, count)| (name.clone(), count - before.get(&name).unwrap_or(&0)));
    let more: BTreeMap<_, _> = more.filter(|(_, count)| *count > 0).collect();
    let expected = [("del", 1), ("evalsha", 2), ("mget", 2), ("set", 2), ("time", 1)];
    assert_eq!(more, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[tokio::test]
async fn the_lock_key_is_the_prefix_and_the_name_and_holds_the_value_alone() {
    let mut server = server().await;
    let locks = connect(server.patient().with_strategy(NEVER)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(server.ask::<String>(&["GET", "lock:a"]).await.len(), 32);
    let left: u64 = server.ask(&["PTTL", "lock:a"]).await;
    assert!((20_000..=30_000).contains(&left), "{left}");
    assert_eq!(server.ask::<Option<String>>(&["SET", "lock:a", "other", "NX", "PX", "1000"]).await, None);
    guard.release().await.unwrap();
    assert_eq!(server.ask::<Vec<String>>(&["KEYS", "*"]).await, ["lock-plain:token:{lock:a}"]);
}

#[tokio::test]
async fn an_attempt_that_is_sent_twice_is_granted_once_for_a_whole_ttl() {
    let mut bench = Bench::new().await;
    let attempt = attempt("a", 1);
    let first = bench.granted(&attempt).await;
    bench.server.ask::<()>(&["PEXPIRE", "a", "5000"]).await;
    assert_eq!(bench.granted(&attempt).await, first);
    assert!(bench.server.ask::<u64>(&["PTTL", "a"]).await > 5_000, "its holder counts the whole ttl");
    // Where the number is not known any more nobody was told of it.
    bench.server.ask::<()>(&["DEL", &bare("a").token()]).await;
    assert!(bench.granted(&attempt).await > first);
    assert!(matches!(bench.take(&self::attempt("a", 2), NONE).await, Entered::Held { left: Some(_), more: false }));
}

#[tokio::test]
async fn an_attempt_that_was_undone_takes_nothing_whether_its_undo_found_something_or_not() {
    let mut bench = Bench::new().await;
    for is_late in [true, false] {
        let attempt = attempt("a", u32::from(is_late));
        if !is_late {
            bench.granted(&attempt).await;
        }
        assert_eq!(bench.had(attempt.undo()).await, !is_late);
        assert_eq!(bench.take(&attempt, NONE).await, Entered::Undone);
        assert_eq!(bench.holder("a").await, None);
        let left: u64 = bench.server.ask(&["PTTL", &bare("a").tombstone(&attempt.value)]).await;
        assert!(left <= 5_000, "a tombstone that stays");
    }
}

#[tokio::test]
async fn what_is_anothers_is_neither_renewed_nor_given_back() {
    let mut bench = Bench::new().await;
    let (ours, other) = (attempt("a", 1), attempt("a", 2));
    let number = bench.granted(&ours).await;
    for call in [other.release(), other.drop_it(), other.leave(), other.undo()] {
        assert!(!bench.had(call).await);
        assert!(bench.holder("a").await.is_some());
    }
    assert!(!bench.renewed(&other, number).await && bench.renewed(&ours, number).await);
    bench.server.ask::<()>(&["SET", "a", "foreign"]).await;
    assert!(!bench.had(ours.release()).await && !bench.renewed(&ours, number).await);
    assert_eq!(bench.holder("a").await.as_deref(), Some("foreign"));
    assert_eq!(bench.server.ask::<i64>(&["PTTL", "a"]).await, -1);
}

#[tokio::test]
async fn a_forced_release_is_of_one_grant_and_leaves_a_tombstone() {
    let bench = Bench::new().await;
    let attempt = attempt("a", 1);
    let first = bench.granted(&attempt).await;
    assert!(bench.had(attempt.drop_it()).await);
    let second = bench.granted(&attempt).await;
    assert!(!bench.had(attempt.revoke(first)).await && bench.renewed(&attempt, second).await);
    assert!(bench.had(attempt.revoke(second)).await && !bench.renewed(&attempt, second).await);
    assert_eq!(bench.take(&attempt, NONE).await, Entered::Undone);
}

#[tokio::test]
async fn a_renewal_is_of_one_grant_and_keeps_the_record() {
    let mut bench = Bench::new().await;
    let attempt = attempt("a", 1);
    let first = bench.granted(&attempt).await;
    assert!(bench.had(attempt.drop_it()).await);
    let second = bench.granted(&attempt).await;
    assert!(second > first && !bench.renewed(&attempt, first).await);
    for key in ["a", &bare("a").token()] {
        bench.server.ask::<()>(&["PEXPIRE", key, "5000"]).await;
    }
    assert!(bench.renewed(&attempt, second).await);
    assert!(bench.server.ask::<u64>(&["PTTL", "a"]).await > 5_000);
    assert!(bench.server.ask::<u64>(&["PTTL", &bare("a").token()]).await > 200_000_000);
    bench.server.ask::<()>(&["DEL", &bare("a").token()]).await;
    assert!(bench.renewed(&attempt, second).await, "who has the key holds the lock");
}

#[tokio::test]
async fn the_server_counts_tokens_as_the_arithmetic_says() {
    let mut bench = Bench::new().await;
    let clock = async |server: &mut Server| -> u64 {
        let (seconds, micros): (u64, u64) = server.ask(&["TIME"]).await;
        seconds * 1_000_000 + micros
    };
    let now = clock(&mut bench.server).await;
    let near = now - 200_000_000..now + 200_000_000;
    let cases = (prop::option::of(near.clone()), prop_oneof![near, Just(0), Just(u64::MAX / 2)]);
    let mut runner = TestRunner::deterministic();
    for at in 0..300 {
        let (stored, proposal) = cases.new_tree(&mut runner).unwrap().current();
        let attempt = attempt(&format!("case {at}"), 1);
        if let Some(stored) = stored {
            let record = [&[2], &pack(stored)[..], &[0; 56]].concat();
            let mut set = redis::cmd("SET");
            () = set.arg(attempt.keys.token()).arg(record).query_async(&mut bench.server.control).await.unwrap();
        }
        let before = clock(&mut bench.server).await;
        let answer = entered(&bench.node.call(attempt.take(proposal, b"", NONE)).await.unwrap()).unwrap();
        let after = clock(&mut bench.server).await;
        let Entered::Granted(number) = answer else { panic!("{answer:?}") };
        let expected = token::next(stored, proposal, before)..=token::next(stored, proposal, after);
        assert!(expected.contains(&number), "{number} for {stored:?} and {proposal}; expected {expected:?}");
    }
}

#[tokio::test]
async fn keys_of_others_in_the_way_are_a_refusal_with_nothing_written() {
    let mut bench = Bench::new().await;
    bench.server.ask::<()>(&["HSET", "a", "client:1", "1"]).await;
    assert!(matches!(bench.take(&attempt("a", 1), NONE).await, Entered::Held { left: None, .. }), "of another type");
    assert!(!bench.had(attempt("a", 1).undo()).await);
    // A head of the strategy `queue`, and another type.
    bench.server.ask::<()>(&["SET", &bare("b").token(), "\u{1}"]).await;
    assert_eq!(bench.take(&attempt("b", 1), NONE).await, Entered::OtherFormat);
    bench.server.ask::<()>(&["HSET", &bare("c").token(), "value", "1"]).await;
    assert!(bench.node.call(attempt("c", 1).take(0, b"", NONE)).await.is_err());
    for name in ["b", "c"] {
        assert_eq!(bench.holder(name).await, None);
        let locks = locks(&bench.server).await;
        let error = soon(locks.mutex(name).lock()).await.map(drop).unwrap_err();
        assert!(matches!(error, Error::Refused { .. }), "{error}");
    }
}

#[tokio::test]
async fn the_lock_of_a_queue_and_the_same_key_by_its_name_exclude_each_other() {
    let server = server().await;
    let (queue, plain) = (server.locks().await, locks(&server).await);
    let guard = queue.mutex("a").lock().await.unwrap();
    assert!(plain.mutex("{lock:a}").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    let guard = plain.mutex("{lock:a}").lock().await.unwrap();
    assert!(queue.mutex("a").try_lock().await.unwrap().is_none());
    guard.release().await.unwrap();
    // What this strategy keeps where a queue has its head keeps that one from being used.
    let guard = plain.mutex("{lock:b}:token").lock().await.unwrap();
    let error = queue.mutex("b").try_lock().await.unwrap_err();
    assert!(error.to_string().contains("another format"), "{error}");
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_name_whose_key_is_one_beside_another_lock_is_refused() {
    let server = server().await;
    let backend = Redis::connect(config(&server)).await.unwrap();
    let locks = Locks::new(Arc::clone(&backend) as Arc<dyn Backend>);
    let name = "lock-plain:token:{a}";
    let refused = |error: Error| {
        assert!(matches!(&error, Error::InvalidName { name: given, .. } if given == name), "{error}");
        assert!(error.to_string().contains("`lock-plain:`"), "{error}");
    };
    refused(locks.mutex(name).lock().await.map(drop).unwrap_err());
    refused(locks.mutex(name).try_lock().await.map(drop).unwrap_err());
    refused(locks.inspect(name).await.unwrap_err());
    refused(backend.watch(LockName::new(name).unwrap()).next().await.unwrap().unwrap_err());
    let guard = locks.mutex("lock-plain").lock().await.unwrap();
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_release_is_published_while_somebody_waits_and_not_otherwise() {
    let bench = Bench::new().await;
    let (one, two, three) = (attempt("a", 1), attempt("a", 2), attempt("a", 3));
    let published = async || counts(&bench.server).await.get("publish").copied().unwrap_or(0);
    bench.granted(&one).await;
    assert!(matches!(bench.take(&two, NONE).await, Entered::Held { .. }), "it does not wait");
    assert!(bench.had(one.release()).await);
    assert_eq!(published().await, 0);
    bench.granted(&one).await;
    assert!(matches!(bench.take(&two, LIMIT).await, Entered::Held { .. }));
    assert!(bench.had(one.release()).await);
    assert_eq!(published().await, 1);
    // It waits no less because another one was faster.
    bench.granted(&three).await;
    assert!(bench.had(three.leave()).await);
    assert_eq!(published().await, 2);
    // By the lock key alone nobody is known who could be told.
    bench.granted(&one).await;
    assert!(bench.had(one.drop_it()).await);
    assert_eq!(published().await, 2);
}

#[tokio::test]
async fn a_waiter_is_woken_by_the_release() {
    let mut server = server().await;
    let (holder, others) = (locks(&server).await, locks(&server).await);
    let mut guard = holder.mutex("a").lock().await.unwrap();
    let mutex = others.mutex("a");
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mutex = mutex.clone();
        waiting.push(tokio::spawn(async move { mutex.lock().await }));
    }
    until_somebody_waits(&mut server, "a").await;
    // One after the other, in the order in which they came to their client; none by looking again.
    for waiter in waiting {
        guard.release().await.unwrap();
        guard = soon(waiter).await.unwrap().unwrap();
    }
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_release_of_which_nobody_tells_is_noticed_by_looking_again() {
    let mut server = server().await;
    let strategy = Strategy::Plain { look_again: Duration::from_millis(20) };
    let locks = connect(config(&server).with_strategy(strategy)).await;
    server.ask::<()>(&["SET", "a", "foreign"]).await;
    let waiting = tokio::spawn(async move { locks.mutex("a").lock().await });
    until_somebody_waits(&mut server, "a").await;
    server.ask::<()>(&["DEL", "a"]).await;
    soon(waiting).await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_waiter_takes_over_when_the_lease_of_a_dead_holder_ends() {
    let mut server = server().await;
    let locks = locks(&server).await;
    server.ask::<()>(&["SET", "a", "dead", "PX", "300"]).await;
    soon(locks.mutex("a").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn inspect_shows_the_holder_with_its_payload_and_token_and_of_others_what_they_wrote() {
    let mut server = server().await;
    let options = LocksOptions::default().with_payload(*b"host-7");
    let locks = Locks::with_options(Redis::connect(config(&server)).await.unwrap(), options);
    assert_eq!(locks.inspect("a").await.unwrap().holders, vec![]);
    let guard = locks.mutex("a").lock().await.unwrap();
    let seen = self::locks(&server).await.inspect("a").await.unwrap();
    let [holder] = seen.holders.as_slice() else { panic!("{seen:?}") };
    assert_eq!((holder.payload.as_slice(), holder.token), (b"host-7".as_slice(), Some(guard.token().number)));
    assert!(holder.remaining.unwrap() <= Duration::from_secs(30) && holder.since.is_some());
    // What is noted of the former holder is not about this one.
    server.ask::<()>(&["SET", "a", "other", "PX", "60000"]).await;
    let holder = &locks.inspect("a").await.unwrap().holders[0];
    assert_eq!((holder.id.as_str(), holder.payload.len(), holder.token), ("other", 0, None));
    assert!(holder.remaining.unwrap() > Duration::from_secs(30));
}

#[tokio::test]
async fn a_lock_that_was_deleted_or_taken_is_noticed_at_the_next_renewal() {
    let mut server = server().await;
    let locks = connect(config(&server).with_ttl(Duration::from_secs(4))).await;
    for command in [["DEL", "a", "b"].as_slice(), &["SET", "a", "other", "XX", "KEEPTTL"]] {
        let guard = soon(locks.mutex("a").lock()).await.unwrap();
        renewed([guard.validity()]).await;
        server.ask::<Value>(command).await;
        assert_eq!(soon(guard.lost()).await, Loss::Revoked);
    }
}

#[tokio::test]
async fn a_grant_whose_answer_was_lost_is_found_again_and_its_release_is_buried() {
    let server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_prefix("").with_strategy(NEVER)).await;
    proxy.cut_at_reply(0);
    let guard = soon(locks.mutex("a").try_lock()).await.unwrap().expect("its own lock stood in its way");
    guard.release().await.unwrap();
    // The first of its two requests might have come only now: it would find a tombstone.
    let tombstones = async || server.redis.ask::<Vec<String>>("KEYS", &["lock-plain:undone:*"]).await.unwrap().len();
    soon(async { while tombstones().await != 1 {} }).await;
}

#[tokio::test]
async fn an_acquisition_that_arrives_after_its_undo_finds_the_tombstone() {
    let mut server = server().await;
    let proxy = server.proxy().await;
    let locks = connect(common::config(proxy.port()).with_prefix("").with_strategy(NEVER)).await;
    proxy.hold_requests();
    let error = soon(locks.mutex("a").try_lock()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    proxy.heal();
    locks.close(LIMIT).await.unwrap();
    assert_eq!(server.ask::<u64>(&["EXISTS", "a"]).await, 0);
}

#[tokio::test]
async fn a_queue_of_the_same_name_has_other_keys() {
    let server = server().await;
    let (queue, plain) = (server.locks().await, connect(server.patient().with_strategy(NEVER)).await);
    let guards = (queue.mutex("a").lock().await.unwrap(), plain.mutex("a").lock().await.unwrap());
    assert_ne!(keys("a").lock(), "lock:a");
    guards.0.release().await.unwrap();
    guards.1.release().await.unwrap();
}
