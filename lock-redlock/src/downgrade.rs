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
    backend::Redlock,
    holdings::{Downgraded, Holdings, Renewal},
    kind::Kind,
    lease::{Held, RedlockLease},
    panel::unavailable,
    quorum::{Verdict, Vote, Votes},
    replies::{Answer, Replies},
    round::Attempt,
    scripts,
};

/// Makes a reader's lease of a writer's, with its number and its validity. The writer's renewal has been stopped.
pub(crate) async fn downgrade(redlock: Arc<Redlock>, writer: Arc<Held>) -> Result<RedlockLease, Error> {
    let Some(observed) = writer.validity.observe() else { return give_up(&writer, None).await };
    let panel = &writer.panel;
    let (mut replies, mut votes) = ask(&writer);
    let (mut confirmed, mut failed) = (Vec::new(), Vec::new());
    while votes.verdict() == Verdict::Undecided {
        let Some((node, answer)) = replies.next(panel).await else { break };
        let vote = match answer {
            Ok(true) => Vote::Granted,
            Ok(false) => Vote::Refused,
            Err(silence) => {
                failed.push((node, silence.reason()));
                Vote::Unknown
            }
        };
        confirmed.extend(downgraded(&writer, &replies, node).filter(|_| vote == Vote::Granted));
        // Of a node that does not count it is a refusal from the start.
        votes.record(node, vote);
    }
    if votes.verdict() != Verdict::Granted {
        let is_gone = votes.count(Vote::Refused) >= panel.majority();
        let error = (!is_gone).then(|| unavailable(panel, "confirms the downgrade", failed));
        return give_up(&writer, error).await;
    }
    let holdings = writer.holdings(|holdings| Holdings::of_a_downgrade(holdings, &confirmed, writer.token));
    let until = holdings.valid_until();
    let reader = Arc::new(become_reader(&writer, holdings));
    // The nodes began to count anew. A deadline that has passed stays passed.
    if !until.is_some_and(|until| reader.validity.advance(observed, until)) {
        return give_up(&reader, None).await;
    }
    panel.cleanup().spawn(join_the_rest(Arc::clone(&writer), Arc::clone(&reader), replies));
    let kept = redlock.renewer.keep(Arc::clone(&reader), reader.validity.clone(), reader.ttl() / 3);
    Ok(RedlockLease::new(reader, kept, redlock))
}

/// Asks each node that keeps the writer. Those that do not count for it count as refusing.
fn ask(writer: &Held) -> (Replies<Answer<bool>>, Votes) {
    let seats = writer.panel.slots.seats();
    let plan = writer.holdings(|holdings| {
        holdings.move_to(seats.members());
        holdings.hand_over()
    });
    let Attempt { keys, value, ttl, payload, .. } = &writer.attempt;
    let call = |node: usize| match plan[node] {
        // Value and number, as for a renewal.
        Renewal::Extend(number) => {
            let stamp = seats.stamp(node).ok()?;
            Some(scripts::downgrade(keys, value, *ttl, number, writer.token, payload, stamp).into())
        }
        Renewal::Rejoin => None,
    };
    let replies = writer.panel.ask(call, is_held);
    let mut votes = Votes::new(writer.panel.len());
    let counts = |node: usize| replies.is_open(node) && writer.holdings(|holdings| holdings.counts(node));
    for node in (0..writer.panel.len()).filter(|node| !counts(*node)) {
        votes.record(node, Vote::Refused);
    }
    (replies, votes)
}

fn downgraded<'a>(
    held: &'a Held,
    replies: &'a Replies<Answer<bool>>,
    node: usize,
) -> impl Iterator<Item = Downgraded> + use<'a> {
    let counts = held.holdings(|holdings| holdings.counts(node));
    replies.sent(node).map(|sent| Downgraded { node, counts, until: deadline(sent.at, held.ttl()) }).into_iter()
}

fn become_reader(writer: &Held, holdings: Holdings) -> Held {
    let attempt = Attempt { kind: Kind::Reader, ..writer.attempt.clone() };
    let (panel, name, validity) = (Arc::clone(&writer.panel), writer.name.clone(), writer.validity.clone());
    Held::new(panel, name, attempt, writer.token, validity, holdings)
}

async fn join_the_rest(writer: Arc<Held>, reader: Arc<Held>, mut replies: Replies<Answer<bool>>) {
    let members = writer.holdings(|holdings| holdings.members().to_vec());
    while let Some((node, answer)) = replies.next_of_all().await {
        // Not of a server that was replaced meanwhile.
        if matches!(answer, Ok(true)) && reader.holdings(|holdings| holdings.is(node, members[node])) {
            for confirmed in downgraded(&writer, &replies, node) {
                reader.holdings(|holdings| holdings.downgraded(confirmed, reader.token));
            }
        }
    }
}

/// Gives everything back, on all nodes and in either form.
async fn give_up(held: &Held, error: Option<Error>) -> Result<RedlockLease, Error> {
    let loss = held.validity.loss();
    held.validity.end(if error.is_none() { Loss::Revoked } else { Loss::Released });
    let released = held.give_back().await;
    let lost = Error::Lost { name: held.name.clone(), loss: loss.unwrap_or(Loss::Revoked) };
    Err(error
        .or(released.err().filter(|error| matches!(error, Error::Unavailable { .. }) && loss.is_none()))
        .unwrap_or(lost))
}
