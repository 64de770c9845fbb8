//! Acquisitions that are cancelled at random moments, half of them while their connection is cut, and what they leave on
//! the servers: nothing. `cargo xtask cancellations` does this with ten thousand of them on each backend.
//!
//! `CANCEL_SEED=n` repeats the choices of an earlier run, `CANCEL_COUNT=n` says how many acquisitions are cancelled.

mod choices;
mod dropped;
mod run;
mod service;

use std::time::Duration;

use self::service::Service;

/// How many are cancelled on each backend, unless `CANCEL_COUNT` says otherwise.
const COUNT: usize = 400;

/// What is cancelled while its servers can be reached leaves nothing there after this. Held to where it is measured, on a
/// machine that has nothing else to do.
const AT_ONCE: Duration = Duration::from_secs(1);

async fn check(backend: &str, service: Service) {
    let given = std::env::var("CANCEL_COUNT").ok();
    let count = given.as_ref().map_or(COUNT, |count| count.parse().expect("CANCEL_COUNT is a whole number"));
    let (seed, bound) = (run::seed(), service.bound());
    println!("{backend}: CANCEL_SEED={seed}");
    let outcome = run::cancel(service, seed, count).await;
    print!("{backend}:\n{outcome}");
    assert!(outcome.cancelled() >= count, "CANCEL_SEED={seed}: {outcome}");
    if given.is_some() {
        assert!(outcome.reachable.slowest() <= AT_ONCE, "CANCEL_SEED={seed}: {outcome}");
        for half in [&outcome.cut, &outcome.stayed_cut] {
            assert!(half.slowest() <= bound + Duration::from_millis(250), "CANCEL_SEED={seed}: {outcome}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_in_memory() {
    check("memory", Service::memory().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_on_local_files() {
    check("local", Service::local()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_on_redis() {
    check("redis", Service::redis("").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_in_the_queue_on_redis() {
    check("redis, queue=fifo", Service::redis("&queue=fifo").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_on_redlock() {
    check("redlock", Service::redlock(3).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_on_zookeeper() {
    check("zk", Service::zookeeper("").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_cancelled_acquisitions_in_the_herd_on_zookeeper() {
    check("zk, strategy=herd", Service::zookeeper("&strategy=herd").await).await;
}
