//! A held lock: its renewal and its release.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use lock_core::{Error, Kept, Lease, LockName, Loss, Renewer, Validity, validity::deadline};

use crate::{
    Redis,
    node::{FailureKind, Node, NodeError},
    scripts::{self, Attempt},
};

/// What a grant is, for its renewal.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) name: LockName,
    pub(crate) attempt: Attempt,
    pub(crate) ttl: Duration,
    pub(crate) number: u64,
    pub(crate) validity: Validity,
}

/// Renews the leases of one server in bursts.
pub(crate) struct Watchdog {
    pub(crate) node: Node,
}

#[async_trait]
impl Renewer for Watchdog {
    type Lease = Held;

    async fn renew(&self, batch: &[Arc<Held>]) {
        let connection = match self.node.connection().await {
            Ok(connection) => connection,
            Err(error) => {
                tracing::debug!(%error, "renewals were not sent");
                batch.iter().for_each(|held| held.validity.suspect(Loss::Unreachable));
                return;
            }
        };
        let due: Vec<_> = batch.iter().filter_map(|held| Some((held, held.validity.observe()?))).collect();
        let calls: Vec<_> = due.iter().map(|(held, _)| held.attempt.renew(held.ttl, Duration::ZERO, None)).collect();
        // Before the sending: the server counts from later on, so the holder gives up first.
        let sent_at = self.node.clock().now();
        let answers = connection.run(&calls).await;
        for ((held, seen), answer) in due.into_iter().zip(answers) {
            match answer.and_then(|answer| scripts::held(&answer)) {
                Ok(true) => {
                    held.validity.advance(seen, deadline(sent_at, held.ttl));
                }
                Ok(false) => held.validity.end(Loss::TakenAway),
                Err(error) => {
                    tracing::debug!(name = %held.name, %error, "a renewal was not acknowledged");
                    held.validity.suspect(Loss::Unreachable);
                }
            }
        }
    }
}

/// The grant, as `lock-core` has it.
pub(crate) struct RedisLease {
    pub(crate) held: Arc<Held>,
    pub(crate) kept: Kept<Held>,
    pub(crate) redis: Arc<Redis>,
}

#[async_trait]
impl Lease for RedisLease {
    fn token(&self) -> u64 {
        self.held.number
    }

    fn validity(&self) -> &Validity {
        &self.held.validity
    }

    async fn release(self: Box<Self>) -> Result<(), Error> {
        let Self { held, kept, redis } = *self;
        drop(kept);
        let before = held.validity.loss();
        // Before the sending: a successor may hold the lock before the answer is here.
        held.validity.end(Loss::Released);
        redis.forget(&held);
        if let Some(loss @ (Loss::TakenAway | Loss::Closed)) = before {
            return Err(Error::Lost { name: held.name.clone(), loss });
        }
        match give_back(redis.node(), &held.attempt).await {
            Ok(Some(listeners)) => {
                redis.released(&held.name, listeners);
                Ok(())
            }
            Ok(None) => Err(Error::Lost { name: held.name.clone(), loss: before.unwrap_or(Loss::TakenAway) }),
            Err(error) => {
                redis.leave_to_janitor(&held);
                Err(redis.unavailable(error))
            }
        }
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisLease").field(&self.held).finish()
    }
}

/// Releases; how many were listening, or `None` when it was not held any more. When the connection broke, tries once more
/// on the next one: a lock that is not given back stands in everybody's way.
pub(crate) async fn give_back(node: &Node, attempt: &Attempt) -> Result<Option<u64>, NodeError> {
    let first = match release(node, attempt).await {
        Err(error) if error.kind() == FailureKind::Connection => error,
        done => return done,
    };
    let second = release(node, attempt).await?;
    // The first request may have been the one that released it.
    Ok(if first.is_unknown() { second.or(Some(0)) } else { second })
}

async fn release(node: &Node, attempt: &Attempt) -> Result<Option<u64>, NodeError> {
    scripts::released(&node.call(attempt.release(Duration::ZERO)).await?)
}
