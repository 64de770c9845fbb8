//! The scripts on a real server, and the node that runs them.

use std::time::Duration;

use crate::common::{keys, patient_node, server};
use lock_core::Context;
use lock_redis::{
    node::{FailureKind, Node, NodeConfig, Script, ScriptCall, Value},
    scripts::{self, Acquired, Ask, Attempt},
    token,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};

const TTL: Duration = Duration::from_secs(10);

fn node(port: u16) -> Node {
    Node::new(patient_node(port), Context::current())
}

async fn acquire(node: &Node, attempt: &Attempt, proposal: u64) -> Acquired {
    scripts::acquired(&node.call(attempt.acquire(&Ask::new(TTL, proposal, b""), None)).await.unwrap()).unwrap()
}

async fn held(node: &Node, call: ScriptCall) -> bool {
    scripts::held(&node.call(call).await.unwrap()).unwrap()
}

#[tokio::test]
async fn an_attempt_that_is_sent_twice_is_granted_once() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let attempt = Attempt::new(keys("a"));
    let first = acquire(&node, &attempt, 0).await;
    server.ask::<()>(&["PEXPIRE", "{lock:a}", "5000"]).await;
    assert_eq!(acquire(&node, &attempt, 0).await, first);
    assert!(server.ask::<u64>(&["PTTL", "{lock:a}"]).await <= 5_000, "its ttl counts from the first sending");
    assert!(matches!(acquire(&node, &Attempt::new(keys("a")), 0).await, Acquired::Held(Some(_))));
}

#[tokio::test]
async fn an_attempt_that_was_undone_before_it_arrived_is_not_granted() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let attempt = Attempt::new(keys("a"));
    assert!(!held(&node, attempt.undo(Duration::ZERO)).await);
    assert_eq!(acquire(&node, &attempt, 0).await, Acquired::Undone);
    assert_eq!(server.holder("a").await, None);
    let left: u64 = server.ask(&["PTTL", &keys("a").tombstone(&attempt.value)]).await;
    assert!(left <= 5_000, "a tombstone that stays");
}

#[tokio::test]
async fn an_acquisition_that_was_sent_twice_takes_nothing_after_its_undo() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let attempt = Attempt::new(keys("a"));
    assert!(matches!(acquire(&node, &attempt, 0).await, Acquired::Granted(_)), "by the second request");
    assert!(held(&node, attempt.undo(Duration::ZERO)).await);
    assert_eq!(acquire(&node, &attempt, 0).await, Acquired::Undone, "by the first one, which is late");
    assert_eq!(server.holder("a").await, None);
}

#[tokio::test]
async fn another_holding_of_the_same_value_is_not_renewed_for_the_first_one() {
    let server = server().await;
    let node = node(server.redis.port());
    let attempt = Attempt::new(keys("a"));
    let Acquired::Granted(first) = acquire(&node, &attempt, 0).await else { panic!("not granted") };
    assert!(held(&node, attempt.renew(TTL, Duration::ZERO, Some(first))).await);
    assert!(held(&node, attempt.release(Duration::ZERO)).await);
    let Acquired::Granted(second) = acquire(&node, &attempt, 0).await else { panic!("not granted") };
    assert!(second > first);
    assert!(!held(&node, attempt.renew(TTL, Duration::ZERO, Some(first))).await);
    assert!(
        held(&node, attempt.renew(TTL, Duration::ZERO, Some(second))).await
            && held(&node, attempt.renew(TTL, Duration::ZERO, None)).await
    );
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
    let cases = (prop::option::of(near.clone()), prop_oneof![near, Just(0), Just(u64::MAX / 2)]);
    let mut runner = TestRunner::deterministic();
    for at in 0..300 {
        let (stored, proposal) = cases.new_tree(&mut runner).unwrap().current();
        let name = format!("case {at}");
        if let Some(stored) = stored {
            server.ask::<()>(&["HSET", &keys(&name).token(), "counter", &stored.to_string()]).await;
        }
        let (before, micros): (u64, u64) = server.ask(&["TIME"]).await;
        let before = before * 1_000_000 + micros;
        let answer = acquire(&node, &Attempt::new(keys(&name)), proposal).await;
        let (after, micros): (u64, u64) = server.ask(&["TIME"]).await;
        let after = after * 1_000_000 + micros;
        let Acquired::Granted(number) = answer else { panic!("{answer:?}") };
        let expected = token::next(stored, proposal, before)..=token::next(stored, proposal, after);
        assert!(expected.contains(&number), "{number} for {stored:?} and {proposal}; expected {expected:?}");
        let kept: u64 = server.ask(&["PEXPIRETIME", &keys(&name).token()]).await;
        let (least, most) = (token::forgotten_at(number, before, TTL), token::forgotten_at(number, after, TTL));
        assert!((least / 1_000..=most / 1_000).contains(&kept), "{kept} is not in {least} to {most}");
    }
}

#[tokio::test]
async fn a_counter_does_not_expire_under_a_lock_that_is_held_for_days() {
    let mut server = server().await;
    let node = node(server.redis.port());
    let attempt = Attempt::new(keys("a"));
    acquire(&node, &attempt, 0).await;
    server.ask::<()>(&["PEXPIRE", "{lock:a}:token", "1000"]).await;
    assert!(held(&node, attempt.renew(TTL, Duration::ZERO, None)).await);
    assert!(server.ask::<u64>(&["PTTL", "{lock:a}:token"]).await > 80_000_000);
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
