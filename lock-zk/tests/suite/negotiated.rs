//! What the servers make of a session's time-out.

use std::time::Duration;

use crate::common::{config, server, within};
use lock_core::{Clock, Error, Locks, Loss};
use lock_lab::{proxy::Proxy, servers};
use lock_zk::{Config, ZooKeeper};

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
async fn lost_or_renewed(guard: &lock_core::Guard) -> bool {
    let until = guard.valid_until();
    within("it is lost or renewed", async {
        while guard.valid_until().is_some() && guard.valid_until() <= until {
            Clock::boot().sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    guard.valid_until().is_none()
}

#[tokio::test]
async fn a_server_that_comes_back_with_a_shorter_time_out_ends_what_was_held_by_the_longer_one() {
    let mut server = server().await;
    let port = server.ports()[0];
    let proxy = Proxy::start(port).await.unwrap();
    let zk = ZooKeeper::connect(config(proxy.port()).with_session_timeout(Duration::from_secs(6))).await.unwrap();
    let locks = Locks::new(zk);
    let guard = locks.mutex("shorter").lock().await.unwrap();
    server.kill(0);
    server.configure(0, "maxSessionTimeout", "1000").unwrap();
    server.restart(0).await.unwrap();
    let lost = lost_or_renewed(&guard).await;
    // Cut off from here on, the server keeps it for a second and a tick.
    proxy.hold();
    let promised = guard.valid_until();
    let rival = Config::new([("127.0.0.1", port)])
        .with_session_timeout(Duration::from_secs(1))
        .with_tick_time(servers::ZooKeeper::TICK);
    let rival = Locks::new(ZooKeeper::connect(rival).await.unwrap());
    let next = within("the next grant", rival.mutex("shorter").lock()).await.unwrap();
    let granted_at = Clock::boot().now();
    assert!(promised.is_none_or(|promised| promised <= granted_at), "until {promised:?}, the next at {granted_at:?}");
    assert!(lost && guard.validity().loss() == Some(Loss::SessionEnded), "{:?}", guard.validity().loss());
    drop(next);
}

#[tokio::test]
async fn a_reconnect_with_the_time_out_unchanged_takes_no_lock_away() {
    let mut server = server().await;
    let zk = ZooKeeper::connect(config(server.ports()[0])).await.unwrap();
    let locks = Locks::new(zk);
    let guard = locks.mutex("the same").lock().await.unwrap();
    server.restart(0).await.unwrap();
    assert!(!lost_or_renewed(&guard).await);
    let other = within("a grant", locks.mutex("another").lock()).await.unwrap();
    other.release().await.unwrap();
    guard.release().await.unwrap();
}
