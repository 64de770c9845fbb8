//! Readers, and the writers that wait beside them.

use super::*;

#[tokio::test]
async fn readers_share_a_node_and_a_writer_is_refused_until_the_last_of_them_has_gone() {
    let server = Server::start().await;
    let (one, two) = (server.reads("r:1").await, server.reads("s:1").await);
    assert!(one < two);
    // Sent twice, granted once.
    assert_eq!(server.reads("r:1").await, one);
    assert!(matches!(server.vote("x:1", wall_micros(), None).await, Ballot::Read(_)));
    assert!(matches!(server.rejoin(LockKind::Writer, "x:1", wall_micros()).await, Ballot::Read(_)));
    assert!(server.undo("r:1", QueueChange::None).await);
    assert!(!server.undo("r:1", QueueChange::None).await);
    assert!(matches!(server.vote("x:1", wall_micros(), None).await, Ballot::Read(_)));
    assert!(server.undo("s:1", QueueChange::None).await);
    assert!(server.granted("x:1", 1).await > two);
}

#[tokio::test]
async fn a_reader_is_refused_while_a_writer_holds_the_lock() {
    let server = Server::start().await;
    let writer = server.granted("x:1", wall_micros()).await;
    let refused = server.vote_for(LockKind::Reader, "r:1", wall_micros(), None).await;
    assert!(matches!(refused, Ballot::Held { ref holder, .. } if holder == padded("x:1").as_bytes()), "{refused:?}");
    let refused = server.rejoin(LockKind::Reader, "r:1", writer + 9).await;
    assert!(matches!(refused, Ballot::Held { .. }), "{refused:?}");
    assert!(server.undo("x:1", QueueChange::None).await);
    assert!(server.reads("r:1").await > writer);
}

#[tokio::test]
async fn each_reader_ends_by_its_own_time_whoever_else_is_renewed() {
    let server = Server::start().await;
    let short = Duration::from_millis(50);
    let vote = |value, ttl| Claim { ttl, ..server.claim(LockKind::Reader, value) }.vote(wall_micros(), None).to(STAMP);
    let dies = server.ballot(vote("dies:1", short)).await;
    let Ballot::Granted(dies) = dies else { panic!("{dies:?}") };
    let lives = server.reads("lives:1").await;
    Clock::boot().sleep(short * 2).await;
    assert!(server.holds(server.claim(LockKind::Reader, "lives:1").extend(lives, STAMP)).await);
    assert!(!server.holds(server.claim(LockKind::Reader, "dies:1").extend(dies, STAMP)).await);
    assert!(server.undo("lives:1", QueueChange::None).await);
    server.granted("x:1", wall_micros()).await;
}

#[tokio::test]
async fn a_node_gives_a_number_to_one_reader_only() {
    let server = Server::start().await;
    let (one, two) = (server.reads("r:1").await, server.reads("s:1").await);
    let ahead = two + 5_000_000;
    assert_eq!(server.renumber("r:1", one, ahead).await, Renumbered::Done);
    // Sent twice.
    assert_eq!(server.renumber("r:1", one, ahead).await, Renumbered::Done);
    assert_eq!(server.renumber("s:1", two, ahead).await, Renumbered::Passed(ahead));
    assert_eq!(server.renumber("s:1", two, ahead - 1).await, Renumbered::Passed(ahead));
    // The holding that is renewed is the one of the new number, and no other.
    assert!(!server.holds(server.claim(LockKind::Reader, "r:1").extend(one, STAMP)).await);
    assert!(server.holds(server.claim(LockKind::Reader, "r:1").extend(ahead, STAMP)).await);
    server.undo("s:1", QueueChange::None).await;
    assert_eq!(server.renumber("s:1", two, ahead + 1).await, Renumbered::Gone);
}

#[tokio::test]
async fn a_reader_that_comes_after_a_waiting_writer_waits_for_it_and_one_that_came_before_does_not() {
    let server = Server::start().await;
    server.reads("r:1").await;
    let [early, writer, late] = [("early", 1), ("writer", 200), ("late", 400)].map(|(name, since)| entry(name, since));
    assert!(matches!(server.vote("x:1", wall_micros(), Some(&writer)).await, Ballot::Read(_)));
    for entry in [Some(&late), None] {
        let vote = server.vote_for(LockKind::Reader, "late:1", wall_micros(), entry).await;
        assert!(matches!(vote, Ballot::Behind(_)), "{vote:?}");
    }
    let vote = server.vote_for(LockKind::Reader, "early:1", wall_micros(), Some(&early)).await;
    assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
    // It does not wait any more.
    server.undo("x:1", QueueChange::Leave(&writer)).await;
    let vote = server.vote_for(LockKind::Reader, "late:2", wall_micros(), Some(&late)).await;
    assert!(matches!(vote, Ballot::Granted(_)), "{vote:?}");
}

#[tokio::test]
async fn the_end_of_a_writer_wakes_the_readers_before_the_next_writer_and_the_end_of_readers_that_writer() {
    let server = Server::start().await;
    let [one, two, writer, late] =
        [("one", 1), ("two", 2), ("writer", 200), ("late", 400)].map(|(name, since)| entry(name, since));
    let mut ears: Vec<_> = Vec::new();
    for entry in [&one, &two, &writer, &late] {
        let mut ear = server.node.subscribe(&server.keys.channel(&entry.waiter));
        ear.confirmed().await;
        ears.push((ear.changes(), ear));
    }
    server.granted("x:1", wall_micros()).await;
    for entry in [&one, &two, &late] {
        let vote = server.vote_for(LockKind::Reader, &entry.waiter, wall_micros(), Some(entry)).await;
        assert!(matches!(vote, Ballot::Held { .. }), "{vote:?}");
    }
    server.vote("w:1", wall_micros(), Some(&writer)).await;
    server.undo("x:1", QueueChange::None).await;
    for (heard, ear) in &mut ears[..2] {
        ear.changed_since(*heard).await;
    }
    assert!(ears[2..].iter().all(|(heard, ear)| ear.changes() == *heard), "one too many was woken");
    let (first, second) = (server.vote_for(LockKind::Reader, "one:2", wall_micros(), Some(&one)).await, "two:2");
    assert!(matches!(first, Ballot::Granted(_)), "{first:?}");
    let second = server.vote_for(LockKind::Reader, second, wall_micros(), Some(&two)).await;
    assert!(matches!(second, Ballot::Granted(_)), "{second:?}");
    server.undo("one:2", QueueChange::None).await;
    assert_eq!(ears[2].1.changes(), ears[2].0, "woken while others read");
    server.undo("two:2", QueueChange::None).await;
    let (heard, ear) = &mut ears[2];
    ear.changed_since(*heard).await;
    assert_eq!(ears[3].1.changes(), ears[3].0, "woken before a writer that came before it");
}

#[tokio::test]
async fn a_downgrade_is_one_step_for_the_very_holding_and_keeps_the_next_writer_out() {
    let server = Server::start().await;
    let number = server.granted("x:1", wall_micros()).await;
    let token = number + 5_000_000;
    let call = |number| server.claim(LockKind::Writer, "x:1").downgrade(number, token, STAMP);
    assert!(!server.holds(call(number - 1)).await, "another holding of the same value");
    assert!(server.holds(call(number)).await);
    // Sent twice; and what was sent to the writer and comes late takes nothing.
    assert!(server.holds(call(number)).await);
    assert!(!server.holds(server.claim(LockKind::Writer, "x:1").extend(number, STAMP)).await);
    assert!(matches!(server.rejoin(LockKind::Writer, "x:1", token).await, Ballot::Read(_)));
    assert_eq!(server.counter().await, token);
    assert!(matches!(server.vote("y:1", wall_micros(), None).await, Ballot::Read(_)));
    assert!(server.reads("r:1").await > token);
    assert!(server.holds(server.claim(LockKind::Reader, "x:1").extend(token, STAMP)).await);
    assert!(server.undo("x:1", QueueChange::None).await);
    assert!(server.undo("r:1", QueueChange::None).await);
    server.granted("y:1", wall_micros()).await;
}

#[tokio::test]
async fn a_node_that_missed_the_downgrade_joins_the_reader_and_gives_up_the_writer() {
    let server = Server::start().await;
    let number = server.granted("x:1", wall_micros()).await;
    assert_eq!(server.rejoin(LockKind::Reader, "x:1", number + 7).await, Ballot::Granted(number + 7));
    let other = server.reads("r:1").await;
    assert!(other > number + 7);
    assert!(server.undo("x:1", QueueChange::None).await);
    assert!(server.undo("r:1", QueueChange::None).await);
    server.granted("y:1", wall_micros()).await;
}

#[tokio::test]
async fn nothing_is_left_of_readers_and_waiters_that_are_gone() {
    let server = Server::start().await;
    server.reads("r:1").await;
    let [writer, reader] = [("writer", 1), ("reader", 200)].map(|(name, since)| entry(name, since));
    server.vote("x:1", wall_micros(), Some(&writer)).await;
    server.vote_for(LockKind::Reader, "s:1", wall_micros(), Some(&reader)).await;
    server.undo("x:1", QueueChange::Leave(&writer)).await;
    server.undo_as(LockKind::Reader, "s:1", QueueChange::Leave(&reader)).await;
    server.undo("r:1", QueueChange::None).await;
    let mut connection = server.redis.connection().await.unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap();
    let of_a_lock = keys.iter().filter(|key| key.starts_with('{'));
    let left: Vec<_> = of_a_lock.filter(|key| !key.contains(":undone:") && **key != server.keys.0.token()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn the_note_of_a_writer_that_died_goes_when_another_writer_waits() {
    let server = Server::start().await;
    server.granted("x:1", wall_micros()).await;
    let short = Duration::from_millis(20);
    server.vote("d:1", wall_micros(), Some(&WaiterEntry { ttl: short, ..entry("dead", 1) })).await;
    let ends = server.time().await + short;
    let passed = async { while server.time().await <= ends + Duration::from_millis(1) {} };
    Clock::boot().timeout(TTL, passed).await.expect("the node's clock goes on");
    server.vote("y:1", wall_micros(), Some(&entry("alive", 2))).await;
    let mut connection = server.redis.connection().await.unwrap();
    let lock = server.keys.0.lock();
    let (noted, notes): (Vec<String>, Vec<String>) = redis::pipe()
        .zrange(format!("{lock}:writers"), 0, -1)
        .hkeys(format!("{lock}:writing"))
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!((noted, notes), (vec!["alive".to_owned()], vec!["alive".to_owned()]));
}
