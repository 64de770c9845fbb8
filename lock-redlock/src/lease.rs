//! A grant: what keeps it renewed, and how it is given back.

pub(crate) mod downgrade;
pub(crate) mod renewal;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{Error, Lease, LockName, ReleaseOutcome, RenewalHandle, Validity};
use lock_redis::{node::ScriptCall, scripts::held};

use crate::{
    acquisition::round::Attempt,
    backend::Redlock,
    lease::downgrade::downgrade,
    nodes::{
        quorum::{Quorum, unavailable},
        replies::{Replies, Reply},
        scripts::{QueueChange, undo},
        undo_queue::PendingUndo,
    },
    protocol::{
        quorum_lease::QuorumLease,
        votes::{Verdict, Vote, Votes, majority},
    },
};

/// What the renewal and the guard share.
pub(crate) struct SharedLease {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) name: LockName,
    pub(crate) attempt: Attempt,
    pub(crate) token: u64,
    pub(crate) validity: Validity,
    lease: Mutex<QuorumLease>,
}

/// What the guard has.
pub(crate) struct RedlockLease {
    held: Arc<SharedLease>,
    kept: RenewalHandle<SharedLease>,
    redlock: Arc<Redlock>,
}

impl SharedLease {
    pub(crate) fn new(
        quorum: Arc<Quorum>,
        name: LockName,
        attempt: Attempt,
        token: u64,
        validity: Validity,
        lease: QuorumLease,
    ) -> Self {
        Self { quorum, name, attempt, token, validity, lease: Mutex::new(lease) }
    }

    pub(crate) fn quorum_lease<T>(&self, work: impl FnOnce(&mut QuorumLease) -> T) -> T {
        work(&mut self.lease.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) const fn ttl(&self) -> Duration {
        self.attempt.ttl
    }

    /// Gives it back on all nodes, the silent ones included. Answers with the majority; the rest goes on in the
    /// background, and what fails there is the cleanup's.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when so many nodes did not answer that nobody knows whether a majority has it.
    pub(crate) async fn give_back(&self) -> Result<ReleaseOutcome, Error> {
        let quorum = &self.quorum;
        let roster = quorum.members.roster();
        let (calls, replaced): (Vec<Option<ScriptCall>>, usize) = self.quorum_lease(|lease| {
            lease.move_to(roster.members());
            // With a tombstone where the acquisition or a request to join may be on its way yet.
            let call =
                |node| undo(&self.attempt.keys, &self.attempt.value, lease.may_arrive_at(node), QueueChange::None);
            let calls = (0..quorum.len()).map(|node| lease.may_be_on(node).then(|| call(node))).collect();
            (calls, lease.replaced())
        });
        let mut replies = quorum.ask(|node| Some(calls[node].clone()?.into()), held);
        let mut votes = Votes::new(quorum.len());
        for node in (0..quorum.len()).filter(|node| calls[*node].is_none()) {
            votes.record(node, Vote::Refused);
        }
        let mut failed = Vec::new();
        // Silent nodes decide nothing while others may still answer that it is not there (any more).
        while votes.verdict() == Verdict::Undecided || (votes.verdict() == Verdict::Impossible && !is_off(&votes)) {
            // Once it certainly is on no majority any more, only the answers that come with these are of interest.
            let next = match is_off(&votes) {
                true => replies.next_soon(quorum).await,
                false => replies.next(quorum).await,
            };
            let Some((node, answer)) = next else { break };
            let vote = match answer {
                Ok(true) => Vote::Granted,
                Ok(false) => Vote::Refused,
                Err(no_reply) => {
                    failed.push((node, no_reply.reason()));
                    self.undo_later(node, calls[node].clone());
                    Vote::Unknown
                }
            };
            votes.record(node, vote);
        }
        // Those that were replaced kept it to the end.
        let released = if quorum.len() - votes.count(Vote::Refused) + replaced < quorum.majority() {
            Ok(ReleaseOutcome::Gone)
        } else if is_off(&votes) {
            Ok(ReleaseOutcome::Released)
        } else {
            Err(unavailable(quorum, "confirms the release", failed))
        };
        quorum.cleanup().spawn(clean_the_rest(Arc::clone(quorum), replies, calls, self.ttl()));
        released
    }

    fn undo_later(&self, node: usize, call: Option<ScriptCall>) {
        if let Some(call) = call {
            undo_later(&self.quorum, node, call, self.ttl());
        }
    }
}

/// Whether a majority has said that the lease is not there (any more): what the others may still have keeps nobody out.
fn is_off(votes: &Votes) -> bool {
    votes.count(Vote::Granted) + votes.count(Vote::Refused) >= majority(votes.as_slice().len())
}

async fn clean_the_rest(
    quorum: Arc<Quorum>,
    mut replies: Replies<Reply<bool>>,
    calls: Vec<Option<ScriptCall>>,
    ttl: Duration,
) {
    while let Some((node, answer)) = replies.next_of_any().await {
        if let (Err(_), Some(call)) = (answer, &calls[node]) {
            undo_later(&quorum, node, call.clone(), ttl);
        }
    }
}

fn undo_later(quorum: &Arc<Quorum>, node: usize, call: ScriptCall, ttl: Duration) {
    let until = quorum.clock().now().saturating_add(ttl);
    quorum.undo_later(node, PendingUndo { what: "release", call, until });
}

impl RedlockLease {
    pub(crate) const fn new(held: Arc<SharedLease>, kept: RenewalHandle<SharedLease>, redlock: Arc<Redlock>) -> Self {
        Self { held, kept, redlock }
    }
}

#[async_trait]
impl Lease for RedlockLease {
    fn token(&self) -> u64 {
        self.held.token
    }

    fn validity(&self) -> &Validity {
        &self.held.validity
    }

    async fn release(self: Box<Self>) -> Result<ReleaseOutcome, Error> {
        let Self { held, kept, .. } = *self;
        drop(kept);
        held.give_back().await
    }

    async fn downgrade(self: Box<Self>) -> Result<Box<dyn Lease>, Error> {
        let Self { held, kept, redlock } = *self;
        drop(kept);
        Ok(Box::new(downgrade(redlock, held).await?))
    }
}

impl fmt::Debug for SharedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedLease")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedlockLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedlockLease").field(&self.held).finish()
    }
}
