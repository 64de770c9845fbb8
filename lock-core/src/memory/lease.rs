//! The lease: what is renewed, given back and downgraded.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::{
    contender::{Attempt, Grant},
    link::ServerLink,
};
use crate::{
    Error, Lease, LockName, Loss, ReleaseOutcome, Renew, RenewalHandle, Renewer, Validity, validity::deadline,
};

/// How many times a lease is renewed within its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// The part of a [`MemoryLease`] that its renewals need: the lease's number, name, ttl and validity.
pub(super) struct RenewedLease {
    pub(super) id: u64,
    pub(super) name: LockName,
    pub(super) validity: Validity,
    ttl: Duration,
}

/// The lease of a lock held on the memory server.
pub(super) struct MemoryLease {
    link: Arc<ServerLink>,
    held: Arc<RenewedLease>,
    token: u64,
    /// Dropped by the release, which ends the renewal.
    kept: RenewalHandle<RenewedLease>,
}

impl MemoryLease {
    pub(super) fn new(
        link: &Arc<ServerLink>,
        renewer: &Renewer<RenewedLease>,
        name: LockName,
        attempt: &Attempt,
        grant: Grant,
    ) -> Self {
        let ttl = attempt.ttl;
        let validity = Validity::new(link.server.clock(), deadline(grant.at, ttl));
        let held = Arc::new(RenewedLease { id: attempt.id, name, ttl, validity: validity.clone() });
        let kept = renewer.keep(Arc::clone(&held), validity, ttl / RENEWALS_PER_TTL);
        Self { link: Arc::clone(link), held, token: grant.token, kept }
    }

    fn lost(&self, loss: Loss) -> Error {
        Error::Lost { name: self.held.name.clone(), loss }
    }
}

#[async_trait]
impl Lease for MemoryLease {
    fn token(&self) -> u64 {
        self.token
    }

    fn validity(&self) -> &Validity {
        &self.held.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Self { link, held, kept, .. } = *self;
        drop(kept);
        link.travel().await;
        if let Err(error) = link.check_reachable() {
            let cleanup = link.context.cleanup().clone();
            let until = link.server.clock().now().saturating_add(held.ttl);
            cleanup.clean("release", until, move || {
                let left = link.check_reachable().map(|()| leave(&link, &held));
                async move { left.map(|_| ()) }
            });
            return Err(error);
        }
        Ok(if leave(&link, &held) { ReleaseOutcome::Released } else { ReleaseOutcome::Gone })
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        self.link.travel().await;
        let RenewedLease { id, name, validity, .. } = self.held.as_ref();
        let problem = match (validity.loss(), self.link.check_reachable()) {
            (Some(loss), _) => self.lost(loss),
            (None, Err(unreachable)) => unreachable,
            (None, Ok(())) if self.link.server.table(|table, now| table.downgrade(now, name, *id)) => {
                return Ok(self);
            }
            (None, Ok(())) => {
                validity.end(Loss::Revoked);
                self.lost(Loss::Revoked)
            }
        };
        // Neither a writer nor a reader any more: what there is on the server is given back, at once or by the cleanup.
        validity.end(Loss::Released);
        let _ = self.release().await;
        Err(problem)
    }
}

/// Takes a grant off the server; whether it was there.
fn leave(link: &ServerLink, held: &RenewedLease) -> bool {
    link.server.table(|table, now| table.leave(now, &held.name, held.id))
}

/// Renews the leases of one memory connection.
pub(super) struct MemoryRenewer {
    pub(super) link: Arc<ServerLink>,
}

#[async_trait]
impl Renew for MemoryRenewer {
    type Lease = RenewedLease;

    async fn renew(&self, batch: &[Arc<RenewedLease>]) {
        let sent_at = self.link.server.clock().now();
        let observed: Vec<_> = batch.iter().map(|held| held.validity.observe()).collect();
        self.link.travel().await;
        for (held, observed) in batch.iter().zip(observed) {
            let Some(observed) = observed else { continue };
            if self.link.check_reachable().is_err() {
                held.validity.set_expiry_cause(Loss::Unreachable);
                continue;
            }
            // Safeguard: a lease that a test lets run out is not renewed (memory)
            if !self.link.server.answers(held.id) {
                continue;
            }
            if self.link.server.table(|table, now| table.renew(now, &held.name, held.id)) {
                held.validity.advance(observed, deadline(sent_at, held.ttl));
            } else {
                held.validity.end(Loss::Revoked);
            }
        }
    }
}

impl fmt::Debug for MemoryLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryLease").field("name", &self.held.name).field("token", &self.token).finish_non_exhaustive()
    }
}
