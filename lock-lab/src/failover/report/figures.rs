//! What a run of the matrix found.

use serde::{Deserialize, Serialize};

use super::timeline::Timeline;
use crate::{
    failover::check::{self, Findings, Updates},
    report::Outcome,
};

/// One run: one fault on one arrangement of servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// Key of the arrangement of servers, as on the command line.
    pub backend: String,
    /// Name of the arrangement.
    pub backend_title: String,
    /// Key of the fault, as on the command line.
    pub fault: String,
    /// Name of the fault.
    pub fault_title: String,
    /// What the fault does, in a sentence.
    pub what: String,
    /// The version of the servers; empty when they were not asked.
    pub version: String,
    /// Number of the repetition, from 1.
    pub repetition: usize,
    /// The command that repeats this run alone.
    pub command: String,
    /// Whether this is a second try, because the first had proved nothing.
    pub second_try: bool,
    /// The reason why two may hold the lock at once; empty where the backend promises that they do not.
    pub not_promised: String,
    /// What came out.
    pub outcome: Outcome<Figures>,
    /// What follows from it.
    pub verdict: Verdict,
}

/// What was counted and measured in one run. Times are in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Figures {
    /// Operations (acquisitions and releases) a second before the fault.
    pub before_per_second: f64,
    /// Grants in the whole run.
    pub grants: usize,
    /// The longest time without a grant of the busy lock, from the fault on.
    pub gap_ms: f64,
    /// From the fault until the servers took a plain write again, where one that stands alone or leads was struck: for an
    /// ensemble, what its own election takes.
    pub re_election_ms: Option<f64>,
    /// Guards that ended otherwise than by their release.
    pub lost: usize,
    /// Pairs of grants that were valid at the same time, by the holders' own validity (M).
    pub overlaps: usize,
    /// The longest of them.
    pub overlap_ms: f64,
    /// How often a holder's validity was compared with what the servers held; `None` when they were not looked at.
    pub compared: Option<usize>,
    /// Holders that took themselves for valid when the servers had given the lock up (T).
    pub overstated: usize,
    /// The longest time by which one did.
    pub overstated_ms: f64,
    /// Writes that the sink with a fence took although a later token had been there (F).
    pub stale_fenced: usize,
    /// Writes that the fence refused.
    pub refused: usize,
    /// Late writes that the sink without a fence took: the control.
    pub stale_unfenced: usize,
    /// Updates of the value that the busy lock protects, with the fence and without, and how many were lost.
    #[serde(default)]
    pub updates: Updates,
    /// Segments that the kernel has sent again; `None` where nobody counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retransmitted: Option<u64>,
    /// From the fault until the last loser knew that its lock was lost (L); `None` when nobody lost one.
    pub knew_ms: Option<f64>,
    /// Operations of which the outcome is not known.
    pub unknown: usize,
    /// From the fault of the holder's process to the next grant of its lock.
    pub take_over_ms: Option<f64>,
    /// What the servers still had of the locks when it had to be gone (O); `None` when they were not looked at.
    #[serde(default)]
    pub left: Option<Vec<String>>,
    /// From the end of the last process until the servers had nothing of the locks; `None` when they had, or were not
    /// looked at.
    #[serde(default)]
    pub empty_after_ms: Option<f64>,
    /// How many clients whose settings disagree were refused, and how often (D); `None` when all agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strangers: Option<Turned>,
    /// What happened when.
    pub timeline: Timeline,
}

/// How clients were turned away whose settings disagree with those of the servers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turned {
    /// Clients whose settings disagree.
    pub of: usize,
    /// Clients of these that were refused.
    pub clients: usize,
    /// Refusals of all of them.
    pub times: usize,
}

/// What follows from one run, from the best to the worst.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every promise was kept.
    #[default]
    Kept,
    /// What is not promised did not hold, as it was to be shown.
    Shown(String),
    /// What is not promised held this time; it is recorded, with the reason why it may not.
    Recorded(String),
    /// The run could not have shown a violation.
    ProvesNothing(String),
    /// The run could not be finished.
    Failed(String),
    /// A promise was broken.
    Broken(String),
}

impl Verdict {
    /// Whether the matrix may end well with such a run.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        // Safeguard: a broken promise fails the matrix
        matches!(self, Self::Kept | Self::Shown(_) | Self::Recorded(_))
    }

    /// Letters of the promises that the verdict is about, as `M, T`.
    #[must_use]
    pub(crate) fn letters(&self) -> String {
        let (Self::Shown(what) | Self::Broken(what)) = self else { return String::new() };
        let letters = what.split("; ").filter_map(|part| Some(part.split_once(": ")?.0));
        letters.filter(|letter| letter.len() == 1).collect::<Vec<_>>().join(", ")
    }

    /// The verdict in words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Kept => "kept".into(),
            Self::Shown(what) => format!("not promised, and shown: {what}"),
            Self::Recorded(what) => format!("kept, although it is not promised: {what}"),
            Self::ProvesNothing(why) => format!("PROVES NOTHING: {why}"),
            Self::Failed(why) => format!("FAILED: {why}"),
            Self::Broken(what) => format!("BROKEN: {what}"),
        }
    }
}

impl Figures {
    /// What `findings` say, with the picture of it.
    pub(crate) fn of(findings: &Findings, timeline: Timeline) -> Self {
        let truth = findings.truthfulness.as_ref();
        Self {
            before_per_second: findings.operations_per_second,
            grants: findings.grants,
            gap_ms: findings.progress.longest_gap_ms,
            re_election_ms: None,
            lost: findings.losing.losers.len(),
            overlaps: findings.exclusion.overlaps.len(),
            overlap_ms: findings.exclusion.longest_ms,
            compared: truth.map(|truth| truth.compared),
            overstated: truth.map_or(0, |truth| truth.overstated),
            overstated_ms: truth.map_or(0.0, |truth| truth.overstated_ms),
            stale_fenced: findings.fencing.let_through,
            refused: findings.fencing.refused,
            stale_unfenced: findings.fencing.stale,
            updates: findings.fencing.updates,
            retransmitted: None,
            knew_ms: findings.losing.longest_after_fault_ms(),
            unknown: findings.unknown,
            take_over_ms: findings.progress.take_overs.iter().filter_map(|over| over.next_grant_ms).next(),
            left: findings.residue.as_ref().map(|residue| residue.left.clone()),
            empty_after_ms: findings.residue.as_ref().and_then(|residue| residue.empty_after_ms),
            strangers: findings.refusals.as_ref().map(|refusals| Turned {
                of: refusals.clients,
                clients: refusals.refused,
                times: refusals.times,
            }),
            timeline,
        }
    }
}

impl Verdict {
    /// What follows from `findings`, where what may break is `not_promised` for this reason.
    pub(crate) fn of(findings: &Findings, not_promised: Option<&str>) -> Self {
        let (mut broken, mut tame, mut shown): (Vec<_>, Vec<&str>, Vec<_>) = Default::default();
        for (promise, verdict) in findings.verdicts() {
            match verdict {
                check::Verdict::Holds => {}
                check::Verdict::Expected { what } => shown.push(format!("{promise}: {what}")),
                check::Verdict::ProvesNothing { why } => tame.push(why),
                check::Verdict::Broken { what } => broken.push(format!("{promise}: {what}")),
            }
        }
        if !broken.is_empty() {
            Self::Broken(broken.join("; "))
        } else if !tame.is_empty() {
            // Most reasons concern all promises alike.
            tame.dedup();
            Self::ProvesNothing(tame.join("; "))
        } else if !shown.is_empty() {
            Self::Shown(shown.join("; "))
        } else if let Some(reason) = not_promised {
            Self::Recorded(reason.into())
        } else {
            Self::Kept
        }
    }
}
