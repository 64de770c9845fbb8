//! The one table of the report: backend by fault.

use super::{Figures, Report, Run, Verdict};
use crate::report::{NONE, ReportTable, RowMark, TableRow, millis};

/// All runs of one fault on one deployment, which are a row of the report's table.
#[derive(Debug)]
pub(super) struct RunGroup<'a> {
    /// In the order in which they ran.
    pub(super) runs: Vec<&'a Run>,
}

impl<'a> RunGroup<'a> {
    /// All pairs, in the order in which they ran first.
    pub(super) fn all(report: &'a Report) -> Vec<Self> {
        let mut pairs: Vec<Self> = Vec::new();
        for run in &report.runs {
            let same = |pair: &&mut Self| pair.first().backend == run.backend && pair.first().fault == run.fault;
            match pairs.iter_mut().find(same) {
                Some(pair) => pair.runs.push(run),
                None => pairs.push(Self { runs: vec![run] }),
            }
        }
        pairs
    }

    /// Any of the runs: what they have in common.
    pub(super) fn first(&self) -> &'a Run {
        self.runs[0]
    }

    /// The worst verdict, with how many runs have it where they differ.
    pub(super) fn verdict(&self) -> &'a Verdict {
        self.runs.iter().map(|run| &run.verdict).max().unwrap_or(&Verdict::Kept)
    }

    /// The worst verdict with what a row has room for.
    fn shown_verdict(&self) -> String {
        let reason = &self.first().not_promised;
        match self.verdict() {
            shown @ Verdict::Shown(_) if !reason.is_empty() => {
                format!("NOT PROMISED, AND SHOWN ({}): {reason}", shown.letters())
            }
            Verdict::Recorded(_) => format!("kept; not promised: {reason}"),
            other => other.words(),
        }
    }

    fn figures(&self) -> impl Iterator<Item = &'a Figures> {
        self.runs.iter().filter_map(|run| run.outcome.measured())
    }

    fn sum(&self, count: fn(&Figures) -> usize) -> usize {
        self.figures().map(count).sum()
    }

    fn longest(&self, time: fn(&Figures) -> Option<f64>) -> Option<f64> {
        self.figures().filter_map(time).max_by(f64::total_cmp)
    }

    /// Number of things left behind; where there were none, the time after which the servers were seen to be empty.
    fn left(&self) -> String {
        let mut looked = self.figures().filter_map(|figures| figures.left.as_ref()).peekable();
        if looked.peek().is_none() {
            return NONE.into();
        }
        match (looked.map(Vec::len).sum::<usize>(), self.longest(|figures| figures.empty_after_ms)) {
            (0, Some(after)) => format!("0 ({})", millis(after)),
            (count, _) => count.to_string(),
        }
    }

    /// What strikes what.
    pub(super) fn title(&self) -> String {
        let first = self.first();
        format!("{}: {}", first.backend_title, first.fault_title)
    }

    /// Where on the page its runs are.
    pub(super) fn anchor(&self) -> String {
        format!("{}-{}", self.first().backend, self.first().fault)
    }

    fn row(&self) -> TableRow {
        let mark = match self.verdict() {
            Verdict::Kept => RowMark::Good,
            Verdict::Shown(_) | Verdict::Recorded(_) => RowMark::Noted,
            Verdict::ProvesNothing(_) | Verdict::Failed(_) | Verdict::Broken(_) => RowMark::Bad,
        };
        let runs = if self.runs.len() > 1 { format!(" ({} runs)", self.runs.len()) } else { String::new() };
        let mut cells = vec![self.shown_verdict()];
        if self.figures().next().is_some() {
            cells.extend(self.cells());
        } else {
            cells.resize(COLUMNS.len() - 1, NONE.to_owned());
        }
        let link = Some(format!("#{}", self.anchor()));
        TableRow { mark: Some(mark), link, ..TableRow::new(self.title() + &runs, Ok(cells)) }
    }

    /// The figures.
    fn cells(&self) -> [String; 9] {
        let slowest = self.figures().map(|figures| figures.before_per_second).min_by(f64::total_cmp);
        let time = |time: fn(&Figures) -> Option<f64>| self.longest(time).map_or_else(|| NONE.into(), millis);
        let count = |count, longest| match (self.sum(count), self.longest(longest)) {
            (count @ 1.., Some(longest)) => format!("{count} (up to {})", millis(longest)),
            (count, _) => count.to_string(),
        };
        let late = [self.sum(|figures| figures.stale_fenced), self.sum(|figures| figures.stale_unfenced)];
        [
            format!("{:.0}", slowest.unwrap_or_default()),
            time(|figures| Some(figures.gap_ms)),
            time(|figures| figures.re_election_ms),
            self.sum(|figures| figures.lost).to_string(),
            count(|figures| figures.overlaps, |figures| Some(figures.overlap_ms)),
            count(|figures| figures.overstated, |figures| Some(figures.overstated_ms)),
            format!("{} / {}", late[0], late[1]),
            time(|figures| figures.knew_ms),
            self.left(),
        ]
    }
}

const COLUMNS: [&str; 11] = [
    "servers: fault",
    "verdict",
    "operations /s before",
    "longest gap",
    "servers alone",
    "grants lost",
    "two holders (M)",
    "validity overstated (T)",
    "late writes: fenced (F) / not",
    "loser knew after (L)",
    "left behind (O)",
];

/// The table: a row for each pair, with the worst of its runs.
pub(super) fn table(pairs: &[RunGroup<'_>]) -> ReportTable {
    ReportTable {
        title: "What each fault did",
        how: HOW.into(),
        columns: COLUMNS.to_vec(),
        sentences: &["verdict"],
        rows: pairs.iter().map(RunGroup::row).collect(),
    }
}

/// What the columns mean.
const HOW: &str = "*Longest gap*: the longest time without a grant of the busy lock, from the fault on; *servers alone*: how long they took \
themselves, to elect another leader or to come back, until they served a plain write. A lock that somebody held \
when the fault struck can stay closed until its lease ends: the longest gaps are that. *Grants lost*: \
locks that ended otherwise than by their release. *Two holders (M)*: pairs of grants that were valid at the same time, each \
by its own clock and deadline. *Validity overstated (T)*: holders that still took themselves for valid when the \
servers had given the lock up. *Late writes*: writes that a store took after a later holder had written there; the store \
with a fence compares fencing tokens and takes none of them (F), the store without one is the control and takes all. *Loser \
knew after (L)*: from the fault until the last loser knew, by its own look. *Left behind (O)*: keys, nodes and places in line \
that the servers had when they had to be gone; in brackets, from the end of the last process until the servers had nothing. Where a pair ran several times, counts are sums and times \
are the longest.";
