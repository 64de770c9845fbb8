//! A server dies while locks are held.

use std::time::Duration;

use lock::Locks;
use lock_core::{BootInstant, Clock, Guard, LockName};

use super::report::{OldHolder, ServerKilled, Settings};
use crate::{
    LabError,
    deployment::Running,
    history::{Grant, History},
    load::Busy,
    report::in_millis,
};

const BUSY: &str = "compare/busy";
const HELD: &str = "compare/held";

/// A run counts only when there was real traffic before the fault.
const GRANTS_BEFORE: usize = 50;
/// How long that may take.
const TRAFFIC_LIMIT: Duration = Duration::from_secs(20);
/// How long the next grant may take.
const GRANT_LIMIT: Duration = Duration::from_secs(60);
/// How long the lock stays busy after the next grant of the held one.
const AFTERWARDS: Duration = Duration::from_millis(500);
/// Pause after an attempt that failed while the server was down.
const PAUSE: Duration = Duration::from_millis(5);

/// Kills the server (or the leader, or a node) under load.
pub(super) async fn run(running: &mut Running, settings: &Settings) -> Result<ServerKilled, LabError> {
    let clock = Clock::boot();
    let lease = Duration::from_secs_f64(settings.lease_ms / 1e3);
    let url = running.url_with_lease(lease);
    let hold = Duration::from_secs_f64(settings.hold_ms / 1e3);
    let busy = Busy::start(&url, BUSY, settings.load_clients, hold).await?;
    let old_locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
    let next_locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
    let requested = clock.now();
    let guard = old_locks.mutex(HELD).lock().await.map_err(LabError::lock("acquiring"))?;
    let old = Grant { client: 0, requested, granted: clock.now(), ended: requested, token: guard.token() };
    let next = tokio::spawn(next_holder(next_locks, lease));
    wait_for_traffic(&busy, lease).await?;
    let name = LockName::new(HELD).map_err(LabError::lock("naming the lock"))?;
    let victim = running.victim(&name).await;

    let killed = clock.now();
    let keep_until = killed.saturating_add(lease.mul_f64(super::HOLD_FOR_LEASES));
    let holder = tokio::spawn(old_holder(guard, keep_until));
    running.kill(victim);
    running.recover(victim).await?;
    let (ended, loss) = LabError::joined(holder.await)?;
    let (next, next_locks) = LabError::joined(next.await)??;
    clock.sleep(AFTERWARDS).await;
    let until = clock.now();
    let (history, errors) = busy.finish().await?;
    super::close(&old_locks).await;
    super::close(&next_locks).await;

    let old = Grant { ended, ..old };
    Ok(ServerKilled {
        no_grant_ms: in_millis(history.longest_gap(killed, until)),
        grants_before: history.grants().iter().filter(|grant| grant.granted < killed).count(),
        grants_after: history.grants().iter().filter(|grant| grant.granted >= killed).count(),
        errors,
        busy_overlaps: history.overlaps(),
        old_holder: {
            let after_ms = in_millis(ended.saturating_since(killed));
            match loss {
                None => OldHolder::Kept { released_ms: after_ms },
                Some(why) => OldHolder::Lost { after_ms, why },
            }
        },
        next_grant_ms: in_millis(next.granted.saturating_since(killed)),
        overlap_ms: in_millis(old.overlap(&next)),
        tokens_rise: history.tokens_rise() && History::new(vec![old, next]).tokens_rise(),
    })
}

/// Holds until it is told that the lock is lost, or until `keep_until`; then it releases. When it held the lock for the
/// last time, and why it was lost, if it was.
async fn old_holder(guard: Guard, keep_until: BootInstant) -> (BootInstant, Option<String>) {
    let clock = Clock::boot();
    let loss = tokio::select! {
        biased;
        loss = guard.lost() => Some(loss.to_string()),
        () = clock.sleep_until(keep_until) => None,
    };
    let ended = clock.now();
    // What it answers after a loss, or from a server that is down, changes nothing here.
    let _ = guard.release().await;
    (ended, loss)
}

/// Waits for the held lock, through the outage, and keeps it for `held_on`, for longer than the old holder may believe
/// in its own.
async fn next_holder(locks: Locks, held_on: Duration) -> Result<(Grant, Locks), LabError> {
    let clock = Clock::boot();
    let requested = clock.now();
    let deadline = requested.saturating_add(GRANT_LIMIT);
    loop {
        match locks.mutex(HELD).timeout(deadline.saturating_since(clock.now())).lock().await {
            Ok(guard) => {
                let granted = clock.now();
                let token = guard.token();
                let loss = clock.timeout(held_on, guard.lost()).await;
                let ended = clock.now();
                if loss.is_none() {
                    guard.release().await.map_err(LabError::lock("releasing"))?;
                }
                return Ok((Grant { client: 1, requested, granted, ended, token }, locks));
            }
            Err(error) if error.is_temporary() && clock.now() < deadline => clock.sleep(PAUSE).await,
            Err(error) => return Err(LabError::lock("waiting for the lock of the old holder")(error)),
        }
    }
}

/// Waits until the load has really run, and the held lock's lease was renewed.
async fn wait_for_traffic(busy: &Busy, lease: Duration) -> Result<(), LabError> {
    let clock = Clock::boot();
    let traffic = async {
        clock.sleep(lease / 2).await;
        while busy.grants() < GRANTS_BEFORE {
            clock.sleep(PAUSE).await;
        }
    };
    let enough = clock.timeout(TRAFFIC_LIMIT, traffic).await;
    enough.ok_or_else(|| LabError::run(format!("fewer than {GRANTS_BEFORE} grants before the fault")))
}
