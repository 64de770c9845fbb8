//! One client, no contention.

use lock::Locks;
use lock_core::{Clock, Error, Mutex};

use crate::{LabError, latency::Recorder, report::Uncontended, topology::Deployment};

/// Pairs before the measurement: connections are open, scripts are loaded, the server's code is warm.
const WARM_UP: usize = 200;

/// Acquires and releases one lock `pairs` times.
pub(super) async fn run(deployment: &Deployment, pairs: usize) -> Result<Uncontended, LabError> {
    let locks = Locks::connect(&deployment.url()).await.map_err(LabError::lock("connecting"))?;
    let mutex = locks.mutex("compare/uncontended");
    measure(mutex.clone(), WARM_UP).await?;
    let before = deployment.requests().await?;
    let figures = measure(mutex, pairs).await?;
    let requests = super::per(before, deployment.requests().await?, pairs);
    super::close(&locks).await;
    Ok(Uncontended { requests, ..figures })
}

/// The measurement is a task, as a server's request handlers are: on the thread that waits for the whole run, each answer
/// would first have to wake that thread, which on an idle virtual machine takes several round trips.
async fn measure(mutex: Mutex, pairs: usize) -> Result<Uncontended, LabError> {
    let outcome = LabError::joined(tokio::spawn(acquire_and_release(mutex, pairs)).await)?;
    outcome.map_err(LabError::lock("acquiring and releasing"))
}

async fn acquire_and_release(mutex: Mutex, pairs: usize) -> Result<Uncontended, Error> {
    let clock = Clock::boot();
    let [mut acquire, mut release, mut both] = [(); 3].map(|()| Recorder::new());
    let mut last_token = None;
    let mut tokens_rise = true;
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
            Err(error) if errors >= pairs / 10 => return Err(error),
            Err(_) => errors += 1,
        }
    }
    Ok(Uncontended {
        acquire: acquire.latency(),
        release: release.latency(),
        both: both.latency(),
        requests: None,
        errors,
        tokens_rise,
    })
}
