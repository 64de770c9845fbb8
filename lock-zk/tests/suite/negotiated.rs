//! What the servers make of a session's time-out.

use std::time::Duration;

use lock_core::{Error, Guard, Locks, Loss};
use lock_lab::servers;
use lock_sim::zookeeper::deployment::{Cut, Deployment, TICK_TIME};
use lock_zk::{Config, ZooKeeper};

use crate::{
    common::within,
    simulation::{connect_with, lock, locks, simulated},
};

/// What a connection with those settings is refused for.
async fn refusal(config: Config) -> (String, String, String) {
    match within("an answer", ZooKeeper::connect(config)).await {
        Err(Error::Config { key, value, allowed }) => (key, value, allowed),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_time_out_that_the_servers_shorten_below_three_ticks_is_refused_with_both_numbers() {
    // Twenty ticks of 100 ms are the most that such a server grants by itself.
    let server = servers::ZooKeeper::start_with(1, &[("maxSessionTimeout", "-1")]).await.unwrap();
    let (key, value, allowed) = refusal(Config::new([("127.0.0.1", server.ports()[0])])).await;
    assert_eq!((key.as_str(), value.as_str()), ("session_timeout", "10s"));
    assert!(allowed.contains("shortened it to 2s") && allowed.contains("tick_time = 2s"), "{allowed}");
    let fits = Config::new([("127.0.0.1", server.ports()[0])]).with_tick_time(Duration::from_millis(600));
    ZooKeeper::connect(fits).await.unwrap();
}

#[tokio::test]
async fn a_time_out_that_the_servers_lengthen_shows_that_their_tick_is_longer_and_is_refused_with_both_numbers() {
    let settings = [("tickTime", "3000"), ("minSessionTimeout", "-1")];
    let server = servers::ZooKeeper::start_with(1, &settings).await.unwrap();
    let asked = Config::new([("127.0.0.1", server.ports()[0])])
        .with_session_timeout(Duration::from_secs(4))
        .with_tick_time(Duration::from_secs(1));
    let (key, value, allowed) = refusal(asked).await;
    assert_eq!((key.as_str(), value.as_str()), ("session_timeout", "4s"));
    assert!(allowed.contains("at least 6s") && allowed.contains("tick_time = 1s"), "{allowed}");
}

/// Whether a guard is lost or renewed, whichever comes first.
async fn is_lost(servers: &Deployment, guard: &Guard) -> bool {
    let until = guard.valid_until();
    let is_decided = async || guard.valid_until().is_none() || guard.valid_until() > until;
    servers.until("it is lost or renewed", is_decided).await;
    guard.valid_until().is_none()
}

#[test]
fn servers_that_come_back_with_a_shorter_time_out_end_what_was_held_by_the_longer_one() {
    simulated(async |servers| {
        let locks = locks(&servers, 1).await;
        let guard = locks.mutex("shorter").lock().await.unwrap();
        servers.restart(TICK_TIME * 10).await;
        let lost = is_lost(&servers, &guard).await;
        // Cut off from here on, the servers keep it for a second and a tick.
        servers.cut(1, Cut::Both).await;
        let promised = match guard.valid_until() {
            Some(until) => servers.true_time(1, until).await,
            None => 0,
        };
        let rival = Locks::new(connect_with(&servers, 2, servers.config(2).with_session_timeout(TICK_TIME * 10)).await);
        let next = lock(&servers, 2, &rival, "shorter").await.unwrap().unwrap();
        let granted_at = servers.true_time(2, servers.clock(2).now()).await;
        assert!(promised <= granted_at, "until {promised}, the next at {granted_at}");
        assert!(lost && guard.validity().loss() == Some(Loss::SessionEnded), "{:?}", guard.validity().loss());
        drop(next);
    });
}

#[test]
fn a_reconnect_with_the_time_out_unchanged_takes_no_lock_away() {
    simulated(async |servers| {
        let locks = locks(&servers, 1).await;
        let guard = locks.mutex("the same").lock().await.unwrap();
        servers.restart(TICK_TIME * 1_000).await;
        assert!(!is_lost(&servers, &guard).await);
        locks.mutex("another").lock().await.unwrap().release().await.unwrap();
        guard.release().await.unwrap();
    });
}
