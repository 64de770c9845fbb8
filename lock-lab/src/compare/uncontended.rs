//! One client, no contention.

use lock_core::{Clock, Error, Mutex};
use tokio::{runtime::Builder, sync::oneshot};

use super::report::Uncontended;
use crate::{LabError, deployment::Running, latency::Recorder};

/// Pairs before the measurement: connections are open, scripts are loaded, the server's code is warm.
const WARM_UP: usize = 200;

/// Acquires and releases one lock `pairs` times.
pub(super) async fn run(running: &Running, pairs: usize) -> Result<Uncontended, LabError> {
    let (warm, is_warm) = oneshot::channel();
    let (go, gone) = oneshot::channel();
    let url = running.plain_url();
    // One client is one thread: where the answer first has to wake another thread, an idle virtual machine takes longer
    // for that than for the round trip.
    let client = tokio::task::spawn_blocking(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|source| LabError::io("starting a runtime", source))?;
        runtime.block_on(client(url, pairs, warm, gone))
    });
    // Should the client fail before, it says so itself.
    let _ = is_warm.await;
    let before = running.requests().await?;
    let _ = go.send(());
    let figures = LabError::joined(client.await)??;
    Ok(Uncontended { requests: super::per(before, running.requests().await?, pairs), ..figures })
}

/// Connects and warms up, says so, and measures when it is told to.
async fn client(
    url: String,
    pairs: usize,
    warm: oneshot::Sender<()>,
    go: oneshot::Receiver<()>,
) -> Result<Uncontended, LabError> {
    let locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
    let mutex = locks.mutex("compare/uncontended");
    let failed = || LabError::lock("acquiring and releasing");
    acquire_and_release(&mutex, WARM_UP).await.map_err(failed())?;
    // The other side only goes away with the whole run.
    let _ = warm.send(());
    let _ = go.await;
    let figures = acquire_and_release(&mutex, pairs).await.map_err(failed())?;
    super::close(&locks).await;
    Ok(figures)
}

async fn acquire_and_release(mutex: &Mutex, pairs: usize) -> Result<Uncontended, Error> {
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
