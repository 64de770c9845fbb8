//! Somebody puts a key of another type in the place of one of ours: a script does all that it does, or nothing.

use std::{collections::BTreeMap, num::NonZeroU32, time::Duration};

use crate::common::{Server, keys, patient_node, server};
use lock_core::Context;
use lock_redis::{
    fifo,
    keys::Keys,
    node::{FailureKind, Node, ScriptCall},
    scripts::{
        Ask, Attempt, Intent, Noted, Writer,
        sharing::{Members, announce, withdraw},
    },
};

const TTL: Duration = Duration::from_secs(600);
const DELAY: Duration = Duration::from_secs(1);
const WAITED: Duration = Duration::from_millis(3);

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
    /// Another one holds the lock.
    Held,
    /// The attempt itself does.
    Ours,
    /// The attempt itself reads.
    Reads,
    /// The attempt itself has a permit.
    Permitted,
    /// A writer has been noted.
    Noted,
}

type Call = fn(&Attempt) -> ScriptCall;

fn ask() -> Ask<'static> {
    Ask { delay: DELAY, ..Ask::new(TTL, 0, b"payload") }
}

fn acquire(attempt: &Attempt, noted: Noted, next: bool) -> ScriptCall {
    let next = next.then_some(Writer { id: "next", waited: WAITED });
    let writer = Writer { id: "writer", waited: WAITED };
    attempt.acquire(&ask(), Some(&Intent { writer, kept: TTL, noted, next }))
}

/// Everything that grants or notes something.
const TAKING: &[(&str, Before, Call)] = &[
    ("acquire", Before::Nothing, |attempt| attempt.acquire(&ask(), None)),
    ("acquire, first try of one that waits", Before::Nothing, |attempt| acquire(attempt, Noted::No, false)),
    ("acquire, for one that was noted", Before::Nothing, |attempt| acquire(attempt, Noted::Perhaps, false)),
    ("acquire, with another writer behind it", Before::Nothing, |attempt| acquire(attempt, Noted::No, true)),
    ("acquire, refused", Before::Held, |attempt| acquire(attempt, Noted::No, false)),
    ("acquire, sent again", Before::Ours, |attempt| acquire(attempt, Noted::No, true)),
    ("acquire, beside a reader", Before::Reads, |attempt| acquire(attempt, Noted::No, true)),
    ("acquire_read", Before::Nothing, |attempt| attempt.acquire_read(&ask(), WAITED)),
    ("acquire_read, with a writer that waits", Before::Noted, |attempt| attempt.acquire_read(&ask(), WAITED)),
    ("acquire_permit", Before::Nothing, |attempt| attempt.acquire_permit(&ask(), NonZeroU32::MIN)),
    ("downgrade", Before::Ours, |attempt| attempt.downgrade(TTL, DELAY)),
    ("announce", Before::Nothing, |attempt| announce(&attempt.keys, &Writer { id: "writer", waited: WAITED }, TTL)),
    ("enter", Before::Nothing, |attempt| fifo::scripts::enter(attempt, &ask(), true, "grants")),
    ("enter, in line", Before::Held, |attempt| fifo::scripts::enter(attempt, &ask(), true, "grants")),
];

/// Everything that gives something back, beside the keys that say who has it.
const GIVING: &[(&str, Before, Call)] = &[
    ("release", Before::Ours, |attempt| attempt.release(DELAY)),
    ("undo", Before::Ours, |attempt| attempt.undo(DELAY)),
    ("release of a reader", Before::Reads, |attempt| attempt.release_member(Members::Readers, DELAY)),
    ("undo of a reader", Before::Reads, |attempt| attempt.undo_member(Members::Readers, DELAY)),
    ("release of a permit", Before::Permitted, |attempt| attempt.release_member(Members::Permits, DELAY)),
    ("withdraw", Before::Noted, |attempt| withdraw(&attempt.keys, "writer")),
];

/// The keys that are beside those which say who holds it.
fn beside(keys: &Keys) -> Vec<String> {
    [keys.token(), keys.delay(), keys.reading(), keys.writing(), keys.permitted()].into()
}

fn all(keys: &Keys, value: &str) -> Vec<String> {
    let mut all = beside(keys);
    all.extend([keys.lock().to_owned(), keys.tombstone(value), keys.readers(), keys.writers(), keys.permits()]);
    all.extend(keys.queue());
    all
}

impl Bench {
    async fn start() -> Self {
        let server = server().await;
        let node = Node::new(patient_node(server.redis.port()), Context::current());
        Self { server, node, cases: 0 }
    }

    /// An attempt on a name on which this stands already.
    async fn attempt(&mut self, before: Before) -> Attempt {
        self.cases += 1;
        let attempt = Attempt::new(keys(&format!("case {}", self.cases)));
        let call = match before {
            Before::Nothing => return attempt,
            Before::Held => Attempt::new(attempt.keys.clone()).acquire(&ask(), None),
            Before::Ours => attempt.acquire(&ask(), None),
            Before::Reads => attempt.acquire_read(&ask(), WAITED),
            Before::Permitted => attempt.acquire_permit(&ask(), NonZeroU32::MIN),
            Before::Noted => announce(&attempt.keys, &Writer { id: "writer", waited: TTL }, TTL),
        };
        self.node.call(call).await.unwrap();
        attempt
    }

    /// Puts something of a type there that none of our keys has.
    async fn replace(&mut self, key: &str) {
        self.server.ask::<()>(&["DEL", key]).await;
        self.server.ask::<()>(&["RPUSH", key, "foreign"]).await;
    }

    /// All that the server keeps of a name.
    async fn kept(&mut self, attempt: &Attempt) -> BTreeMap<String, Vec<u8>> {
        let mut kept = BTreeMap::new();
        for key in all(&attempt.keys, &attempt.value) {
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
    for (what, before, call) in TAKING {
        for place in 0..all(&keys("a"), "v").len() {
            let attempt = bench.attempt(*before).await;
            let key = all(&attempt.keys, &attempt.value).swap_remove(place);
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
    for (what, before, call) in GIVING {
        for place in 0..beside(&keys("a")).len() {
            let attempt = bench.attempt(*before).await;
            let key = beside(&attempt.keys).swap_remove(place);
            bench.replace(&key).await;
            let given_back = bench.node.call(call(&attempt)).await;
            let given_back = given_back.unwrap_or_else(|error| panic!("{what}, with another {key}: {error}"));
            assert_ne!(given_back, lock_redis::node::Value::Int(0), "{what}, with another {key}");
            let mut holds: Vec<String> = Vec::new();
            for key in [attempt.keys.lock(), &attempt.keys.readers(), &attempt.keys.permits(), &attempt.keys.writers()]
            {
                if bench.server.ask::<bool>(&["EXISTS", key]).await {
                    holds.push(key.to_owned());
                }
            }
            assert!(holds.is_empty(), "{what}, with another {key}: {holds:?}");
        }
    }
}
