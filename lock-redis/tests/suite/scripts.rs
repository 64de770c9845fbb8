//! The scripts on a real server, and the node that runs them.

use std::{cell::Cell, iter, num::NonZeroU32, time::Duration};

use crate::common::{Server, attempt, keys, patient_node, server};
use lock_core::{Context, LockName};
use lock_redis::{
    keys::Keys,
    node::{FailureKind, Node, NodeConfig, Script, ScriptCall, Value},
    protocol::{
        answers::{Entered, done, entered},
        attempt::{Ask, Attempt, Kind},
        packed::pack,
    },
    token,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

const TTL: Duration = Duration::from_secs(10);
/// For how long a head is kept, in milliseconds.
const KEPT: u64 = 3 * 24 * 3_600_000;

fn node(port: u16) -> Node {
    Node::new(patient_node(port), Context::current())
}

fn writer(name: &str, number: u32) -> Attempt {
    attempt(name, Kind::Writer, number, TTL, Duration::ZERO)
}

async fn enter(node: &Node, attempt: &Attempt, proposal: u64) -> Entered {
    entered(&node.call(attempt.enter(&Ask { proposal, payload: b"", waits: None })).await.unwrap()).unwrap()
}

async fn had(node: &Node, call: ScriptCall) -> bool {
    done(&node.call(call).await.unwrap()).unwrap().had
}

async fn renewed(node: &Node, attempt: &Attempt, number: u64) -> bool {
    node.call(attempt.renew(number)).await.unwrap() == Value::Int(1)
}

#[tokio::test]
async fn an_attempt_that_is_sent_twice_is_granted_once_for_a_whole_ttl() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let attempt = writer("a", 1);
    let first = enter(&node, &attempt, 0).await;
    // What was handed over lasts for less.
    server.ask::<()>(&["PEXPIRE", "{lock:a}", "5000"]).await;
    assert_eq!(enter(&node, &attempt, 0).await, first);
    assert!(server.ask::<u64>(&["PTTL", "{lock:a}"]).await > 5_000, "its holder counts the whole ttl");
    assert!(matches!(enter(&node, &writer("a", 2), 0).await, Entered::Held { left: Some(_), more: false }));
}

#[tokio::test]
async fn an_attempt_that_was_undone_before_it_arrived_is_not_granted() {
    let mut server = server().await;
    let node = node(server.redis.port());
    // The common path, and the other one.
    for name in ["a", "b"] {
        let attempt = writer(name, 1);
        if name == "a" {
            enter(&node, &writer(name, 2), 0).await;
            assert!(had(&node, writer(name, 2).release()).await);
        }
        assert!(!had(&node, attempt.undo()).await);
        assert_eq!(enter(&node, &attempt, 0).await, Entered::Undone);
        assert_eq!(server.holder(name).await, None);
        let left: u64 = server.ask(&["PTTL", &keys(name).tombstone(&attempt.value)]).await;
        assert!(left <= 5_000, "a tombstone that stays");
    }
}

#[tokio::test]
async fn a_forced_release_ends_the_grant_of_its_number_and_no_other_of_the_same_attempt() {
    let server = server().await;
    let node = node(server.redis.port());
    for (name, kind) in [("a", Kind::Writer), ("b", Kind::Reader), ("c", Kind::Permit(NonZeroU32::MIN))] {
        let attempt = attempt(name, kind, 1, TTL, Duration::ZERO);
        let Entered::Granted(first) = enter(&node, &attempt, 0).await else { panic!("{name} is free") };
        // As one that was sent twice, whose first grant was given back meanwhile.
        assert!(had(&node, attempt.drop_it()).await);
        let Entered::Granted(number) = enter(&node, &attempt, 0).await else { panic!("{name} is free") };
        for other in [first, number + 1] {
            assert!(!had(&node, attempt.revoke(other)).await, "{name} by {other} instead of {number}");
        }
        assert!(renewed(&node, &attempt, number).await, "{name} is held on");
        assert!(had(&node, attempt.revoke(number)).await);
        assert!(!had(&node, attempt.revoke(number)).await && !renewed(&node, &attempt, number).await);
        assert_eq!(enter(&node, &attempt, 0).await, Entered::Undone, "what comes late takes nothing");
    }
}

#[tokio::test]
async fn the_first_grant_of_a_name_looks_at_all_its_keys() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let line = keys("a").line(false);
    for key in [line.delay, line.members, line.notes, line.queue, line.waiters, line.alive] {
        // Of a type that none of them has: only the common path would not come upon it.
        server.ask::<()>(&["FLUSHALL"]).await;
        server.ask::<()>(&["RPUSH", &key, "foreign"]).await;
        let answer = node.call(writer("a", 1).enter(&Ask { proposal: 0, payload: b"", waits: None })).await;
        assert_eq!(answer.unwrap_err().kind(), FailureKind::WrongType, "{key}");
    }
    server.ask::<()>(&["FLUSHALL"]).await;
    server.ask::<()>(&["SET", &keys("a").tombstone(&writer("a", 1).value), ""]).await;
    assert_eq!(enter(&node, &writer("a", 1), 0).await, Entered::Undone);
}

#[tokio::test]
async fn an_acquisition_that_was_sent_twice_takes_nothing_after_its_undo() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let attempt = writer("a", 1);
    assert!(matches!(enter(&node, &attempt, 0).await, Entered::Granted(_)), "by the second request");
    assert!(had(&node, attempt.undo()).await);
    assert_eq!(enter(&node, &attempt, 0).await, Entered::Undone, "by the first one, which is late");
    assert_eq!(server.holder("a").await, None);
}

#[tokio::test]
async fn another_holding_of_the_same_value_is_not_renewed_for_the_first_one() {
    let server = server().await;
    let node = node(server.redis.port());
    let attempt = writer("a", 1);
    let Entered::Granted(first) = enter(&node, &attempt, 0).await else { panic!("not granted") };
    assert!(renewed(&node, &attempt, first).await);
    assert!(had(&node, attempt.release()).await);
    let Entered::Granted(second) = enter(&node, &attempt, 0).await else { panic!("not granted") };
    assert!(second > first);
    assert!(!renewed(&node, &attempt, first).await && renewed(&node, &attempt, second).await);
}

#[tokio::test]
async fn the_server_counts_tokens_as_the_arithmetic_says() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let now: u64 = {
        let (seconds, micros): (u64, u64) = server.ask(&["TIME"]).await;
        seconds * 1_000_000 + micros
    };
    let near = now - 200_000_000..now + 200_000_000;
    let cases = (prop::option::of(near.clone()), prop_oneof![near, Just(0), Just(u64::MAX / 2)], any::<bool>());
    let mut runner = TestRunner::deterministic();
    for at in 0..300 {
        let (stored, proposal, is_short) = cases.new_tree(&mut runner).unwrap().current();
        let name = format!("case {at}");
        if let Some(stored) = stored {
            // On the common path, or on the other one.
            let flags = if is_short { [1, 0, 0, 0] } else { [1, 1, 1, 1] };
            let head = [&flags[..], &pack(stored), &pack(0)].concat();
            let mut set = redis::cmd("SET");
            set.arg(keys(&name).token()).arg(head).arg("PX").arg(KEPT);
            () = set.query_async(&mut server.control).await.unwrap();
        }
        let (before, micros): (u64, u64) = server.ask(&["TIME"]).await;
        let before = before * 1_000_000 + micros;
        let answer = enter(&node, &writer(&name, 1), proposal).await;
        let (after, micros): (u64, u64) = server.ask(&["TIME"]).await;
        let after = after * 1_000_000 + micros;
        let Entered::Granted(number) = answer else { panic!("{answer:?}") };
        let expected = token::next(stored, proposal, before)..=token::next(stored, proposal, after);
        assert!(expected.contains(&number), "{number} for {stored:?} and {proposal}; expected {expected:?}");
        let kept: u64 = server.ask(&["PTTL", &keys(&name).token()]).await;
        assert!(kept > KEPT / 2, "the head is kept for {kept} ms");
    }
}

#[tokio::test]
async fn a_head_that_is_in_use_is_kept_for_days() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let (attempt, head) = (writer("a", 1), keys("a").token());
    let Entered::Granted(number) = enter(&node, &attempt, 0).await else { panic!("not granted") };
    assert!(had(&node, attempt.release()).await);
    // As if it had been two hours ago.
    let packed = [&[1, 0, 0, 0][..], &pack(number - 7_200_000_000), &pack(0)].concat();
    let mut set = redis::cmd("SET");
    () = set.arg(&head).arg(packed).arg("PX").arg(60_000).query_async(&mut server.control).await.unwrap();
    assert!(matches!(enter(&node, &attempt, 0).await, Entered::Granted(_)));
    let kept: u64 = server.ask(&["PTTL", &head]).await;
    assert!(kept > KEPT / 2, "the head is kept for {kept} ms");
}

/// A user of the server that may do everything, but only to these keys.
async fn confine(server: &mut Server, keys: impl Iterator<Item = &str>) {
    let keys: Vec<String> = keys.map(|key| format!("~{key}")).collect();
    let rules = ["ACL", "SETUSER", "confined", "on", ">secret", "+@all", "&*", "resetkeys"];
    server.ask::<()>(&rules.into_iter().chain(keys.iter().map(String::as_str)).collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_cluster_is_told_of_each_key_that_a_script_touches() {
    let mut server = server().await;
    confine(&mut server, iter::empty()).await;
    let mut config = patient_node(server.redis.port());
    (config.username, config.password) = (Some("confined".to_owned()), Some("secret".into()));
    let node = Node::new(config, Context::current());
    let name = LockName::new("a").unwrap();
    let number = Cell::new(0);
    let attempt = |kind, delay| {
        number.set(number.get() + 1);
        Attempt::new(Keys::new("lock", &name).declared(), kind, format!("{:032}", number.get()), TTL, delay)
    };
    let delay = Duration::from_secs(1);
    let kinds = [Kind::Writer, Kind::Reader, Kind::Permit(NonZeroU32::MIN)];
    for (kind, delay) in kinds.into_iter().flat_map(|kind| [(kind, Duration::ZERO), (kind, delay)]) {
        let [holder, second, third] = [(); 3].map(|()| attempt(kind, delay));
        let (writer, ask) = (attempt(Kind::Writer, delay), Ask { proposal: 0, payload: b"who", waits: Some("here") });
        let mut calls =
            vec![third.undo(), third.enter(&ask), holder.enter(&ask), second.enter(&ask), writer.enter(&ask)];
        calls.extend([second.beat([&second]), holder.release(), second.leave(), writer.leave(), writer.enter(&ask)]);
        calls.extend([writer.downgrade(), writer.undo(), holder.undo()]);
        for call in calls {
            confine(&mut server, call.keys()).await;
            node.call(call).await.unwrap();
        }
    }
    // Also what a script takes no notice of.
    assert_eq!(server.ask::<Vec<Value>>(&["ACL", "LOG"]).await, []);
}

static ONE: Script = Script::new("return 1");
static WRONG: Script = Script::new("return redis.call('GET', KEYS[1])");

#[tokio::test]
async fn a_burst_gives_each_call_its_own_answer_also_when_scripts_are_missing() {
    let mut server = server().await;
    let node = node(server.redis.port());
    server.ask::<()>(&["HSET", "hash", "a", "b"]).await;
    let calls = [ScriptCall::new(&ONE), ScriptCall::new(&WRONG).key("hash"), ScriptCall::new(&WRONG).key("none")];
    for _ in 0..2 {
        let answers = node.run(&calls).await;
        assert!(matches!(answers[0], Ok(Value::Int(1))), "{answers:?}");
        let error = answers[1].as_ref().unwrap_err();
        assert!(error.kind() == FailureKind::WrongType && !error.is_unknown(), "{error}");
        assert!(matches!(answers[2], Ok(Value::Nil)), "{answers:?}");
        server.ask::<()>(&["SCRIPT", "FLUSH"]).await;
    }
}

#[tokio::test]
async fn a_server_without_an_answer_leaves_the_outcome_unknown_and_a_closed_port_does_not() {
    let mut server = server().await;
    let node = Node::new(NodeConfig::new("127.0.0.1", server.redis.port()), Context::current());
    node.call(ScriptCall::new(&ONE)).await.unwrap();
    server.redis.stop().unwrap();
    let error = node.call(ScriptCall::new(&ONE)).await.unwrap_err();
    assert!(error.is_unknown() && error.kind() == FailureKind::TimedOut, "{error}");
    server.redis.cont().unwrap();
    server.redis.kill();
    let error = node.call(ScriptCall::new(&ONE)).await.unwrap_err();
    assert!(!error.is_unknown() && error.kind() == FailureKind::Connection, "{error}");
}
