//! The scripts on one real server.

use lock_core::{Clock, clock::wall_micros};
use lock_lab::servers::Redis;
use lock_redis::{
    node::{Node, NodeConfig},
    scripts::held,
};
use tokio::runtime::Handle;

use super::*;

const TTL: Duration = Duration::from_secs(30);

/// A server, and one lock on it.
struct Server {
    redis: Redis,
    node: Node,
    keys: LockKeys,
}

impl Server {
    async fn start() -> Self {
        let redis = Redis::start().await.unwrap();
        let node = Node::new(NodeConfig::new("127.0.0.1", redis.port()), Clock::boot(), Handle::current());
        Self { redis, node, keys: LockKeys::new("lock", &LockName::new("a").unwrap()) }
    }

    async fn vote(&self, value: &str, proposal: u64, place: Option<&Place>) -> Ballot {
        let call = acquire(&self.keys, value, TTL, proposal, b"", place, None);
        ballot(&self.node.call(call).await.unwrap()).unwrap()
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

    async fn undo(&self, value: &str, line: Line<'_>) -> bool {
        self.holds(undo(&self.keys, value, true, line)).await
    }

    async fn counter(&self) -> u64 {
        let mut connection = self.redis.connection().await.unwrap();
        redis::cmd("HGET").arg(self.keys.0.token()).arg("counter").query_async(&mut connection).await.unwrap()
    }
}

#[tokio::test]
async fn a_proposal_near_the_clock_is_the_first_number_and_others_are_put_right() {
    let server = Server::start().await;
    let proposal = wall_micros() + 1_000_000;
    assert_eq!(server.granted("x:1", proposal).await, proposal);
    assert!(server.undo("x:1", Line::None).await);
    assert_eq!(server.granted("x:2", 5).await, proposal + 1);
    assert!(server.undo("x:2", Line::None).await);
    // A client whose clock is a day ahead moves the number by a minute at most.
    let number = server.granted("x:3", proposal + 86_400_000_000).await;
    assert!(number > proposal && number < proposal + 120_000_000, "{number} for {proposal}");

    let fresh = Server::start().await;
    let before = wall_micros();
    assert!(fresh.granted("x:4", 5).await >= before);
}

#[tokio::test]
async fn an_acquisition_that_is_sent_twice_is_granted_once() {
    let server = Server::start().await;
    let number = server.granted("x:1", wall_micros()).await;
    assert_eq!(server.granted("x:1", wall_micros() + 1_000).await, number);
    let refused = server.vote("y:1", wall_micros(), None).await;
    assert!(matches!(refused, Ballot::Held { holder, .. } if holder == b"x:1"));
}

#[tokio::test]
async fn an_acquisition_that_comes_after_its_undo_takes_nothing() {
    let server = Server::start().await;
    assert!(!server.undo("x:1", Line::None).await);
    assert_eq!(server.vote("x:1", wall_micros(), None).await, Ballot::Undone);
    let join = rejoin(&server.keys, "x:1", TTL, wall_micros(), b"");
    assert_eq!(ballot(&server.node.call(join).await.unwrap()).unwrap(), Ballot::Undone);
}

#[tokio::test]
async fn an_undo_leaves_the_lock_of_another_alone() {
    let server = Server::start().await;
    server.granted("x:1", wall_micros()).await;
    assert!(!server.undo("y:1", Line::None).await);
    assert!(matches!(server.vote("z:1", wall_micros(), None).await, Ballot::Held { holder, .. } if holder == b"x:1"));
}

#[tokio::test]
async fn a_write_back_counts_only_for_the_very_holding_that_was_granted() {
    let server = Server::start().await;
    let first = server.granted("x:1", wall_micros()).await;
    let ahead = first + 5_000_000;
    assert!(server.holds(write_back(&server.keys, "x:1", first, ahead)).await);
    assert_eq!(server.counter().await, ahead);
    // It is not lowered.
    assert!(server.holds(write_back(&server.keys, "x:1", first, first)).await);
    assert_eq!(server.counter().await, ahead);

    // The first holding ends, somebody else is granted, and then a resent acquisition makes a second holding of the
    // same value: a write-back for the first may not pass the other's token from behind.
    server.undo("x:1", Line::None).await;
    let other = server.granted("y:1", wall_micros()).await;
    server.undo("y:1", Line::None).await;
    let mut connection = server.redis.connection().await.unwrap();
    let () = redis::cmd("DEL").arg(server.keys.0.tombstone("x:1")).query_async(&mut connection).await.unwrap();
    let second = server.granted("x:1", wall_micros()).await;
    assert!(first < other && other < second);
    assert!(!server.holds(write_back(&server.keys, "x:1", first, ahead + 1_000_000)).await);
    assert_eq!(server.counter().await, second);
    assert!(!server.holds(extend(&server.keys, "x:1", TTL, first)).await);
    assert!(server.holds(extend(&server.keys, "x:1", TTL, second)).await);
}

#[tokio::test]
async fn a_node_that_joins_learns_the_token_and_keeps_a_higher_one() {
    let server = Server::start().await;
    let token = wall_micros() + 5_000_000;
    let join = || rejoin(&server.keys, "x:1", TTL, token, b"");
    assert_eq!(ballot(&server.node.call(join()).await.unwrap()).unwrap(), Ballot::Granted(token));
    assert_eq!(server.counter().await, token);
    server.undo("x:1", Line::None).await;
    let other = server.granted("y:1", token + 9).await;
    let refused = ballot(&server.node.call(join()).await.unwrap()).unwrap();
    assert!(matches!(refused, Ballot::Held { holder, .. } if holder == b"y:1"));
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
    assert!(!server.undo("x:1", Line::None).await);
    assert!(!server.holds(extend(&server.keys, "x:1", TTL, 1)).await);
    assert!(!server.holds(write_back(&server.keys, "x:1", 1, 2)).await);
}

#[tokio::test]
async fn a_release_keeps_the_lock_for_the_longest_waiter_that_listens() {
    let server = Server::start().await;
    let [gone, first, second] =
        [("gone", 1), ("first", 2), ("second", 3)].map(|(waiter, since)| Place { waiter: waiter.to_owned(), since });
    let mut ear = server.node.subscribe(&server.keys.channel("first"));
    let _also = server.node.subscribe(&server.keys.channel("second"));
    ear.confirmed().await;
    server.granted("x:1", wall_micros()).await;
    for place in [&second, &first, &gone] {
        assert!(matches!(server.vote(&place.waiter, wall_micros(), Some(place)).await, Ballot::Held { .. }));
    }
    let heard = ear.changes();
    server.undo("x:1", Line::None).await;
    ear.changed_since(heard).await;
    let vote = server.vote("first:2", wall_micros(), Some(&first)).await;
    assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
}

#[tokio::test]
async fn a_waiter_that_leaves_in_its_turn_passes_it_on() {
    let server = Server::start().await;
    let [first, second] =
        [("first", 1), ("second", 2)].map(|(waiter, since)| Place { waiter: waiter.to_owned(), since });
    let mut ears: Vec<_> = ["first", "second"].map(|waiter| server.node.subscribe(&server.keys.channel(waiter))).into();
    for ear in &mut ears {
        ear.confirmed().await;
    }
    server.granted("x:1", wall_micros()).await;
    for place in [&first, &second] {
        server.vote(&place.waiter, wall_micros(), Some(place)).await;
    }
    let heard: Vec<u64> = ears.iter().map(lock_redis::node::Subscription::changes).collect();
    server.undo("x:1", Line::None).await;
    ears[0].changed_since(heard[0]).await;
    server.undo("first", Line::Leave(&first)).await;
    // Its turn may have ended by itself on a busy machine; then nobody's is left to be passed on.
    let vote = server.vote("second:2", wall_micros(), Some(&second)).await;
    assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
}
