//! The code of the README, as it stands there.

use std::{convert::Infallible, time::Duration};

use lock::{Error, FencingToken, Guard, Locks, Operation, Owner};

/// Where the README's holder writes.
struct Ledger;

impl Ledger {
    fn transfer(&self, _token: FencingToken) -> impl Future<Output = Result<(), Error>> {
        std::future::ready(Ok(()))
    }
}

/// Its servers are nowhere, so it is compiled and not run.
#[rustfmt::skip]
#[expect(dead_code, reason = "its servers are nowhere")]
async fn first_lines(ledger: &Ledger) -> Result<(), Error> {
    let locks = lock::connect("zk://10.0.0.1:2181,10.0.0.2:2181,10.0.0.3:2181/app").await?;

    let guard = locks.mutex("orders/4711").lock().await?;   // waits; renewed by itself while it lives
    ledger.transfer(guard.token()).await?;                  // a number that rises with every grant: let the store check it
    if guard.is_valid() { /* a clock read, no round trip */ }
    guard.release().await?;

    locks.close(Duration::from_secs(5)).await?;
    Ok(())
}

/// An operation that moves nothing.
struct Transfer;

impl Operation for Transfer {
    type Snapshot = ();
    type Output = ();
    type Error = Infallible;

    async fn snapshot(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    async fn apply(&mut self, _token: FencingToken) -> Result<(), Infallible> {
        Ok(())
    }

    async fn commit(&mut self, _token: FencingToken) -> Result<(), Infallible> {
        Ok(())
    }

    async fn restore(&mut self, _snapshot: (), _token: FencingToken) -> Result<(), Infallible> {
        Ok(())
    }
}

#[rustfmt::skip]
async fn what_else_there_is(
    locks: &Locks,
    guard: &Guard,
    owner: Owner,
    transfer: Transfer,
    limit: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let write = locks.rwlock("catalog").write().await?;         // readers share, writers are not starved
    let read = write.downgrade().await?;                        // no other writer comes between
    let permit = locks.semaphore("gpu", 4).acquire().await?;    // one of four
    let both = locks.multi(["account/4", "account/7"]).timeout(limit).lock().await?;    // all or nothing, never a deadlock
    let term = locks.election("scheduler").campaign("host-7").await?;   // and: .observe(), a stream of leaders
    let again = locks.mutex("orders").reentrant(&owner).lock().await?;  // its owner may take it again
    guard.transact(transfer).await?;    // snapshot, apply, then commit while the lock is held, or restore

    assert!(read.is_valid() && permit.is_valid() && both.is_valid() && term.is_valid() && again.is_valid());
    Ok(())
}

#[tokio::test]
async fn what_else_there_is_works() {
    let locks = lock::connect("memory://").await.unwrap();
    let guard = locks.mutex("orders/4711").lock().await.unwrap();
    let limit = Duration::from_secs(30);
    what_else_there_is(&locks, &guard, Owner::new(), Transfer, limit).await.unwrap();
    guard.release().await.unwrap();
    locks.close(limit).await.unwrap();
}
