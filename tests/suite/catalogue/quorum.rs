//! Nodes that fail, and what a vote leaves on the others.

use std::time::Duration;

use lock::{Error, Locks};

use crate::catalogue::world::{LIMIT, LONG, Service, ask, key, on_each, within};

on_each! {
    a_frozen_minority_stalls_nobody: redlock;
    a_vote_that_is_lost_leaves_nothing_on_the_minority: redlock;
    an_acquisition_that_ends_in_an_error_is_undone_wherever_it_was_granted: redlock;
}

/// One of three nodes is frozen, and an answer may take as long as it likes: nobody waits for it, neither those who were
/// connected before nor those who come.
async fn a_frozen_minority_stalls_nobody(service: Service) {
    let before = service.connect(LONG).await;
    before.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.nodes()[0].stop().unwrap();
    let after = service.connect(LONG).await;
    for locks in [before, after] {
        let rounds = async |locks: &Locks| {
            for _ in 0..10 {
                locks.mutex("a").lock().await.unwrap().release().await.unwrap();
            }
        };
        within("ten rounds on two nodes of three", rounds(&locks)).await;
    }
    service.nodes()[0].cont().unwrap();
}

/// Two of three nodes are somebody else's, so the third one's vote is of no use.
async fn a_vote_that_is_lost_leaves_nothing_on_the_minority(service: Service) {
    let locks = service.connect(LONG).await;
    for node in &service.nodes()[1..] {
        let _: () = ask(node, &["SET", &key("a"), "somebody's"]).await;
    }
    let foreign = service.things("a").await;
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    service.until_only("a", &foreign).await;
    let error = locks.mutex("a").timeout(Duration::from_millis(300)).lock().await.unwrap_err();
    assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    service.until_only("a", &foreign).await;
}

/// One node grants, one grants and its answer does not come, and one answers with an error.
async fn an_acquisition_that_ends_in_an_error_is_undone_wherever_it_was_granted(service: Service) {
    let locks = service.connect_impatiently(LONG, Duration::from_millis(500)).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.until_only("a", &[]).await;
    let full = &service.nodes()[2];
    let _: () = ask(full, &["CONFIG", "SET", "maxmemory", "1"]).await;
    service.proxies[1].hold_replies();
    let error = within("the failure", locks.mutex("a").try_lock()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    service.proxies[1].heal();
    let _: () = ask(full, &["CONFIG", "SET", "maxmemory", "0"]).await;
    service.until_only("a", &[]).await;
    within("the next grant", locks.mutex("a").timeout(LIMIT).lock()).await.unwrap().release().await.unwrap();
}
