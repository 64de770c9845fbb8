//! Acquisitions that are cancelled at random moments, half of them while their connection is cut, and what they leave on
//! the servers: nothing. `cargo xtask cancellations` does this with ten thousand of them on each backend.
//!
//! `CANCEL_SEED=n` repeats the choices of an earlier run, `CANCEL_COUNT=n` says how many acquisitions are cancelled.

mod choices;
mod dropped;
mod run;
mod service;

use std::time::Duration;

use lock_lab::deployment::{Deployment, Trials};

use self::service::Service;

/// How many are cancelled on each backend, unless `CANCEL_COUNT` says otherwise.
const COUNT: usize = 400;

/// What is cancelled while its servers can be reached leaves nothing there after this. Held to where it is measured, on a
/// machine that has nothing else to do.
const AT_ONCE: Duration = Duration::from_secs(1);

async fn check(deployment: &str) {
    let deployment: Deployment = deployment.parse().expect("a deployment");
    let service = Service::of(deployment.start().await.expect("its servers start"));
    let given = std::env::var("CANCEL_COUNT").ok();
    let count = given.as_ref().map_or(COUNT, |count| count.parse().expect("CANCEL_COUNT is a whole number"));
    let (seed, bound) = (run::seed(), service.bound());
    println!("{deployment}: CANCEL_SEED={seed}");
    let outcome = run::cancel(service, seed, count).await;
    print!("{deployment}:\n{outcome}");
    assert!(outcome.cancelled() >= count, "CANCEL_SEED={seed}: {outcome}");
    if given.is_some() {
        assert!(outcome.reachable.slowest() <= AT_ONCE, "CANCEL_SEED={seed}: {outcome}");
        for half in [&outcome.cut, &outcome.stayed_cut] {
            assert!(half.slowest() <= bound + Duration::from_millis(250), "CANCEL_SEED={seed}: {outcome}");
        }
    }
}

/// One test for each of these deployments, and one that fails when the list leaves a backend out.
macro_rules! on_each {
    ($($test:ident: $key:literal),+ $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                check($key).await;
            }
        )+

        const KEYS: &[&str] = &[$($key),+];
    };
}

on_each! {
    nothing_is_left_of_cancelled_acquisitions_in_memory: "memory",
    nothing_is_left_of_cancelled_acquisitions_on_local_files: "local",
    nothing_is_left_of_cancelled_acquisitions_on_redis: "redis",
    nothing_is_left_of_cancelled_acquisitions_on_redlock: "redlock3",
    nothing_is_left_of_cancelled_acquisitions_on_zookeeper: "zk1",
    nothing_is_left_of_cancelled_acquisitions_in_the_herd_on_zookeeper: "zk1-herd",
}

#[test]
fn every_way_to_wait_has_its_trial() {
    // Deployments that differ only in how many servers there are, or in the way to them, wait in one way.
    let way = |one: Deployment| (one.scheme.split('+').next().unwrap_or_default(), one.settings);
    let tried: Vec<_> = KEYS.iter().map(|key| way(key.parse().unwrap())).collect();
    for deployment in Deployment::those(|one| one.trials == Trials::All || one.is_compared) {
        assert!(tried.contains(&way(deployment)), "{deployment} is not tried out");
    }
}
