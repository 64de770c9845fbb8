//! The token of a won vote: the number that the nodes agree on, by further rounds where they did not at once.

use std::{sync::Arc, time::Duration};

use lock_core::safeguard;
use lock_redis::scripts::held;

use crate::{
    kind::Kind,
    panel::Panel,
    quorum::{Verdict, Vote, Votes},
    round::Attempt,
    scripts::{Renumbered, renumbered},
    token::{Answer, Numbering, settle},
};

/// How often a reader proposes a number before it begins anew.
const PROPOSALS: u32 = 10;
/// By how much, at most, a reader's second proposal leads the time that has passed. It doubles with each further one.
const LEAD: Duration = Duration::from_micros(200);

/// A token, and the number of each holding as it is known now.
pub(crate) struct Settled {
    pub(crate) token: u64,
    pub(crate) numbers: Vec<Answer>,
}

/// Settles the token of a grant that these answers make up. `None` when it is no grant.
///
/// # Cancel safety
/// May be dropped; the attempt is to be undone then.
pub(crate) async fn settle_token(panel: &Arc<Panel>, attempt: &Attempt, answers: Vec<Answer>) -> Option<Settled> {
    match attempt.kind {
        Kind::Writer => settle_writer(panel, attempt, answers).await,
        Kind::Reader => settle_reader(panel, attempt, answers).await,
    }
}

async fn settle_writer(panel: &Arc<Panel>, attempt: &Attempt, mut answers: Vec<Answer>) -> Option<Settled> {
    let settlement = settle(&answers, panel.len())?;
    if safeguard("write-back")
        && !settlement.behind.is_empty()
        && !is_written_back(panel, attempt, &settlement.exact, &mut answers, settlement.token).await
    {
        return None;
    }
    Some(Settled { token: settlement.token, numbers: answers })
}

/// Raises the nodes that are behind; those that confirm it have given the token to the holding.
async fn is_written_back(
    panel: &Arc<Panel>,
    attempt: &Attempt,
    exact: &[usize],
    answers: &mut [Answer],
    token: u64,
) -> bool {
    let mut votes = Votes::new(panel.len());
    for node in exact {
        votes.record(*node, Vote::Granted);
    }
    let asked: Vec<Answer> = answers.iter().filter(|answer| answer.number < token).copied().collect();
    let seats = panel.slots.seats();
    let call = |node| {
        let number = number_of(&asked, node)?;
        let stamp = seats.stamp(node).ok()?;
        Some(attempt.kind.renumber(&attempt.keys, &attempt.value, number, token, stamp).into())
    };
    let mut replies = panel.ask(call, held);
    // Only nodes that granted can confirm: elsewhere no holding of ours keeps others away.
    for node in (0..panel.len()).filter(|node| !replies.is_open(*node)) {
        votes.record(node, Vote::Refused);
    }
    loop {
        match votes.verdict() {
            Verdict::Undecided => {}
            decided => return decided == Verdict::Granted,
        }
        let Some((node, answer)) = replies.next(panel).await else { return false };
        let confirmed = matches!(answer, Ok(true));
        votes.record(node, if confirmed { Vote::Granted } else { Vote::Unknown });
        for answer in answers.iter_mut().filter(|answer| confirmed && answer.node == node) {
            answer.number = token;
        }
    }
}

async fn settle_reader(panel: &Arc<Panel>, attempt: &Attempt, answers: Vec<Answer>) -> Option<Settled> {
    let first = answers.clone();
    let began = panel.clock().now();
    let mut numbering = Numbering::new(answers, panel.len());
    for round in 0..PROPOSALS {
        if let Some(token) = numbering.agreed() {
            let known = |answer: Answer| number_of(numbering.numbers(), answer.node).unwrap_or(answer.number);
            let numbers = first.into_iter().map(|answer| Answer { number: known(answer), ..answer }).collect();
            return Some(Settled { token, numbers });
        }
        if !numbering.is_possible() {
            return None;
        }
        let passed = panel.clock().now().saturating_since(began);
        renumber(panel, attempt, &mut numbering, lead(round, passed)).await;
    }
    None
}

/// By how much the next proposal leads the greatest known number. The first one does not: most often only one node is
/// ahead. Later ones step ahead of what others propose by their clocks meanwhile.
fn lead(round: u32, passed: Duration) -> u64 {
    if round == 0 {
        return 0;
    }
    let lead = passed + LEAD.mul_f64(fastrand::f64()) * (1 << (round - 1));
    u64::try_from(lead.as_micros()).unwrap_or(u64::MAX)
}

/// Proposes a number to the nodes that gave lower ones.
async fn renumber(panel: &Arc<Panel>, attempt: &Attempt, numbering: &mut Numbering, lead: u64) {
    let proposal = numbering.proposal(lead);
    let behind = numbering.behind(proposal);
    let seats = panel.slots.seats();
    let call = |node| {
        let number = number_of(&behind, node)?;
        let stamp = seats.stamp(node).ok()?;
        Some(attempt.kind.renumber(&attempt.keys, &attempt.value, number, proposal, stamp).into())
    };
    let mut replies = panel.ask(call, renumbered);
    while numbering.agreed().is_none() {
        let Some((node, answer)) = replies.next(panel).await else { break };
        match answer {
            Ok(Renumbered::Done) => numbering.given(node, proposal),
            Ok(Renumbered::Passed(counter)) => numbering.passed(counter),
            // It may have that number or the one before, so it cannot be counted for either.
            Ok(Renumbered::Gone) | Err(_) => numbering.gone(node),
        }
    }
    if numbering.agreed().is_none() {
        for node in replies.open() {
            numbering.gone(node);
        }
    }
}

fn number_of(answers: &[Answer], node: usize) -> Option<u64> {
    answers.iter().find(|answer| answer.node == node).map(|answer| answer.number)
}
