//! A grant: what keeps it renewed, and how it is given back.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use lock_core::{Error, Lease, LockName, ReleaseOutcome, RenewalHandle, Validity};
use lock_redis::{node::ScriptCall, scripts::held};

use crate::{
    backend::Redlock,
    cleaning::Rest,
    downgrade::downgrade,
    holdings::Holdings,
    panel::{Panel, unavailable},
    quorum::{Verdict, Vote, Votes, majority},
    replies::{Answer, Replies},
    round::Attempt,
    scripts::{Line, undo},
};

/// What the renewal and the guard share.
pub(crate) struct Held {
    pub(crate) panel: Arc<Panel>,
    pub(crate) name: LockName,
    pub(crate) attempt: Attempt,
    pub(crate) token: u64,
    pub(crate) validity: Validity,
    holdings: Mutex<Holdings>,
}

/// What the guard has.
pub(crate) struct RedlockLease {
    held: Arc<Held>,
    kept: RenewalHandle<Held>,
    redlock: Arc<Redlock>,
}

impl Held {
    pub(crate) fn new(
        panel: Arc<Panel>,
        name: LockName,
        attempt: Attempt,
        token: u64,
        validity: Validity,
        holdings: Holdings,
    ) -> Self {
        Self { panel, name, attempt, token, validity, holdings: Mutex::new(holdings) }
    }

    pub(crate) fn holdings<T>(&self, work: impl FnOnce(&mut Holdings) -> T) -> T {
        work(&mut self.holdings.lock().unwrap_or_else(PoisonError::into_inner))
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
        let panel = &self.panel;
        let seats = panel.slots.seats();
        let (calls, replaced): (Vec<Option<ScriptCall>>, usize) = self.holdings(|holdings| {
            holdings.move_to(seats.members());
            // With a tombstone where the acquisition or a request to join may be on its way yet.
            let call = |node| undo(&self.attempt.keys, &self.attempt.value, holdings.may_come_to(node), Line::None);
            let calls = (0..panel.len()).map(|node| holdings.may_be_on(node).then(|| call(node))).collect();
            (calls, holdings.replaced())
        });
        let mut replies = panel.ask(|node| Some(calls[node].clone()?.into()), held);
        let mut votes = Votes::new(panel.len());
        for node in (0..panel.len()).filter(|node| calls[*node].is_none()) {
            votes.record(node, Vote::Refused);
        }
        let mut failed = Vec::new();
        // Silent nodes decide nothing while others may still answer that it is not there (any more).
        while votes.verdict() == Verdict::Undecided || (votes.verdict() == Verdict::Impossible && !is_off(&votes)) {
            // Once it certainly is on no majority any more, only the answers that come with these are of interest.
            let next = match is_off(&votes) {
                true => replies.next_soon(panel).await,
                false => replies.next(panel).await,
            };
            let Some((node, answer)) = next else { break };
            let vote = match answer {
                Ok(true) => Vote::Granted,
                Ok(false) => Vote::Refused,
                Err(silence) => {
                    failed.push((node, silence.reason()));
                    self.clean(node, calls[node].clone());
                    Vote::Unknown
                }
            };
            votes.record(node, vote);
        }
        // Those that were replaced kept it to the end.
        let released = if panel.len() - votes.count(Vote::Refused) + replaced < panel.majority() {
            Ok(ReleaseOutcome::Gone)
        } else if is_off(&votes) {
            Ok(ReleaseOutcome::Released)
        } else {
            Err(unavailable(panel, "confirms the release", failed))
        };
        panel.cleanup().spawn(clean_the_rest(Arc::clone(panel), replies, calls, self.ttl()));
        released
    }

    fn clean(&self, node: usize, call: Option<ScriptCall>) {
        if let Some(call) = call {
            clean(&self.panel, node, call, self.ttl());
        }
    }
}

/// Whether a majority has said that the lease is not there (any more): what the others may still have keeps nobody out.
fn is_off(votes: &Votes) -> bool {
    votes.count(Vote::Granted) + votes.count(Vote::Refused) >= majority(votes.as_slice().len())
}

async fn clean_the_rest(
    panel: Arc<Panel>,
    mut replies: Replies<Answer<bool>>,
    calls: Vec<Option<ScriptCall>>,
    ttl: Duration,
) {
    while let Some((node, answer)) = replies.next_of_all().await {
        if let (Err(_), Some(call)) = (answer, &calls[node]) {
            clean(&panel, node, call.clone(), ttl);
        }
    }
}

fn clean(panel: &Arc<Panel>, node: usize, call: ScriptCall, ttl: Duration) {
    let until = panel.clock().now().saturating_add(ttl);
    panel.clean(node, Rest { what: "release", call, until });
}

impl RedlockLease {
    pub(crate) const fn new(held: Arc<Held>, kept: RenewalHandle<Held>, redlock: Arc<Redlock>) -> Self {
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

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
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
