//! The leases that a connection holds: who ends one ends its validity first, and only once.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tokio::sync::Notify;

use crate::{Lease, Loss, Validity, safeguard};

/// The table of every lease that one connection holds, from the lease's grant until somebody ends the lease.
#[derive(Debug, Default)]
pub(crate) struct HeldLeases(Arc<Mutex<LeaseTable>>);

/// The state behind the clones of [`HeldLeases`]: the leases by number, and whether the connection is closed.
#[derive(Debug, Default)]
struct LeaseTable {
    /// In the order of the grants. A lease that is being downgraded is `None`.
    leases: BTreeMap<u64, Option<Box<dyn Lease>>>,
    next: u64,
    closed: bool,
    /// Told when the last lease goes. Made by the first who waits for that.
    emptied: Option<Arc<Notify>>,
}

/// The claim of a guard on one lease in the table of [`HeldLeases`]. Whoever ends the lease first gets it; everybody else
/// finds it gone.
#[derive(Clone)]
pub(crate) struct HeldLease {
    table: Weak<Mutex<LeaseTable>>,
    id: u64,
}

/// A lease whose validity was ended on this side, and which is still to be released on the servers.
#[derive(Debug)]
pub(crate) struct EndedLease {
    pub(crate) lease: Box<dyn Lease>,
    /// Why it was lost before it was ended.
    pub(crate) lost: Option<Loss>,
}

impl EndedLease {
    /// Ends the validity of `lease` because of `loss`, unless it is lost already.
    pub(crate) fn new(lease: Box<dyn Lease>, loss: Loss) -> Self {
        let lost = lease.validity().loss();
        // Before the request is sent: a successor may hold the lock before the answer is here.
        if safeguard("end-before-release") {
            // Safeguard: a release ends the validity before the request is sent
            lease.validity().end(loss);
        }
        Self { lease, lost }
    }
}

impl HeldLeases {
    /// Takes a granted lease in, whose validity is returned with the claim on it. A connection that is closed gives it back.
    pub(crate) fn insert(&self, lease: Box<dyn Lease>) -> Result<(HeldLease, Validity), Box<dyn Lease>> {
        let mut table = open(&self.0);
        if table.closed {
            return Err(lease);
        }
        let (id, validity) = (table.next, lease.validity().clone());
        table.next += 1;
        table.leases.insert(id, Some(lease));
        Ok((HeldLease { table: Arc::downgrade(&self.0), id }, validity))
    }

    /// Resolves when there is none.
    pub(crate) async fn emptied(&self) {
        let told = Arc::clone(open(&self.0).emptied.get_or_insert_default());
        loop {
            // Before the look, so that the last one cannot go in between unnoticed.
            let emptied = told.notified();
            if open(&self.0).leases.is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Ends all of them; none is taken in from here on.
    pub(crate) fn close(&self) -> Vec<EndedLease> {
        let mut table = open(&self.0);
        table.closed = true;
        let leases = std::mem::take(&mut table.leases);
        table.tell_emptied();
        drop(table);
        leases.into_values().flatten().map(|lease| EndedLease::new(lease, Loss::Closed)).collect()
    }
}

impl HeldLease {
    /// Ends it, unless somebody else has.
    pub(crate) fn end(&self, loss: Loss) -> Option<EndedLease> {
        let table = self.table.upgrade()?;
        let mut table = open(&table);
        let lease = table.leases.remove(&self.id)?;
        // Safeguard: a drain ends with the last lease
        if table.leases.is_empty() {
            table.tell_emptied();
        }
        drop(table);
        Some(EndedLease::new(lease?, loss))
    }

    /// Takes the lease out to make another one of it; see [`HeldLease::put`].
    pub(crate) fn take(&self) -> Option<Box<dyn Lease>> {
        let table = self.table.upgrade()?;
        open(&table).leases.get_mut(&self.id)?.take()
    }

    /// Puts in its place what was made of it. Gives it back when it was ended meanwhile.
    pub(crate) fn put(&self, lease: Box<dyn Lease>) -> Result<(), Box<dyn Lease>> {
        let Some(table) = self.table.upgrade() else { return Err(lease) };
        match open(&table).leases.get_mut(&self.id) {
            Some(place) => {
                *place = Some(lease);
                Ok(())
            }
            None => Err(lease),
        }
    }
}

impl LeaseTable {
    /// Tells those who wait for that that there is no lease any more.
    fn tell_emptied(&self) {
        self.emptied.iter().for_each(|emptied| emptied.notify_waiters());
    }
}

fn open(table: &Mutex<LeaseTable>) -> MutexGuard<'_, LeaseTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for HeldLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldLease").field("id", &self.id).finish_non_exhaustive()
    }
}
