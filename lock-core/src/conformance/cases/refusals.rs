//! What a backend does not promise, it refuses by name: the other side of every case that needs a feature.

use std::{sync::Arc, time::Duration};

use super::super::{
    Failure,
    client::CheckedClient,
    failure::{CaseResult, ensure},
    limits::within,
    run::CaseRun,
};
use crate::{Error, Feature, LockName, Locks};

/// The name of a call that needs a feature which the backend lacks, and the error that the call returned.
type RefusedCall = (&'static str, Option<Error>);

pub(super) async fn what_a_backend_lacks_is_refused_by_its_name(run: Arc<CaseRun>) -> CaseResult {
    for feature in run.missing(Feature::ALL).await? {
        Box::pin(is_refused(&run, feature)).await?;
    }
    Ok(())
}

/// Every operation that needs `feature` is refused with the names of the feature and of the backend, leaves nothing on the
/// servers, and the connection is as good as before.
async fn is_refused(run: &CaseRun, feature: Feature) -> CaseResult {
    let name = run.name();
    let client = run.connect().await?;
    client.uses(&name);
    let mut refusals = vec![("Locks::require", client.locks().require(feature).err())];
    refusals.extend(within("refusals", Box::pin(operations(&client, &name, feature))).await??);
    let backend = client.capabilities().backend;
    for (operation, refusal) in refusals {
        by_name(operation, refusal, feature, backend)?;
    }
    run.nothing_left(&name).await?;
    client.lock(&name).await?.release().await?;
    run.nothing_left(&name).await
}

fn by_name(operation: &str, refusal: Option<Error>, feature: Feature, backend: &str) -> CaseResult {
    let Some(refusal) = refusal else {
        return Err(Failure::new(format!(
            "{operation} was not refused, although {backend} does not promise {feature}"
        )));
    };
    let said = refusal.to_string();
    ensure!(
        matches!(refusal, Error::Unsupported { .. }) && said.contains(feature.name()) && said.contains(backend),
        "{operation} was refused without the names of {feature} and {backend}: {said}"
    );
    Ok(())
}

/// The operations that need `feature`.
async fn operations(client: &CheckedClient, name: &LockName, feature: Feature) -> CaseResult<Vec<RefusedCall>> {
    let (locks, text) = (client.locks(), name.as_str());
    Ok(match feature {
        Feature::Ttl => with_ttl(locks, text).await,
        Feature::LockDelay => with_lock_delay(locks, text).await,
        Feature::ReadWrite => reading_and_writing(locks, text).await,
        Feature::Downgrade => downgrading(client, name).await?,
        Feature::Semaphore => vec![
            ("Semaphore::acquire", locks.semaphore(text, 2).acquire().await.err()),
            ("Semaphore::try_acquire", locks.semaphore(text, 2).try_acquire().await.err()),
        ],
        Feature::Queue => {
            shows_nobody(client, name).await?;
            Vec::new()
        }
        Feature::Listing => vec![("Locks::list", locks.list(text).await.err())],
        Feature::ForcedRelease => vec![("Locks::revoke", locks.revoke(text, locks.fencing_token(1)).await.err())],
        // Promises about what happens by itself: only who requires them is refused.
        Feature::Fifo | Feature::Expiry | Feature::ClocklessToken => Vec::new(),
    })
}

async fn with_ttl(locks: &Locks, name: &str) -> Vec<RefusedCall> {
    let ttl = Duration::from_secs(5);
    vec![
        ("Mutex::lock with a ttl", locks.mutex(name).ttl(ttl).lock().await.err()),
        ("Mutex::try_lock with a ttl", locks.mutex(name).ttl(ttl).try_lock().await.err()),
        ("Election::campaign with a ttl", locks.election(name).ttl(ttl).campaign(*b"me").await.err()),
    ]
}

async fn with_lock_delay(locks: &Locks, name: &str) -> Vec<RefusedCall> {
    let delay = Duration::from_secs(1);
    vec![
        ("Mutex::lock with a delay", locks.mutex(name).lock_delay(delay).lock().await.err()),
        ("Mutex::try_lock with a delay", locks.mutex(name).lock_delay(delay).try_lock().await.err()),
        ("Election::campaign with a delay", locks.election(name).lock_delay(delay).campaign(*b"me").await.err()),
    ]
}

async fn reading_and_writing(locks: &Locks, name: &str) -> Vec<RefusedCall> {
    vec![
        ("RwLock::read", locks.rwlock(name).read().await.err()),
        ("RwLock::try_read", locks.rwlock(name).try_read().await.err()),
        ("RwLock::write", locks.rwlock(name).write().await.err()),
        ("RwLock::try_write", locks.rwlock(name).try_write().await.err()),
    ]
}

/// The guard comes back with the refusal, and still holds the lock.
async fn downgrading(client: &CheckedClient, name: &LockName) -> CaseResult<Vec<RefusedCall>> {
    if !client.supports(Feature::ReadWrite) {
        return Ok(Vec::new());
    }
    let refused = client.locks().rwlock(name.as_str()).write().await?.downgrade().await.err();
    let Some(failed) = refused else { return Ok(vec![("WriteGuard::downgrade", None)]) };
    let Some(guard) = failed.guard else {
        return Err(Failure::new("a refused downgrade did not give the guard back"));
    };
    ensure!(guard.is_valid(), "a refused downgrade cost the lock");
    ensure!(client.try_lock(name).await?.is_none(), "a refused downgrade let go of the lock");
    guard.release().await?;
    Ok(vec![("WriteGuard::downgrade", Some(failed.error))])
}

/// A look at a lock that others wait for shows only its holder.
async fn shows_nobody(client: &CheckedClient, name: &LockName) -> CaseResult {
    let guard = client.lock(name).await?;
    let waiter = tokio::spawn({
        let mutex = client.mutex(name);
        async move { mutex.lock().await }
    });
    let queue = client.inspect(name).await?.queue;
    ensure!(queue.is_empty(), "waiters are not promised to be shown, and show as {queue:?}");
    guard.release().await?;
    within("the next grant", waiter).await???.release().await?;
    Ok(())
}
