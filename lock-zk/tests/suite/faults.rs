//! Lost replies, cut connections and expired sessions, on a real server behind a proxy.

use std::{sync::Arc, time::Duration};

use crate::common::{
    children, config, empty, end_session, eventually, inspect, locks, outsider, queued, server, within,
};
use lock_core::{Clock, Error, Locks, Loss};
use lock_lab::proxy::Proxy;
use lock_zk::{Config, ZooKeeper};

/// A session that expires soon.
const SHORT: Duration = Duration::from_secs(2);

fn short_lived(port: u16) -> Config {
    config(port).with_session_timeout(SHORT)
}

async fn behind(config: Config) -> (Arc<ZooKeeper>, Locks) {
    let zk = ZooKeeper::connect(config).await.expect("a connection through the proxy");
    (zk.clone(), Locks::new(zk))
}

#[tokio::test]
async fn a_create_whose_reply_is_lost_is_found_again_by_its_unique_id() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let (_zk, locks) = behind(config(proxy.port())).await;
    locks.mutex("lost").lock().await.unwrap().release().await.unwrap();
    proxy.cut_at_reply(0);
    let guard = within("the grant", locks.mutex("lost").lock()).await.unwrap();
    let children = children(&client, "lost").await;
    assert_eq!(children.len(), 1, "{children:?}");
    guard.release().await.unwrap();
    empty(&client, "lost").await;
}

#[tokio::test]
async fn a_connection_cut_at_any_reply_leaves_one_node_while_held_and_none_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    for reply in 0..12 {
        let (_zk, locks) = behind(config(proxy.port())).await;
        let rival = self::locks(port).await;
        let name = format!("cut/{reply}");
        let first = rival.mutex(&name).lock().await.unwrap();
        proxy.cut_at_reply(reply);
        let acquiring = tokio::spawn({
            let mutex = locks.mutex(&name);
            async move { mutex.lock().await }
        });
        eventually("it waits", || async { children(&client, &name).await.len() == 2 }).await;
        first.release().await.unwrap();
        let guard = within("the grant", acquiring).await.unwrap().unwrap();
        assert_eq!(children(&client, &name).await.len(), 1, "cut at reply {reply}");
        // An unknown outcome is reported as such, and the release goes on.
        match guard.release().await {
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            Err(other) => panic!("cut at reply {reply}: {other}"),
        }
        empty(&client, &name).await;
        proxy.heal();
    }
}

#[tokio::test]
async fn a_release_whose_reply_is_lost_is_repeated_and_removes_nobody_elses_node() {
    let server = server().await;
    let port = server.ports()[0];
    let proxy = Proxy::start(port).await.unwrap();
    let (zk, locks) = behind(config(proxy.port())).await;
    let guard = locks.mutex("release").lock().await.unwrap();
    let rival = tokio::spawn({
        let mutex = self::locks(port).await.mutex("release");
        async move { mutex.lock().await }
    });
    queued(&zk, "release", 1).await;
    proxy.hold_replies();
    let releasing = tokio::spawn(guard.release());
    let second = within("the hand-off", rival).await.unwrap().unwrap();
    proxy.cut_once();
    proxy.heal();
    assert!(matches!(releasing.await.unwrap(), Err(Error::Unavailable { .. })));
    assert!(locks.mutex("release").try_lock().await.unwrap().is_none(), "the second one still holds");
    assert!(second.is_valid());
}

#[tokio::test]
async fn a_holder_that_is_cut_off_knows_of_its_loss_before_the_next_one_holds() {
    let server = server().await;
    let port = server.ports()[0];
    let proxy = Proxy::start(port).await.unwrap();
    let (zk, locks) = behind(short_lived(proxy.port())).await;
    let guard = locks.mutex("cut off").lock().await.unwrap();
    let rival = tokio::spawn({
        let mutex = self::locks(port).await.mutex("cut off");
        async move {
            let guard = mutex.lock().await;
            (guard, Clock::boot().now())
        }
    });
    queued(&zk, "cut off", 1).await;
    proxy.hold();
    let last = guard.valid_until().expect("held until here");
    let (second, granted_at) = within("the next grant", rival).await.unwrap();
    assert!(second.unwrap().is_valid());
    assert!(!guard.is_valid());
    assert!(last <= granted_at, "valid until {last:?}, the next one was granted at {granted_at:?}");
    assert!(matches!(guard.validity().loss(), Some(Loss::Unreachable | Loss::Expired)));
    proxy.heal();
    let third = within("a new session", locks.mutex("elsewhere").lock()).await.unwrap();
    assert!(!guard.is_valid(), "lost is final");
    drop(third);
}

#[tokio::test]
async fn a_lock_that_is_lost_in_a_session_that_lives_on_is_free_again_before_its_guard_is_dropped() {
    let server = server().await;
    let proxy = Proxy::start(server.ports()[0]).await.unwrap();
    // The servers round the end of a session up to a whole tick, so there is a moment between the loss and that end.
    let (_zk, locks) = behind(short_lived(proxy.port())).await;
    let lost = locks.mutex("lapsed").lock().await.unwrap();
    proxy.hold();
    within("the loss", lost.lost()).await;
    proxy.heal();
    let again = within("the next grant", locks.mutex("lapsed").lock()).await.unwrap();
    assert!(again.token() > lost.token());
    assert!(!lost.is_valid());
    assert!(matches!(lost.release().await, Err(Error::Lost { .. })));
    assert!(again.is_valid());
    again.release().await.unwrap();
}

#[tokio::test]
async fn when_the_session_ends_every_guard_is_lost_and_the_next_acquisition_opens_a_new_one() {
    let server = server().await;
    let port = server.ports()[0];
    let (zk, locks) = behind(config(port)).await;
    let guards = [locks.mutex("one").lock().await.unwrap(), locks.mutex("two").lock().await.unwrap()];
    let id = inspect(&zk, "one").await.holders.remove(0).id;
    let rival = self::locks(port).await;
    let held = rival.mutex("waited for").lock().await.unwrap();
    let waiting = tokio::spawn({
        let mutex = locks.mutex("waited for");
        async move { mutex.lock().await }
    });
    queued(&zk, "waited for", 1).await;
    end_session(&server, &outsider(port).await, "one", &id).await;
    for guard in &guards {
        // The news that its node has gone, with the session, may come before the news of the session itself.
        let loss = within("the loss", guard.lost()).await;
        assert!(matches!(loss, Loss::SessionEnded | Loss::Revoked), "{loss:?}");
    }
    let again = within("a new session", locks.mutex("one").lock()).await.unwrap();
    assert_ne!(inspect(&zk, "one").await.holders[0].id, id);
    assert!(again.token() > guards[0].token());
    // The waiter queues again in the new session.
    queued(&zk, "waited for", 1).await;
    held.release().await.unwrap();
    drop(within("the grant", waiting).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_backend_that_is_down_is_unavailable_within_the_connect_limit() {
    let proxy = Proxy::start(server().await.ports()[0]).await.unwrap();
    proxy.cut();
    let refused = config(proxy.port()).with_connect_timeout(Duration::from_millis(500));
    let error = within("the limit", ZooKeeper::connect(refused.clone())).await.unwrap_err();
    assert!(matches!(&error, Error::Unavailable { source: Some(_), .. }), "{error}");
    proxy.heal();
    proxy.hold();
    let error = within("the limit", ZooKeeper::connect(refused)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn an_outage_during_a_wait_is_bridged_up_to_the_connect_limit_and_leaves_nothing() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let (zk, locks) = behind(config(proxy.port()).with_connect_timeout(Duration::from_secs(2))).await;
    let holder = self::locks(port).await;
    let held = holder.mutex("outage").lock().await.unwrap();
    let wait = || {
        let mutex = locks.mutex("outage");
        tokio::spawn(async move { mutex.lock().await })
    };
    let bridged = wait();
    queued(&zk, "outage", 1).await;
    proxy.cut_once();
    held.release().await.unwrap();
    let held = within("the grant", bridged).await.unwrap().unwrap();

    let rival = tokio::spawn({
        let mutex = holder.mutex("outage");
        async move { mutex.lock().await }
    });
    queued(&zk, "outage", 1).await;
    let too_long = wait();
    queued(&zk, "outage", 2).await;
    proxy.cut();
    let error = within("the limit", too_long).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    proxy.heal();
    eventually("the waiter withdrew", || async { children(&client, "outage").await.len() == 2 }).await;
    held.release().await.unwrap();
    drop(within("the grant", rival).await.unwrap().unwrap());
}

#[tokio::test]
async fn what_is_started_while_disconnected_leaves_no_ghost() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let (_zk, locks) = behind(config(proxy.port())).await;
    locks.mutex("ghost").lock().await.unwrap().release().await.unwrap();
    proxy.hold();
    for _ in 0..5 {
        let error = locks.mutex("ghost").timeout(Duration::from_millis(50)).lock().await.unwrap_err();
        assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    }
    proxy.cut_once();
    proxy.heal();
    drop(within("the grant", locks.mutex("ghost").lock()).await.unwrap());
    empty(&client, "ghost").await;
}

#[tokio::test]
async fn closing_while_the_servers_are_out_of_reach_ends_in_time_and_says_so() {
    let server = server().await;
    let proxy = Proxy::start(server.ports()[0]).await.unwrap();
    let (_zk, locks) = behind(config(proxy.port())).await;
    let guard = locks.mutex("closing").lock().await.unwrap();
    proxy.hold();
    let error = within("closing", locks.close(Duration::from_millis(300))).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!(guard.validity().loss(), Some(Loss::Closed));
    assert!(matches!(locks.mutex("closing").lock().await, Err(Error::Closed)));
}
