//! Readers and writers on real servers that all work.

use crate::deployment;
use std::{collections::BTreeSet, time::Duration};

use crate::deployment::{LIMIT, connect, connect_to, eventually, marked, proxied, until_nothing_is_left};
use crate::simulation::simulated;
use futures::StreamExt;
use lock_core::Clock;
use lock_sim::redis::Reply;

/// Waits until `locks` shows a writer that waits for `name` on a majority.
async fn until_a_writer_waits(nodes: &lock_lab::servers::RedisNodes, name: &str) {
    let key = format!("{{lock:{name}}}:writers");
    eventually("a writer waits", || async {
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
    let (clock, mut counted) = (Clock::boot(), 0);
    for number in 0..1000 {
        let before: Vec<_> = proxies.iter().map(|proxy| (proxy.requests(), proxy.replies())).collect();
        let began = clock.now();
        let guard = locks.rwlock(format!("read {number}")).read().await.unwrap();
        for (proxy, (_, replies)) in proxies.iter().zip(&before) {
            eventually("every node has answered", || async { proxy.replies().bursts > replies.bursts }).await;
        }
        // A node takes a number that is proposed for a quarter of a second: where that passed, they may have to agree on another.
        if clock.now().saturating_since(began) < Duration::from_millis(200) {
            for (proxy, (requests, replies)) in proxies.iter().zip(&before) {
                assert_eq!(proxy.requests().bursts - requests.bursts, 1);
                assert_eq!(proxy.replies().bursts - replies.bursts, 1);
            }
            counted += 1;
        }
        guard.release().await.unwrap();
        locks.inspect("warm").await.unwrap();
        if counted == 10 {
            return;
        }
    }
    panic!("of a thousand reads, {counted} were quick");
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
