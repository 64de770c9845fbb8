//! The token of a won vote: the number that the nodes agree on, by further requests where they did not at once.

use std::{sync::Arc, time::Duration};

use crate::nodes::scripts::held;
use lock_core::safeguard;

use crate::{
    nodes::{
        quorum::Quorum,
        replies::Replies,
        requests::{Read, ask},
        scripts::{Claim, renumbered},
    },
    protocol::{
        kind::LockKind,
        token::{NodeNumber, Numbering, Renumbered, Settlement, settle},
        votes::{Verdict, Vote, Votes},
    },
};

/// How often a reader proposes a number before it begins anew.
const PROPOSALS: u32 = 10;
/// By how much, at most, a reader's second proposal leads the time that has passed. The lead doubles with each further one.
const LEAD: Duration = Duration::from_micros(200);

/// The token of a grant, and the number that each node that granted has given to the holding.
type Settled = (u64, Vec<NodeNumber>);

/// Settles the token of a vote that these numbers won. `None` when it is no grant; the attempt is to be undone then.
pub(super) async fn settle_token(quorum: &Arc<Quorum>, claim: &Claim, numbers: Vec<NodeNumber>) -> Option<Settled> {
    match claim.kind {
        LockKind::Writer => settle_writer(quorum, claim, numbers).await,
        LockKind::Reader => settle_reader(quorum, claim, numbers).await,
    }
}

async fn settle_writer(quorum: &Arc<Quorum>, claim: &Claim, mut numbers: Vec<NodeNumber>) -> Option<Settled> {
    let Settlement { token, exact, behind } = settle(&numbers, quorum.len())?;
    // Safeguard: the write-back of the token (Redlock)
    if !behind.is_empty() && safeguard("write-back") {
        let mut votes = Votes::new(quorum.len());
        for node in exact {
            votes.record(node, Vote::Granted);
        }
        let mut replies = ask_to_renumber(quorum, claim, &behind, token, held);
        // Only nodes that granted can confirm: on any other node no holding of ours keeps other contenders away.
        for node in (0..quorum.len()).filter(|node| !replies.is_open(*node)) {
            votes.record(node, Vote::Refused);
        }
        while votes.verdict() == Verdict::Undecided {
            let (node, reply) = replies.next().await?;
            let confirmed = matches!(reply, Ok(true));
            votes.record(node, if confirmed { Vote::Granted } else { Vote::Unknown });
            for known in numbers.iter_mut().filter(|known| confirmed && known.node == node) {
                known.number = token;
            }
        }
        if votes.verdict() != Verdict::Granted {
            return None;
        }
    }
    Some((token, numbers))
}

async fn settle_reader(quorum: &Arc<Quorum>, claim: &Claim, numbers: Vec<NodeNumber>) -> Option<Settled> {
    let granted = numbers.clone();
    let began = quorum.clock().now();
    let mut numbering = Numbering::new(numbers, quorum.len());
    for round in 0..PROPOSALS {
        if let Some(token) = numbering.agreed() {
            let known = |given: NodeNumber| number_of(numbering.numbers(), given.node).unwrap_or(given.number);
            let numbers = granted.into_iter().map(|given| NodeNumber { number: known(given), ..given }).collect();
            return Some((token, numbers));
        }
        if !numbering.is_possible() {
            return None;
        }
        let passed = quorum.clock().now().saturating_since(began);
        propose(quorum, claim, &mut numbering, lead(round, passed)).await;
    }
    None
}

/// By how much the next proposal leads the greatest known number. The first one does not: most often only one node is
/// ahead. Later ones step ahead of what other readers propose by their clocks meanwhile.
fn lead(round: u32, passed: Duration) -> u64 {
    if round == 0 {
        return 0;
    }
    let lead = passed + LEAD.mul_f64(fastrand::f64()) * (1 << (round - 1));
    u64::try_from(lead.as_micros()).unwrap_or(u64::MAX)
}

/// Proposes a number to the nodes that gave lower ones.
async fn propose(quorum: &Arc<Quorum>, claim: &Claim, numbering: &mut Numbering, lead: u64) {
    let proposal = numbering.proposal(lead);
    let mut replies = ask_to_renumber(quorum, claim, &numbering.behind(proposal), proposal, renumbered);
    while numbering.agreed().is_none() {
        let Some((node, reply)) = replies.next().await else { break };
        match reply {
            Ok(Renumbered::Done) => numbering.given(node, proposal),
            Ok(Renumbered::Passed(counter)) => numbering.passed(counter),
            // The node may have the proposed number or the one before, so it cannot be counted for either.
            Ok(Renumbered::Gone) | Err(_) => numbering.gone(node),
        }
    }
    if numbering.agreed().is_none() {
        for node in replies.open() {
            numbering.gone(node);
        }
    }
}

/// Asks each of these nodes to give `token` to the holding to which it gave its number.
fn ask_to_renumber<T: Send + 'static>(
    quorum: &Arc<Quorum>,
    claim: &Claim,
    behind: &[NodeNumber],
    token: u64,
    read: Read<T>,
) -> Replies<T> {
    let roster = quorum.members.roster();
    ask(quorum, |node| Some(claim.renumber(number_of(behind, node)?, token, roster.stamp(node).ok()?)), read)
}

fn number_of(numbers: &[NodeNumber], node: usize) -> Option<u64> {
    numbers.iter().find(|known| known.node == node).map(|known| known.number)
}
