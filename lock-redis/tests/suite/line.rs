//! The scripts of a line, one branch after the other on a real server.

use std::{num::NonZeroU32, time::Duration};

use crate::common::{LIMIT, Server, attempt, keys, patient_node, server_of};
use lock_core::{Clock, Context, Mode, Snapshot};
use lock_lab::servers::RedisOptions;
use lock_redis::{
    node::{Node, ScriptCall, Value},
    protocol::{
        answers::{Entered, InLine, Standing, beaten, done, entered},
        attempt::{Ask, Attempt, Kind},
        claim::Rhythm,
        look,
        packed::pack,
    },
};

const TTL: Duration = Duration::from_secs(3600);
const NONE: Duration = Duration::ZERO;
/// Far longer than the machine may stand still. Nobody waits for it: [`Bench::pass`].
const SHORT: Duration = Duration::from_secs(300);
/// A waiter with this ttl counts as dead before one with [`TTL`] does, and nobody waits for that either. Between the two, and until
/// the first of them is dead, the machine may stand still.
const BRIEF: Duration = Duration::from_millis(2_500);

/// A server with a clock of its own, and a client that runs scripts on it.
struct Bench {
    server: Server,
    node: Node,
    attempts: u32,
    /// By how much the clock of the server is ahead.
    ahead: Duration,
}

impl Bench {
    async fn new() -> Self {
        let server = server_of(RedisOptions::default().with_own_clock(true)).await;
        let node = Node::new(patient_node(server.redis.port()), Context::current());
        Self { server, node, attempts: 0, ahead: Duration::ZERO }
    }

    fn with(&mut self, kind: Kind, ttl: Duration, delay: Duration) -> Attempt {
        self.attempts += 1;
        attempt("a", kind, self.attempts, ttl, delay)
    }

    fn writer(&mut self) -> Attempt {
        self.with(Kind::Writer, TTL, NONE)
    }

    fn reader(&mut self) -> Attempt {
        self.with(Kind::Reader, TTL, NONE)
    }

    fn permit(&mut self, of: u32) -> Attempt {
        self.with(Kind::Permit(NonZeroU32::new(of).unwrap()), TTL, NONE)
    }

    async fn enter(&self, attempt: &Attempt, waits: bool) -> Entered {
        let ask = Ask { proposal: 0, payload: b"who", waits: waits.then_some("here") };
        entered(&self.node.call(attempt.enter(&ask)).await.unwrap()).unwrap()
    }

    async fn granted(&self, attempt: &Attempt) -> u64 {
        match self.enter(attempt, false).await {
            Entered::Granted(number) => number,
            other => panic!("not granted: {other:?}"),
        }
    }

    async fn forget_the_head(&mut self) {
        self.server.ask::<()>(&["DEL", "{lock:a}:token"]).await;
    }

    /// For how long it is refused.
    async fn refused(&self, attempt: &Attempt) -> Duration {
        match self.enter(attempt, false).await {
            Entered::Held { left: Some(left), .. } => left,
            other => panic!("not refused for a time: {other:?}"),
        }
    }

    async fn in_line(&self, attempt: &Attempt) -> InLine {
        match self.enter(attempt, true).await {
            Entered::InLine(at) => at,
            other => panic!("not in line: {other:?}"),
        }
    }

    async fn had(&self, call: ScriptCall) -> bool {
        done(&self.node.call(call).await.unwrap()).unwrap().had
    }

    async fn renewed(&self, attempt: &Attempt, number: u64) -> bool {
        self.node.call(attempt.renew(number)).await.unwrap() == Value::Int(1)
    }

    async fn beat(&self, attempts: &[&Attempt]) -> Vec<Standing> {
        let call = attempts[0].beat(attempts.iter().copied());
        beaten(&self.node.call(call).await.unwrap(), attempts.len()).unwrap().0
    }

    async fn look(&self) -> Snapshot {
        look::seen(&self.node.call(look::look(&keys("a"), NONE)).await.unwrap()).unwrap().unwrap()
    }

    /// Has the server's clock pass the end of what was granted for so long.
    fn pass(&mut self, duration: Duration) {
        self.ahead += duration + Duration::from_millis(2);
        self.server.redis.set_clock_ahead(self.ahead).unwrap();
    }
}

#[tokio::test]
async fn readers_come_in_beside_each_other_and_never_beside_a_writer() {
    let mut bench = Bench::new().await;
    let (one, two, writer) = (bench.reader(), bench.reader(), bench.writer());
    let numbers = [bench.granted(&one).await, bench.granted(&two).await];
    assert!(numbers[0] < numbers[1], "{numbers:?}");
    assert!(bench.refused(&writer).await <= TTL);
    assert!(bench.had(one.release()).await);
    assert!(bench.refused(&writer).await <= TTL, "one reader is left");
    assert!(bench.had(two.release()).await);
    assert!(bench.granted(&writer).await > numbers[1]);
    assert!(bench.refused(&one).await <= TTL);
    assert!(bench.had(writer.release()).await);
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_release_hands_over_to_all_who_may_hold_next_and_to_nobody_else() {
    let mut bench = Bench::new().await;
    let (holder, [one, two, three]) = (bench.writer(), [(); 3].map(|()| bench.reader()));
    let (writer, last) = (bench.writer(), bench.reader());
    let number = bench.granted(&holder).await;
    for (ahead, waiter) in [&one, &two, &writer, &three, &last].into_iter().enumerate() {
        let at = bench.in_line(waiter).await;
        assert_eq!((at.ahead, at.left.is_some_and(|left| !left.is_zero())), (ahead as u64, ahead == 0), "{at:?}");
        assert!(at.newest >= number);
    }
    assert!(bench.had(holder.release()).await);
    let standings = bench.beat(&[&one, &two, &writer, &three, &last]).await;
    let [Standing::Granted(first), Standing::Granted(second), Standing::InLine(at), ..] = standings[..] else {
        panic!("{standings:?}")
    };
    assert!(number < first && first < second && at.ahead == 0);
    assert!(bench.had(one.release()).await && bench.had(two.release()).await);
    assert!(matches!(bench.beat(&[&writer, &three]).await[..], [Standing::Granted(_), Standing::InLine(_)]));
    assert!(bench.had(writer.release()).await);
    assert!(matches!(bench.beat(&[&three, &last]).await[..], [Standing::Granted(_), Standing::Granted(_)]));
}

#[tokio::test]
async fn who_comes_while_somebody_waits_goes_behind_or_is_refused() {
    let mut bench = Bench::new().await;
    let (reader, writer, late, tries) = (bench.reader(), bench.writer(), bench.reader(), bench.reader());
    bench.granted(&reader).await;
    bench.in_line(&writer).await;
    assert_eq!(bench.in_line(&late).await.ahead, 1, "a reader does not overtake a writer that waits");
    bench.refused(&tries).await;
    // However often it says so.
    assert_eq!(bench.in_line(&writer).await.ahead, 0);
    assert_eq!(bench.server.ask::<u64>(&["ZCARD", "{lock:a}:queue"]).await, 2);
    assert!(bench.had(writer.leave()).await);
    assert!(matches!(bench.beat(&[&late]).await[..], [Standing::Granted(_)]), "nobody is in its way");
}

#[tokio::test]
async fn the_first_in_line_hears_when_it_may_open_to_one_of_its_kind() {
    let mut bench = Bench::new().await;
    let (holder, reader, writer, late) = (bench.reader(), bench.reader(), bench.writer(), bench.reader());
    bench.granted(&holder).await;
    bench.in_line(&writer).await;
    bench.in_line(&late).await;
    // In one script with others of another kind.
    let standings = bench.beat(&[&late, &writer, &reader]).await;
    let [Standing::InLine(second), Standing::InLine(first), Standing::Gone] = standings[..] else {
        panic!("{standings:?}")
    };
    assert_eq!((second.ahead, second.left), (1, None));
    assert!(first.left.is_some_and(|left| left > TTL / 2), "{first:?}");
}

#[tokio::test]
async fn the_dead_are_passed_over_and_those_who_speak_are_not() {
    let mut bench = Bench::new().await;
    let (holder, dead) = (bench.writer(), bench.with(Kind::Writer, BRIEF, NONE));
    let (speaks, alive) = (bench.with(Kind::Writer, BRIEF, NONE), bench.writer());
    bench.granted(&holder).await;
    for waiter in [&dead, &speaks, &alive] {
        bench.in_line(waiter).await;
    }
    bench.pass(BRIEF);
    // Nobody has looked since: it is not too late to speak.
    assert!(matches!(bench.beat(&[&speaks]).await[..], [Standing::InLine(InLine { ahead: 0, .. })]));
    assert!(matches!(bench.beat(&[&dead]).await[..], [Standing::Gone]));
    assert!(bench.had(holder.release()).await);
    assert!(matches!(bench.beat(&[&speaks, &alive]).await[..], [Standing::Granted(_), Standing::InLine(_)]));
}

#[tokio::test]
async fn a_release_passes_over_the_dead() {
    let mut bench = Bench::new().await;
    let (holder, dead, alive) = (bench.writer(), bench.with(Kind::Writer, BRIEF, NONE), bench.writer());
    bench.granted(&holder).await;
    bench.in_line(&dead).await;
    bench.in_line(&alive).await;
    bench.pass(BRIEF);
    assert!(bench.had(holder.release()).await);
    assert!(matches!(bench.beat(&[&alive]).await[..], [Standing::Granted(_)]));
}

#[tokio::test]
async fn a_writer_hands_over_to_a_writer_as_to_anybody_else() {
    const MINUTE: u64 = 60_000_000;
    let mut bench = Bench::new().await;
    let [first, second, fifth, sixth] = [(); 4].map(|()| bench.writer());
    let [third, fourth] = [(); 2].map(|()| bench.with(Kind::Writer, TTL, Duration::from_secs(100)));
    let number = bench.granted(&first).await;
    for waiter in [&second, &third, &fourth, &fifth, &sixth] {
        bench.in_line(waiter).await;
    }
    // The newest number is ahead of the clock, by more each time; at last it is one of another hour.
    let steps = [(&first, &second, number + MINUTE), (&second, &third, number + 2 * MINUTE)];
    let more = [(&third, &fourth, number + 3 * MINUTE), (&fourth, &fifth, number + 4 * MINUTE)];
    let mut kept = 0_u64;
    for (holder, next, newest) in steps.into_iter().chain(more).chain([(&fifth, &sixth, number - 120 * MINUTE)]) {
        bench.server.ask::<u64>(&[&b"SETRANGE"[..], b"{lock:a}:token", b"4", &pack(newest)]).await;
        bench.server.ask::<u64>(&["PEXPIRE", "{lock:a}:token", "60000"]).await;
        assert!(bench.had(holder.release()).await);
        // A beat would make up for what a release has left out.
        kept = bench.server.ask(&["PTTL", "{lock:a}:token"]).await;
        let is_delayed: bool = bench.server.ask(&["EXISTS", "{lock:a}:delay"]).await;
        assert_eq!(is_delayed, !next.delay.is_zero(), "{next:?}");
        let [Standing::Granted(granted)] = bench.beat(&[next]).await[..] else { panic!("{next:?} does not hold it") };
        assert!(granted > newest, "{granted} after {newest}");
    }
    assert!(kept > 60_000, "the head is kept for {kept} ms");
    let line = ["EXISTS", "{lock:a}:queue", "{lock:a}:queue:waiters", "{lock:a}:queue:alive"];
    assert_eq!(bench.server.ask::<u64>(&line).await, 0);
}

#[tokio::test]
async fn who_looks_on_hears_of_a_hand_over() {
    let mut bench = Bench::new().await;
    let client = redis::Client::open(bench.server.redis.url()).unwrap();
    let mut listening = client.get_async_pubsub().await.unwrap();
    let [holder, next] = [(); 2].map(|()| bench.writer());
    bench.granted(&holder).await;
    bench.in_line(&next).await;
    bench.node.call(look::look(&keys("a"), TTL)).await.unwrap();
    listening.subscribe(keys("a").changes()).await.unwrap();
    assert!(bench.had(holder.release()).await);
    let mut messages = listening.on_message();
    let heard = Clock::boot().timeout(LIMIT, futures::StreamExt::next(&mut messages)).await;
    assert_eq!(heard.expect("nothing was said").unwrap().get_payload_bytes(), b"");
}

#[tokio::test]
async fn a_lock_is_handed_over_for_a_claim_and_a_beat_makes_it_a_whole_ttl() {
    let mut bench = Bench::new().await;
    let (holder, next) = (bench.writer(), bench.writer());
    bench.granted(&holder).await;
    bench.in_line(&next).await;
    assert!(bench.had(holder.release()).await);
    assert!(bench.server.ask::<u64>(&["PTTL", "{lock:a}"]).await <= 4_000, "two beats of two seconds");
    assert!(matches!(bench.beat(&[&next]).await[..], [Standing::Granted(_)]));
    assert!(bench.server.ask::<u64>(&["PTTL", "{lock:a}"]).await > 4_000);
}

#[tokio::test]
async fn nothing_that_one_script_does_depends_on_how_many_wait() {
    let mut bench = Bench::new().await;
    let holder = bench.writer();
    bench.granted(&holder).await;
    let readers: Vec<_> = (0..100).map(|_| bench.reader()).collect();
    for reader in &readers {
        bench.in_line(reader).await;
    }
    let released = done(&bench.node.call(holder.release()).await.unwrap()).unwrap();
    assert!(released.had && released.more);
    assert_eq!(bench.look().await.holders.len(), 64);
    let (_, more) = beaten(&bench.node.call(holder.beat([])).await.unwrap(), 0).unwrap();
    assert!(!more);
    assert_eq!(bench.look().await.holders.len(), 100);
}

#[tokio::test]
async fn a_message_says_whose_grant_it_is_and_which_request_was_known() {
    let mut bench = Bench::new().await;
    let client = redis::Client::open(bench.server.redis.url()).unwrap();
    let mut listening = client.get_async_pubsub().await.unwrap();
    listening.subscribe("here").await.unwrap();
    let (holder, next) = (bench.writer(), bench.writer());
    bench.granted(&holder).await;
    let at = bench.in_line(&next).await;
    let Standing::InLine(newer) = bench.beat(&[&next]).await[0] else { panic!("not in line") };
    assert!(newer.stamp > at.stamp);
    assert!(bench.had(holder.release()).await);
    let message = futures::StreamExt::next(&mut listening.on_message()).await.unwrap();
    let (value, grant) = lock_redis::protocol::answers::handed_over(message.get_payload_bytes()).unwrap();
    assert_eq!((value, grant.stamp, grant.more), (next.value.as_str(), newer.stamp, false));
    assert!(grant.number > newer.newest);
}

#[tokio::test]
async fn a_key_of_another_library_keeps_readers_and_writers_out() {
    let mut bench = Bench::new().await;
    let (reader, writer) = (bench.reader(), bench.writer());
    bench.server.ask::<()>(&["HSET", "{lock:a}", "field", "1"]).await;
    for attempt in [&reader, &writer] {
        assert_eq!(bench.enter(attempt, false).await, Entered::Held { left: None, more: false });
    }
    bench.server.ask::<()>(&["DEL", "{lock:a}"]).await;
    bench.granted(&writer).await;
    assert!(bench.had(writer.release()).await);
    // On the common path, too.
    for other in [["SET", "{lock:a}", "other"].as_slice(), &["HSET", "{lock:a}", "field", "1"]] {
        bench.server.ask::<()>(other).await;
        assert_eq!(bench.enter(&writer, false).await, Entered::Held { left: None, more: false });
        assert!(!bench.had(writer.release()).await && !bench.had(writer.undo()).await);
        assert_eq!(bench.server.ask::<u64>(&["DEL", "{lock:a}"]).await, 1);
        bench.server.ask::<()>(&["DEL", &keys("a").tombstone(&writer.value)]).await;
    }
}

#[tokio::test]
async fn each_reader_ends_by_itself_and_does_not_live_on_the_renewals_of_others() {
    let mut bench = Bench::new().await;
    let (dead, alive) = (bench.with(Kind::Reader, BRIEF, NONE), bench.reader());
    let writer = bench.writer();
    let [first, second] = [bench.granted(&dead).await, bench.granted(&alive).await];
    bench.in_line(&writer).await;
    assert!(bench.renewed(&alive, second).await);
    bench.pass(BRIEF);
    assert!(!bench.renewed(&dead, first).await, "it has ended");
    assert!(!bench.had(dead.release()).await, "it has ended");
    assert_eq!(bench.look().await.holders.len(), 1);
    assert!(bench.had(alive.release()).await);
    // A beat would make up for what a release has left out.
    let seen = bench.look().await;
    assert_eq!((seen.holders.len(), seen.queue.len()), (1, 0), "the last one that lives has gone: {seen:?}");
    assert!(matches!(bench.beat(&[&writer]).await[..], [Standing::Granted(_)]));
}

#[tokio::test]
async fn readers_that_all_died_are_gone_for_the_next_writer_and_leave_nothing() {
    let mut bench = Bench::new().await;
    for _ in 0..3 {
        let reader = bench.with(Kind::Reader, SHORT, NONE);
        bench.granted(&reader).await;
    }
    for key in ["{lock:a}:readers", "{lock:a}:reading"] {
        let kept: u64 = bench.server.ask(&["PTTL", key]).await;
        assert!(u128::from(kept) <= SHORT.as_millis() + 1_000, "{key} stays for {kept} ms");
    }
    bench.pass(SHORT);
    let writer = bench.writer();
    bench.granted(&writer).await;
    assert!(bench.had(writer.release()).await);
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_reader_or_a_permit_that_was_sent_twice_is_granted_once_and_takes_nothing_after_its_undo() {
    let mut bench = Bench::new().await;
    for attempt in [bench.reader(), bench.permit(2)] {
        let number = bench.granted(&attempt).await;
        assert_eq!(bench.granted(&attempt).await, number);
        assert!(bench.renewed(&attempt, number).await && !bench.renewed(&attempt, number - 1).await);
        assert!(bench.had(attempt.undo()).await);
        assert_eq!(bench.enter(&attempt, false).await, Entered::Undone);
    }
    assert_eq!(bench.look().await, Snapshot::default());
}

#[tokio::test]
async fn a_downgrade_lets_no_writer_in_between_and_keeps_number_and_name() {
    let mut bench = Bench::new().await;
    let (writer, other, waits) = (bench.writer(), bench.writer(), bench.reader());
    let number = bench.granted(&writer).await;
    let since = bench.look().await.holders[0].since;
    bench.in_line(&waits).await;
    bench.server.ask::<()>(&["PEXPIRE", "{lock:a}", "60000"]).await;
    for _ in 0..2 {
        // Sent twice, it is done once.
        assert!(bench.had(writer.downgrade()).await);
        assert!(bench.refused(&other).await > Duration::from_secs(60));
    }
    let look = bench.look().await;
    let [reader, beside] = look.holders.as_slice() else { panic!("{look:?}") };
    assert_eq!((reader.token, reader.since, reader.payload.as_slice()), (Some(number), since, &b"who"[..]));
    assert_eq!((reader.mode, beside.id.as_str()), (Some(Mode::Read), waits.value.as_str()), "{look:?}");
    assert!(bench.renewed(&writer.as_reader(), number).await && !bench.renewed(&writer, number).await);
}

#[tokio::test]
async fn a_downgrade_of_a_lock_that_is_gone_or_anothers_makes_no_reader() {
    let mut bench = Bench::new().await;
    let (writer, other) = (bench.writer(), bench.writer());
    assert!(!bench.had(writer.downgrade()).await);
    bench.granted(&other).await;
    assert!(!bench.had(writer.downgrade()).await);
    assert!(bench.had(other.release()).await);
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn never_more_permits_are_held_than_there_are_and_a_dead_holders_comes_back() {
    let mut bench = Bench::new().await;
    let (of, lease) = (NonZeroU32::new(2).unwrap(), Rhythm::of(TTL).alive * 2 / 3);
    let (kept, dead, third) = (bench.permit(2), bench.with(Kind::Permit(of), lease, NONE), bench.permit(2));
    let first = bench.granted(&kept).await;
    assert!(bench.granted(&dead).await > first);
    assert!(bench.refused(&third).await <= lease, "until the first of them ends");
    assert!(bench.in_line(&third).await.left.unwrap() <= lease);
    bench.pass(lease);
    assert!(matches!(bench.beat(&[&third]).await[..], [Standing::Granted(_)]));
    assert!(!bench.had(dead.release()).await);
    assert!(bench.refused(&dead).await <= TTL);
    for permit in [kept, third] {
        assert!(bench.had(permit.release()).await);
    }
    assert_eq!(bench.server.left().await, Vec::<String>::new());
}

#[tokio::test]
async fn another_number_of_permits_is_refused_with_the_one_that_counts_until_nobody_is_left() {
    let mut bench = Bench::new().await;
    let (holder, waiter) = (bench.permit(1), bench.permit(1));
    bench.granted(&holder).await;
    let [other, another] = [bench.permit(23), bench.permit(23)];
    assert_eq!(bench.enter(&other, true).await, Entered::Permits(1));
    bench.in_line(&waiter).await;
    // Whoever waits has named it as well.
    bench.server.ask::<()>(&["DEL", "{lock:a}:permits", "{lock:a}:permitted"]).await;
    bench.server.ask::<()>(&["SET", "{lock:a}:permits:delay", "closed"]).await;
    assert_eq!(bench.enter(&other, true).await, Entered::Permits(1));
    assert!(bench.had(waiter.leave()).await);
    bench.server.ask::<()>(&["DEL", "{lock:a}:permits:delay"]).await;
    bench.granted(&another).await;
}

#[tokio::test]
async fn the_permits_of_a_name_have_nothing_to_do_with_its_lock() {
    let mut bench = Bench::new().await;
    let (writer, permit) = (bench.writer(), bench.permit(1));
    let numbers = [bench.granted(&writer).await, bench.granted(&permit).await];
    assert!(numbers[0] < numbers[1]);
    let look = bench.look().await;
    let seen: Vec<_> = look.holders.iter().map(|holder| (holder.token, holder.mode)).collect();
    let of = Mode::Permit { of: NonZeroU32::MIN };
    assert_eq!(seen, [(Some(numbers[0]), Some(Mode::Exclusive)), (Some(numbers[1]), Some(of))]);
    assert!(bench.renewed(&writer, numbers[0]).await);
}

#[tokio::test]
async fn a_lock_whose_holder_was_lost_stays_closed_for_its_delay_to_everybody() {
    let mut bench = Bench::new().await;
    for taken_away in [true, false] {
        let holder = bench.with(Kind::Writer, SHORT, SHORT * 4);
        bench.granted(&holder).await;
        if taken_away {
            bench.server.ask::<()>(&["DEL", "{lock:a}"]).await;
        } else {
            bench.pass(SHORT);
        }
        let (writer, reader, next) = (bench.writer(), bench.reader(), bench.writer());
        assert!(bench.refused(&writer).await <= SHORT * 5);
        assert!(bench.refused(&reader).await <= SHORT * 5);
        // Its own release comes too late to be one in order.
        assert!(!bench.had(holder.release()).await);
        assert!(bench.refused(&writer).await <= SHORT * 5);
        bench.pass(SHORT * 5);
        bench.granted(&next).await;
        assert!(bench.had(next.release()).await);
    }
}

#[tokio::test]
async fn a_release_in_order_opens_a_lock_with_a_delay_at_once_and_so_does_an_undo() {
    let mut bench = Bench::new().await;
    let delay = Duration::from_secs(100);
    let [first, second] = [(); 2].map(|()| bench.with(Kind::Writer, TTL, delay));
    bench.granted(&first).await;
    assert!(bench.had(first.release()).await);
    bench.granted(&second).await;
    bench.server.ask::<()>(&["DEL", "{lock:a}"]).await;
    assert!(!bench.had(second.undo()).await);
    let writer = bench.writer();
    bench.granted(&writer).await;
}

#[tokio::test]
async fn a_renewal_extends_the_lock_delay_with_the_lease() {
    let mut bench = Bench::new().await;
    let (holder, writer) = (bench.with(Kind::Writer, TTL, TTL), bench.writer());
    let number = bench.granted(&holder).await;
    bench.server.ask::<()>(&["PEXPIRE", "{lock:a}:delay", "1000"]).await;
    assert!(bench.renewed(&holder, number).await);
    assert!(u128::from(bench.server.ask::<u64>(&["PTTL", "{lock:a}:delay"]).await) > (TTL + TTL / 2).as_millis());
    // The place of a reader moves with its lease and its delay, too.
    assert!(bench.had(holder.downgrade()).await);
    assert_eq!(bench.server.ask::<u64>(&["EXISTS", "{lock:a}:delay"]).await, 0);
    assert!(bench.refused(&writer).await > TTL + TTL / 2);
}

#[tokio::test]
async fn a_reader_with_a_delay_that_was_lost_keeps_writers_out_and_lets_readers_in() {
    let mut bench = Bench::new().await;
    let (reader, writer) = (bench.with(Kind::Reader, SHORT, SHORT * 4), bench.writer());
    let number = bench.granted(&reader).await;
    bench.pass(SHORT);
    assert!(bench.look().await.holders.is_empty(), "its lease has ended");
    assert!(!bench.renewed(&reader, number).await);
    assert!(!bench.had(reader.release()).await, "not in order any more");
    assert!(bench.refused(&writer).await <= SHORT * 4);
    let other = bench.reader();
    bench.granted(&other).await;
    assert!(bench.had(other.release()).await);
    bench.pass(SHORT * 4);
    bench.granted(&writer).await;
}

#[tokio::test]
async fn whoever_finds_no_head_overlooks_nobody_and_gives_no_number_again() {
    const MINUTE: u64 = 60_000_000;
    let mut bench = Bench::new().await;
    let [first, holder, waiter, tries] = [(); 4].map(|()| bench.writer());
    let number = bench.granted(&first).await;
    assert!(bench.had(first.release()).await);
    // Ahead of the clock, which would give a later number by itself.
    bench.server.ask::<u64>(&[&b"SETRANGE"[..], b"{lock:a}:token", b"4", &pack(number + MINUTE)]).await;
    let number = bench.granted(&holder).await;
    bench.in_line(&waiter).await;
    // The first one makes a head; the release and the next one believe it.
    bench.forget_the_head().await;
    bench.refused(&tries).await;
    assert!(bench.had(holder.release()).await);
    bench.refused(&tries).await;
    let [Standing::Granted(next)] = bench.beat(&[&waiter]).await[..] else { panic!("it was overlooked") };
    assert!(next > number);
    assert!(bench.had(waiter.release()).await);
    let reader = bench.with(Kind::Reader, SHORT, SHORT * 4);
    bench.granted(&reader).await;
    bench.forget_the_head().await;
    for _ in 0..2 {
        bench.refused(&tries).await;
    }
    assert!(bench.had(reader.release()).await);
    let lost = bench.with(Kind::Writer, SHORT, SHORT * 4);
    bench.granted(&lost).await;
    bench.pass(SHORT);
    bench.forget_the_head().await;
    for _ in 0..2 {
        bench.refused(&tries).await;
    }
}
