//! The sessions of one connection: how they are opened, how they end, and when there are several.

use std::{collections::BTreeSet, time::Duration};

use lock_core::{Error, Locks, LocksOptions};
use lock_sim::zookeeper::deployment::{Cut, TICK_TIME};

use crate::simulation::{children, connect_with, locks, session, simulated};

/// So long that the watches of two hundred such locks are too many for one session.
fn long_name(number: usize) -> String {
    format!("{number:0>512}")
}

#[test]
fn a_session_that_ends_takes_only_its_own_locks_with_it() {
    simulated(async |servers| {
        let locks = locks(&servers, 1).await;
        let mut guards = Vec::new();
        for number in 0..200 {
            guards.push(locks.mutex(long_name(number)).lock().await.unwrap());
        }
        let mut nodes = Vec::new();
        for number in 0..200 {
            nodes.push(session(&children(&servers, &long_name(number)).await[0]));
        }
        let sessions: BTreeSet<_> = nodes.iter().collect();
        assert!(sessions.len() > 1, "{sessions:?}");
        let ended = nodes[199];
        servers.end_session(ended).await;
        for (guard, session) in guards.iter().zip(&nodes) {
            if *session == ended {
                guard.lost().await;
            } else {
                assert!(guard.is_valid());
            }
        }
        let again = locks.mutex(long_name(199)).lock().await.unwrap();
        locks.close(Duration::from_secs(30)).await.unwrap();
        drop(again);
        for number in [0, 199] {
            assert!(children(&servers, &long_name(number)).await.is_empty());
        }
    });
}

#[test]
fn a_session_that_is_of_no_use_any_more_is_closed_but_for_one() {
    simulated(async |servers| {
        let short = servers.config(1).with_session_timeout(TICK_TIME * 20);
        let locks = Locks::new(connect_with(&servers, 1, short).await);
        let mut guards = Vec::new();
        for number in 0..200 {
            guards.push(locks.mutex(long_name(number)).lock().await.unwrap());
        }
        assert!(servers.sessions().await > 1);
        drop(guards);
        servers.until("one is left", async || servers.sessions().await == 1).await;
        locks.mutex("later").lock().await.unwrap().release().await.unwrap();
    });
}

#[test]
fn all_who_wait_for_servers_that_are_down_share_one_attempt_to_connect() {
    const LIMIT: Duration = Duration::from_secs(4);
    simulated(async |servers| {
        let zk = connect_with(&servers, 1, servers.config(1).with_connect_timeout(LIMIT)).await;
        let locks = Locks::with_options(zk, LocksOptions::default().with_outage_timeout(Duration::ZERO));
        let held = locks.mutex("down").lock().await.unwrap();
        servers.end_session(session(&children(&servers, "down").await[0])).await;
        held.lost().await;
        servers.cut(1, Cut::Both).await;
        let begin = servers.clock(1).now();
        let attempt = |number: u32| {
            let mutex = locks.mutex(format!("down/{number}"));
            servers.start(1, async move { mutex.lock().await.map(drop) })
        };
        let waiting: Vec<_> = (0..8).map(attempt).collect();
        for failed in waiting {
            let failed = failed.await.unwrap();
            assert!(matches!(failed, Err(Error::Unavailable { .. })), "{failed:?}");
        }
        assert!(servers.clock(1).now() < begin.saturating_add(LIMIT * 2), "eight attempts, one after another");
        servers.heal(1).await;
        // Who comes in the very moment of the failure is told of it, too.
        servers.settle().await;
        locks.mutex("down").lock().await.unwrap().release().await.unwrap();
    });
}
