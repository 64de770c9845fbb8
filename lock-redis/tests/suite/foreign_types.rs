//! Somebody puts a key of another type in the place of one of ours: a script does all that it does, or nothing.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use crate::common::{Server, attempt, keys, patient_node, server};
use lock_core::Context;
use lock_redis::{
    node::{FailureKind, Node, ScriptCall},
    protocol::{
        answers::done,
        attempt::{Ask, Attempt, Kind},
    },
};

const TTL: Duration = Duration::from_secs(600);
const DELAY: Duration = Duration::from_secs(1);
const PERMIT: Kind = Kind::Permit(NonZeroU32::MIN);

/// A server, and an attempt on a name of its own each time.
struct Bench {
    server: Server,
    node: Node,
    cases: u32,
}

/// What a case begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nothing,
    /// Somebody has held it once, and nobody does now.
    Known,
    /// Another one holds it.
    Held,
    /// The attempt itself does.
    Ours,
    /// The attempt itself does, and another one waits.
    Awaited,
    /// Another one holds it, and the attempt waits.
    Waits,
    /// A reader waits, and the lock of the writer that it waits for was deleted: whoever comes hands it over.
    Abandoned,
}

type Call = fn(&Attempt) -> ScriptCall;

fn enter(attempt: &Attempt) -> ScriptCall {
    attempt.enter(&Ask { proposal: 0, payload: b"payload", waits: Some("grants") })
}

/// Everything that grants or notes something.
const TAKING: &[(&str, Kind, Before, Call)] = &[
    ("a writer enters", Kind::Writer, Before::Nothing, enter),
    ("a writer enters by the common path", Kind::Writer, Before::Known, enter),
    ("a writer enters, in line", Kind::Writer, Before::Held, enter),
    ("a writer enters again", Kind::Writer, Before::Ours, enter),
    ("a reader enters", Kind::Reader, Before::Nothing, enter),
    ("a reader enters, in line", Kind::Reader, Before::Held, enter),
    ("a reader enters, and another one is next", Kind::Reader, Before::Abandoned, enter),
    ("a reader enters again", Kind::Reader, Before::Ours, enter),
    ("a permit", PERMIT, Before::Nothing, enter),
    ("a permit, in line", PERMIT, Before::Held, enter),
    ("a downgrade", Kind::Writer, Before::Ours, Attempt::downgrade),
    ("a beat", Kind::Writer, Before::Waits, |attempt| attempt.beat([attempt])),
    ("a beat of a holder", Kind::Reader, Before::Ours, |attempt| attempt.beat([attempt])),
];

/// Everything that gives something back, beside the keys that say who has it.
const GIVING: &[(&str, Kind, Call)] = &[
    ("release of a writer", Kind::Writer, Attempt::release),
    ("undo of a writer", Kind::Writer, Attempt::undo),
    ("release of a reader", Kind::Reader, Attempt::release),
    ("undo of a reader", Kind::Reader, Attempt::undo),
    ("release of a permit", PERMIT, Attempt::release),
    ("undo of a permit", PERMIT, Attempt::undo),
];

/// The keys of an attempt: those that say who holds it come first.
fn all(attempt: &Attempt) -> Vec<String> {
    let line = attempt.line();
    let tombstone = attempt.keys.tombstone(&attempt.value);
    [line.lock, line.members, line.head, line.delay, line.notes, line.queue, line.waiters, line.alive, tombstone].into()
}

impl Bench {
    async fn start() -> Self {
        let server = server().await;
        let node = Node::new(patient_node(server.redis.port()), Context::current());
        Self { server, node, cases: 0 }
    }

    /// An attempt on a name on which this stands already.
    async fn attempt(&mut self, kind: Kind, before: Before) -> Attempt {
        self.cases += 1;
        let name = format!("case {}", self.cases);
        // The common path is for those without a lock delay.
        let has_delay = !matches!(before, Before::Known | Before::Awaited | Before::Abandoned);
        let delay = if has_delay { DELAY } else { Duration::ZERO };
        let ours = attempt(&name, kind, 1, TTL, delay);
        let other = attempt(&name, if kind == PERMIT { kind } else { Kind::Writer }, 2, TTL, delay);
        let calls = match before {
            Before::Nothing => vec![],
            Before::Known => vec![enter(&other), other.release()],
            Before::Held => vec![enter(&other)],
            Before::Ours => vec![enter(&ours)],
            Before::Awaited => vec![enter(&ours), enter(&other)],
            Before::Waits => vec![enter(&other), enter(&ours)],
            Before::Abandoned => vec![enter(&other), enter(&attempt(&name, Kind::Reader, 3, TTL, delay))],
        };
        for call in calls {
            self.node.call(call).await.unwrap();
        }
        if before == Before::Abandoned {
            self.server.ask::<()>(&["DEL", &ours.line().lock]).await;
        }
        ours
    }

    /// Puts something of a type there that none of our keys has.
    async fn replace(&mut self, key: &str) {
        self.server.ask::<()>(&["DEL", key]).await;
        self.server.ask::<()>(&["RPUSH", key, "foreign"]).await;
    }

    /// All that the server keeps of a name.
    async fn kept(&mut self, attempt: &Attempt) -> BTreeMap<String, Vec<u8>> {
        let mut kept = BTreeMap::new();
        for key in all(attempt) {
            if let Some(dump) = self.server.ask::<Option<Vec<u8>>>(&["DUMP", &key]).await {
                kept.insert(key, dump);
            }
        }
        kept
    }
}

#[tokio::test]
async fn a_script_that_meets_a_foreign_type_grants_in_full_or_writes_nothing() {
    let mut bench = Bench::start().await;
    let mut refused = 0;
    for (what, kind, before, call) in TAKING {
        for place in 0..all(&attempt("a", *kind, 1, TTL, DELAY)).len() {
            let attempt = bench.attempt(*kind, *before).await;
            let key = all(&attempt).swap_remove(place);
            bench.replace(&key).await;
            let kept = bench.kept(&attempt).await;
            if let Err(error) = bench.node.call(call(&attempt)).await {
                assert!(error.kind() == FailureKind::WrongType && !error.is_unknown(), "{what}, {key}: {error}");
                assert_eq!(bench.kept(&attempt).await, kept, "{what} has written something, and met another {key}");
                refused += 1;
            }
        }
    }
    assert!(refused > TAKING.len(), "nothing was met");
}

#[tokio::test]
async fn what_is_held_is_given_back_whatever_stands_beside_it() {
    let mut bench = Bench::start().await;
    for (what, kind, call) in GIVING {
        let places = 2..all(&attempt("a", *kind, 1, TTL, DELAY)).len();
        for (place, before) in places.flat_map(|place| [(place, Before::Ours), (place, Before::Awaited)]) {
            let attempt = bench.attempt(*kind, before).await;
            let key = all(&attempt).swap_remove(place);
            bench.replace(&key).await;
            let given_back = bench.node.call(call(&attempt)).await;
            let given_back = given_back.unwrap_or_else(|error| panic!("{what}, with another {key}: {error}"));
            assert!(done(&given_back).unwrap().had, "{what}, with another {key}");
            // Where nothing that it needs is of another type, it is the next one's.
            let kept = bench.kept(&attempt).await;
            for kept in all(&attempt)[..2].iter().filter_map(|holder| kept.get(holder)) {
                let is_kept = kept.windows(attempt.value.len()).any(|part| part == attempt.value.as_bytes());
                assert!(before == Before::Awaited && !is_kept, "{what}, with another {key}");
            }
        }
    }
}

#[tokio::test]
async fn a_name_that_an_earlier_version_uses_is_refused() {
    let mut bench = Bench::start().await;
    for kind in [Kind::Writer, Kind::Reader, PERMIT] {
        let attempt = bench.attempt(kind, Before::Nothing).await;
        bench.server.ask::<()>(&["HSET", &keys(&format!("case {}", bench.cases)).token(), "counter", "7"]).await;
        let kept = bench.kept(&attempt).await;
        let error = bench.node.call(enter(&attempt)).await.unwrap_err();
        assert!(error.kind() == FailureKind::WrongType && !error.is_unknown(), "{error}");
        assert_eq!(bench.kept(&attempt).await, kept);
    }
}
