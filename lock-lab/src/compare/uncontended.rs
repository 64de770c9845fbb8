//! One client, no contention.

use lock::Locks;
use lock_core::Clock;

use crate::{LabError, latency::Recorder, report::Uncontended, topology::Deployment};

/// Pairs before the measurement: connections are open, scripts are loaded, the server's code is warm.
const WARM_UP: usize = 200;

/// Acquires and releases one lock `pairs` times.
pub(super) async fn run(deployment: &Deployment, pairs: usize) -> Result<Uncontended, LabError> {
    let locks = Locks::connect(&deployment.url()).await.map_err(LabError::lock("connecting"))?;
    let mutex = locks.mutex("compare/uncontended");
    let clock = Clock::boot();
    for _ in 0..WARM_UP {
        let guard = mutex.lock().await.map_err(LabError::lock("acquiring"))?;
        guard.release().await.map_err(LabError::lock("releasing"))?;
    }
    let [mut acquire, mut release, mut both] = [(); 3].map(|()| Recorder::new());
    let mut last_token = None;
    let mut tokens_rise = true;
    let before = deployment.requests().await?;
    let mut errors = 0;
    for _ in 0..pairs {
        let start = clock.now();
        let attempt = mutex.lock().await;
        let granted = clock.now();
        let released = match attempt {
            Ok(guard) => {
                tokens_rise &= last_token < Some(guard.token());
                last_token = Some(guard.token());
                guard.release().await
            }
            Err(error) => Err(error),
        };
        let end = clock.now();
        match released {
            Ok(()) => {
                acquire.record(granted.saturating_since(start));
                release.record(end.saturating_since(granted));
                both.record(end.saturating_since(start));
            }
            Err(error) if errors >= pairs / 10 => return Err(LabError::lock("acquiring and releasing")(error)),
            Err(_) => errors += 1,
        }
    }
    let requests = super::per(before, deployment.requests().await?, pairs);
    super::close(&locks).await;
    Ok(Uncontended {
        acquire: acquire.latency(),
        release: release.latency(),
        both: both.latency(),
        requests,
        errors,
        tokens_rise,
    })
}
