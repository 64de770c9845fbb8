//! The end of the counter that orders the queue, on a real server.

use std::time::Duration;

use crate::common::{children, config, eventually, outsider, server, within};
use lock_core::{Error, Locks};
use lock_lab::servers;
use lock_zk::{Config, ZooKeeper, protocol::queue::NUMBERS_END};
use zookeeper_client::Client;

/// Lets a directory's counter be `counter`, with what is in it, and waits until `holder` is connected again.
async fn set_counter(server: &mut servers::ZooKeeper, holder: &Locks, name: &str, counter: i32) {
    // A server takes a snapshot when it starts.
    server.restart(0).await.unwrap();
    // A client that has lost its server doubles its pauses, and may come back as late again as the server did. It waits
    // for that as long as it may, and its pauses begin anew.
    holder.inspect(name).await.unwrap();
    server.kill(0);
    crate::snapshot::set_counter(&server.data(0), &format!("{}/{name}", Config::ROOT), counter);
    server.restart(0).await.unwrap();
    holder.inspect(name).await.unwrap();
}

/// How often a child came to a lock's directory or went from it.
async fn changes(client: &Client, name: &str) -> i32 {
    let (_, stat) = client.get_children(&format!("{}/{name}", Config::ROOT)).await.unwrap();
    stat.cversion
}

/// A session that outlives the restarts, and waits for their end.
async fn patient(port: u16) -> Locks {
    const LONG: Duration = Duration::from_secs(60);
    let config = config(port).with_session_timeout(LONG).with_connect_timeout(LONG).with_response_timeout(LONG);
    Locks::new(ZooKeeper::connect(config).await.unwrap())
}

#[tokio::test]
async fn near_the_end_of_the_counter_contenders_are_refused_until_the_directory_is_empty_and_counts_anew() {
    let mut server = server().await;
    let port = server.ports()[0];
    let holder = patient(port).await;
    let held = holder.mutex("full").lock().await.unwrap();
    set_counter(&mut server, &holder, "full", NUMBERS_END).await;
    let (client, other) = (outsider(port).await, patient(port).await);
    for _ in 0..3 {
        let refused = within("a refusal", other.mutex("full").try_lock()).await.unwrap_err();
        assert!(matches!(&refused, Error::Unavailable { reason, .. } if reason.contains("used up")), "{refused}");
        assert_eq!(children(&client, "full").await.len(), 1, "the refused one left nothing");
    }
    assert!(held.is_valid());
    // Whoever waits has entered and left again, and waits without a node.
    let before = changes(&client, "full").await;
    let waiting = tokio::spawn({
        let mutex = other.mutex("full");
        async move { mutex.lock().await }
    });
    eventually("the waiter has withdrawn", || async { changes(&client, "full").await == before + 2 }).await;
    held.release().await.unwrap();
    let again = within("a grant", waiting).await.unwrap().unwrap();
    let children = children(&client, "full").await;
    assert!(children.len() == 1 && children[0].ends_with("-0000000000"), "{children:?}");
    assert!(holder.mutex("full").try_lock().await.unwrap().is_none());
    again.release().await.unwrap();
}

#[tokio::test]
async fn at_the_end_of_the_counter_no_two_hold_one_lock_by_one_number() {
    let mut server = server().await;
    let port = server.ports()[0];
    let locks = patient(port).await;
    locks.mutex("end").lock().await.unwrap().release().await.unwrap();
    set_counter(&mut server, &locks, "end", i32::MAX).await;
    let mut guards = Vec::new();
    for _ in 0..20 {
        // Whoever is refused because the others have not left yet does not hold, either.
        guards.extend(within("an answer", locks.mutex("end").try_lock()).await.ok().flatten());
    }
    assert_eq!(guards.len(), 1);
}
