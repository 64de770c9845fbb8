//! Readers, permits and downgrades under lost answers, connections that break, and sessions that end.

use std::time::Duration;

use lock_core::{Error, Guard, Locks, Loss, WriteGuard};
use lock_lab::proxy::Proxy;
use lock_sim::zookeeper::deployment::{Cut, TICK_TIME};
use lock_zk::ZooKeeper;
use tokio::task::JoinHandle;

use crate::{
    common::{children, config, connect, empty, eventually, held, locks, outsider, queued, server, within},
    simulation::{self, session, simulated, standing},
};

async fn behind(proxy: &Proxy) -> Locks {
    Locks::new(ZooKeeper::connect(config(proxy.port())).await.expect("a connection through the proxy"))
}

fn read(locks: &Locks, name: &str) -> JoinHandle<Result<Guard, Error>> {
    let lock = locks.rwlock(name);
    tokio::spawn(async move { lock.read().await })
}

fn write(locks: &Locks, name: &str) -> JoinHandle<Result<WriteGuard, Error>> {
    let lock = locks.rwlock(name);
    tokio::spawn(async move { lock.write().await })
}

/// Under a fault the outcome may be unknown; then it goes on in the background.
fn done_or_unknown(result: Result<(), Error>, when: &str) {
    match result {
        Ok(()) | Err(Error::Unavailable { .. }) => {}
        Err(other) => panic!("{when}: {other}"),
    }
}

/// On the client library and a real server, as the next three.
#[tokio::test]
async fn a_reader_cut_at_any_reply_has_one_node_while_it_reads_and_none_after_it() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let rival = locks(port).await;
    for reply in 0..10 {
        let locks = behind(&proxy).await;
        let name = format!("cut/{reply}");
        let first = rival.rwlock(&name).write().await.unwrap();
        proxy.cut_at_reply(reply);
        let reading = read(&locks, &name);
        eventually("it waits", || async { children(&client, &name).await.len() == 2 }).await;
        first.release().await.unwrap();
        let guard = within("the grant", reading).await.unwrap().unwrap();
        let beside = within("a reader beside it", rival.rwlock(&name).read()).await.unwrap();
        assert!(rival.rwlock(&name).try_write().await.unwrap().is_none());
        // Who was refused has its node deleted, which may be told sooner than done.
        eventually("one node each", || async { children(&client, &name).await.len() == 2 }).await;
        done_or_unknown(guard.release().await, &name);
        beside.release().await.unwrap();
        empty(&client, &name).await;
        proxy.heal();
    }
}

#[tokio::test]
async fn a_contender_for_a_permit_cut_at_any_reply_holds_one_or_none_and_leaves_nothing() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client, zk) = (Proxy::start(port).await.unwrap(), outsider(port).await, connect(port).await);
    let rival = Locks::new(zk.clone());
    for reply in 0..10 {
        let locks = behind(&proxy).await;
        let name = format!("cut/{reply}");
        let held_by_rival =
            [rival.semaphore(&name, 2).acquire().await.unwrap(), rival.semaphore(&name, 2).acquire().await.unwrap()];
        proxy.cut_at_reply(reply);
        let semaphore = locks.semaphore(&name, 2);
        let acquiring = tokio::spawn(async move { semaphore.acquire().await });
        queued(&zk, &name, 1).await;
        // Behind the gate that is being cut off: only its news, or its going, makes this one the gate.
        let semaphore = rival.semaphore(&name, 2);
        let last = tokio::spawn(async move { semaphore.acquire().await });
        queued(&zk, &name, 2).await;
        let [first, second] = held_by_rival;
        first.release().await.unwrap();
        let permit = within("the grant", acquiring).await.unwrap().unwrap();
        assert_eq!(children(&client, &name).await.len(), 3, "cut at reply {reply}");
        assert!(!last.is_finished(), "both permits are held");
        second.release().await.unwrap();
        let last = within("the last one", last).await.unwrap().unwrap();
        done_or_unknown(permit.release().await, &name);
        last.release().await.unwrap();
        empty(&client, &name).await;
        proxy.heal();
    }
}

#[tokio::test]
async fn a_downgrade_cut_at_any_reply_reads_on_or_leaves_nothing_and_no_writer_comes_in_meanwhile() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client, zk) = (Proxy::start(port).await.unwrap(), outsider(port).await, connect(port).await);
    let rival = Locks::new(zk.clone());
    let mut outcomes = [0, 0];
    for reply in 0..6 {
        let locks = behind(&proxy).await;
        let name = format!("cut/{reply}");
        let guard = locks.rwlock(&name).write().await.unwrap();
        let validity = guard.validity().clone();
        let writing = write(&rival, &name);
        queued(&zk, &name, 1).await;
        proxy.cut_at_reply(reply % 3);
        match within("the downgrade", guard.downgrade()).await {
            Ok(reader) => {
                outcomes[0] += 1;
                held(&zk, &name, 1).await;
                assert!(!writing.is_finished() && reader.is_valid());
                done_or_unknown(reader.release().await, &name);
            }
            Err(failed) => {
                outcomes[1] += 1;
                assert!(matches!(failed.error, Error::Unavailable { .. }), "{failed}");
                assert!(!validity.is_valid());
            }
        }
        let writer = within("the writer", writing).await.unwrap().unwrap();
        assert!(!validity.is_valid());
        writer.release().await.unwrap();
        empty(&client, &name).await;
        proxy.heal();
    }
    assert!(outcomes[0] > 0 && outcomes[1] > 0, "{outcomes:?}: both should have been seen");
}

#[tokio::test]
async fn a_downgrade_that_is_not_answered_is_undone_whether_it_was_done_or_not() {
    let server = server().await;
    let port = server.ports()[0];
    let (proxy, client) = (Proxy::start(port).await.unwrap(), outsider(port).await);
    let rival = locks(port).await;
    for done in [true, false] {
        let locks = behind(&proxy).await;
        let name = format!("unanswered {done}");
        let guard = locks.rwlock(&name).write().await.unwrap();
        if done {
            proxy.hold_replies();
        } else {
            proxy.hold();
        }
        let failed = within("the downgrade", guard.downgrade()).await.unwrap_err();
        assert!(matches!(failed.error, Error::Unavailable { .. }), "{failed}");
        assert_eq!(children(&client, &name).await.len(), 1, "the writer's node or the reader's");
        proxy.heal();
        let next = within("the next writer", rival.rwlock(&name).write()).await.unwrap();
        assert_eq!(children(&client, &name).await.len(), 1);
        next.release().await.unwrap();
        empty(&client, &name).await;
    }
}

#[test]
fn what_is_answered_in_a_standstill_is_done() {
    simulated(async |servers| {
        let standstill = Duration::from_millis(1500);
        let brief = simulation::quiet(servers.config(1)).with_response_timeout(Duration::from_secs(1));
        // Beyond the standstill for a moment: the limits pass first.
        let stand_still = async || {
            servers.hold_answers(1, standstill + Duration::from_millis(10)).await;
            servers.settle().await;
            servers.pause_host(1, standstill).await;
        };
        let brief = brief.with_connect_timeout(Duration::from_secs(1));
        let (connected, _) = tokio::join!(servers.connect(1, brief), stand_still());
        let locks = Locks::new(connected.unwrap());
        let writer = locks.rwlock("lock").write().await.unwrap();
        let downgrading = servers.start(1, async move { writer.downgrade().await });
        stand_still().await;
        let reader = downgrading.await.unwrap().unwrap();
        let releasing = servers.start(1, async move { reader.release().await });
        stand_still().await;
        releasing.await.unwrap().unwrap();
    });
}

#[test]
fn a_reader_and_a_permit_that_are_cut_off_know_of_their_loss_before_the_next_one_holds() {
    simulated(async |servers| {
        let short = servers.config(1).with_session_timeout(TICK_TIME * 10);
        let locks = Locks::new(simulation::connect_with(&servers, 1, short).await);
        let rival = simulation::locks(&servers, 2).await;
        let reader = locks.rwlock("reader").read().await.unwrap();
        let downgraded = locks.rwlock("downgraded").write().await.unwrap().downgrade().await.unwrap();
        let permit = locks.semaphore("permit", 1).acquire().await.unwrap();
        // Each says when it is granted what it waits for.
        let clock = servers.clock(2);
        let writing = |name: &str| {
            let lock = rival.rwlock(name);
            servers.start(2, async move { lock.write().await.map(|guard| (clock.now(), drop(guard)).0) })
        };
        let semaphore = rival.semaphore("permit", 1);
        let acquiring =
            servers.start(2, async move { semaphore.acquire().await.map(|permit| (clock.now(), drop(permit)).0) });
        let waiting = [writing("reader"), writing("downgraded"), acquiring];
        for name in ["reader", "downgraded", "permit"] {
            standing(&servers, name, 2).await;
        }
        servers.cut(1, Cut::Both).await;
        let validities = [reader.validity(), downgraded.validity(), permit.validity()];
        let until = validities.map(|validity| validity.valid_until().expect("held until here"));
        for ((validity, until), waiting) in validities.into_iter().zip(until).zip(waiting) {
            let granted_at = servers.true_time(2, waiting.await.unwrap().unwrap()).await;
            assert!(!validity.is_valid());
            let until = servers.true_time(1, until).await;
            assert!(until <= granted_at, "valid until {until}, the next one was granted at {granted_at}");
        }
    });
}

#[test]
fn when_the_session_ends_readers_and_permits_are_lost_and_those_behind_them_go_on() {
    simulated(async |servers| {
        let (own, rival) = (simulation::locks(&servers, 1).await, simulation::locks(&servers, 2).await);
        let reader = own.rwlock("lock").write().await.unwrap().downgrade().await.unwrap();
        let permit = own.semaphore("permits", 2).acquire().await.unwrap();
        let other = rival.semaphore("permits", 2).acquire().await.unwrap();
        let node = simulation::children(&servers, "lock").await.remove(0);
        let writing = simulation::write(&servers, 2, &rival, "lock");
        standing(&servers, "lock", 2).await;
        // In the ending session, too: it waits on in the next one.
        let semaphore = own.semaphore("permits", 2);
        let waiting = servers.start(1, async move { semaphore.acquire().await });
        standing(&servers, "permits", 3).await;
        servers.end_session(session(&node)).await;
        for loss in [reader.lost().await, permit.lost().await] {
            // The news that the node is gone may come first.
            assert!(matches!(loss, Loss::SessionEnded | Loss::Revoked), "{loss:?}");
        }
        let writer = writing.await.unwrap().unwrap();
        let waiting = waiting.await.unwrap().unwrap();
        assert!(other.is_valid() && writer.is_valid() && waiting.is_valid());
        own.close(Duration::from_secs(30)).await.unwrap();
        rival.close(Duration::from_secs(30)).await.unwrap();
        simulation::empty(&servers, "lock").await;
        simulation::empty(&servers, "permits").await;
    });
}
