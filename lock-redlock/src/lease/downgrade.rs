//! The downgrade of a writer to a reader: each node does it in one step, and a majority has to.
//!
//! On a node that confirms, the holding never lapses: a writer that comes finds the string or the reader. So a majority of
//! confirming nodes keeps every other writer out throughout. Nodes that do not confirm, because they are silent or have lost
//! the lease, are asked to join the reader's lease with the next renewal. Until then they may have the writer's holding, under
//! the same value, which a join takes over and a release removes.

use std::sync::{Arc, Mutex};

use crate::nodes::scripts::held;
use lock_core::{Error, Loss, validity::deadline};

use crate::{
    lease::shared::SharedLease,
    nodes::{replies::Replies, requests::ask, scripts::Claim},
    protocol::{
        kind::LockKind,
        quorum_lease::{DowngradeConfirmed, QuorumLease, RenewRequest},
        votes::{Verdict, Vote, Votes},
    },
};

/// Makes a reader's lease of a writer's, with its token and its validity. The writer's renewal has been stopped.
pub(super) async fn downgrade(writer: &Arc<SharedLease>) -> Result<Arc<SharedLease>, Error> {
    let Some(observed) = writer.validity.observe() else { return Err(give_up(writer, None).await) };
    let quorum = &writer.quorum;
    let (mut replies, mut votes) = ask_writer(writer);
    let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
    while votes.verdict() == Verdict::Undecided {
        let Some((node, reply)) = replies.next().await else { break };
        let vote = match reply {
            Ok(true) => Vote::Granted,
            Ok(false) => Vote::Refused,
            Err(no_reply) => {
                failed.push((node, no_reply.reason()));
                Vote::Unknown
            }
        };
        confirmed.extend(confirmation(writer, &replies, node).filter(|_| vote == Vote::Granted));
        // A node that does not count for the writer was recorded as refusing from the start.
        votes.record(node, vote);
    }
    if votes.verdict() != Verdict::Granted {
        let is_gone = votes.count(Vote::Refused) >= quorum.majority();
        let error = (!is_gone).then(|| quorum.unavailable("confirms the downgrade", failed));
        return Err(give_up(writer, error).await);
    }
    let lease = writer.quorum_lease(|lease| QuorumLease::of_a_downgrade(lease, &confirmed, writer.token));
    let until = lease.valid_until();
    let reader = Arc::new(SharedLease {
        quorum: Arc::clone(quorum),
        name: writer.name.clone(),
        claim: Claim { kind: LockKind::Reader, ..writer.claim.clone() },
        token: writer.token,
        validity: writer.validity.clone(),
        lease: Mutex::new(lease),
    });
    // The nodes count the ttl anew. A deadline that has passed stays passed.
    if !until.is_some_and(|until| reader.validity.advance(observed, until)) {
        return Err(give_up(&reader, None).await);
    }
    quorum.cleanup().spawn(take_late_confirmations(Arc::clone(writer), Arc::clone(&reader), replies));
    Ok(reader)
}

/// Asks each node that keeps the writer. Nodes that do not count for the writer are recorded as refusing.
fn ask_writer(writer: &SharedLease) -> (Replies<bool>, Votes) {
    let quorum = &writer.quorum;
    let roster = quorum.members.roster();
    let plan = writer.quorum_lease(|lease| {
        lease.move_to(roster.members());
        lease.hand_over()
    });
    let call = |node: usize| match plan[node] {
        // By value and number, as for a renewal.
        RenewRequest::Extend(number) => Some(writer.claim.downgrade(number, writer.token, roster.stamp(node).ok()?)),
        RenewRequest::Rejoin => None,
    };
    let replies = ask(quorum, call, held);
    let mut votes = Votes::new(quorum.len());
    let counts = |node: usize| replies.is_open(node) && writer.quorum_lease(|lease| lease.counts(node));
    for node in (0..quorum.len()).filter(|node| !counts(*node)) {
        votes.record(node, Vote::Refused);
    }
    (replies, votes)
}

/// What a confirmation of `node` proves.
fn confirmation(writer: &SharedLease, replies: &Replies<bool>, node: usize) -> Option<DowngradeConfirmed> {
    let until = deadline(replies.sent(node)?.at, writer.ttl());
    Some(DowngradeConfirmed { node, counts: writer.quorum_lease(|lease| lease.counts(node)), until })
}

async fn take_late_confirmations(writer: Arc<SharedLease>, reader: Arc<SharedLease>, mut replies: Replies<bool>) {
    let members = writer.quorum_lease(|lease| lease.members().to_vec());
    while let Some((node, reply)) = replies.next_of_any().await {
        // The confirmation of a server that was replaced meanwhile does not count.
        if matches!(reply, Ok(true))
            && reader.quorum_lease(|lease| lease.is(node, members[node]))
            && let Some(confirmed) = confirmation(&writer, &replies, node)
        {
            reader.quorum_lease(|lease| lease.downgraded(confirmed, reader.token));
        }
    }
}

/// Releases the lease on all nodes, in either form. Returns the error of the downgrade.
async fn give_up(lease: &Arc<SharedLease>, error: Option<Error>) -> Error {
    let loss = lease.validity.loss();
    lease.validity.end(if error.is_none() { Loss::Revoked } else { Loss::Released });
    let released = lease.release().await;
    let lost = Error::Lost { name: lease.name.clone(), loss: loss.unwrap_or(Loss::Revoked) };
    error
        .or(released.err().filter(|error| matches!(error, Error::Unavailable { .. }) && loss.is_none()))
        .unwrap_or(lost)
}
