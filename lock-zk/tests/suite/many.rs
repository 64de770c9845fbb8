//! More locks on one connection than one session can have watches for, and connections that break.
//!
//! `MANY_LOCKS=10000 MANY_WAITERS=2000 MANY_RESETS=10 cargo test --release -p lock-zk --test suite many::` plays the full size.

use std::time::Duration;

use crate::common::{children, config, outsider, server};
use lock_core::{Clock, Guard, Locks};
use lock_lab::proxy::Proxy;
use lock_zk::ZooKeeper;
use tokio::task::JoinSet;

/// How long the full size may take.
const LIMIT: Duration = Duration::from_secs(600);
/// Of it enough is left at any time for an election on a machine that stands still.
const SESSION: Duration = Duration::from_secs(30);
/// How long a release may wait for its answer.
const RESPONSE_LIMIT: Duration = Duration::from_secs(60);

fn size(key: &str, usual: usize) -> usize {
    std::env::var(key).map_or(usual, |text| text.parse().expect("a number"))
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    Clock::boot().timeout(LIMIT, future).await.unwrap_or_else(|| panic!("not within {LIMIT:?}: {what}"))
}

/// Waits until each of them was renewed, or one is lost.
async fn renewed(guards: &[Guard]) {
    let before: Vec<_> = guards.iter().map(Guard::valid_until).collect();
    within("all are renewed", async {
        while guards
            .iter()
            .zip(&before)
            .any(|(guard, before)| guard.valid_until().is_some_and(|now| Some(now) <= *before))
        {
            Clock::boot().sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// Holds that many locks.
async fn hold(locks: &Locks, many: usize) -> Vec<Guard> {
    let mut guards = Vec::new();
    for batch in 0..many.div_ceil(100) {
        let mut acquiring = JoinSet::new();
        for number in batch * 100..many.min(batch * 100 + 100) {
            let mutex = locks.mutex(format!("many/{number}"));
            acquiring.spawn(async move { mutex.lock().await.unwrap() });
        }
        guards.extend(within("a hundred grants", acquiring.join_all()).await);
    }
    guards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_locks_than_one_session_can_watch_outlive_a_broken_connection_and_all_who_wait_are_granted_in_order() {
    let (many, waiting, resets) = (size("MANY_LOCKS", 1700), size("MANY_WAITERS", 200), size("MANY_RESETS", 2));
    let server = server().await;
    let (proxy, client) = (Proxy::start(server.ports()[0]).await.unwrap(), outsider(server.ports()[0]).await);
    let patient = config(proxy.port())
        .with_session_timeout(SESSION)
        .with_connect_timeout(LIMIT)
        .with_response_timeout(RESPONSE_LIMIT);
    let locks = Locks::new(ZooKeeper::connect(patient).await.unwrap());
    let guards = hold(&locks, many).await;
    let first = locks.mutex("wanted").lock().await.unwrap();
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..waiting {
        let (mutex, granted) = (locks.mutex("wanted"), granted.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            let before = guard.token();
            granted.send(before).unwrap();
            guard.release().await.unwrap();
        });
    }
    within("all stand in line", async {
        while children(&client, "wanted").await.len() < waiting + 1 {
            Clock::boot().sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    for reset in 0..resets {
        proxy.cut_once();
        renewed(&guards).await;
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "of {many} locks, after reset {reset}");
    }
    let mut newest = first.token();
    first.release().await.unwrap();
    for _ in 0..waiting {
        let token = within("the next grant", grants.recv()).await.unwrap();
        assert!(token > newest, "{token} after {newest}");
        newest = token;
    }
    assert!(grants.try_recv().is_err());
    within("closing", locks.close(LIMIT)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_of_the_ensemble_takes_none_of_many_locks_away() {
    let many = size("MANY_LOCKS", 1200);
    let mut servers = lock_lab::servers::ZooKeeper::start(3).await.unwrap();
    let mut all =
        config(0).with_session_timeout(SESSION).with_connect_timeout(LIMIT).with_response_timeout(RESPONSE_LIMIT);
    all.servers = servers.ports().iter().map(|port| ("127.0.0.1".to_owned(), *port)).collect();
    let locks = Locks::new(ZooKeeper::connect(all).await.unwrap());
    let guards = hold(&locks, many).await;
    for server in 0..3 {
        within("a restart", servers.restart(server)).await.unwrap();
        renewed(&guards).await;
        let lost = guards.iter().filter(|guard| !guard.is_valid()).count();
        assert_eq!(lost, 0, "of {many} locks, after the restart of server {server}");
    }
    within("a grant", locks.mutex("another").lock()).await.unwrap().release().await.unwrap();
    within("closing", locks.close(LIMIT)).await.unwrap();
}
