//! Readers, and writers that become readers, while nodes freeze, die, restart and forget.

use std::time::Duration;

use crate::{
    deployment::{connect_to, eventually, marked, proxied, until_nothing_is_left},
    simulation::simulated,
};
use lock_core::{Error, Guard};
use lock_lab::proxy::Proxy;
use lock_sim::world::Way;

fn ports(proxies: &[Proxy]) -> Vec<u16> {
    proxies.iter().map(Proxy::port).collect()
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
        eventually("it works again", || async {
            match locks.rwlock("cut").try_write().await {
                Ok(Some(guard)) => guard.release().await.is_ok(),
                _ => false,
            }
        })
        .await;
    }
    until_nothing_is_left(nodes.nodes(), "cut").await;
}

#[test]
fn a_frozen_minority_keeps_no_reader_waiting() {
    simulated(5, &[], |nodes| async move {
        // A client that waits for a frozen node waits for longer than the test may take.
        let locks = nodes.connect(&[("ttl", "500ms"), ("node_timeout", "60s")]).await;
        nodes.stop(1).await;
        nodes.stop(3).await;
        let began = nodes.clock().now();
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
        assert!(nodes.clock().now().saturating_since(began) < Duration::from_secs(20), "a frozen node is waited for");
        nodes.cont(1).await;
        nodes.cont(3).await;
        nodes.until_nothing_is_left(0..5, "frozen").await;
    });
}

#[test]
fn readers_outlive_a_killed_minority_and_keep_writers_out() {
    simulated(5, &[], |nodes| async move {
        let (locks, other) = (nodes.connect(&[("ttl", "3s")]).await, nodes.connect_from(1, &[]).await);
        let (one, two) = (locks.rwlock("killed").read().await.unwrap(), locks.rwlock("killed").read().await.unwrap());
        nodes.until("all nodes have both", || nodes.readers("killed", 2) == 5).await;
        nodes.kill(0).await;
        nodes.kill(4).await;
        assert!(other.rwlock("killed").try_write().await.unwrap().is_none(), "a writer beside readers");
        let beside = other.rwlock("killed");
        let mut writing = nodes.start(1, async move { beside.write().await });
        let renewed = two.valid_until().unwrap().saturating_add(Duration::from_secs(9));
        let is_renewed = |guard: &&Guard| guard.valid_until().expect("it is still held") > renewed;
        nodes.until("both were renewed", || [&one, &two].iter().all(is_renewed)).await;
        assert!(writing.try_recv().unwrap().is_none(), "a writer beside readers");
        one.release().await.unwrap();
        assert!(writing.try_recv().unwrap().is_none(), "a writer beside a reader");
        two.release().await.unwrap();
        let writer = writing.await.unwrap().unwrap();
        writer.release().await.unwrap();
        nodes.until_nothing_is_left(1..4, "killed").await;
    });
}

#[test]
fn readers_outlive_a_restart_of_each_node_in_turn() {
    simulated(3, &[], |nodes| async move {
        let (locks, other) = (nodes.connect(&[("ttl", "2s")]).await, nodes.connect_from(1, &[]).await);
        let (one, two) = (locks.rwlock("rolling").read().await.unwrap(), locks.rwlock("rolling").read().await.unwrap());
        nodes.until("all nodes have joined", || nodes.readers("rolling", 2) == 3).await;
        nodes.settle().await;
        for node in 0..3 {
            nodes.restart_empty(node).await;
            nodes.until("the node has joined again", || nodes.readers("rolling", 2) == 3).await;
            nodes.settle().await;
            let next = two.valid_until().unwrap().saturating_add(Duration::from_millis(1));
            let renewed = || [&one, &two].iter().all(|guard| guard.valid_until().expect("it is still held") > next);
            nodes.until("both were renewed", renewed).await;
            assert!(!matches!(other.rwlock("rolling").try_write().await, Ok(Some(_))), "a writer beside readers");
        }
        one.release().await.unwrap();
        two.release().await.unwrap();
        nodes.until_nothing_is_left(0..3, "rolling").await;
    });
}

#[test]
fn a_reader_does_not_join_a_node_where_a_writer_holds_the_lock() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("ttl", "1s")]).await;
        // One node has the vote of another attempt, which is being lost.
        nodes.command(2, &["SET", "{lock:foreign}", "somebody", "PX", "60000"]);
        let reader = locks.rwlock("foreign").read().await.unwrap();
        let renewed = reader.valid_until().unwrap().saturating_add(Duration::from_secs(2));
        nodes.until("it was renewed", || reader.valid_until().expect("it is still held") > renewed).await;
        assert_eq!(nodes.get(2, "{lock:foreign}").as_deref(), Some("somebody"));
        assert_eq!(nodes.readers("foreign", 1), 2);
        nodes.command(2, &["DEL", "{lock:foreign}"]);
        nodes.until("it has joined", || nodes.readers("foreign", 1) == 3).await;
        reader.release().await.unwrap();
    });
}

#[test]
fn a_downgrade_with_one_node_cut_off_keeps_writers_out_and_the_node_joins_later() {
    simulated(3, &[], |nodes| async move {
        let (locks, other) = (nodes.connect(&[("ttl", "1500ms")]).await, nodes.connect_from(1, &[]).await);
        let writer = locks.rwlock("cut").write().await.unwrap();
        nodes.until("all nodes have it", || nodes.count("cut") == 3).await;
        nodes.settle().await;
        nodes.block(0, 1, Way::Up, true).await;
        let token = writer.token();
        let reader = writer.downgrade().await.unwrap();
        assert!(reader.is_valid() && reader.token() == token);
        assert!(other.rwlock("cut").try_write().await.unwrap().is_none());
        let beside = other.rwlock("cut").read().await.unwrap();
        beside.release().await.unwrap();
        nodes.block(0, 1, Way::Up, false).await;
        let has_joined = || nodes.count("cut") == 0 && nodes.readers("cut", 1) == 3;
        nodes.until("the node has the reader", has_joined).await;
        assert!(reader.is_valid());
        reader.release().await.unwrap();
        nodes.until_nothing_is_left(0..3, "cut").await;
    });
}

#[test]
fn a_downgrade_that_no_majority_confirms_says_so_and_gives_everything_back() {
    simulated(3, &[], |nodes| async move {
        let locks = nodes.connect(&[("node_timeout", "1s"), ("connect_timeout", "1s")]).await;
        let writer = locks.rwlock("failed").write().await.unwrap();
        nodes.until("all nodes have it", || nodes.count("failed") == 3).await;
        nodes.block(0, 0, Way::Up, true).await;
        nodes.block(0, 2, Way::Up, true).await;
        let error = Error::from(writer.downgrade().await.unwrap_err());
        assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("downgrade"), "{error}");
        nodes.until_nothing_is_left([1], "failed").await;
        nodes.block(0, 0, Way::Up, false).await;
        nodes.block(0, 2, Way::Up, false).await;
        nodes.until_nothing_is_left(0..3, "failed").await;
    });
}
