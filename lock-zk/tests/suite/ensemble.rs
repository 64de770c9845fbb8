//! Three servers: elections, frozen servers, and what the holders know.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::common::{config, queued, within};
use lock_core::{BootInstant, Clock, Locks, Validity};
use lock_lab::{servers, wait::renewed};
use lock_zk::ZooKeeper;

/// A session that expires soon, but not on a machine that stands still for a moment.
const SHORT: Duration = Duration::from_secs(6);

async fn ensemble() -> servers::ZooKeeper {
    servers::ZooKeeper::start(3).await.expect("three ZooKeeper servers")
}

/// The index of a server that follows, other than `not`.
async fn follower(servers: &servers::ZooKeeper, not: Option<usize>) -> usize {
    let leader = servers.leader().await.expect("a leader");
    (0..3).find(|index| *index != leader && Some(*index) != not).unwrap()
}

async fn on(port: u16) -> Arc<ZooKeeper> {
    ZooKeeper::connect(config(port).with_session_timeout(SHORT)).await.expect("a connection")
}

/// Watches a validity, and remembers the latest moment that it ever promised.
fn remember(validity: Validity) -> Arc<AtomicU64> {
    let latest = Arc::new(AtomicU64::new(0));
    let remembered = Arc::clone(&latest);
    tokio::spawn(async move {
        while let Some(until) = validity.valid_until() {
            remembered.fetch_max(until.as_nanos(), Ordering::SeqCst);
            Clock::boot().sleep(Duration::from_millis(1)).await;
        }
    });
    latest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_server_freezes_is_not_valid_when_the_next_one_holds() {
    let servers = ensemble().await;
    let ports = servers.ports();
    let frozen = follower(&servers, None).await;
    let (zk, rival) = (on(ports[frozen]).await, on(ports[follower(&servers, Some(frozen)).await]).await);
    let guard = Locks::new(zk).mutex("frozen").lock().await.unwrap();
    let latest = remember(guard.validity().clone());
    let waiting = tokio::spawn({
        let mutex = Locks::new(rival.clone()).mutex("frozen");
        async move { (mutex.lock().await, Clock::boot().now()) }
    });
    queued(&rival, "frozen", 1).await;
    servers.stop(frozen).unwrap();
    let (second, granted_at) = within("the next grant", waiting).await.unwrap();
    let promised = BootInstant::from_nanos(latest.load(Ordering::SeqCst));
    assert!(promised > BootInstant::from_nanos(0), "it was held");
    assert!(promised <= granted_at, "promised until {promised:?}, the next one held at {granted_at:?}");
    assert!(!guard.is_valid());
    servers.cont(frozen).unwrap();
    second.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_election_takes_no_lock_away_and_changes_no_order() {
    // None of them leaves another for its silence, so there is one election only.
    let mut servers = servers::ZooKeeper::start_with(3, &[("syncLimit", "100")]).await.unwrap();
    let ports = servers.ports();
    let leader = servers.leader().await.unwrap();
    let all = || {
        let mut all = config(ports[0]).with_session_timeout(Duration::from_secs(20));
        all.servers = ports.iter().map(|port| ("127.0.0.1".to_owned(), *port)).collect();
        ZooKeeper::connect(all)
    };
    let zk = all().await.unwrap();
    let guard = Locks::new(zk.clone()).mutex("election").lock().await.unwrap();
    let mut newest = guard.token();
    let (granted, mut grants) = tokio::sync::mpsc::unbounded_channel();
    for place in 0..4 {
        let (mutex, granted) = (Locks::new(all().await.unwrap()).mutex("election"), granted.clone());
        tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            granted.send((place, guard.token())).unwrap();
            // Under an election the outcome may be unknown for a while; the release goes on.
            let _ = guard.release().await;
        });
        queued(&zk, "election", place + 1).await;
    }
    // Killed, and started again: what a session in doubt has to ask may be all servers.
    servers.launch_again(leader).unwrap();
    // A write after the election renews it.
    renewed([guard.validity()]).await;
    assert!(grants.try_recv().is_err());
    guard.release().await.unwrap();
    for expected in 0..4 {
        let (place, token) = within("the next grant", grants.recv()).await.unwrap();
        assert_eq!(place, expected);
        assert!(token > newest);
        newest = token;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_makes_nobody_hold_beyond_what_the_next_one_finds() {
    let servers = ensemble().await;
    let ports = servers.ports();
    let leader = servers.leader().await.unwrap();
    let one = follower(&servers, None).await;
    let two = follower(&servers, Some(one)).await;
    let (zk, rival) = (on(ports[one]).await, on(ports[two]).await);
    let guard = Locks::new(zk).mutex("leader").lock().await.unwrap();
    let latest = remember(guard.validity().clone());
    let waiting = tokio::spawn({
        let mutex = Locks::new(rival.clone()).mutex("leader");
        async move { (mutex.lock().await, Clock::boot().now()) }
    });
    queued(&rival, "leader", 1).await;
    servers.stop(leader).unwrap();
    // Longer than the election takes; the holder's session may live on or not.
    Clock::boot().sleep(SHORT).await;
    servers.cont(leader).unwrap();
    let released_at = Clock::boot().now();
    let released = guard.release().await;
    let (second, granted_at) = within("the next grant", waiting).await.unwrap();
    let held_until = BootInstant::from_nanos(latest.load(Ordering::SeqCst)).min(released_at);
    assert!(held_until <= granted_at, "{released:?}: held until {held_until:?}, next at {granted_at:?}");
    drop(second);
}
