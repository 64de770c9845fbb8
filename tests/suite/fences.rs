//! Fences on real stores, with holders of real locks: an old one is refused, the new one writes as often as it likes.

mod era;
mod guide;
mod postgresql;
mod redis_store;
mod sqlite;
mod zookeeper;

use lock::FencingToken;

/// The tokens of a holder that has lost the lock meanwhile, and of the present one.
async fn old_and_new(url: &str) -> (FencingToken, FencingToken) {
    let locks = lock::connect(url).await.unwrap();
    let old = locks.mutex("report").lock().await.unwrap();
    let token = old.token();
    old.release().await.unwrap();
    let new = locks.mutex("report").lock().await.unwrap();
    (token, new.token())
}

/// A token of era 0.
const fn numbered(number: u64) -> FencingToken {
    FencingToken { era: 0, number }
}
