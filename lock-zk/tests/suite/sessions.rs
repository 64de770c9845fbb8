//! The sessions of one connection: how they are opened, how they end, and when there are several.

use std::{collections::BTreeSet, time::Duration};

use crate::common::{children, config, end_session, eventually, outsider, server, within};
use lock_core::{Error, Locks};
use lock_lab::proxy::Proxy;
use lock_zk::{Config, ZooKeeper};
use tokio::task::JoinSet;

/// So long that the watches of two hundred such locks are too many for one session.
fn long_name(number: usize) -> String {
    format!("{number:0>512}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_ends_takes_only_its_own_locks_with_it() {
    let server = server().await;
    let port = server.ports()[0];
    let client = outsider(port).await;
    let locks = Locks::new(ZooKeeper::connect(config(port)).await.unwrap());
    let (mut guards, mut sessions) = (Vec::new(), BTreeSet::new());
    for number in 0..200 {
        guards.push(locks.mutex(long_name(number)).lock().await.unwrap());
    }
    let mut nodes = Vec::new();
    for number in 0..200 {
        let node = children(&client, &long_name(number)).await.remove(0);
        let session = node.split('-').nth(1).unwrap().to_owned();
        sessions.insert(session.clone());
        nodes.push((node, session));
    }
    assert!(sessions.len() > 1, "{sessions:?}");
    let (node, ended) = nodes[199].clone();
    end_session(&server, &client, &long_name(199), &node).await;
    for (guard, (_, session)) in guards.iter().zip(&nodes) {
        if *session == ended {
            within("the loss", guard.lost()).await;
        } else {
            assert!(guard.is_valid());
        }
    }
    let again = within("a grant", locks.mutex(long_name(199)).lock()).await.unwrap();
    within("closing", locks.close(crate::common::LIMIT)).await.unwrap();
    drop(again);
    assert!(children(&client, &long_name(0)).await.is_empty() && children(&client, &long_name(199)).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_of_no_use_any_more_is_closed_but_for_one() {
    let server = server().await;
    let port = server.ports()[0];
    let client = outsider(port).await;
    let short = config(port).with_session_timeout(Duration::from_secs(2));
    let locks = Locks::new(ZooKeeper::connect(short).await.unwrap());
    let sessions = || async { client.list_children(&format!("{}/.sessions", Config::ROOT)).await.unwrap_or_default() };
    let mut guards = Vec::new();
    for number in 0..200 {
        guards.push(locks.mutex(long_name(number)).lock().await.unwrap());
    }
    eventually("several sessions write their heartbeats", || async { sessions().await.len() > 1 }).await;
    drop(guards);
    eventually("one is left", || async { sessions().await.len() == 1 }).await;
    within("a grant", locks.mutex("later").lock()).await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_wait_for_servers_that_are_down_share_one_attempt_to_connect() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    // Eight attempts, one after another, would take longer than the whole test may.
    let patient = config(proxy.port()).with_connect_timeout(Duration::from_secs(4));
    let locks = Locks::new(ZooKeeper::connect(patient).await.unwrap());
    let held = locks.mutex("down").lock().await.unwrap();
    let node = children(&client, "down").await.remove(0);
    end_session(&server, &client, "down", &node).await;
    within("the loss", held.lost()).await;
    proxy.hold();
    let mut waiting = JoinSet::new();
    for number in 0..8 {
        let mutex = locks.mutex(format!("down/{number}"));
        waiting.spawn(async move { mutex.lock().await.map(drop) });
    }
    for failed in within("all fail", waiting.join_all()).await {
        assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
    }
    proxy.heal();
    within("a grant", locks.mutex("down").lock()).await.unwrap().release().await.unwrap();
}
