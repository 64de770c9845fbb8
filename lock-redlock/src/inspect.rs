//! Inspecting a lock: the holders that a majority of the nodes shows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use lock_core::{Contender, Error, LockName, Snapshot};
use lock_redis::node::{NodeError, Value};

use crate::{
    members::status::why_no_vote,
    nodes::{
        quorum::Quorum,
        replies::NoReply,
        requests::ask_many,
        scripts::{
            LockKeys,
            look::{self, Holder, Look},
            read_status, status,
        },
    },
    protocol::{deployment::ServerStatus, kind::LockKind, votes::largest},
};

/// Asks all nodes who holds `name`, and in the same burst whether they vote. A lock that nobody holds is free only where a
/// majority votes: nodes that have lost their data show nobody, and grant nothing for the time of their quarantine.
pub(crate) async fn inspect(quorum: &Arc<Quorum>, name: &LockName) -> Result<Snapshot, Error> {
    let keys = LockKeys::new(&quorum.config.prefix, name);
    let mut replies = ask_many(quorum, |_| Some(vec![look::inspect(keys.common()), status()]));
    let (mut seen, mut failed, mut silent) = (Vec::new(), Vec::new(), Vec::new());
    while let Some((node, answers)) = replies.next().await {
        match answers.and_then(|answers| read(answers).map_err(NoReply::Failed)) {
            Ok((look, status)) => {
                seen.push(look);
                silent.extend(why_no_vote(&status).map(|state| (node, state.to_string())));
            }
            Err(no_reply) => failed.push((node, no_reply.reason())),
        }
    }
    let (answered, majority) = (seen.len(), quorum.majority());
    if answered < majority {
        return Err(quorum.unavailable("answers", failed));
    }
    let holders = holders(seen, majority);
    if holders.is_empty() && answered - silent.len() < majority {
        silent.extend(failed);
        return Err(quorum.unavailable("votes", silent));
    }
    Ok(Snapshot::new(holders, Vec::new()))
}

/// Reads what a node answers to both questions.
fn read(answers: Vec<Result<Value, NodeError>>) -> Result<(Look, ServerStatus), NodeError> {
    let mut answers = answers.into_iter();
    let mut next = || answers.next().unwrap_or_else(|| Err(NodeError::nonsense(&Value::Nil)));
    Ok((look::look(&next()?)?, read_status(&next()?)?))
}

/// The holders that a majority of the nodes shows, in the order of their tokens. What a minority shows is a vote that is
/// being lost, or what is left of a lease that is over.
fn holders(seen: Vec<Look>, majority: usize) -> Vec<Contender> {
    let mut shown: BTreeMap<Vec<u8>, Vec<(LockKind, Holder)>> = BTreeMap::new();
    for look in seen {
        let readers = look.readers.into_iter().map(|reader| (LockKind::Reader, reader));
        for (kind, holder) in look.alone.map(|writer| (LockKind::Writer, writer)).into_iter().chain(readers) {
            shown.entry(holder.value.clone()).or_default().push((kind, holder));
        }
    }
    let of_a_majority = shown.into_values().filter(|nodes| nodes.len() >= majority);
    let mut holders: Vec<Contender> = of_a_majority.map(|nodes| contender(&nodes, majority)).collect();
    holders.sort_by_key(|holder| (holder.token.is_none(), holder.token));
    holders
}

fn contender(nodes: &[(LockKind, Holder)], majority: usize) -> Contender {
    let (_, first) = &nodes[0];
    // During a downgrade some nodes show the writer and others the reader. The holder is a reader by then.
    let kind =
        if nodes.iter().any(|(kind, _)| *kind == LockKind::Reader) { LockKind::Reader } else { LockKind::Writer };
    let mut contender = Contender::new(String::from_utf8_lossy(&first.value))
        .with_payload(first.payload.clone())
        .with_mode(kind.mode());
    contender.token = agreed(nodes.iter().map(|(_, holder)| holder.number), majority);
    // The grant was complete with the last node of a majority. Nodes that joined later do not make it a later one.
    let mut since: Vec<u64> = nodes.iter().filter_map(|(_, holder)| holder.since).collect();
    since.sort_unstable();
    if let Some(since) = since.get(majority - 1) {
        contender = contender.with_since_micros(*since);
    }
    // For so long a majority keeps the lease.
    let remaining = nodes.iter().map(|(_, holder)| holder.remaining.unwrap_or(Duration::MAX));
    match largest(remaining, majority) {
        Some(remaining) if remaining < Duration::MAX => contender.with_remaining(remaining),
        _ => contender,
    }
}

/// The number that a majority of the nodes gave to a holding: its token. `None` while no majority agrees.
fn agreed(numbers: impl Iterator<Item = Option<u64>>, majority: usize) -> Option<u64> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for number in numbers.flatten() {
        *counts.entry(number).or_default() += 1;
    }
    counts.into_iter().find_map(|(number, count)| (count >= majority).then_some(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(value: &str, number: u64) -> Holder {
        Holder {
            value: value.as_bytes().to_vec(),
            number: Some(number),
            since: Some(number),
            remaining: Some(Duration::from_millis(number)),
            payload: Vec::new(),
        }
    }

    fn node(alone: Option<Holder>, readers: Vec<Holder>) -> Look {
        Look { alone, readers }
    }

    #[test]
    fn what_a_minority_shows_is_nobody() {
        let nodes = vec![node(Some(holder("x", 1)), Vec::new()), node(None, vec![holder("r", 2)]), Look::default()];
        assert!(holders(nodes, 2).is_empty());
    }

    #[test]
    fn a_token_is_shown_when_a_majority_has_it_as_the_number_of_the_holding() {
        let nodes = |numbers: [u64; 3]| numbers.map(|number| node(Some(holder("x", number)), Vec::new())).into();
        assert_eq!(holders(nodes([7, 9, 8]), 2)[0].token, None);
        assert_eq!(holders(nodes([7, 9, 7]), 2)[0].token, Some(7));
    }

    #[test]
    fn readers_are_shown_by_their_tokens_each_until_a_majority_keeps_it_no_longer() {
        let nodes = vec![
            node(None, vec![holder("r", 5), holder("s", 3)]),
            node(None, vec![holder("s", 3), holder("r", 5)]),
            node(None, vec![holder("r", 9)]),
        ];
        let shown = holders(nodes, 2);
        let seen: Vec<_> = shown.iter().map(|holder| (holder.id.as_str(), holder.token, holder.mode)).collect();
        let read = Some(lock_core::Mode::Read);
        assert_eq!(seen, [("s", Some(3), read), ("r", Some(5), read)]);
        assert_eq!(shown[1].remaining, Some(Duration::from_millis(5)));
        assert_eq!(shown[1].since, Contender::new("r").with_since_micros(5).since);
    }

    #[test]
    fn a_holder_in_the_middle_of_its_downgrade_is_one_reader() {
        let nodes = vec![node(Some(holder("x", 4)), Vec::new()), node(None, vec![holder("x", 4)]), Look::default()];
        let shown = holders(nodes, 2);
        assert_eq!((shown.len(), shown[0].mode), (1, Some(lock_core::Mode::Read)));
    }
}
