//! The scripts of readers, of permits and of writers that wait, one branch after the other on a real server.

use std::{num::NonZeroU32, time::Duration};

use crate::common::{Server, keys, patient_node, server};
use lock_core::{Clock, Context};
use lock_redis::{
    node::{Node, ScriptCall},
    scripts::{
        self, Acquired, Ask, Attempt, Intent, Look, Noted, Writer,
        sharing::{self, Members},
    },
};

const TTL: Duration = Duration::from_secs(10);
const NONE: Duration = Duration::ZERO;
/// Long enough for a script to run in, short enough to wait for.
const SHORT: Duration = Duration::from_millis(150);

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

    async fn acquired(&self, call: ScriptCall) -> Acquired {
        scripts::acquired(&self.node.call(call).await.unwrap()).unwrap()
    }

    async fn held(&self, call: ScriptCall) -> bool {
        scripts::held(&self.node.call(call).await.unwrap()).unwrap()
    }

    async fn write(&self, attempt: &Attempt) -> Acquired {
        self.acquired(attempt.acquire(&Ask::new(TTL, 0, b"writer"), None)).await
    }

    async fn read(&self, attempt: &Attempt) -> Acquired {
        self.acquired(attempt.acquire_read(&Ask::new(TTL, 0, b"a reader"), NONE)).await
    }

    async fn permit(&self, attempt: &Attempt, of: u32) -> Acquired {
        let of = NonZeroU32::new(of).unwrap();
        self.acquired(attempt.acquire_permit(&Ask::new(TTL, 0, b"one"), of)).await
    }

    async fn look(&self) -> Look {
        scripts::look(&self.node.call(scripts::inspect(&keys("a"))).await.unwrap()).unwrap()
    }

    /// Has the server's clock pass the end of what was granted for so long.
    async fn pass(&self, duration: Duration) {
        Clock::boot().sleep(duration + Duration::from_millis(2)).await;
    }
}

fn attempt() -> Attempt {
    Attempt::new(keys("a"))
}

fn number(acquired: &Acquired) -> u64 {
    match acquired {
        Acquired::Granted(number) => *number,
        other => panic!("not granted: {other:?}"),
    }
}

fn left(acquired: &Acquired) -> Duration {
    match acquired {
        Acquired::Held(Some(left)) => *left,
        other => panic!("not refused for a time: {other:?}"),
    }
}

#[tokio::test]
async fn readers_come_in_beside_each_other_and_never_beside_a_writer() {
    let bench = Bench::new().await;
    let (one, two, writer) = (attempt(), attempt(), attempt());
    let numbers = [number(&bench.read(&one).await), number(&bench.read(&two).await)];
    assert!(numbers[0] < numbers[1], "{numbers:?}");
    assert!(left(&bench.write(&writer).await) <= TTL);
    assert!(bench.held(one.release_member(Members::Readers, NONE)).await);
    assert!(left(&bench.write(&writer).await) <= TTL, "one reader is left");
    assert!(bench.held(two.release_member(Members::Readers, NONE)).await);
    assert!(number(&bench.write(&writer).await) > numbers[1]);
    assert!(left(&bench.read(&one).await) <= TTL);
    assert!(bench.held(writer.release(NONE)).await);
}

#[tokio::test]
async fn a_reader_that_is_sent_twice_is_granted_once() {
    let mut bench = Bench::new().await;
    let reader = attempt();
    let first = bench.read(&reader).await;
    let ends: f64 = bench.server.ask(&["ZSCORE", "{lock:a}:readers", &reader.value]).await;
    bench.pass(Duration::from_millis(5)).await;
    assert_eq!(bench.read(&reader).await, first);
    let after: f64 = bench.server.ask(&["ZSCORE", "{lock:a}:readers", &reader.value]).await;
    assert!((ends - after).abs() < 0.5, "its ttl counts from the first sending");
}

#[tokio::test]
async fn a_key_of_another_library_keeps_readers_out() {
    let mut bench = Bench::new().await;
    bench.server.ask::<()>(&["HSET", "{lock:a}", "field", "1"]).await;
    assert_eq!(bench.read(&attempt()).await, Acquired::Held(None));
    bench.server.ask::<()>(&["DEL", "{lock:a}"]).await;
    bench.server.ask::<()>(&["SET", "{lock:a}", "other", "PX", "5000"]).await;
    assert!(left(&bench.read(&attempt()).await) <= Duration::from_secs(5));
}

#[tokio::test]
async fn each_reader_ends_by_itself_and_does_not_live_on_the_renewals_of_others() {
    let mut bench = Bench::new().await;
    let (dead, alive, writer) = (attempt(), attempt(), attempt());
    number(&bench.acquired(dead.acquire_read(&Ask::new(SHORT, 0, b""), NONE)).await);
    number(&bench.acquired(alive.acquire_read(&Ask::new(SHORT * 4, 0, b""), NONE)).await);
    assert!(bench.held(alive.renew_member(Members::Readers, TTL, NONE, None)).await);
    bench.pass(SHORT).await;
    assert!(!bench.held(dead.renew_member(Members::Readers, TTL, NONE, None)).await, "it has ended");
    assert!(!bench.held(dead.release_member(Members::Readers, NONE)).await, "it has ended");
    assert_eq!(bench.look().await.readers.len(), 1);
    assert!(left(&bench.write(&writer).await) > SHORT * 4, "until the last of them ends");
    assert!(bench.held(alive.release_member(Members::Readers, NONE)).await);
    assert_eq!(bench.server.left().await, Vec::<String>::new(), "the dead one went with the living one");
}

#[tokio::test]
async fn readers_that_all_died_are_gone_for_the_next_writer_and_leave_nothing() {
    let mut bench = Bench::new().await;
    for _ in 0..3 {
        number(&bench.acquired(attempt().acquire_read(&Ask::new(SHORT, 0, b""), NONE)).await);
    }
    for key in ["{lock:a}:readers", "{lock:a}:reading"] {
        let kept: u64 = bench.server.ask(&["PTTL", key]).await;
        assert!(u128::from(kept) <= SHORT.as_millis() + 1_000, "{key} stays for {kept} ms");
    }
    bench.pass(SHORT).await;
    let writer = attempt();
    number(&bench.write(&writer).await);
    assert!(bench.held(writer.release(NONE)).await);
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn another_holding_of_the_same_reader_is_not_renewed_for_the_first_one() {
    let bench = Bench::new().await;
    let reader = attempt();
    let first = number(&bench.read(&reader).await);
    assert!(bench.held(reader.renew_member(Members::Readers, TTL, NONE, Some(first))).await);
    assert!(bench.held(reader.release_member(Members::Readers, NONE)).await);
    let second = number(&bench.read(&reader).await);
    assert!(!bench.held(reader.renew_member(Members::Readers, TTL, NONE, Some(first))).await);
    assert!(bench.held(reader.renew_member(Members::Readers, TTL, NONE, Some(second))).await);
}

#[tokio::test]
async fn a_reader_or_a_permit_that_was_undone_before_it_arrived_is_not_granted() {
    let mut bench = Bench::new().await;
    let (reader, permit) = (attempt(), attempt());
    assert!(!bench.held(reader.undo_member(Members::Readers, NONE)).await);
    assert_eq!(bench.read(&reader).await, Acquired::Undone);
    assert!(!bench.held(permit.undo_member(Members::Permits, NONE)).await);
    assert_eq!(bench.permit(&permit, 2).await, Acquired::Undone);
    assert_eq!(bench.look().await, Look::default());
    for attempt in [reader, permit] {
        let kept: u64 = bench.server.ask(&["PTTL", &keys("a").tombstone(&attempt.value)]).await;
        assert!(kept <= 5_000, "a tombstone that stays");
    }
}

#[tokio::test]
async fn a_reader_or_a_permit_that_was_sent_twice_takes_nothing_after_its_undo() {
    let bench = Bench::new().await;
    let (reader, permit) = (attempt(), attempt());
    number(&bench.read(&reader).await);
    assert!(bench.held(reader.undo_member(Members::Readers, NONE)).await);
    assert_eq!(bench.read(&reader).await, Acquired::Undone);
    number(&bench.permit(&permit, 2).await);
    assert!(bench.held(permit.undo_member(Members::Permits, NONE)).await);
    assert_eq!(bench.permit(&permit, 2).await, Acquired::Undone);
}

#[tokio::test]
async fn a_counter_does_not_expire_under_a_reader_that_stays_for_days() {
    let mut bench = Bench::new().await;
    let reader = attempt();
    number(&bench.read(&reader).await);
    bench.server.ask::<()>(&["PEXPIRE", "{lock:a}:token", "1000"]).await;
    assert!(bench.held(reader.renew_member(Members::Readers, TTL, NONE, None)).await);
    assert!(bench.server.ask::<u64>(&["PTTL", "{lock:a}:token"]).await > 80_000_000);
}

/// The refusal of a writer that waits.
async fn refused(bench: &Bench, id: &str, waited: Duration, noted: Noted) {
    let intent = Intent { writer: Writer { id, waited }, kept: TTL, noted, next: None };
    left(&bench.acquired(attempt().acquire(&Ask::new(TTL, 0, b""), Some(&intent))).await);
}

#[tokio::test]
async fn a_reader_that_comes_after_a_writer_was_refused_waits_for_it_and_one_from_before_does_not() {
    let bench = Bench::new().await;
    let reader = attempt();
    number(&bench.read(&reader).await);
    refused(&bench, "w", NONE, Noted::No).await;
    bench.pass(Duration::from_millis(50)).await;
    assert!(left(&bench.read(&attempt()).await) <= TTL, "it would overtake the writer");
    let since_before = attempt().acquire_read(&Ask::new(TTL, 0, b""), Duration::from_secs(1));
    number(&bench.acquired(since_before).await);
    // The place in line is that of the first refusal, however often it is refused or noted again.
    refused(&bench, "w", NONE, Noted::Perhaps).await;
    bench.held(sharing::announce(&keys("a"), &Writer { id: "w", waited: NONE }, TTL)).await;
    let came_between = attempt().acquire_read(&Ask::new(TTL, 0, b""), Duration::from_millis(20));
    assert!(left(&bench.acquired(came_between).await) <= TTL);
}

#[tokio::test]
async fn a_try_that_does_not_wait_leaves_no_note() {
    let bench = Bench::new().await;
    number(&bench.read(&attempt()).await);
    left(&bench.write(&attempt()).await);
    number(&bench.read(&attempt()).await);
}

#[tokio::test]
async fn the_note_of_a_writer_goes_with_its_grant_and_the_next_one_is_noted_in_the_same_step() {
    let mut bench = Bench::new().await;
    let (holder, writer) = (attempt(), attempt());
    number(&bench.write(&holder).await);
    refused(&bench, "first", NONE, Noted::No).await;
    assert!(bench.held(holder.release(NONE)).await);
    let next = Writer { id: "second", waited: NONE };
    let intent =
        Intent { writer: Writer { id: "first", waited: NONE }, kept: TTL, noted: Noted::Perhaps, next: Some(next) };
    number(&bench.acquired(writer.acquire(&Ask::new(TTL, 0, b""), Some(&intent))).await);
    assert_eq!(bench.server.ask::<Vec<String>>(&["ZRANGE", "{lock:a}:writers", "0", "-1"]).await, ["second"]);
    assert_eq!(bench.server.ask::<Vec<String>>(&["HKEYS", "{lock:a}:writing"]).await, ["second"]);
    assert!(bench.held(writer.release(NONE)).await);
    assert!(left(&bench.read(&attempt()).await) <= TTL);
    assert!(bench.held(sharing::withdraw(&keys("a"), "second")).await);
    assert!(!bench.held(sharing::withdraw(&keys("a"), "second")).await);
    number(&bench.read(&attempt()).await);
}

#[tokio::test]
async fn the_note_of_a_writer_that_died_ends_by_itself() {
    let mut bench = Bench::new().await;
    let call = |id| sharing::announce(&keys("a"), &Writer { id, waited: NONE }, SHORT);
    bench.held(call("dead")).await;
    assert!(left(&bench.read(&attempt()).await) <= SHORT);
    for key in ["{lock:a}:writers", "{lock:a}:writing"] {
        let kept: u64 = bench.server.ask(&["PTTL", key]).await;
        assert!(u128::from(kept) <= SHORT.as_millis() + 1_000, "{key} stays for {kept} ms");
    }
    bench.pass(SHORT).await;
    let reader = attempt();
    number(&bench.read(&reader).await);
    assert!(bench.held(reader.release_member(Members::Readers, NONE)).await);
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_note_of_a_writer_that_died_goes_when_another_writer_waits() {
    let mut bench = Bench::new().await;
    number(&bench.write(&attempt()).await);
    bench.held(sharing::announce(&keys("a"), &Writer { id: "dead", waited: NONE }, SHORT)).await;
    bench.pass(SHORT).await;
    refused(&bench, "w", NONE, Noted::No).await;
    assert_eq!(bench.server.ask::<Vec<String>>(&["ZRANGE", "{lock:a}:writers", "0", "-1"]).await, ["w"]);
    assert_eq!(bench.server.ask::<Vec<String>>(&["HKEYS", "{lock:a}:writing"]).await, ["w"]);
}

#[tokio::test]
async fn a_refusal_that_arrives_after_its_undo_leaves_no_note() {
    let mut bench = Bench::new().await;
    number(&bench.write(&attempt()).await);
    let late = attempt();
    assert!(!bench.held(late.undo(NONE)).await);
    let intent = Intent { writer: Writer { id: "w", waited: NONE }, kept: TTL, noted: Noted::No, next: None };
    left(&bench.acquired(late.acquire(&Ask::new(TTL, 0, b""), Some(&intent))).await);
    assert_eq!(bench.server.ask::<u64>(&["EXISTS", "{lock:a}:writers", "{lock:a}:writing"]).await, 0);
}

#[tokio::test]
async fn a_downgrade_lets_no_writer_in_between_and_keeps_number_and_name() {
    let mut bench = Bench::new().await;
    let writer = attempt();
    let granted = number(&bench.write(&writer).await);
    let since = bench.look().await.alone.unwrap().since;
    bench.server.ask::<()>(&["PEXPIRE", "{lock:a}", "500"]).await;
    for _ in 0..2 {
        // Sent twice, it is done once.
        assert!(bench.held(writer.downgrade(TTL, NONE)).await);
        assert!(left(&bench.write(&attempt()).await) > Duration::from_secs(5));
    }
    let look = bench.look().await;
    assert_eq!(look.alone, None);
    let [reader] = look.readers.as_slice() else { panic!("{look:?}") };
    assert_eq!((reader.number, reader.since, reader.payload.as_slice()), (Some(granted), since, &b"writer"[..]));
    number(&bench.read(&attempt()).await);
    assert!(bench.held(writer.renew_member(Members::Readers, TTL, NONE, Some(granted))).await);
    assert!(!bench.held(writer.renew(TTL, NONE, None)).await);
}

#[tokio::test]
async fn a_downgrade_of_a_lock_that_is_gone_or_anothers_makes_no_reader() {
    let mut bench = Bench::new().await;
    let writer = attempt();
    assert!(!bench.held(writer.downgrade(TTL, NONE)).await);
    number(&bench.write(&writer).await);
    bench.server.ask::<()>(&["SET", "{lock:a}", "other"]).await;
    assert!(!bench.held(writer.downgrade(TTL, NONE)).await);
    // Its grant was forgotten: the number would be another one.
    bench.server.ask::<()>(&["SET", "{lock:a}", &writer.value]).await;
    bench.server.ask::<()>(&["DEL", "{lock:a}:token"]).await;
    assert!(!bench.held(writer.downgrade(TTL, NONE)).await);
    assert!(bench.look().await.readers.is_empty());
}

#[tokio::test]
async fn never_more_permits_are_held_than_there_are_and_a_dead_holders_comes_back() {
    let mut bench = Bench::new().await;
    let (kept, dead, third) = (attempt(), attempt(), attempt());
    let first = number(&bench.permit(&kept, 2).await);
    let short = dead.acquire_permit(&Ask::new(SHORT, 0, b""), NonZeroU32::new(2).unwrap());
    assert!(number(&bench.acquired(short).await) > first);
    assert_eq!(bench.permit(&kept, 2).await, Acquired::Granted(first), "sent twice, granted once");
    assert!(left(&bench.permit(&third, 2).await) <= SHORT, "until the first of them ends");
    bench.pass(SHORT).await;
    number(&bench.permit(&third, 2).await);
    assert!(!bench.held(dead.release_member(Members::Permits, NONE)).await);
    assert!(left(&bench.permit(&dead, 2).await) <= TTL);
    for permit in [kept, third] {
        assert!(bench.held(permit.release_member(Members::Permits, NONE)).await);
    }
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn another_number_of_permits_is_refused_with_the_one_that_counts_until_nobody_is_left() {
    let bench = Bench::new().await;
    let holder = attempt();
    number(&bench.permit(&holder, 17).await);
    assert_eq!(bench.permit(&attempt(), 23).await, Acquired::Permits(17));
    assert_eq!(bench.permit(&attempt(), 1).await, Acquired::Permits(17));
    assert!(bench.held(holder.release_member(Members::Permits, NONE)).await);
    number(&bench.permit(&attempt(), 23).await);
}

#[tokio::test]
async fn the_permits_of_a_name_have_nothing_to_do_with_its_lock() {
    let bench = Bench::new().await;
    let (writer, permit) = (attempt(), attempt());
    let numbers = [number(&bench.write(&writer).await), number(&bench.permit(&permit, 1).await)];
    assert_ne!(numbers[0], numbers[1]);
    let look = bench.look().await;
    assert_eq!((look.alone.unwrap().number, look.permits[0].number), (Some(numbers[0]), Some(numbers[1])));
    assert_eq!((look.permits[0].of, look.permits[0].payload.as_slice()), (Some(1), &b"one"[..]));
    assert!(bench.held(writer.renew(TTL, NONE, Some(numbers[0]))).await);
}

/// Takes the lock for one holder with a lock delay.
async fn with_delay(bench: &Bench, attempt: &Attempt, ttl: Duration, delay: Duration) {
    number(&bench.acquired(attempt.acquire(&Ask { delay, ..Ask::new(ttl, 0, b"") }, None)).await);
}

#[tokio::test]
async fn a_lock_whose_holder_was_lost_stays_closed_for_its_delay_to_everybody() {
    let mut bench = Bench::new().await;
    for taken_away in [true, false] {
        let holder = attempt();
        with_delay(&bench, &holder, SHORT, SHORT * 4).await;
        if taken_away {
            bench.server.ask::<()>(&["DEL", "{lock:a}"]).await;
        } else {
            bench.pass(SHORT).await;
        }
        assert!(left(&bench.write(&attempt()).await) <= SHORT * 5);
        assert!(left(&bench.read(&attempt()).await) <= SHORT * 5);
        // Its own release comes too late to be one in order.
        assert!(!bench.held(holder.release(SHORT * 4)).await);
        assert!(left(&bench.write(&attempt()).await) <= SHORT * 5);
        bench.pass(SHORT * 5).await;
        let next = attempt();
        number(&bench.write(&next).await);
        assert!(bench.held(next.release(NONE)).await);
    }
}

#[tokio::test]
async fn a_release_in_order_opens_a_lock_with_a_delay_at_once_and_so_does_an_undo() {
    let mut bench = Bench::new().await;
    let delay = Duration::from_secs(100);
    let (first, second) = (attempt(), attempt());
    with_delay(&bench, &first, TTL, delay).await;
    assert!(bench.held(first.release(delay)).await);
    with_delay(&bench, &second, TTL, delay).await;
    bench.server.ask::<()>(&["DEL", "{lock:a}"]).await;
    assert!(!bench.held(second.undo(delay)).await);
    number(&bench.write(&attempt()).await);
}

#[tokio::test]
async fn a_renewal_extends_the_lock_delay_with_the_lease() {
    let mut bench = Bench::new().await;
    let holder = attempt();
    with_delay(&bench, &holder, SHORT, SHORT).await;
    assert!(bench.held(holder.renew(TTL, TTL, None)).await);
    assert!(u128::from(bench.server.ask::<u64>(&["PTTL", "{lock:a}:delay"]).await) > (TTL + TTL / 2).as_millis());
    // The place of a reader moves with its lease and its delay, too.
    assert!(bench.held(holder.downgrade(TTL, TTL)).await);
    assert_eq!(bench.server.ask::<u64>(&["EXISTS", "{lock:a}:delay"]).await, 0);
    assert!(left(&bench.write(&attempt()).await) > TTL + TTL / 2);
}

#[tokio::test]
async fn a_reader_with_a_delay_that_was_lost_keeps_writers_out_and_lets_readers_in() {
    let bench = Bench::new().await;
    let reader = attempt();
    let ask = Ask { delay: SHORT * 4, ..Ask::new(SHORT, 0, b"") };
    number(&bench.acquired(reader.acquire_read(&ask, NONE)).await);
    bench.pass(SHORT).await;
    assert!(bench.look().await.readers.is_empty(), "its lease has ended");
    assert!(!bench.held(reader.renew_member(Members::Readers, SHORT, SHORT * 4, None)).await);
    assert!(!bench.held(reader.release_member(Members::Readers, SHORT * 4)).await, "not in order any more");
    assert!(left(&bench.write(&attempt()).await) <= SHORT * 4);
    let other = attempt();
    number(&bench.read(&other).await);
    assert!(bench.held(other.release_member(Members::Readers, NONE)).await);
    bench.pass(SHORT * 4).await;
    number(&bench.write(&attempt()).await);
}
