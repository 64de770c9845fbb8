//! A held lock: its renewal, its release, and its way from writer to reader.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use lock_core::{Error, Lease, LockName, Loss, ReleaseOutcome, RenewalHandle, Request, Validity, validity::deadline};

use crate::{
    Redis,
    attempt::Granted,
    kind::Holding,
    node::{FailureKind, NodeError, ScriptCall},
    renewal::Held,
    scripts,
    servers::Servers,
};

/// A renewal comes round this often in a ttl, so that two of them may fail.
const RENEWALS_PER_TTL: u32 = 3;

/// A grant, as its guard has it.
pub(crate) struct RedisLease {
    pub(crate) held: Arc<Held>,
    pub(crate) kept: RenewalHandle<Held>,
    pub(crate) redis: Arc<Redis>,
}

impl Redis {
    /// Makes a lease of a grant.
    pub(crate) fn grant(self: &Arc<Self>, request: &Request, granted: Granted) -> Box<dyn Lease> {
        let Granted { holding, number, sent_at, .. } = granted;
        self.proposals().seen(number);
        // Safeguard: validity counts from the sending of the request (Redis)
        let validity = Validity::new(self.clock(), deadline(sent_at, holding.ttl));
        Box::new(self.hold(request.name.clone(), holding, number, validity))
    }

    /// Keeps what is held renewed from now on.
    pub(crate) fn hold(
        self: &Arc<Self>,
        name: LockName,
        holding: Holding,
        number: u64,
        validity: Validity,
    ) -> RedisLease {
        let every = holding.ttl / RENEWALS_PER_TTL;
        let is_passing_on = AtomicBool::new(false);
        let held = Arc::new(Held { name, holding, number, validity: validity.clone(), is_passing_on });
        let kept = self.renewer.keep(Arc::clone(&held), validity, every);
        RedisLease { held, kept, redis: Arc::clone(self) }
    }

    /// Has the cleanup release what could not be released, until it has ended by itself.
    pub(crate) fn leave_to_cleanup(&self, holdings: Vec<Holding>) {
        let ttl = holdings.iter().map(|holding| holding.ttl).max().unwrap_or_default();
        let until = self.clock().now().saturating_add(ttl);
        let (servers, url, holdings) = (self.servers().clone(), self.url(), Arc::new(holdings));
        self.cleanup().clean("a release without an answer", until, move || {
            let (servers, url, holdings) = (servers.clone(), url.clone(), Arc::clone(&holdings));
            async move {
                for holding in holdings.iter() {
                    give_back(&servers, holding).await.map_err(|error| error.into_error(&url))?;
                }
                Ok(())
            }
        });
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
        let Self { held, kept, redis } = *self;
        drop(kept);
        if held.validity.loss() == Some(Loss::Revoked) {
            redis.bury(&held.holding);
            return Ok(ReleaseOutcome::Gone);
        }
        let given_back = give_back(redis.servers(), &held.holding).await;
        // Safeguard: a request that was sent twice is buried at its release (Redis)
        // Also when it was gone already, or nobody knows: the cleanup gives back without a tombstone.
        redis.bury(&held.holding);
        match given_back {
            Ok(Some(listeners)) => {
                redis.released(held.holding.kind.family(), &held.name, listeners);
                Ok(ReleaseOutcome::Released)
            }
            Ok(None) => Ok(ReleaseOutcome::Gone),
            // Safeguard: catalogue: a release without an answer is repeated (Redis)
            Err(error) => {
                redis.leave_to_cleanup(vec![held.holding.clone()]);
                Err(redis.unavailable(error))
            }
        }
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Self { held, kept, redis } = *self;
        // Before its renewal ends, so that one under way is not taken for a loss.
        held.is_passing_on.store(true, Ordering::Release);
        drop(kept);
        let reader = held.holding.as_reader();
        let seen = held.validity.observe();
        let sent_at = redis.clock().now();
        let problem = match (seen, passed_on(redis.servers(), &held.holding).await) {
            (Some(seen), Ok(Passed::On { is_acknowledged })) => {
                // What too few replicas know extends nothing. The writer's lease, which they know, is as long as before.
                if is_acknowledged {
                    held.validity.advance(seen, deadline(sent_at, reader.ttl));
                }
                match held.validity.loss() {
                    None => {
                        return Ok(Box::new(redis.hold(held.name.clone(), reader, held.number, held.validity.clone())));
                    }
                    Some(loss) => held.lost(loss),
                }
            }
            (None, _) => held.lost(held.validity.loss().unwrap_or(Loss::Expired)),
            (_, Ok(Passed::Gone)) => {
                held.validity.end(Loss::Revoked);
                held.lost(Loss::Revoked)
            }
            (_, Err(error)) => redis.unavailable(error),
        };
        held.validity.end(Loss::Released);
        // Whether it went on as a reader or not is not known, so both are given back.
        redis.leave_to_cleanup(vec![held.holding.clone(), reader]);
        redis.bury(&held.holding);
        Err(problem)
    }
}

impl fmt::Debug for RedisLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisLease").field(&self.held).finish()
    }
}

/// What became of a writer that was to go on as a reader.
enum Passed {
    /// It reads; whether as many replicas as have to know of it do.
    On { is_acknowledged: bool },
    /// It was not held any more.
    Gone,
}

/// Makes a reader of a writer; twice, should the connection break.
async fn passed_on(servers: &Servers, writer: &Holding) -> Result<Passed, NodeError> {
    let mut sent = servers.call_relied(writer.downgrade()).await;
    let mut is_acknowledged = true;
    if matches!(&sent.answer, Err(error) if error.kind() == FailureKind::Connection) {
        sent = servers.call_relied(writer.downgrade()).await;
        // It may have found what the first one wrote, and have written nothing that could be acknowledged.
        is_acknowledged = servers.config().replicas.is_none();
    }
    is_acknowledged &= sent.acknowledged.is_ok();
    Ok(if scripts::held(&sent.answer?)? { Passed::On { is_acknowledged } } else { Passed::Gone })
}

/// Releases; how many were listening, or `None` when it was not held any more.
pub(crate) async fn give_back(servers: &Servers, holding: &Holding) -> Result<Option<u64>, NodeError> {
    let (listeners, resent) = twice(servers, || holding.release()).await?;
    // The first request may have been the one that released it.
    Ok(if resent { listeners.or(Some(0)) } else { listeners })
}

/// Makes a call and reads its answer as that of a release. When the connection broke, tries once more on the next one: a
/// lock that is not given back stands in everybody's way. Says, too, whether the first request may have run.
async fn twice(servers: &Servers, call: impl Fn() -> ScriptCall) -> Result<(Option<u64>, bool), NodeError> {
    let first = match servers.call(call()).await {
        Err(error) if error.kind() == FailureKind::Connection => error,
        done => return Ok((scripts::released(&done?)?, false)),
    };
    let second = servers.call(call()).await?;
    Ok((scripts::released(&second)?, first.is_unknown()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::{Clock, Renew};
    use lock_lab::servers;

    use super::*;
    use crate::{
        Config,
        kind::Kind,
        renewal::Watchdog,
        scripts::{Acquired, Ask, Attempt},
    };

    const TTL: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_renewal_that_arrives_after_the_downgrade_is_not_taken_for_a_loss() {
        let server = servers::Redis::start().await.unwrap();
        let redis = Redis::connect(Config::new("127.0.0.1", server.port())).await.unwrap();
        let name = LockName::new("a").unwrap();
        let attempt = Attempt::new(redis.keys(&name));
        let answer = redis.servers().call(attempt.acquire(&Ask::new(TTL, 0, b""), None)).await.unwrap();
        let Acquired::Granted(number) = scripts::acquired(&answer).unwrap() else { panic!("{answer:?}") };
        let validity = Validity::new(redis.clock(), Clock::boot().now().saturating_add(TTL));
        let holding = Holding::new(Kind::Alone, attempt, TTL, Duration::ZERO);
        let writer = redis.hold(name, holding, number, validity);
        let as_writer = Arc::clone(&writer.held);
        let reader = Box::new(writer).downgrade().await.unwrap();
        Watchdog { servers: redis.servers().clone() }.renew(&[as_writer]).await;
        assert_eq!(reader.validity().loss(), None);
        reader.release().await.unwrap();
    }
}
