//! A holder dies without a word.

use std::{path::Path, time::Duration};

use lock::Locks;
use lock_core::Clock;

use super::report::{HolderKilled, Settings};
use crate::{LabError, deployment::Running, holder::Holder, report::in_millis};

const NAME: &str = "compare/holder-killed";

/// Kills holders in processes of their own while another client waits.
pub(super) async fn run(running: &Running, settings: &Settings, program: &Path) -> Result<HolderKilled, LabError> {
    let lease = Duration::from_secs_f64(settings.lease_ms / 1e3);
    let url = running.url_with_lease(lease);
    let locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
    let mut next_grant_ms = Vec::new();
    for _ in 0..settings.kills {
        next_grant_ms.push(in_millis(once(&locks, &url, lease, program).await?));
    }
    super::close(&locks).await;
    let bound_ms = in_millis(running.deployment().succession(lease));
    Ok(HolderKilled { next_grant_ms, bound_ms })
}

/// One kill: the time from just before it to the next grant.
async fn once(locks: &Locks, url: &str, lease: Duration, program: &Path) -> Result<Duration, LabError> {
    let clock = Clock::boot();
    let holder = Holder::start(program, url, NAME).await?;
    let mutex = locks.mutex(NAME);
    let mut waiter = Box::pin(mutex.lock());
    // Long enough for the waiter to be in line, and so long that the kill meets any moment between two renewals.
    let pause = lease / 3 + lease.mul_f64(fastrand::f64() / 3.0);
    if clock.timeout(pause, &mut waiter).await.is_some() {
        return Err(LabError::run("another client was granted the lock while a living process held it"));
    }
    let killed = clock.now();
    holder.kill().await?;
    let guard = waiter.await.map_err(LabError::lock("waiting for the lock of a killed holder"))?;
    let took = clock.now().saturating_since(killed);
    guard.release().await.map_err(LabError::lock("releasing"))?;
    Ok(took)
}
