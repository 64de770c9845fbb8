//! Readers, and writers that become readers, while nodes freeze, die, restart and forget.

use std::time::Duration;

use crate::deployment::{
    LIMIT, command, connect, connect_to, count, get, marked, proxied, readers, residue, until, until_nothing_is_left,
};
use lock_core::{Clock, Error};
use lock_lab::proxy::Proxy;

fn ports(proxies: &[Proxy]) -> Vec<u16> {
    proxies.iter().map(Proxy::port).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_minority_keeps_no_reader_waiting() {
    let nodes = marked(5).await;
    // Whoever waits for a frozen node waits for longer than this test may take.
    let locks = connect(&nodes, &[("ttl", "500ms"), ("node_timeout", "60s")]).await;
    nodes.nodes()[1].stop().unwrap();
    nodes.nodes()[3].stop().unwrap();
    let rounds = async {
        let mut last = None;
        for _ in 0..20 {
            let reader = locks.rwlock("frozen").read().await.unwrap();
            let beside = locks.rwlock("frozen").read().await.unwrap();
            assert!(Some(reader.token().min(beside.token())) > last);
            reader.release().await.unwrap();
            beside.release().await.unwrap();
            let writer = locks.rwlock("frozen").write().await.unwrap();
            last = Some(writer.token());
            writer.release().await.unwrap();
        }
    };
    Clock::boot().timeout(LIMIT, rounds).await.expect("the frozen nodes are not waited for");
    nodes.nodes()[1].cont().unwrap();
    nodes.nodes()[3].cont().unwrap();
    until_nothing_is_left(nodes.nodes(), "frozen").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_outlive_a_killed_minority_and_keep_writers_out() {
    let mut nodes = marked(5).await;
    let (locks, other) = (connect(&nodes, &[("ttl", "3s")]).await, connect(&nodes, &[]).await);
    let (one, two) = (locks.rwlock("killed").read().await.unwrap(), locks.rwlock("killed").read().await.unwrap());
    until("all nodes have both", || async { readers(&nodes, "killed", 2).await == 5 }).await;
    nodes.nodes_mut()[0].kill();
    nodes.nodes_mut()[4].kill();
    let renewed = two.valid_until().unwrap().saturating_add(Duration::from_secs(9));
    until("both were renewed", || async {
        assert!(other.rwlock("killed").try_write().await.unwrap().is_none(), "a writer beside readers");
        [&one, &two].iter().all(|guard| guard.valid_until().expect("it is still held") > renewed)
    })
    .await;
    one.release().await.unwrap();
    two.release().await.unwrap();
    let writer = other.rwlock("killed").timeout(LIMIT).write().await.unwrap();
    writer.release().await.unwrap();
    until_nothing_is_left(&nodes.nodes()[1..4], "killed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_outlive_a_restart_of_each_node_in_turn() {
    let mut nodes = marked(3).await;
    let (locks, other) = (connect(&nodes, &[("ttl", "2s")]).await, connect(&nodes, &[]).await);
    let (one, two) = (locks.rwlock("rolling").read().await.unwrap(), locks.rwlock("rolling").read().await.unwrap());
    until("all nodes have joined", || async { readers(&nodes, "rolling", 2).await == 3 }).await;
    for node in 0..3 {
        nodes.nodes_mut()[node].restart_empty().await.unwrap();
        until("the node has joined again", || async { readers(&nodes, "rolling", 2).await == 3 }).await;
        let next = two.valid_until().unwrap().saturating_add(Duration::from_millis(1));
        until("both were renewed", || async {
            [&one, &two].iter().all(|guard| guard.valid_until().expect("it is still held") > next)
        })
        .await;
        assert!(!matches!(other.rwlock("rolling").try_write().await, Ok(Some(_))), "a writer beside readers");
    }
    one.release().await.unwrap();
    two.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "rolling").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_does_not_join_a_node_where_a_writer_holds_the_lock() {
    let nodes = marked(3).await;
    let locks = connect(&nodes, &[("ttl", "1s")]).await;
    // A vote of somebody else that is being lost stands on one node.
    command(&nodes.nodes()[2], &["SET", "{lock:foreign}", "somebody", "PX", "60000"]).await;
    let reader = locks.rwlock("foreign").read().await.unwrap();
    let renewed = reader.valid_until().unwrap().saturating_add(Duration::from_secs(2));
    until("it was renewed", || async { reader.valid_until().expect("it is still held") > renewed }).await;
    assert_eq!(get(&nodes.nodes()[2], "{lock:foreign}").await.as_deref(), Some("somebody"));
    assert_eq!(readers(&nodes, "foreign", 1).await, 2);
    command(&nodes.nodes()[2], &["DEL", "{lock:foreign}"]).await;
    until("it has joined", || async { readers(&nodes, "foreign", 1).await == 3 }).await;
    reader.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_cut_off_during_a_read_leave_nothing() {
    let nodes = marked(3).await;
    let proxies = proxied(&nodes).await;
    let locks = connect_to(&ports(&proxies), &[]).await;
    locks.rwlock("warm").read().await.unwrap().release().await.unwrap();
    for cut in 0..6_usize {
        // One node's answer, then two: a majority of them is an outcome that nobody knows.
        for proxy in &proxies[..1 + cut % 2] {
            proxy.cut_at_reply(0);
        }
        match locks.rwlock("cut").try_read().await {
            Ok(Some(guard)) => guard.release().await.unwrap(),
            Ok(None) | Err(Error::Unavailable { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        until_nothing_is_left(nodes.nodes(), "cut").await;
        for proxy in &proxies {
            proxy.heal();
        }
        until("it works again", || async {
            match locks.rwlock("cut").try_write().await {
                Ok(Some(guard)) => guard.release().await.is_ok(),
                _ => false,
            }
        })
        .await;
    }
    until_nothing_is_left(nodes.nodes(), "cut").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_is_dropped_at_any_moment_leaves_nothing_on_any_node() {
    let nodes = marked(3).await;
    let (locks, holder) = (connect(&nodes, &[]).await, connect(&nodes, &[]).await);
    for polls in 0..12 {
        for held in [false, true] {
            let guard = if held { Some(holder.mutex("drop").lock().await.unwrap()) } else { None };
            let lock = locks.rwlock("drop");
            let mut attempt = Box::pin(lock.read());
            for _ in 0..polls {
                if Clock::boot().timeout(Duration::from_micros(300), &mut attempt).await.is_some() {
                    break;
                }
            }
            drop(attempt);
            drop(guard);
            until_nothing_is_left(nodes.nodes(), "drop").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_with_one_node_cut_off_keeps_writers_out_and_the_node_joins_later() {
    let nodes = marked(3).await;
    let proxies = proxied(&nodes).await;
    let locks = connect_to(&ports(&proxies), &[("ttl", "1500ms")]).await;
    let other = connect(&nodes, &[]).await;
    let writer = locks.rwlock("cut").write().await.unwrap();
    until("all nodes have it", || async { count(&nodes, "cut").await == 3 }).await;
    proxies[1].cut();
    let token = writer.token();
    let reader = writer.downgrade().await.unwrap();
    assert!(reader.is_valid() && reader.token() == token);
    assert!(other.rwlock("cut").try_write().await.unwrap().is_none());
    let beside = other.rwlock("cut").timeout(LIMIT).read().await.unwrap();
    beside.release().await.unwrap();
    proxies[1].heal();
    until("the node has the reader", || async {
        count(&nodes, "cut").await == 0 && readers(&nodes, "cut", 1).await == 3
    })
    .await;
    assert!(reader.is_valid());
    reader.release().await.unwrap();
    until_nothing_is_left(nodes.nodes(), "cut").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_downgrade_that_no_majority_confirms_says_so_and_gives_everything_back() {
    let nodes = marked(3).await;
    let proxies = proxied(&nodes).await;
    let locks = connect_to(&ports(&proxies), &[("node_timeout", "1s"), ("connect_timeout", "1s")]).await;
    let writer = locks.rwlock("failed").write().await.unwrap();
    until("all nodes have it", || async { count(&nodes, "failed").await == 3 }).await;
    proxies[0].cut();
    proxies[2].cut();
    let error = Error::from(writer.downgrade().await.unwrap_err());
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("downgrade"), "{error}");
    until("it is given back where it can be", || async { residue(&nodes.nodes()[1], "failed").await.is_empty() }).await;
    proxies[0].heal();
    proxies[2].heal();
    until_nothing_is_left(nodes.nodes(), "failed").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_that_died_while_it_waited_does_not_keep_readers_out() {
    let nodes = marked(3).await;
    let proxies = proxied(&nodes).await;
    let (locks, dying) = (connect(&nodes, &[]).await, connect_to(&ports(&proxies), &[]).await);
    let first = locks.rwlock("dead").read().await.unwrap();
    let writer = {
        let dying = dying.clone();
        tokio::spawn(async move { dying.rwlock("dead").write().await })
    };
    until("it waits", || async {
        command(&nodes.nodes()[0], &["EXISTS", "{lock:dead}:writers"]).await == redis::Value::Int(1)
            && command(&nodes.nodes()[1], &["EXISTS", "{lock:dead}:writers"]).await == redis::Value::Int(1)
    })
    .await;
    for proxy in &proxies {
        proxy.hold();
    }
    assert!(locks.rwlock("dead").try_read().await.unwrap().is_none());
    let second = locks.rwlock("dead").timeout(LIMIT).read().await.unwrap();
    second.release().await.unwrap();
    first.release().await.unwrap();
    writer.abort();
}
