//! What is renewed, and how.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use lock_core::{Error, LockName, Loss, Renew, Validity, validity::deadline};

use crate::{
    client::Client,
    node::{NodeError, Value},
    protocol::attempt::Attempt,
    servers::Durability,
};

/// A grant that is held, with all that its renewal and its release need.
#[derive(Debug)]
pub(crate) struct HeldGrant {
    pub(crate) name: LockName,
    pub(crate) attempt: Arc<Attempt>,
    pub(crate) number: u64,
    pub(crate) validity: Validity,
    /// It is about to go on as a reader, so the server may deny the writer.
    pub(crate) is_passing_on: AtomicBool,
}

/// Renews the leases of one connection, in a burst for each server.
pub(crate) struct Watchdog {
    pub(crate) client: Arc<Client>,
}

#[async_trait]
impl Renew for Watchdog {
    type Lease = HeldGrant;

    async fn renew(&self, batch: &[Arc<HeldGrant>]) {
        let due: Vec<_> = batch.iter().filter_map(|held| Some((held, held.validity.observe()?))).collect();
        let calls: Vec<_> = due.iter().map(|(held, _)| held.attempt.renew(held.number)).collect();
        let answers = self.client.servers.run(&calls, Durability::Replicated).await;
        for ((held, seen), sent) in due.into_iter().zip(answers) {
            let renewed = sent.answer.and_then(|answer| self::held(&answer));
            match (renewed, sent.acknowledged) {
                // Safeguard: a renewal counts when enough replicas have it (Redis)
                (Ok(true), Ok(())) => {
                    // Safeguard: catalogue: what is handed over counts from its renewal (Redis)
                    // Safeguard: the validity of a renewal counts from its sending (Redis)
                    held.validity.advance(seen, deadline(sent.at, held.attempt.ttl));
                }
                // A renewal that its holder's downgrade has overtaken: whether that one worked, it learns itself.
                // Safeguard: a renewal that a downgrade has overtaken is no loss (Redis)
                (Ok(false), _) if held.is_passing_on.load(Ordering::Acquire) => {}
                (Ok(false), _) => held.validity.end(Loss::Revoked),
                // A renewal that too few replicas have would be forgotten by one that takes over.
                (Ok(true), Err(error)) | (Err(error), _) => {
                    tracing::debug!(name = %held.name, %error, "a renewal was not acknowledged");
                    held.validity.set_expiry_cause(error.expiry_cause());
                }
            }
        }
    }
}

impl HeldGrant {
    /// The error of one that was lost.
    pub(crate) fn lost(&self, loss: Loss) -> Error {
        Error::Lost { name: self.name.clone(), loss }
    }
}

/// Reads the answer to a renewal: whether it is held.
pub(crate) fn held(answer: &Value) -> Result<bool, NodeError> {
    match answer {
        Value::Int(0) => Ok(false),
        Value::Int(1) => Ok(true),
        other => Err(NodeError::nonsense(other)),
    }
}
