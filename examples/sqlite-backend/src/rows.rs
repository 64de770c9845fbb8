//! What a connection has in the table: rows that are renewed while they are kept, and removed in the end.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{BootInstant, Context, Error, Loss, Renew, RenewalHandle, Renewer, Validity, validity::deadline};

use crate::{database::Database, table::Attempt};

/// How many times a row is renewed within its ttl.
const RENEWALS_PER_TTL: u32 = 3;

/// A row that is renewed before its ttl ends: a holder's, or that of a waiter in the queue.
#[derive(Debug)]
pub(crate) struct RenewedRow {
    id: String,
    ttl: Duration,
    validity: Validity,
}

/// Renews and removes the database rows of one connection's contenders.
#[derive(Debug)]
pub(crate) struct RowKeeper {
    context: Context,
    database: Arc<Database>,
    renewer: Renewer<RenewedRow>,
}

impl RowKeeper {
    pub(crate) fn new(context: Context, database: Arc<Database>) -> Self {
        let renewer = Renewer::new(&context, Arc::new(RowRenewer(Arc::clone(&database))));
        Self { context, database, renewer }
    }

    /// Keeps a row whose `ttl` counts from a request that was sent at `sent_at`, until the handle is dropped.
    pub(crate) fn keep(&self, id: &str, ttl: Duration, sent_at: BootInstant) -> (Validity, RenewalHandle<RenewedRow>) {
        let validity = Validity::new(self.context.clock(), deadline(sent_at, ttl));
        let row = Arc::new(RenewedRow { id: id.to_owned(), ttl, validity: validity.clone() });
        let renewal = self.renewer.keep(row, validity.clone(), ttl / RENEWALS_PER_TTL);
        (validity, renewal)
    }

    /// Removes the attempt's row. Says whether that was alive until then.
    pub(crate) async fn leave(&self, attempt: &Arc<Attempt>) -> Result<bool, Error> {
        let attempt = Arc::clone(attempt);
        let (was_alive, _) = self.database.request("removing a row", move |table, _| table.leave(&attempt.id)).await?;
        Ok(was_alive)
    }

    /// Removes the attempt's row in the background, however long that takes.
    pub(crate) fn leave_later(self: &Arc<Self>, what: &'static str, attempt: &Arc<Attempt>) {
        // The row lives for one ttl from now at most, and for another one if a renewal is under way, which finds it alive.
        let until = self.context.clock().now().saturating_add(attempt.ttl * 2);
        let (rows, attempt) = (Arc::clone(self), Arc::clone(attempt));
        self.context.cleanup().clean(what, until, move || {
            let (rows, attempt) = (Arc::clone(&rows), Arc::clone(&attempt));
            async move { rows.leave(&attempt).await.map(drop) }
        });
    }
}

/// Renews rows in batches, as the [`Renewer`] of a connection asks for it.
struct RowRenewer(Arc<Database>);

#[async_trait]
impl Renew for RowRenewer {
    type Lease = RenewedRow;

    async fn renew(&self, batch: &[Arc<RenewedRow>]) {
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
