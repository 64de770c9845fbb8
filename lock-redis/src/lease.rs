//! A held lock: its renewal, its release, and its way from writer to reader.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use lock_core::{
    BootInstant, Error, Lease, LockName, Loss, ReleaseOutcome, RenewalHandle, Renewer, Validity, validity::deadline,
};

use crate::{
    client::Client,
    node::{FailureKind, NodeError},
    protocol::{
        answers::{Done, done},
        attempt::Attempt,
    },
    renewal::{HeldGrant, Watchdog},
    undo::{bury, give_back, go_on, leave_to_cleanup},
};

/// A renewal comes round this often in a ttl, so that two of them may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// Makes the leases of one connection, and has them renewed together. Clones share the renewer.
#[derive(Clone)]
pub(crate) struct Leases {
    client: Arc<Client>,
    renewer: Arc<Renewer<HeldGrant>>,
}

/// The lease of a lock held on Redis.
pub(crate) struct RedisLease {
    held: Arc<HeldGrant>,
    kept: RenewalHandle<HeldGrant>,
    leases: Leases,
}

impl Leases {
    pub(crate) fn new(client: &Arc<Client>) -> Self {
        let renewer = Renewer::new(&client.context, Arc::new(Watchdog { client: Arc::clone(client) }));
        Self { client: Arc::clone(client), renewer: Arc::new(renewer) }
    }

    /// Makes a lease of the grant with this number, and keeps it renewed for as long as `validity` lasts.
    pub(crate) fn grant(
        &self,
        name: &LockName,
        attempt: Arc<Attempt>,
        number: u64,
        validity: Validity,
    ) -> Box<RedisLease> {
        self.client.proposals.seen(number);
        let every = attempt.ttl / RENEWALS_PER_TTL;
        let is_passing_on = AtomicBool::new(false);
        let held =
            Arc::new(HeldGrant { name: name.clone(), attempt, number, validity: validity.clone(), is_passing_on });
        let kept = self.renewer.keep(Arc::clone(&held), validity, every);
        Box::new(RedisLease { held, kept, leases: self.clone() })
    }
}

impl RedisLease {
    /// Has the next renewal sent at `at`, unless one is due before.
    pub(crate) fn renew_by(&self, at: BootInstant) {
        self.kept.renew_by(at);
    }
}

#[async_trait]
impl Lease for RedisLease {
    fn token(&self) -> u64 {
        self.held.number
    }

    fn validity(&self) -> &Validity {
        &self.held.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Self { held, kept, leases: Leases { client, .. } } = *self;
        drop(kept);
        if held.validity.loss() == Some(Loss::Revoked) {
            bury(&client, &held.attempt);
            return Ok(ReleaseOutcome::Gone);
        }
        let given_back = give_back(&client, &held.attempt).await;
        // Safeguard: a request that was sent twice is buried at its release (Redis)
        // Also when it was gone already, or nobody knows: the cleanup gives back without a tombstone.
        bury(&client, &held.attempt);
        match given_back {
            Ok(true) => Ok(ReleaseOutcome::Released),
            Ok(false) => Ok(ReleaseOutcome::Gone),
            // Safeguard: catalogue: a release without an answer is repeated (Redis)
            Err(error) => {
                leave_to_cleanup(&client, &held.attempt);
                Err(client.unavailable(error))
            }
        }
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Self { held, kept, leases } = *self;
        let client = &leases.client;
        // Before its renewal ends, so that one under way is not taken for a loss.
        held.is_passing_on.store(true, Ordering::Release);
        drop(kept);
        let reader = Arc::new(held.attempt.as_reader());
        let seen = held.validity.observe();
        let sent_at = client.clock().now();
        let problem = match (seen, downgraded(client, &held.attempt).await) {
            (Some(seen), Ok(DowngradeAnswer { done: Done { had: true, .. }, is_acknowledged })) => {
                // What too few replicas know extends nothing. The writer's lease, which they know, is as long as before.
                if is_acknowledged {
                    held.validity.advance(seen, deadline(sent_at, reader.ttl));
                }
                match held.validity.loss() {
                    None => {
                        let validity = held.validity.clone();
                        return Ok(leases.grant(&held.name, reader, held.number, validity));
                    }
                    Some(loss) => held.lost(loss),
                }
            }
            (None, _) => held.lost(held.validity.loss().unwrap_or(Loss::Expired)),
            (_, Ok(_)) => {
                held.validity.end(Loss::Revoked);
                held.lost(Loss::Revoked)
            }
            (_, Err(error)) => client.unavailable(error),
        };
        held.validity.end(Loss::Released);
        // Whether it went on as a reader or not is not known: a reader's release gives back both.
        leave_to_cleanup(client, &reader);
        bury(client, &reader);
        Err(problem)
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisLease").field(&self.held).finish()
    }
}

/// The answer to a downgrade, and whether enough replicas have acknowledged it.
struct DowngradeAnswer {
    done: Done,
    /// Whether as many replicas as have to know of it do.
    is_acknowledged: bool,
}

/// Makes a reader of a writer; twice, should the connection break.
async fn downgraded(client: &Arc<Client>, writer: &Arc<Attempt>) -> Result<DowngradeAnswer, NodeError> {
    let mut sent = client.servers.call_replicated(writer.downgrade()).await;
    let mut is_acknowledged = true;
    if matches!(&sent.answer, Err(error) if error.kind() == FailureKind::Connection) {
        sent = client.servers.call_replicated(writer.downgrade()).await;
        // It may have found what the first one wrote, and have written nothing that could be acknowledged.
        is_acknowledged = client.servers.config().replicas.is_none();
    }
    is_acknowledged &= sent.acknowledged.is_ok();
    let done = done(&sent.answer?)?;
    go_on(client, writer, done.more);
    Ok(DowngradeAnswer { done, is_acknowledged })
}

#[cfg(test)]
mod tests {
    use std::{slice, time::Duration};

    use lock_core::{Context, Renew};
    use lock_lab::servers;

    use super::*;
    use crate::{
        Config,
        protocol::{
            answers::{Entered, entered},
            attempt::{Ask, Kind},
        },
        servers::Servers,
    };

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_renewal_that_arrives_after_the_downgrade_is_not_taken_for_a_loss() {
        let server = servers::Redis::start().await.unwrap();
        let (config, context) = (Config::new("127.0.0.1", server.port()), Context::current());
        let servers = Servers::connect(&config, &context).await.unwrap();
        let client = Arc::new(Client::new(config, servers, context));
        let name = LockName::new("a").unwrap();
        let attempt =
            Attempt::new(client.keys(&name).unwrap(), Kind::Writer, client.values.next(), TTL, Duration::ZERO);
        let ask = Ask { proposal: 0, payload: b"", waits: None };
        let answer = client.servers.call(attempt.enter(&ask)).await.unwrap();
        let Entered::Granted(number) = entered(&answer).unwrap() else { panic!("{answer:?}") };
        let validity = client.validity(client.clock().now(), TTL);
        let writer = Leases::new(&client).grant(&name, Arc::new(attempt), number, validity);
        let as_writer = Arc::clone(&writer.held);
        let reader = writer.downgrade().await.unwrap();
        Watchdog { client: Arc::clone(&client) }.renew(slice::from_ref(&as_writer)).await;
        assert_eq!(reader.validity().loss(), None);
        reader.release().await.unwrap();
    }
}
