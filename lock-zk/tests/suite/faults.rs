//! Lost answers, connections that break, and sessions that end.

use std::{sync::Arc, time::Duration};

use lock_core::{Error, Locks, LocksOptions, Loss};
use lock_lab::proxy::Proxy;
use lock_sim::zookeeper::deployment::{Cut, Deployment, TICK_TIME};
use lock_zk::ZooKeeper;

use crate::{
    common::{self, config, eventually, outsider, server, within},
    simulation::{
        children, connect, connect_with, directory, empty, inspect, lock, locks, session, simulated, standing,
    },
};

/// On the client library and a real server.
#[tokio::test]
async fn a_connection_cut_at_any_reply_leaves_one_node_while_held_and_none_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    for reply in 0..12 {
        let locks = Locks::new(ZooKeeper::connect(config(proxy.port())).await.unwrap());
        let rival = common::locks(port).await;
        let name = format!("cut/{reply}");
        let first = rival.mutex(&name).lock().await.unwrap();
        proxy.cut_at_reply(reply);
        let acquiring = tokio::spawn({
            let mutex = locks.mutex(&name);
            async move { mutex.lock().await }
        });
        eventually("it waits", || async { common::children(&client, &name).await.len() == 2 }).await;
        first.release().await.unwrap();
        let guard = within("the grant", acquiring).await.unwrap().unwrap();
        assert_eq!(common::children(&client, &name).await.len(), 1, "cut at reply {reply}");
        // An unknown outcome is reported as such, and the release goes on.
        match guard.release().await {
            Ok(()) | Err(Error::Unavailable { .. }) => {}
            Err(other) => panic!("cut at reply {reply}: {other}"),
        }
        common::empty(&client, &name).await;
        proxy.heal();
    }
}

#[test]
fn a_release_whose_answer_is_lost_is_repeated_and_removes_nobody_elses_node() {
    simulated(async |servers| {
        let (locks, other) = (locks(&servers, 1).await, locks(&servers, 2).await);
        let guard = locks.mutex("release").lock().await.unwrap();
        let rival = lock(&servers, 2, &other, "release");
        standing(&servers, "release", 2).await;
        servers.cut(1, Cut::Answers).await;
        let releasing = servers.start(1, guard.release());
        let second = rival.await.unwrap().unwrap();
        servers.reset(1).await;
        servers.heal(1).await;
        assert!(matches!(releasing.await.unwrap(), Err(Error::Unavailable { .. })));
        assert!(locks.mutex("release").try_lock().await.unwrap().is_none(), "the second one still holds");
        assert!(second.is_valid());
    });
}

/// A connection whose session expires soon.
async fn short_lived(servers: &Deployment, host: usize) -> Arc<ZooKeeper> {
    connect_with(servers, host, servers.config(host).with_session_timeout(TICK_TIME * 10)).await
}

#[test]
fn a_lock_that_is_lost_in_a_session_that_lives_on_is_free_again_before_its_guard_is_dropped() {
    simulated(async |servers| {
        // The servers round the end of a session up to a whole tick, so there is a moment between the loss and that end.
        let locks = Locks::new(short_lived(&servers, 1).await);
        let lost = locks.mutex("lapsed").lock().await.unwrap();
        servers.cut(1, Cut::Both).await;
        lost.lost().await;
        servers.heal(1).await;
        let again = locks.mutex("lapsed").lock().await.unwrap();
        assert!(again.token() > lost.token());
        assert!(!lost.is_valid());
        assert!(matches!(lost.release().await, Err(Error::Lost { .. })));
        assert!(again.is_valid());
        again.release().await.unwrap();
    });
}

#[test]
fn when_the_session_ends_every_guard_is_lost_and_the_next_acquisition_opens_a_new_one() {
    simulated(async |servers| {
        let zk = connect(&servers, 1).await;
        let (locks, rival) = (Locks::new(zk.clone()), locks(&servers, 2).await);
        let guards = [locks.mutex("one").lock().await.unwrap(), locks.mutex("two").lock().await.unwrap()];
        let id = inspect(&zk, "one").await.holders.remove(0).id;
        let held = rival.mutex("waited for").lock().await.unwrap();
        let waiting = lock(&servers, 1, &locks, "waited for");
        standing(&servers, "waited for", 2).await;
        servers.end_session(session(&id)).await;
        for guard in &guards {
            // The news that its node has gone, with the session, may come before the news of the session itself.
            let loss = guard.lost().await;
            assert!(matches!(loss, Loss::SessionEnded | Loss::Revoked), "{loss:?}");
        }
        let again = locks.mutex("one").lock().await.unwrap();
        assert_ne!(inspect(&zk, "one").await.holders[0].id, id);
        assert!(again.token() > guards[0].token());
        // The waiter queues again in the new session.
        standing(&servers, "waited for", 2).await;
        held.release().await.unwrap();
        drop(waiting.await.unwrap().unwrap());
    });
}

#[test]
fn an_outage_during_a_wait_is_bridged_up_to_its_limit_and_leaves_nothing() {
    simulated(async |servers| {
        let zk = connect_with(&servers, 1, servers.config(1)).await;
        let locks = Locks::with_options(zk, LocksOptions::default().with_outage_timeout(Duration::from_secs(2)));
        let holder = self::locks(&servers, 2).await;
        let held = holder.mutex("outage").lock().await.unwrap();
        let bridged = lock(&servers, 1, &locks, "outage");
        standing(&servers, "outage", 2).await;
        servers.reset(1).await;
        held.release().await.unwrap();
        let held = bridged.await.unwrap().unwrap();

        let rival = lock(&servers, 2, &holder, "outage");
        standing(&servers, "outage", 2).await;
        let too_long = lock(&servers, 1, &locks, "outage");
        standing(&servers, "outage", 3).await;
        servers.cut(1, Cut::Both).await;
        servers.reset(1).await;
        let error = too_long.await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        servers.heal(1).await;
        standing(&servers, "outage", 2).await;
        held.release().await.unwrap();
        drop(rival.await.unwrap().unwrap());
    });
}

#[test]
fn what_is_started_while_disconnected_leaves_no_ghost() {
    simulated(async |servers| {
        let locks = locks(&servers, 1).await;
        locks.mutex("ghost").lock().await.unwrap().release().await.unwrap();
        servers.cut(1, Cut::Both).await;
        for _ in 0..5 {
            let error = locks.mutex("ghost").timeout(Duration::from_millis(50)).lock().await.unwrap_err();
            assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
        }
        servers.reset(1).await;
        servers.heal(1).await;
        drop(locks.mutex("ghost").lock().await.unwrap());
        empty(&servers, "ghost").await;
    });
}

#[test]
fn closing_while_the_servers_are_out_of_reach_ends_in_time_and_says_so() {
    simulated(async |servers| {
        let locks = Locks::new(short_lived(&servers, 1).await);
        let guard = locks.mutex("closing").lock().await.unwrap();
        servers.cut(1, Cut::Both).await;
        let error = locks.close(Duration::from_millis(300)).await.unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error}");
        assert_eq!(guard.validity().loss(), Some(Loss::Closed));
        assert!(matches!(locks.mutex("closing").lock().await, Err(Error::Closed)));
        // The servers have heard of nothing: they end the session by themselves.
        assert_eq!(children(&servers, "closing").await.len(), 1);
        servers.until("the session ends", async || children(&servers, "closing").await.is_empty()).await;
        assert!(servers.exists(&directory("closing")).await);
    });
}
