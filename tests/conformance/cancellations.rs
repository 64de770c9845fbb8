//! Acquisitions that are cancelled at random moments, half of them while their connection is cut, and what they leave on
//! the servers: nothing. `cargo xtask cancellations` does this with ten thousand of them on each backend.
//!
//! `CANCEL_SEED=n` repeats the choices of an earlier run, `CANCEL_COUNT=n` says how many acquisitions are cancelled.

mod choices;
mod dropped;
mod run;
mod service;

use std::{collections::HashSet, time::Duration};

use lock_lab::deployment::{Deployment, Trials};

use self::service::Service;

/// How many are cancelled on each backend, unless `CANCEL_COUNT` says otherwise.
const COUNT: usize = 400;

/// What is cancelled while its servers can be reached leaves nothing there after this. Held to where it is measured, on a
/// machine that has nothing else to do.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Fails when something of a cancelled acquisition is left on that deployment.
pub(crate) async fn check(deployment: Deployment) {
    let service = Service::of(deployment.start().await.expect("its servers start"));
    let given = std::env::var("CANCEL_COUNT").ok();
    let count = given.as_ref().map_or(COUNT, |count| count.parse().expect("CANCEL_COUNT is a whole number"));
    let (seed, bound) = (run::seed(), service.bound());
    let outcome = run::cancel(service, seed, count).await;
    assert!(outcome.cancelled() >= count, "CANCEL_SEED={seed}: {outcome}");
    if given.is_some() {
        println!("{deployment}: CANCEL_SEED={seed}\n{outcome}");
        assert!(outcome.reachable.slowest() <= AT_ONCE, "CANCEL_SEED={seed}: {outcome}");
        for half in [&outcome.cut, &outcome.stayed_cut] {
            assert!(half.slowest() <= bound + Duration::from_millis(250), "CANCEL_SEED={seed}: {outcome}");
        }
    }
}

/// The deployments on which acquisitions are cancelled: one for each way to wait. Those that differ only in how many servers there
/// are, or in the way to them, wait in one way.
pub(crate) fn deployments() -> Vec<Deployment> {
    let way = |one: &Deployment| (one.scheme.split('+').next().unwrap_or_default(), one.settings);
    let mut tried: Vec<Deployment> =
        Deployment::those(|one| matches!(one.trials, Trials::All | Trials::AllButLong) || one.is_compared);
    tried.sort_by_key(|one| one.servers);
    let mut ways = HashSet::new();
    tried.retain(|one| ways.insert(way(one)));
    tried
}
