//! The era: a store stays open to the holders of another lock service, whose numbers are lower.

use lock::{
    Fence, FencingToken,
    fence::redis::{FenceError, FencedKey},
};
use lock_lab::servers::{Redis, ZooKeeper};

async fn token(url: &str) -> FencingToken {
    let locks = lock::connect(url).await.unwrap();
    let guard = locks.mutex("report").lock().await.unwrap();
    guard.token()
}

fn in_era(url: &str, era: u32) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}era={era}")
}

#[tokio::test]
async fn after_a_move_to_a_service_with_lower_numbers_a_raised_era_opens_the_store_and_closes_it_to_the_old_service() {
    let redis = Redis::start().await.unwrap();
    let ensemble = ZooKeeper::start(1).await.unwrap();
    let mut store = redis.connection().await.unwrap();
    let fenced = FencedKey::new("report");

    let before = token(&redis.url()).await;
    fenced.set(&mut store, before, "by Redis").await.unwrap();

    // The move without a raised era: lower numbers, and the store refuses every holder.
    let missed = token(&ensemble.url()).await;
    assert!(missed.number < before.number, "{missed} and {before} show nothing");
    match fenced.set(&mut store, missed, "by ZooKeeper").await {
        Err(FenceError::Stale(stale)) => assert_eq!((stale.given, stale.highest), (missed, before)),
        other => panic!("not refused: {other:?}"),
    }

    let raised = token(&in_era(&ensemble.url(), 1)).await;
    assert!(raised.number < before.number && raised > before);
    fenced.set(&mut store, raised, "by ZooKeeper").await.unwrap();

    // A program that was not told of the move goes on with the old service, and is kept out from here on.
    let straggler = token(&redis.url()).await;
    assert!(straggler.number > raised.number);
    assert!(matches!(fenced.set(&mut store, straggler, "late").await, Err(FenceError::Stale(_))));
    // And so is one on the new service in the old era.
    let misconfigured = token(&ensemble.url()).await;
    assert!(matches!(fenced.set(&mut store, misconfigured, "late").await, Err(FenceError::Stale(_))));
}

/// A restored backup, or a restart without persistence: the same service counts from the beginning.
#[tokio::test]
async fn a_service_that_lost_its_numbers_is_let_in_again_by_a_raised_era() {
    let fence = Fence::new();
    let redis = Redis::start().await.unwrap();
    fence.check("report", token(&redis.url()).await).unwrap();
    let lost = token("memory://era").await;
    let stale = fence.check("report", lost).unwrap_err();
    assert_eq!(stale.given, lost);
    let raised = token("memory://era?era=1").await;
    fence.check("report", raised).unwrap();
    assert_eq!(fence.highest("report"), Some(raised));
    fence.check("report", token(&redis.url()).await).unwrap_err();
}
