//! A writer that becomes a reader: each node makes one of the other in one step, and a majority has to.
//!
//! On a node that confirms, the holding never lapses: a writer that comes finds the string or the reader. So a majority of
//! them keeps every other writer out throughout. Nodes that do not confirm, because they are silent or have lost the
//! lease, are asked to join the reader's lease with the next renewal; until then what may stand there is the writer's,
//! under the same value, which a join takes over and a release removes.

use std::sync::Arc;

use lock_core::{Error, Loss, validity::deadline};
use lock_redis::scripts::held as is_held;

use crate::{
    acquisition::round::Attempt,
    backend::Redlock,
    lease::{RedlockLease, SharedLease},
    nodes::{
        quorum::unavailable,
        replies::{Replies, Reply},
        scripts,
    },
    protocol::{
        kind::LockKind,
        quorum_lease::{DowngradeConfirmed, QuorumLease, RenewRequest},
        votes::{Verdict, Vote, Votes},
    },
};

/// Makes a reader's lease of a writer's, with its number and its validity. The writer's renewal has been stopped.
pub(crate) async fn downgrade(redlock: Arc<Redlock>, writer: Arc<SharedLease>) -> Result<RedlockLease, Error> {
    let Some(observed) = writer.validity.observe() else { return give_up(&writer, None).await };
    let quorum = &writer.quorum;
    let (mut replies, mut votes) = ask(&writer);
    let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
    while votes.verdict() == Verdict::Undecided {
        let Some((node, answer)) = replies.next(quorum).await else { break };
        let vote = match answer {
            Ok(true) => Vote::Granted,
            Ok(false) => Vote::Refused,
            Err(no_reply) => {
                failed.push((node, no_reply.reason()));
                Vote::Unknown
            }
        };
        confirmed.extend(downgraded(&writer, &replies, node).filter(|_| vote == Vote::Granted));
        // Of a node that does not count it is a refusal from the start.
        votes.record(node, vote);
    }
    if votes.verdict() != Verdict::Granted {
        let is_gone = votes.count(Vote::Refused) >= quorum.majority();
        let error = (!is_gone).then(|| unavailable(quorum, "confirms the downgrade", failed));
        return give_up(&writer, error).await;
    }
    let lease = writer.quorum_lease(|lease| QuorumLease::of_a_downgrade(lease, &confirmed, writer.token));
    let until = lease.valid_until();
    let reader = Arc::new(become_reader(&writer, lease));
    // The nodes began to count anew. A deadline that has passed stays passed.
    if !until.is_some_and(|until| reader.validity.advance(observed, until)) {
        return give_up(&reader, None).await;
    }
    quorum.cleanup().spawn(join_the_rest(Arc::clone(&writer), Arc::clone(&reader), replies));
    let kept = redlock.renewer.keep(Arc::clone(&reader), reader.validity.clone(), reader.ttl() / 3);
    Ok(RedlockLease::new(reader, kept, redlock))
}

/// Asks each node that keeps the writer. Those that do not count for it count as refusing.
fn ask(writer: &SharedLease) -> (Replies<Reply<bool>>, Votes) {
    let roster = writer.quorum.members.roster();
    let plan = writer.quorum_lease(|lease| {
        lease.move_to(roster.members());
        lease.hand_over()
    });
    let Attempt { keys, value, ttl, payload, .. } = &writer.attempt;
    let call = |node: usize| match plan[node] {
        // Value and number, as for a renewal.
        RenewRequest::Extend(number) => {
            let stamp = roster.stamp(node).ok()?;
            Some(scripts::downgrade(keys, value, *ttl, number, writer.token, payload, stamp).into())
        }
        RenewRequest::Rejoin => None,
    };
    let replies = writer.quorum.ask(call, is_held);
    let mut votes = Votes::new(writer.quorum.len());
    let counts = |node: usize| replies.is_open(node) && writer.quorum_lease(|lease| lease.counts(node));
    for node in (0..writer.quorum.len()).filter(|node| !counts(*node)) {
        votes.record(node, Vote::Refused);
    }
    (replies, votes)
}

fn downgraded<'a>(
    held: &'a SharedLease,
    replies: &'a Replies<Reply<bool>>,
    node: usize,
) -> impl Iterator<Item = DowngradeConfirmed> + use<'a> {
    let counts = held.quorum_lease(|lease| lease.counts(node));
    replies.sent(node).map(|sent| DowngradeConfirmed { node, counts, until: deadline(sent.at, held.ttl()) }).into_iter()
}

fn become_reader(writer: &SharedLease, lease: QuorumLease) -> SharedLease {
    let attempt = Attempt { kind: LockKind::Reader, ..writer.attempt.clone() };
    let (quorum, name, validity) = (Arc::clone(&writer.quorum), writer.name.clone(), writer.validity.clone());
    SharedLease::new(quorum, name, attempt, writer.token, validity, lease)
}

async fn join_the_rest(writer: Arc<SharedLease>, reader: Arc<SharedLease>, mut replies: Replies<Reply<bool>>) {
    let members = writer.quorum_lease(|lease| lease.members().to_vec());
    while let Some((node, answer)) = replies.next_of_any().await {
        // Not of a server that was replaced meanwhile.
        if matches!(answer, Ok(true)) && reader.quorum_lease(|lease| lease.is(node, members[node])) {
            for confirmed in downgraded(&writer, &replies, node) {
                reader.quorum_lease(|lease| lease.downgraded(confirmed, reader.token));
            }
        }
    }
}

/// Gives everything back, on all nodes and in either form.
async fn give_up(held: &SharedLease, error: Option<Error>) -> Result<RedlockLease, Error> {
    let loss = held.validity.loss();
    held.validity.end(if error.is_none() { Loss::Revoked } else { Loss::Released });
    let released = held.give_back().await;
    let lost = Error::Lost { name: held.name.clone(), loss: loss.unwrap_or(Loss::Revoked) };
    Err(error
        .or(released.err().filter(|error| matches!(error, Error::Unavailable { .. }) && loss.is_none()))
        .unwrap_or(lost))
}
