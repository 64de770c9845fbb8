//! What a run of the matrix found.

use serde::{Deserialize, Serialize};

use super::timeline::Timeline;
use crate::report::Outcome;

/// One run: one fault on one arrangement of servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Run {
    /// The arrangement's key, as on the command line.
    pub backend: String,
    /// Its name.
    pub backend_title: String,
    /// The fault's key, as on the command line.
    pub fault: String,
    /// What the fault does, in a line.
    pub fault_title: String,
    /// The version of the servers; empty when they were not asked.
    pub version: String,
    /// Which repetition it is, from 1.
    pub repetition: usize,
    /// The command that repeats it.
    pub command: String,
    /// Whether the same was tried before and had proved nothing.
    pub second_try: bool,
    /// What was expected of it beside the promises; empty where nothing is.
    pub expected: String,
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
    /// What the servers took themselves to choose a new leader, where they do that.
    pub re_election_ms: Option<f64>,
    /// Guards that ended otherwise than by their release.
    pub lost: usize,
    /// Pairs of grants that were valid at the same time, by the holders' own validity (M).
    pub overlaps: usize,
    /// The longest of them.
    pub overlap_ms: f64,
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
    /// The longest time until a holder knew that its lock was lost (L), from when it was lost; `None` when none was.
    pub knew_ms: Option<f64>,
    /// Operations of which the outcome is not known.
    pub unknown: usize,
    /// What else the checker found, a sentence each; empty when all is well.
    pub violations: Vec<String>,
    /// Why the run could not have shown a violation, a sentence each; empty when it could.
    pub proves_nothing: Vec<String>,
    /// What happened when.
    pub timeline: Timeline,
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
    /// What is not promised did not hold, or did; it is recorded.
    Recorded(String),
    /// The run could not have shown a violation.
    ProvesNothing(String),
    /// The run could not be finished.
    Failed(String),
    /// A promise was broken.
    Broken(String),
}

impl Verdict {
    /// Whether the matrix may end well with it.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        matches!(self, Self::Kept | Self::Shown(_) | Self::Recorded(_))
    }

    /// In words.
    #[must_use]
    pub fn words(&self) -> String {
        match self {
            Self::Kept => "kept".into(),
            Self::Shown(what) => format!("shown, as expected: {what}"),
            Self::Recorded(what) => format!("not promised, recorded: {what}"),
            Self::ProvesNothing(why) => format!("PROVES NOTHING: {why}"),
            Self::Failed(why) => format!("FAILED: {why}"),
            Self::Broken(what) => format!("BROKEN: {what}"),
        }
    }
}
