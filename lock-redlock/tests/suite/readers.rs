//! Readers and writers on real servers that all work.

use crate::deployment;
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use crate::deployment::{LIMIT, connect, connect_to, count, marked, proxied, until, until_nothing_is_left};
use crate::simulation::simulated;
use futures::StreamExt;
use lock_core::{Clock, Error, Feature, FencingToken, Locks, Loss, Mode};
use lock_sim::redis::Reply;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_hold_together_and_a_writer_comes_after_the_last_of_them() {
    let nodes = marked(5).await;
    let (one, two) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    let first = one.rwlock("a").read().await.unwrap();
    let second = two.rwlock("a").read().await.unwrap();
    assert_ne!(first.token(), second.token());
    assert!(two.rwlock("a").try_write().await.unwrap().is_none());
    assert!(one.mutex("a").try_lock().await.unwrap().is_none());
    let seen = two.inspect("a").await.unwrap();
    let tokens: BTreeSet<_> = seen.holders.iter().map(|holder| holder.token).collect();
    assert_eq!(tokens, [first.token(), second.token()].map(|token| Some(token.number)).into());
    assert!(seen.holders.iter().all(|holder| holder.mode == Some(Mode::Read) && holder.since.is_some()));
    let newest = first.token().max(second.token());
    first.release().await.unwrap();
    let writer = {
        let two = two.clone();
        tokio::spawn(async move { two.rwlock("a").timeout(LIMIT).write().await })
    };
    second.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    assert!(writer.token() > newest);
    assert!(one.rwlock("a").try_read().await.unwrap().is_none());
    writer.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "a").await;
    one.close(LIMIT).await.unwrap();
    two.close(LIMIT).await.unwrap();
}

/// Waits until `locks` shows a writer that waits for `name` on a majority.
async fn until_a_writer_waits(nodes: &lock_lab::servers::RedisNodes, name: &str) {
    let key = format!("{{lock:{name}}}:writers");
    until("a writer waits", || async {
        let mut waiting = 0;
        for node in nodes.nodes() {
            waiting += usize::from(deployment::command(node, &["EXISTS", &key]).await == redis::Value::Int(1));
        }
        waiting > nodes.nodes().len() / 2
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_comes_behind_a_waiting_writer_waits_for_it() {
    let nodes = marked(3).await;
    let (one, two) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    let first = one.rwlock("behind").read().await.unwrap();
    let writer = {
        let two = two.clone();
        tokio::spawn(async move { two.rwlock("behind").timeout(LIMIT).write().await })
    };
    until_a_writer_waits(&nodes, "behind").await;
    assert!(one.rwlock("behind").try_read().await.unwrap().is_none());
    let late = {
        let one = one.clone();
        tokio::spawn(async move { one.rwlock("behind").timeout(LIMIT).read().await })
    };
    first.release().await.unwrap();
    let writer = writer.await.unwrap().unwrap();
    assert!(!late.is_finished());
    let token = writer.token();
    writer.release().await.unwrap();
    let late = late.await.unwrap().unwrap();
    assert!(late.token() > token);
    late.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "behind").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let nodes = marked(3).await;
    let (one, two) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    let first = one.rwlock("gives up").read().await.unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let writer = {
        let (two, stop) = (two.clone(), stop.clone());
        tokio::spawn(async move { stop.run_until_cancelled(two.rwlock("gives up").write()).await.is_none() })
    };
    until_a_writer_waits(&nodes, "gives up").await;
    let late = {
        let one = one.clone();
        tokio::spawn(async move { one.rwlock("gives up").timeout(LIMIT).read().await })
    };
    stop.cancel();
    assert!(writer.await.unwrap());
    late.await.unwrap().unwrap().release().await.unwrap();
    first.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "gives up").await;
}

/// Who was granted what, in the order in which the holders noticed.
#[derive(Default)]
struct Record {
    reading: AtomicUsize,
    writing: AtomicBool,
    tokens: Mutex<BTreeSet<FencingToken>>,
    newest_writer: Mutex<Option<FencingToken>>,
    newest: Mutex<Option<FencingToken>>,
}

async fn reads(locks: Locks, record: Arc<Record>, rounds: usize) {
    for _ in 0..rounds {
        let guard = locks.rwlock("crowd").timeout(LIMIT * 3).read().await.unwrap();
        record.reading.fetch_add(1, Ordering::SeqCst);
        assert!(!record.writing.load(Ordering::SeqCst), "a reader beside a writer");
        assert!(record.tokens.lock().unwrap().insert(guard.token()), "two grants of one token");
        assert!(Some(guard.token()) > *record.newest_writer.lock().unwrap(), "below an earlier writer");
        record.newest.lock().unwrap().replace(guard.token());
        Clock::boot().sleep(Duration::from_millis(1)).await;
        record.reading.fetch_sub(1, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
    locks.close(LIMIT).await.unwrap();
}

async fn writes(locks: Locks, record: Arc<Record>, rounds: usize) {
    for _ in 0..rounds {
        let guard = locks.rwlock("crowd").timeout(LIMIT * 3).write().await.unwrap();
        assert!(!record.writing.swap(true, Ordering::SeqCst), "two writers");
        assert_eq!(record.reading.load(Ordering::SeqCst), 0, "a writer beside readers");
        assert!(record.tokens.lock().unwrap().insert(guard.token()), "two grants of one token");
        let highest = record.tokens.lock().unwrap().last().copied();
        assert_eq!(Some(guard.token()), highest, "below an earlier grant");
        record.newest_writer.lock().unwrap().replace(guard.token());
        record.writing.store(false, Ordering::SeqCst);
        guard.release().await.unwrap();
    }
    locks.close(LIMIT).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_readers_and_two_writers_on_five_nodes_exclude_each_other_and_all_get_their_turn() {
    let nodes = marked(5).await;
    let record = Arc::new(Record::default());
    let mut contenders = Vec::new();
    for _ in 0..8 {
        contenders.push(tokio::spawn(reads(connect(&nodes, &[]).await, Arc::clone(&record), 25)));
    }
    for _ in 0..2 {
        contenders.push(tokio::spawn(writes(connect(&nodes, &[]).await, Arc::clone(&record), 25)));
    }
    for contender in contenders {
        contender.await.unwrap();
    }
    assert_eq!(record.tokens.lock().unwrap().len(), 10 * 25);
    until_nothing_is_left(nodes.nodes(), "crowd").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_come_together_on_nodes_whose_counters_differ_have_tokens_of_their_own() {
    let nodes = marked(3).await;
    let mut connections = Vec::new();
    for _ in 0..6 {
        connections.push(connect(&nodes, &[]).await);
    }
    connections[0].rwlock("differ").read().await.unwrap().release().await.unwrap();
    let mut tokens = BTreeSet::new();
    let mut last = None;
    for round in 0..20_u64 {
        // As after a node was away for a while.
        let node = &nodes.nodes()[usize::try_from(round).unwrap() % 3];
        deployment::command(node, &["INCRBY", "{lock:differ}:token", "2000000"]).await;
        let reading = connections.iter().map(|locks| async { locks.rwlock("differ").read().await.unwrap() });
        let guards = futures::future::join_all(reading).await;
        for guard in &guards {
            assert!(tokens.insert(guard.token()), "two readers with the token {}", guard.token());
            assert!(Some(guard.token()) > last, "below the writer before");
        }
        let seen = connections[0].inspect("differ").await.unwrap();
        let shown: BTreeSet<_> = seen.holders.iter().map(|holder| holder.token).collect();
        assert_eq!(shown, guards.iter().map(|guard| Some(guard.token().number)).collect());
        for guard in guards {
            guard.release().await.unwrap();
        }
        let writer = connections[1].rwlock("differ").write().await.unwrap();
        assert!(tokens.iter().all(|token| *token < writer.token()));
        last = Some(writer.token());
        writer.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_uncontended_read_is_one_round_trip_to_each_node() {
    let nodes = marked(5).await;
    let proxies = proxied(&nodes).await;
    let ports: Vec<u16> = proxies.iter().map(lock_lab::proxy::Proxy::port).collect();
    let locks = connect_to(&ports, &[("ttl", "60s")]).await;
    locks.rwlock("warm").read().await.unwrap().release().await.unwrap();
    // Waits for every node, and comes behind the late answers to the release.
    locks.inspect("warm").await.unwrap();
    for proxy in &proxies {
        proxy.delay(Duration::from_millis(5));
    }
    for number in 0..10 {
        let before: Vec<_> = proxies.iter().map(|proxy| (proxy.requests(), proxy.replies())).collect();
        let guard = locks.rwlock(format!("read {number}")).read().await.unwrap();
        for (proxy, (requests, replies)) in proxies.iter().zip(&before) {
            until("every node has answered", || async { proxy.replies().bursts > replies.bursts }).await;
            assert_eq!(proxy.requests().bursts - requests.bursts, 1);
            assert_eq!(proxy.replies().bursts - replies.bursts, 1);
        }
        guard.release().await.unwrap();
        locks.inspect("warm").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_each_leader_with_the_token_that_the_nodes_agreed_on() {
    let nodes = marked(5).await;
    let (locks, observer) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    let mut leaders = observer.election("led").observe().unwrap();
    for term in 0..5_u8 {
        // A node that is ahead, so that the token takes a second round.
        let node = &nodes.nodes()[usize::from(term)];
        deployment::command(node, &["INCRBY", "{lock:led}:token", "3000000"]).await;
        let leading = locks.election("led").campaign(vec![term]).await.unwrap();
        let seen = Clock::boot().timeout(LIMIT, leaders.next()).await.expect("in time").unwrap().unwrap();
        assert_eq!((seen.payload, seen.token), (vec![term], leading.token()));
        leading.resign().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_show_readers_that_come_and_go() {
    let nodes = marked(3).await;
    let (locks, observer) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    let mut changes = observer.watch("seen").unwrap();
    let mut until_shown = async |count: usize| {
        let shown = async {
            loop {
                let snapshot = changes.next().await.unwrap().unwrap();
                if snapshot.holders.len() == count {
                    return;
                }
            }
        };
        Clock::boot().timeout(LIMIT, shown).await.expect("in time");
    };
    until_shown(0).await;
    let first = locks.rwlock("seen").read().await.unwrap();
    until_shown(1).await;
    let second = locks.rwlock("seen").read().await.unwrap();
    until_shown(2).await;
    drop((first, second));
    until_shown(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn semaphores_are_refused_by_name_and_nothing_is_sent() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    let error = locks.semaphore("many", 2).acquire().await.unwrap_err();
    let expected = Feature::Semaphore.name();
    assert!(matches!(error, Error::Unsupported { feature, backend: "redlock" } if feature == expected), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_gives_back_what_readers_hold() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[]).await;
    let reader = locks.rwlock("left").read().await.unwrap();
    let downgraded = locks.rwlock("also left").write().await.unwrap().downgrade().await.unwrap();
    locks.close(LIMIT).await.unwrap();
    assert_eq!(reader.lost().await, Loss::Closed);
    assert_eq!(downgraded.lost().await, Loss::Closed);
    assert_eq!(count(&nodes, "also left").await, 0);
    for name in ["left", "also left"] {
        until_nothing_is_left(nodes.nodes(), name).await;
    }
}

#[test]
fn readers_outlive_many_times_a_short_ttl_while_they_are_renewed() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "1s")]).await;
        let mut guards = Vec::new();
        for _ in 0..3 {
            guards.push(locks.rwlock("short").read().await.unwrap());
        }
        let renewed = guards[2].valid_until().unwrap().saturating_add(Duration::from_secs(7));
        let all_renewed = || guards.iter().all(|guard| guard.valid_until().expect("it is still held") > renewed);
        nodes.until("all were renewed for seven seconds", all_renewed).await;
        assert_eq!(nodes.readers("short", 3), 3);
        for guard in guards {
            guard.release().await.unwrap();
        }
        nodes.until_nothing_is_left(0..3, "short").await;
    });
}

#[test]
fn a_downgraded_writer_lets_readers_in_and_keeps_writers_out_by_the_same_token() {
    simulated(5, &[], |nodes| async move {
        let (one, two) = (nodes.connect_from(1, &[]).await, nodes.connect(&[("ttl", "2s")]).await);
        let writer = two.rwlock("down").write().await.unwrap();
        let token = writer.token();
        let exists = |queue| nodes.command(0, &["EXISTS", &format!("{{lock:down}}:{queue}")]) == Reply::Int(1);
        // Came before the next writer, and goes in with the holder.
        let (reading, writing) = (one.clone(), one);
        let reader = nodes.start(1, async move { reading.rwlock("down").read().await.unwrap() });
        nodes.until("a reader waits", || exists("waiting")).await;
        let mut next = nodes.start(1, async move { writing.rwlock("down").write().await.unwrap() });
        nodes.until("a writer waits", || exists("writers")).await;
        let downgraded = writer.downgrade().await.unwrap();
        assert_eq!(downgraded.token(), token);
        let reader = reader.await.unwrap();
        assert!(reader.token() > token);
        // Renewed as a reader.
        let renewed = downgraded.valid_until().unwrap().saturating_add(Duration::from_secs(3));
        nodes.until("it was renewed", || downgraded.valid_until().expect("it is still held") > renewed).await;
        assert!(next.try_recv().unwrap().is_none());
        reader.release().await.unwrap();
        nodes.settle().await;
        assert!(next.try_recv().unwrap().is_none());
        downgraded.release().await.unwrap();
        let next = next.await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
        nodes.until_nothing_is_left(0..5, "down").await;
    });
}
