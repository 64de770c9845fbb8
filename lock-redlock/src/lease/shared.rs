//! What the guard of a lease and its renewal share, and the release.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_core::{Error, LockName, ReleaseOutcome, Validity};
use lock_redis::node::ScriptCall;

use crate::{
    nodes::{
        quorum::Quorum,
        replies::Replies,
        requests::ask,
        scripts::{Claim, QueueChange, held},
    },
    protocol::{
        quorum_lease::QuorumLease,
        votes::{Verdict, Vote, Votes, majority},
    },
};

/// A lease with its claim on the nodes and what each of them has confirmed.
pub(crate) struct SharedLease {
    pub(crate) quorum: Arc<Quorum>,
    pub(crate) name: LockName,
    pub(crate) claim: Claim,
    pub(crate) token: u64,
    pub(crate) validity: Validity,
    pub(crate) lease: Mutex<QuorumLease>,
}

impl SharedLease {
    pub(crate) fn quorum_lease<T>(&self, work: impl FnOnce(&mut QuorumLease) -> T) -> T {
        work(&mut self.lease.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) const fn ttl(&self) -> Duration {
        self.claim.ttl
    }

    /// Releases the lease on all nodes, silent ones included. Returns the majority's answer; the other nodes are asked in the
    /// background, and what fails there is left to the cleanup.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when so many nodes have not answered that a majority may still have the lease.
    pub(crate) async fn release(self: &Arc<Self>) -> Result<ReleaseOutcome, Error> {
        let quorum = &self.quorum;
        let roster = quorum.members.roster();
        let (calls, replaced): (Vec<Option<ScriptCall>>, usize) = self.quorum_lease(|lease| {
            lease.move_to(roster.members());
            // With a tombstone where the acquisition or a request to join may still be on its way.
            // Safeguard: a release buries what may still come (Redlock)
            let call = |node| self.claim.undo(lease.may_arrive_at(node), QueueChange::None);
            let calls = (0..quorum.len()).map(|node| lease.may_be_on(node).then(|| call(node))).collect();
            (calls, lease.replaced())
        });
        let mut replies = ask(quorum, |node| calls[node].clone(), held);
        let mut votes = Votes::new(quorum.len());
        for node in (0..quorum.len()).filter(|node| calls[*node].is_none()) {
            votes.record(node, Vote::Refused);
        }
        let (mut failed, mut contended) = (Vec::new(), false);
        // Silent nodes decide nothing while other nodes may still answer that the lease is not there.
        while votes.verdict() == Verdict::Undecided || (votes.verdict() == Verdict::Impossible && !is_off(&votes)) {
            // Once no majority has the lease, only answers that come at once are waited for. Where somebody else has ended a
            // part of the grant, a missing answer tells who ended it on a majority.
            // Safeguard: a release beside a forced one waits for the node that decides (Redlock)
            let next = match is_off(&votes) {
                true if contended => replies.next_of_any().await,
                true => replies.next_soon().await,
                false => replies.next().await,
            };
            let Some((node, reply)) = next else { break };
            let vote = match reply {
                Ok(true) => Vote::Granted,
                Ok(false) => {
                    contended = true;
                    Vote::Refused
                }
                Err(no_reply) => {
                    failed.push((node, no_reply.reason()));
                    // Safeguard: catalogue: a release without an answer is repeated (Redlock)
                    self.release_later(node, &calls);
                    Vote::Unknown
                }
            };
            votes.record(node, vote);
        }
        // The members that were replaced kept the lease to the end.
        let released = if quorum.len() - votes.count(Vote::Refused) + replaced < quorum.majority() {
            Ok(ReleaseOutcome::Gone)
        } else if is_off(&votes) {
            Ok(ReleaseOutcome::Released)
        } else {
            Err(quorum.unavailable("confirms the release", failed))
        };
        quorum.cleanup().spawn(Arc::clone(self).finish_release(replies, calls));
        released
    }

    async fn finish_release(self: Arc<Self>, mut replies: Replies<bool>, calls: Vec<Option<ScriptCall>>) {
        while let Some((node, reply)) = replies.next_of_any().await {
            if reply.is_err() {
                self.release_later(node, &calls);
            }
        }
    }

    fn release_later(&self, node: usize, calls: &[Option<ScriptCall>]) {
        if let Some(call) = &calls[node] {
            self.quorum.undo_later(node, "release", call.clone(), self.ttl());
        }
    }
}

/// Whether a majority has said that the lease is not there, or not any more: what other nodes still have keeps nobody out.
fn is_off(votes: &Votes) -> bool {
    votes.count(Vote::Granted) + votes.count(Vote::Refused) >= majority(votes.as_slice().len())
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
