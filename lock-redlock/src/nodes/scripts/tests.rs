//! The scripts on one real server.

mod readers;

use lock_core::{Clock, Context, clock::wall_micros};
use lock_lab::servers::Redis;
use lock_redis::{
    node::{Node, NodeConfig, Value},
    protocol::packed::VALUE,
};

use super::*;
use crate::protocol::{ballots::Ballot, token::Renumbered};

const TTL: Duration = Duration::from_secs(30);

/// What the member has as its stamp.
const STAMP: &str = "test 1 1";

fn deployment() -> Deployment {
    let nodes = [1, 2, 3].map(|port| NodeConfig::new("h", port)).into();
    let deployment = Deployment::new("test".to_owned(), &crate::Config::new(nodes).unwrap());
    assert_eq!(deployment.stamp(1), STAMP);
    deployment
}

/// A server, and one lock on it.
struct Server {
    redis: Redis,
    node: Node,
    keys: LockKeys,
}

impl Server {
    async fn start() -> Self {
        let redis = Redis::start().await.unwrap();
        let mut config = NodeConfig::new("127.0.0.1", redis.port());
        // However busy the machine is: what the scripts do is looked at here, and not how soon.
        (config.connect_timeout, config.response_timeout) = (TTL, TTL);
        let node = Node::new(config, Context::current());
        assert!(held(&node.call(mark_member(&deployment(), 1, "", Duration::ZERO)).await.unwrap()).unwrap());
        Self { redis, node, keys: LockKeys::new("lock", &LockName::new("a").unwrap()) }
    }

    /// The node's clock.
    async fn time(&self) -> Duration {
        let (seconds, micros): (u64, u64) = self.redis.ask("TIME", &[]).await.unwrap();
        Duration::from_micros(seconds * 1_000_000 + micros)
    }

    fn claim(&self, kind: LockKind, value: &str) -> Claim {
        Claim { kind, keys: self.keys.clone(), value: padded(value), ttl: TTL, payload: b"who".as_slice().into() }
    }

    async fn ballot(&self, call: ScriptCall) -> Ballot {
        ballot(&self.node.call(call).await.unwrap()).unwrap()
    }

    async fn vote(&self, value: &str, proposal: u64, entry: Option<&WaiterEntry>) -> Ballot {
        self.vote_for(LockKind::Writer, value, proposal, entry).await
    }

    async fn vote_for(&self, kind: LockKind, value: &str, proposal: u64, entry: Option<&WaiterEntry>) -> Ballot {
        self.ballot(self.claim(kind, value).vote(proposal, entry).to(STAMP)).await
    }

    async fn reads(&self, value: &str) -> u64 {
        match self.vote_for(LockKind::Reader, value, wall_micros(), None).await {
            Ballot::Granted(number) => number,
            other => panic!("does not read: {other:?}"),
        }
    }

    async fn rejoin(&self, kind: LockKind, value: &str, token: u64) -> Ballot {
        self.ballot(self.claim(kind, value).rejoin(token, STAMP)).await
    }

    async fn renumber(&self, value: &str, number: u64, token: u64) -> Renumbered {
        renumbered(&self.node.call(self.claim(LockKind::Reader, value).renumber(number, token, STAMP)).await.unwrap())
            .unwrap()
    }

    async fn granted(&self, value: &str, proposal: u64) -> u64 {
        match self.vote(value, proposal, None).await {
            Ballot::Granted(number) => number,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn holds(&self, call: ScriptCall) -> bool {
        held(&self.node.call(call).await.unwrap()).unwrap()
    }

    async fn undo(&self, value: &str, change: QueueChange<'_>) -> bool {
        self.undo_as(LockKind::Writer, value, change).await
    }

    async fn undo_as(&self, kind: LockKind, value: &str, change: QueueChange<'_>) -> bool {
        self.holds(self.claim(kind, value).undo(true, change)).await
    }

    /// The keys of those who wait.
    async fn lines(&self) -> Vec<String> {
        let mut connection = self.redis.connection().await.unwrap();
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
        let lines = [":waiters", ":waiting", ":writers", ":writing"];
        keys.into_iter().filter(|key| lines.iter().any(|line| key.ends_with(line))).collect()
    }

    async fn counter(&self) -> u64 {
        let mut connection = self.redis.connection().await.unwrap();
        redis::cmd("GET").arg(self.keys.0.token()).query_async(&mut connection).await.unwrap()
    }
}

/// A value is of a fixed length.
fn padded(value: &str) -> String {
    format!("{value:->VALUE$}")
}

/// Of one that came so many tenths of a second after the first, all of them long ago.
fn entry(waiter: &str, since: u32) -> WaiterEntry {
    WaiterEntry {
        waiter: waiter.to_owned(),
        waited: Duration::from_secs(60) - Duration::from_millis(100) * since,
        ttl: Duration::from_secs(30),
    }
}

#[tokio::test]
async fn a_proposal_near_the_clock_is_the_first_number_and_others_are_put_right() {
    let server = Server::start().await;
    // Half of what a client may be ahead: still near the clock when it arrives, however long that takes.
    let proposal = wall_micros() + 30_000_000;
    assert_eq!(server.granted("x:1", proposal).await, proposal);
    assert!(server.undo("x:1", QueueChange::None).await);
    assert_eq!(server.granted("x:2", 5).await, proposal + 1);
    assert!(server.undo("x:2", QueueChange::None).await);
    // A client whose clock is a day ahead moves the number by a minute at most.
    let number = server.granted("x:3", proposal + 86_400_000_000).await;
    assert!(number > proposal && number < proposal + 120_000_000, "{number} for {proposal}");

    let fresh = Server::start().await;
    let before = wall_micros();
    assert!(fresh.granted("x:4", 5).await >= before);
}

#[tokio::test]
async fn a_number_is_not_below_the_clock_of_a_server_whose_counter_lags_behind() {
    let server = Server::start().await;
    // What another server gave out in the meantime, this one does not know.
    let hour = 3_600_000_000;
    assert!(matches!(server.rejoin(LockKind::Writer, "x:1", wall_micros() - hour).await, Ballot::Granted(_)));
    server.undo("x:1", QueueChange::None).await;
    let before = wall_micros();
    assert!(server.granted("y:1", before - hour / 2).await >= before);
}

#[tokio::test]
async fn a_server_that_is_another_member_or_none_has_no_vote_and_keeps_no_lease_alive() {
    let server = Server::start().await;
    let number = server.granted("x:1", wall_micros()).await;
    let reader = "r:1";
    for other in ["test 1 2", "test 2 1", "other 1 1"] {
        for kind in [LockKind::Writer, LockKind::Reader] {
            let stranger = Ballot::Stranger(STAMP.to_owned());
            assert_eq!(server.ballot(server.claim(kind, "y:1").vote(number, None).to(other)).await, stranger);
            let rejoin = server.claim(kind, "x:1").rejoin(number, other);
            assert_eq!(server.ballot(rejoin).await, stranger);
            let extend = server.claim(kind, "x:1").extend(number, other);
            assert_eq!(server.node.call(extend).await.unwrap(), Value::Int(-1));
        }
        assert!(!server.holds(server.claim(LockKind::Writer, "x:1").renumber(number, number + 9, other)).await);
        let call = server.claim(LockKind::Writer, "x:1").downgrade(number, number, other);
        assert_eq!(server.node.call(call).await.unwrap(), Value::Int(-1));
    }
    assert!(server.undo("x:1", QueueChange::None).await);
    let number = server.reads(reader).await;
    let renumber = server.claim(LockKind::Reader, reader).renumber(number, number + 9, "test 1 2");
    assert_eq!(renumbered(&server.node.call(renumber).await.unwrap()).unwrap(), Renumbered::Gone);
}

#[tokio::test]
async fn a_script_that_meets_a_foreign_type_takes_nothing() {
    let server = Server::start().await;
    let lock = server.keys.0.lock().to_owned();
    let parts = [":token", ":readers", ":reading", ":writers", ":writing", ":waiters", ":waiting", ":reserved"];
    for part in parts {
        for kind in [LockKind::Writer, LockKind::Reader] {
            let foreign = format!("{lock}{part}");
            let mut connection = server.redis.connection().await.unwrap();
            let () = redis::cmd("LPUSH").arg(&foreign).arg("x").query_async(&mut connection).await.unwrap();
            let entry = entry("w", 1);
            let claim = server.claim(kind, "x:1");
            let calls = [claim.vote(1, Some(&entry)).to(STAMP), claim.rejoin(1, STAMP)];
            for call in calls {
                let refused = server.node.call(call).await.is_err();
                let keys: Vec<String> = redis::cmd("KEYS").arg("{*").query_async(&mut connection).await.unwrap();
                let left = keys.iter().filter(|key| **key != foreign).count();
                assert!(!refused || left == 0, "{kind:?} beside {part}: {keys:?}");
                for key in keys.iter().filter(|key| **key != foreign) {
                    let () = redis::cmd("DEL").arg(key).query_async(&mut connection).await.unwrap();
                }
            }
            let () = redis::cmd("DEL").arg(&foreign).query_async(&mut connection).await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_common_path_is_left_where_anybody_else_is() {
    let server = Server::start().await;
    let mut connection = server.redis.connection().await.unwrap();
    let lock = server.keys.0.lock().to_owned();
    let (me, reads) = (entry("me", 1), entry("reads", 1));
    // From here on the node has a counter.
    server.granted("x:1", wall_micros()).await;
    assert!(matches!(server.vote("y:1", wall_micros(), None).await, Ballot::Held { .. }));
    assert!(server.undo("x:1", QueueChange::None).await);
    assert_eq!(server.vote("x:1", wall_micros(), Some(&reads)).await, Ballot::Undone);
    server.undo("z:1", QueueChange::LeaveForGood(&me)).await;
    assert_eq!(server.vote("y:1", wall_micros(), Some(&me)).await, Ballot::Undone);
    server.reads("r:1").await;
    assert!(matches!(server.vote("y:1", wall_micros(), None).await, Ballot::Read(_)));
    server.undo_as(LockKind::Reader, "r:1", QueueChange::None).await;
    for (key, refused) in [(format!("{lock}:reserved"), "Reserved"), (QUARANTINE.to_owned(), "Quarantined")] {
        let () = redis::cmd("SET").arg(&key).arg("x").arg("PX").arg(60_000).query_async(&mut connection).await.unwrap();
        let ballot = format!("{:?}", server.vote("y:1", wall_micros(), None).await);
        assert!(ballot.starts_with(refused), "{ballot}");
        let () = redis::cmd("DEL").arg(&key).query_async(&mut connection).await.unwrap();
    }
    // One that waits leaves both of its places when it is granted.
    for place in ["waiters", "writers"] {
        let command = &mut redis::cmd("ZADD");
        let command = command.arg(format!("{lock}:{place}")).arg(i64::MAX).arg(&reads.waiter);
        let () = command.query_async(&mut connection).await.unwrap();
        let vote = server.vote(place, wall_micros(), Some(&reads)).await;
        assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
        assert_eq!(server.lines().await, Vec::<String>::new());
        server.undo(place, QueueChange::None).await;
    }
}

#[tokio::test]
async fn the_common_path_of_an_undo_is_left_where_the_attempt_reads_or_anybody_waits() {
    let server = Server::start().await;
    server.reads("r:1").await;
    assert!(server.undo_as(LockKind::Reader, "r:1", QueueChange::None).await);
    for (kind, line) in [(LockKind::Writer, ":waiters"), (LockKind::Reader, ":waiting")] {
        let (server, waits) = (Server::start().await, entry("w", 1));
        server.granted("x:1", wall_micros()).await;
        let refused = server.vote_for(kind, "y:1", wall_micros(), Some(&waits)).await;
        assert!(matches!(refused, Ballot::Held { .. }), "{refused:?}");
        assert!(server.lines().await.iter().any(|key| key.ends_with(line)));
        assert!(server.undo("x:1", QueueChange::None).await);
        // Who is told that it is its turn, and does not hear that, is passed over.
        let left = server.lines().await;
        assert!(!left.iter().any(|key| key.ends_with(line)), "{left:?}");
    }
}

#[tokio::test]
async fn an_acquisition_that_is_sent_twice_is_granted_once() {
    let server = Server::start().await;
    let number = server.granted("x:1", wall_micros()).await;
    assert_eq!(server.granted("x:1", wall_micros() + 1_000).await, number);
    let refused = server.vote("y:1", wall_micros(), None).await;
    assert!(matches!(refused, Ballot::Held { holder, .. } if holder == padded("x:1").as_bytes()));
}

#[tokio::test]
async fn an_acquisition_that_comes_after_its_undo_takes_nothing() {
    let server = Server::start().await;
    assert!(!server.undo("x:1", QueueChange::None).await);
    assert_eq!(server.vote("x:1", wall_micros(), None).await, Ballot::Undone);
    assert_eq!(server.rejoin(LockKind::Writer, "x:1", wall_micros()).await, Ballot::Undone);
    assert_eq!(server.vote_for(LockKind::Reader, "x:1", wall_micros(), None).await, Ballot::Undone);
    assert_eq!(server.rejoin(LockKind::Reader, "x:1", wall_micros()).await, Ballot::Undone);
}

#[tokio::test]
async fn an_acquisition_that_is_sent_twice_takes_nothing_after_the_undo_of_the_first() {
    let server = Server::start().await;
    server.granted("x:1", wall_micros()).await;
    assert!(server.undo("x:1", QueueChange::None).await);
    assert_eq!(server.vote("x:1", wall_micros(), None).await, Ballot::Undone);
    server.reads("r:1").await;
    assert!(server.undo("r:1", QueueChange::None).await);
    assert_eq!(server.vote_for(LockKind::Reader, "r:1", wall_micros(), None).await, Ballot::Undone);
}

#[tokio::test]
async fn an_acquisition_that_comes_after_its_undo_lines_nobody_up() {
    let server = Server::start().await;
    let [writer, reader] = [("writer", 1), ("reader", 2)].map(|(name, since)| entry(name, since));
    server.granted("x:1", wall_micros()).await;
    // The round alone, as one that goes on waiting takes it back, and the whole attempt with a round before that one.
    for (value, line) in
        [("y:1", QueueChange::None), ("y:2", QueueChange::LeaveForGood(&writer)), ("z:1", QueueChange::None)]
    {
        server.undo(value, line).await;
        assert_eq!(server.vote(value, wall_micros(), Some(&writer)).await, Ballot::Undone);
    }
    server.undo_as(LockKind::Reader, "r:2", QueueChange::LeaveForGood(&reader)).await;
    assert_eq!(server.vote("y:0", wall_micros(), Some(&writer)).await, Ballot::Undone);
    assert_eq!(server.vote_for(LockKind::Reader, "r:1", wall_micros(), Some(&reader)).await, Ballot::Undone);
    assert_eq!(server.lines().await, Vec::<String>::new());
    // Another waiter is not kept out.
    let later = entry("later", 3);
    assert!(matches!(server.vote("v:1", wall_micros(), Some(&later)).await, Ballot::Held { .. }));
}

#[tokio::test]
async fn a_round_that_is_passed_late_does_not_line_up_a_waiter_that_has_left() {
    for (kind, name) in [(LockKind::Writer, "writer"), (LockKind::Reader, "reader")] {
        let server = Server::start().await;
        let gone = entry(name, 1);
        server.granted("x:1", wall_micros()).await;
        server.undo_as(kind, "y:2", QueueChange::LeaveForGood(&gone)).await;
        server.undo_as(kind, "y:1", QueueChange::Stay(&gone)).await;
        assert_eq!(server.lines().await, Vec::<String>::new());
        // One that has not left stays.
        server.undo_as(kind, "y:1", QueueChange::Stay(&entry("later", 2))).await;
        assert!(!server.lines().await.is_empty());
    }
}

#[tokio::test]
async fn an_undo_leaves_the_lock_of_another_alone() {
    let server = Server::start().await;
    server.granted("x:1", wall_micros()).await;
    let waits = entry("w", 1);
    for change in [QueueChange::None, QueueChange::Stay(&waits), QueueChange::Leave(&waits)] {
        assert!(!server.undo("y:1", change).await, "{change:?}");
    }
    assert!(
        matches!(server.vote("z:1", wall_micros(), None).await, Ballot::Held { holder, .. } if holder == padded("x:1").as_bytes())
    );
}

#[tokio::test]
async fn a_write_back_counts_only_for_the_very_holding_that_was_granted() {
    let server = Server::start().await;
    let first = server.granted("x:1", wall_micros()).await;
    let ahead = first + 5_000_000;
    assert!(server.holds(server.claim(LockKind::Writer, "x:1").renumber(first, ahead, STAMP)).await);
    assert_eq!(server.counter().await, ahead);
    // Once more, and it is not lowered.
    assert!(server.holds(server.claim(LockKind::Writer, "x:1").renumber(first, ahead, STAMP)).await);
    assert!(!server.holds(server.claim(LockKind::Writer, "x:1").renumber(first, first, STAMP)).await);
    assert_eq!(server.counter().await, ahead);

    // The first holding ends, somebody else is granted, and then a resent acquisition makes a second holding of the
    // same value: a write-back for the first may not pass the other's token from behind.
    server.undo("x:1", QueueChange::None).await;
    let other = server.granted("y:1", wall_micros()).await;
    server.undo("y:1", QueueChange::None).await;
    let mut connection = server.redis.connection().await.unwrap();
    let () = redis::cmd("DEL").arg(server.keys.0.tombstone(&padded("x:1"))).query_async(&mut connection).await.unwrap();
    let second = server.granted("x:1", wall_micros()).await;
    assert!(first < other && other < second);
    assert!(!server.holds(server.claim(LockKind::Writer, "x:1").renumber(first, ahead + 1_000_000, STAMP)).await);
    assert_eq!(server.counter().await, second);
    assert!(!server.holds(server.claim(LockKind::Writer, "x:1").extend(first, STAMP)).await);
    assert!(server.holds(server.claim(LockKind::Writer, "x:1").extend(second, STAMP)).await);
}

#[tokio::test]
async fn a_node_that_joins_learns_the_token_and_keeps_a_higher_one() {
    let server = Server::start().await;
    let token = wall_micros() + 5_000_000;
    assert_eq!(server.rejoin(LockKind::Writer, "x:1", token).await, Ballot::Granted(token));
    assert_eq!(server.counter().await, token);
    server.undo("x:1", QueueChange::None).await;
    let other = server.granted("y:1", token + 9).await;
    let refused = server.rejoin(LockKind::Writer, "x:1", token).await;
    assert!(matches!(refused, Ballot::Held { holder, .. } if holder == padded("y:1").as_bytes()));
    assert_eq!(server.counter().await, other);
}

#[tokio::test]
async fn a_lock_of_another_type_is_held_by_somebody_else() {
    let server = Server::start().await;
    let mut connection = server.redis.connection().await.unwrap();
    let () =
        redis::cmd("HSET").arg(server.keys.0.lock()).arg("client").arg(1).query_async(&mut connection).await.unwrap();
    let foreign = Ballot::Held { remaining: None, holder: Vec::new() };
    assert_eq!(server.vote("x:1", wall_micros(), None).await, foreign);
    assert!(!server.undo("x:1", QueueChange::None).await);
    assert!(!server.holds(server.claim(LockKind::Writer, "x:1").extend(1, STAMP)).await);
    assert!(!server.holds(server.claim(LockKind::Writer, "x:1").renumber(1, 2, STAMP)).await);
}

#[tokio::test]
async fn a_release_keeps_the_lock_for_the_longest_waiter_that_listens() {
    let server = Server::start().await;
    let [gone, first, second] =
        [("gone", 1), ("first", 200), ("second", 400)].map(|(waiter, since)| entry(waiter, since));
    let mut ear = server.node.subscribe(&server.keys.channel("first"));
    let _also = server.node.subscribe(&server.keys.channel("second"));
    ear.confirmed().await;
    server.granted("x:1", wall_micros()).await;
    for entry in [&second, &first, &gone] {
        assert!(matches!(server.vote(&entry.waiter, wall_micros(), Some(entry)).await, Ballot::Held { .. }));
    }
    let heard = ear.changes();
    server.undo("x:1", QueueChange::None).await;
    Clock::boot().timeout(TTL, ear.changed_since(heard)).await.expect("it is the turn of the first");
    let vote = server.vote("first:2", wall_micros(), Some(&first)).await;
    assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
}

#[tokio::test]
async fn a_waiter_that_leaves_in_its_turn_passes_it_on() {
    let server = Server::start().await;
    let [first, second] = [("first", 1), ("second", 2)].map(|(waiter, since)| entry(waiter, since));
    let mut ears: Vec<_> = ["first", "second"].map(|waiter| server.node.subscribe(&server.keys.channel(waiter))).into();
    for ear in &mut ears {
        ear.confirmed().await;
    }
    server.granted("x:1", wall_micros()).await;
    for entry in [&first, &second] {
        server.vote(&entry.waiter, wall_micros(), Some(entry)).await;
    }
    let heard: Vec<u64> = ears.iter().map(lock_redis::node::Subscription::changes).collect();
    server.undo("x:1", QueueChange::None).await;
    ears[0].changed_since(heard[0]).await;
    server.undo("first", QueueChange::Leave(&first)).await;
    // Its turn may have ended by itself on a busy machine; then nobody's is left to be passed on.
    let vote = server.vote("second:2", wall_micros(), Some(&second)).await;
    assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
}
