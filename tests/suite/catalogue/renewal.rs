//! Renewal that goes on when nobody holds the lock any more.

use std::time::Duration;

use lock_lab::proxy::Proxy;

use crate::catalogue::world::{LONG, Service, ask, eventually, key, on_each};

on_each! {
    nothing_renews_a_lock_after_its_release: redis, redlock;
    an_interrupted_acquisition_is_undone_and_not_renewed: zookeeper, redis, redlock;
}

/// After a release the test puts back on the servers what the holder had there. Should anybody still renew that, it would
/// never end; so it must end by itself.
async fn nothing_renews_a_lock_after_its_release(service: Service) {
    let locks = service.connect(Duration::from_secs(6)).await;
    let guard = locks.mutex("a").lock().await.unwrap();
    let (lock, token) = (key("a"), format!("{}:token", key("a")));
    let keys = [(lock.as_str(), "kept:lock"), (token.as_str(), "kept:token")];
    let nodes = service.nodes();
    service.held_everywhere("a").await;
    for node in nodes {
        for (key, kept) in keys {
            let _: u32 = ask(node, &["COPY", key, kept, "REPLACE"]).await;
        }
    }
    guard.release().await.unwrap();
    service.until_only("a", &[]).await;
    for node in nodes {
        for (key, kept) in keys {
            let _: u32 = ask(node, &["COPY", kept, key, "REPLACE"]).await;
        }
        let _: u32 = ask(node, &["PEXPIRE", &lock, "6000"]).await;
    }
    service.until_only("a", &[]).await;
}

/// A program gives up in the very moment in which the server grants.
async fn an_interrupted_acquisition_is_undone_and_not_renewed(service: Service) {
    let locks = service.connect_through(LONG).await;
    locks.mutex("a").lock().await.unwrap().release().await.unwrap();
    service.until_only("a", &[]).await;
    service.on_the_way(Proxy::hold_replies);
    let mutex = locks.mutex("a");
    let acquiring = tokio::spawn(async move { mutex.lock().await });
    let servers = service.proxies.len();
    eventually("it was granted", || async { service.things("a").await.len() == servers }).await;
    let sent = || service.proxies.iter().map(|proxy| proxy.requests().bytes).sum::<u64>();
    let before = sent();
    acquiring.abort();
    assert!(acquiring.await.is_err(), "nobody was told of the grant");
    // Before any answer: one that is faster than the news of the end would be given back as a grant that nobody took.
    eventually("it is withdrawn", async || sent() > before).await;
    service.on_the_way(Proxy::heal);
    service.until_only("a", &[]).await;
}
