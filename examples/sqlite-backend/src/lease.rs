//! The lease: what `lock-core` holds for a guard, and gives back.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use lock_core::{BootInstant, Error, Feature, Lease, Loss, ReleaseOutcome, RenewalHandle, Validity};

use crate::{
    config::NAME,
    rows::{RenewedRow, RowKeeper},
    table::Attempt,
};

/// The lease of a lock held in the database.
pub(crate) struct SqliteLease {
    rows: Arc<RowKeeper>,
    attempt: Arc<Attempt>,
    token: u64,
    validity: Validity,
    /// Dropped by the release, which ends the renewal.
    renewal: RenewalHandle<RenewedRow>,
}

impl SqliteLease {
    pub(crate) fn new(rows: Arc<RowKeeper>, attempt: Arc<Attempt>, token: u64, sent_at: BootInstant) -> Self {
        let (validity, renewal) = rows.keep(&attempt.id, attempt.ttl, sent_at);
        Self { rows, attempt, token, validity, renewal }
    }
}

#[async_trait]
impl Lease for SqliteLease {
    fn token(&self) -> u64 {
        self.token
    }

    fn validity(&self) -> &Validity {
        &self.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Self { rows, attempt, renewal, .. } = *self;
        drop(renewal);
        match rows.leave(&attempt).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::Gone),
            Err(error) => {
                rows.leave_later("a release", &attempt);
                Err(error)
            }
        }
    }

    /// Never called, for the capabilities lack it.
    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        self.validity.end(Loss::Released);
        self.release().await?;
        Err(Error::unsupported(Feature::Downgrade, NAME))
    }
}

impl fmt::Debug for SqliteLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLease")
            .field("attempt", &self.attempt)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
