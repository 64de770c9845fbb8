//! What a connection has in the table: rows that are renewed, and the lease that one of them is.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{
    BootInstant, Context, Error, Feature, Lease, Loss, ReleaseOutcome, Renew, RenewalHandle, Renewer, Validity,
    validity::deadline,
};

use crate::{Sqlite, backend::NAME, database::Database, table::Attempt};

/// How many times a row is renewed within its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// A row that is renewed: a holder's, or a waiter's place in line.
#[derive(Debug)]
pub(crate) struct KeptRow {
    id: String,
    ttl: Duration,
    validity: Validity,
}

/// Keeps the rows of a connection alive.
#[derive(Debug)]
pub(crate) struct Rows {
    renewer: Renewer<KeptRow>,
    context: Context,
}

impl Rows {
    pub(crate) fn new(context: Context, database: Arc<Database>) -> Self {
        Self { renewer: Renewer::new(&context, Arc::new(RowRenewer(database))), context }
    }

    /// Keeps a row whose `ttl` counts from a request that was sent at `sent_at`, until the handle is dropped.
    pub(crate) fn keep(&self, id: &str, ttl: Duration, sent_at: BootInstant) -> (Validity, RenewalHandle<KeptRow>) {
        let validity = Validity::new(self.context.clock(), deadline(sent_at, ttl));
        let row = Arc::new(KeptRow { id: id.to_owned(), ttl, validity: validity.clone() });
        let renewal = self.renewer.keep(row, validity.clone(), ttl / RENEWALS_PER_TTL);
        (validity, renewal)
    }
}

struct RowRenewer(Arc<Database>);

#[async_trait]
impl Renew for RowRenewer {
    type Lease = KeptRow;

    async fn renew(&self, batch: &[Arc<KeptRow>]) {
        let batch: Vec<_> = batch.iter().filter_map(|row| Some((row, row.validity.observe()?))).collect();
        let rows: Vec<_> = batch.iter().map(|(row, _)| (row.id.clone(), row.ttl)).collect();
        let answer = self.0.request("a renewal", move |table, sent_at| table.renew(&rows, sent_at)).await;
        match answer {
            Ok((renewed, sent_at)) => {
                for ((row, observed), renewed) in batch.into_iter().zip(renewed) {
                    if renewed {
                        row.validity.advance(observed, deadline(sent_at, row.ttl));
                    } else {
                        row.validity.end(Loss::Revoked);
                    }
                }
            }
            Err(_) => batch.iter().for_each(|(row, _)| row.validity.set_expiry_cause(Loss::Unreachable)),
        }
    }
}

/// A grant.
pub(crate) struct SqliteLease {
    sqlite: Arc<Sqlite>,
    attempt: Arc<Attempt>,
    token: u64,
    validity: Validity,
    /// Dropped by the release, which ends the renewal.
    renewal: RenewalHandle<KeptRow>,
}

impl SqliteLease {
    pub(crate) fn new(sqlite: Arc<Sqlite>, attempt: Arc<Attempt>, token: u64, sent_at: BootInstant) -> Self {
        let (validity, renewal) = sqlite.rows.keep(&attempt.id, attempt.ttl, sent_at);
        Self { sqlite, attempt, token, validity, renewal }
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
        let Self { sqlite, attempt, renewal, .. } = *self;
        drop(renewal);
        match sqlite.leave(&attempt).await {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::Gone),
            Err(error) => {
                sqlite.leave_later("a release", &attempt);
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
