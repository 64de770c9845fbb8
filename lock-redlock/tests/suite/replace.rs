//! Another server in the place of a member: nobody loses what is held, and no two majorities pass each other.

#![expect(clippy::future_not_send, reason = "a world is played on one thread")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    deployment::{command, config, connect, connect_to, eventually, get, marked, marked_as},
    simulation::{Nodes, simulated},
};
use lock_core::{Error, Guard, Locks};
use lock_lab::servers::{Redis, connect_to_redis};
use lock_redlock::{Redlock, Replaced};
use lock_sim::world::Way;

const LOCAL: &str = "127.0.0.1";

async fn replace(list: &[u16], old: u16, new: u16) -> Result<Replaced, Error> {
    lock_redlock::replace(&config(list, &[]), (LOCAL, old), (LOCAL, new)).await
}

async fn key(port: u16, name: &str) -> Option<Vec<u8>> {
    let mut connection = connect_to_redis(&format!("redis://{LOCAL}:{port}")).await.unwrap();
    redis::cmd("GET").arg(format!("{{lock:{name}}}")).query_async(&mut connection).await.unwrap()
}

#[test]
fn all_members_are_replaced_one_after_the_other_while_clients_contend() {
    simulated(3, &[("max_ttl", "3s")], |nodes| async move {
        let (holders, count, over) =
            (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut clients = Vec::new();
        for client in 0..3 {
            let (locks, clock) = (nodes.connect_from(client, &[("ttl", "3s")]).await, nodes.context(client).clock());
            let (holders, count, over) = (Arc::clone(&holders), Arc::clone(&count), Arc::clone(&over));
            clients.push(nodes.start(client, async move {
                let mut last = None;
                while !over.load(Ordering::SeqCst) {
                    let guard = locks.mutex("all").lock().await.unwrap();
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    assert!(last < Some(guard.token()), "a token fell");
                    last = Some(guard.token());
                    clock.sleep(Duration::from_millis(20)).await;
                    assert!(guard.is_valid(), "lost by a change of members");
                    holders.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }));
        }
        let observer = nodes.connect(&[("ttl", "3s")]).await;
        let held = observer.mutex("held").lock().await.unwrap();
        let mut members = vec![0, 1, 2];
        for (place, new) in [3, 4, 5].into_iter().enumerate() {
            nodes.until_replaced(&members, members[place], new).await;
            members[place] = new;
            let before = count.load(Ordering::SeqCst);
            nodes.until("it is granted on", || count.load(Ordering::SeqCst) >= before + 20).await;
        }
        over.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.unwrap();
        }
        let moved = || {
            assert!(held.is_valid(), "lost by a change of members");
            members.iter().all(|node| nodes.get(*node, "{lock:held}").is_some())
        };
        nodes.until("the new members keep what is held all the time", moved).await;
        held.release().await.unwrap();
        // None of the old ones is a member, and each of them tells who is.
        let stale = nodes.connect_from(1, &[]).await;
        stale.mutex("stale").lock().await.unwrap().release().await.unwrap();
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_the_list_of_before_goes_on_with_the_new_member() {
    let mut nodes = marked_as(3, &[("max_ttl", "1s")]).await;
    let new = Redis::start().await.unwrap();
    let before = nodes.ports();
    replace(&before, before[2], new.port()).await.unwrap();
    for old_is_down in [false, true] {
        if old_is_down {
            nodes.nodes_mut()[2].kill();
        }
        let stale = connect_to(&before, &[]).await;
        nodes.nodes()[0].stop().unwrap();
        let granted = || async { matches!(stale.mutex("stale").try_lock().await, Ok(Some(_))) };
        eventually("it is granted by the second and the new one", granted).await;
        nodes.nodes()[0].cont().unwrap();
    }
    // A list that never was the deployment's is refused all the same.
    let other = Redis::start().await.unwrap();
    let error = Redlock::connect(config(&[before[0], before[1], other.port()], &[])).await.unwrap_err();
    assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(&new.port().to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_replaced_is_said_and_nothing_is_changed() {
    let mut nodes = marked(3).await;
    let (new, others) = (Redis::start().await.unwrap(), marked(3).await);
    let list = nodes.ports();
    let before = get(&nodes.nodes()[0], "redlock:member").await;
    for (old, other, expected) in [
        (list[2], list[2], "another server"),
        (list[2], list[1], "none of the members"),
        (9, new.port(), "the members of the deployment"),
        (list[2], others.ports()[0], "no other deployment"),
    ] {
        let error = replace(&list, old, other).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }) && error.to_string().contains(expected), "{error}");
    }
    let error = replace(&list, list[2], 9).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains(":9"), "{error}");
    // Without the second, the first alone would have to grant.
    nodes.nodes_mut()[1].kill();
    let error = replace(&list, list[2], new.port()).await.unwrap_err();
    assert!(error.to_string().contains(&list[1].to_string()), "{error}");
    nodes.nodes_mut()[1].restart_empty().await.unwrap();
    let marked_again = || async {
        let _ = connect(&nodes, &[]).await;
        get(&nodes.nodes()[1], "redlock:member").await.is_some()
    };
    eventually("it is a member again, in quarantine", marked_again).await;
    let error = replace(&list, list[2], new.port()).await.unwrap_err();
    assert!(error.to_string().contains("gives no vote"), "{error}");
    assert_eq!(get(&nodes.nodes()[0], "redlock:member").await, before);
    assert_eq!(get(&new, "redlock:member").await, None);
}

/// Everything that a server has of the deployment's record.
async fn record(node: &Redis) -> Vec<String> {
    node.ask("HGETALL", &["redlock:deployment"]).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_was_begun_is_completed_and_another_one_waits_for_it() {
    let nodes = marked(3).await;
    let (new, other) = (Redis::start().await.unwrap(), Redis::start().await.unwrap());
    let list = nodes.ports();
    let before = get(&nodes.nodes()[1], "redlock:member").await.unwrap();
    let record = record(&nodes.nodes()[1]).await;
    replace(&list, list[2], new.port()).await.unwrap();
    let after = get(&nodes.nodes()[1], "redlock:member").await.unwrap();
    // As if the second and the third had not been told, nor the new one made a member.
    for (node, member) in [(1, 2), (2, 3)] {
        let restored: Vec<&str> =
            ["HSET", "redlock:deployment"].into_iter().chain(record.iter().map(String::as_str)).collect();
        command(&nodes.nodes()[node], &restored).await;
        let stamp = before.rsplit_once(' ').unwrap().0;
        command(&nodes.nodes()[node], &["SET", "redlock:member", &format!("{stamp} {member}")]).await;
    }
    command(&new, &["FLUSHALL"]).await;
    // A majority knows of nothing: clients go on as before.
    let locks = connect(&nodes, &[]).await;
    locks.mutex("begun").lock().await.unwrap().release().await.unwrap();
    let error = replace(&list, list[2], other.port()).await.unwrap_err();
    assert!(error.to_string().contains("begun") && error.to_string().contains(&new.port().to_string()), "{error}");
    replace(&list, list[2], new.port()).await.unwrap();
    assert_eq!(get(&nodes.nodes()[1], "redlock:member").await, Some(after));
    assert!(get(&new, "redlock:member").await.is_some() && get(&new, "redlock:quarantine").await.is_some());
    // And once more, with the list of after.
    let again = replace(&[list[0], list[1], new.port()], list[2], new.port()).await.unwrap();
    assert!(again.old_was_told && again.no_vote_for > Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_server_is_no_member_before_a_majority_was_told() {
    let nodes = marked(3).await;
    let new = Redis::start().await.unwrap();
    let list = nodes.ports();
    let locks = connect(&nodes, &[("ttl", "6s"), ("node_timeout", "2s")]).await;
    let guard = locks.mutex("held").lock().await.unwrap();
    // The second one answers, and cannot be told.
    command(&nodes.nodes()[1], &["CONFIG", "SET", "min-replicas-to-write", "1"]).await;
    let error = replace(&list, list[2], new.port()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("again") && error.to_string().contains(&list[1].to_string()), "{error}");
    assert_eq!(get(&new, "redlock:member").await, None);
    command(&nodes.nodes()[1], &["CONFIG", "SET", "min-replicas-to-write", "0"]).await;
    replace(&list, list[2], new.port()).await.unwrap();
    assert!(get(&new, "redlock:member").await.is_some());
    eventually("the new member joins the lease", || async { key(new.port(), "held").await.is_some() }).await;
    guard.release().await.unwrap();
}

/// A lock that the last two of three members keep, and the first does not.
async fn held_without_the_first(nodes: &Nodes, locks: &Locks) -> Guard {
    nodes.command(0, &["SET", "{lock:held}", "somebody", "PX", "60000"]);
    let guard = locks.mutex("held").lock().await.unwrap();
    nodes.settle().await;
    nodes.command(0, &["DEL", "{lock:held}"]);
    guard
}

#[test]
fn what_is_held_by_the_member_that_is_replaced_and_one_other_stays_held() {
    for old_is_down in [false, true] {
        simulated(3, &[("max_ttl", "3s")], move |nodes| async move {
            let locks = nodes.connect(&[("ttl", "3s")]).await;
            let guard = held_without_the_first(&nodes, &locks).await;
            if old_is_down {
                nodes.kill(2).await;
            }
            let replaced = nodes.replace(2).await.unwrap();
            assert_eq!((replaced.no_vote_for, replaced.old_was_told), (Duration::from_secs(3), !old_is_down));
            let promised = guard.valid_until().unwrap();
            let have_joined = || {
                assert!(guard.is_valid(), "lost by a change of members");
                [0, 3].iter().all(|node| nodes.get(*node, "{lock:held}").is_some())
            };
            nodes.until("the new member and the first one join the lease", have_joined).await;
            let goes_on = || {
                assert!(guard.is_valid(), "lost by a change of members");
                guard.valid_until() > Some(promised.saturating_add(Duration::from_secs(3)))
            };
            nodes.until("it is renewed by the present members", goes_on).await;
            // The replaced member is not needed any more, nor is one of the others once the new member votes.
            if !old_is_down {
                nodes.kill(2).await;
            }
            nodes.stop(1).await;
            let _other = nodes.until_granted(&locks, "other").await;
            assert!(guard.is_valid());
            guard.release().await.unwrap();
        });
    }
}

#[test]
fn a_new_member_gives_no_vote_before_every_lease_of_before_has_ended() {
    simulated(3, &[("max_ttl", "3s")], |nodes| async move {
        let locks = nodes.connect_from(1, &[("ttl", "3s")]).await;
        let guard = held_without_the_first(&nodes, &locks).await;
        for (node, way) in [0, 1, 2, 3].into_iter().flat_map(|node| [(node, Way::Up), (node, Way::Down)]) {
            nodes.block(1, node, way, true).await;
        }
        nodes.replace(2).await.unwrap();
        let other = nodes.connect_without(2, 2).await;
        let next = nodes.until_granted(&other, "held").await;
        assert!(!guard.is_valid() && next.token() > guard.token(), "two hold it");
    });
}
