//! Readers and writers under load: whether a writer was ever beside anybody, and whether a reader ever overtook a writer
//! that waited before it came.

mod judge;
mod load;

use std::time::Duration;

use clap::Args;
use lock_core::Feature;

pub use self::judge::{Hold, Refusal, Role, Verdict, judge};
use crate::{
    LabError,
    deployment::{Connection, Deployment},
    latency::Recorder,
    options,
    progress::{Progress, print},
    report::{Outcome, ReportTable, TableRow},
};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// How the load looks.
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct Options {
    /// How many readers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value = "8", value_parser = options::clients(2))]
    pub readers: usize,

    /// How many writers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value = "2", value_parser = options::clients(1))]
    pub writers: usize,

    /// For how long, on each backend.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "30s")]
    pub time: Duration,

    /// For how long each holds the lock, on average.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "5ms")]
    pub hold: Duration,

    /// On which backends, with servers of their own.
    #[arg(long = "backend", value_name = "KEY", value_delimiter = ',', num_args = 1.., value_parser = Deployment::parse_tried_or_compared, default_values_t = Deployment::tried_or_compared())]
    pub deployments: Vec<Deployment>,
}

impl Default for Options {
    fn default() -> Self {
        options::defaults()
    }
}

/// What came out on one backend.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// How often readers held the lock.
    pub reads: usize,
    /// How often writers did.
    pub writes: usize,
    /// The median, the 99th percentile and the longest of the readers' waits, in milliseconds.
    pub read_waits: [f64; 3],
    /// The same of the writers'.
    pub write_waits: [f64; 3],
    /// What the record proves.
    pub verdict: Verdict,
}

impl Summary {
    /// Of the record of a run.
    #[must_use]
    pub fn of(holds: &[Hold], refusals: &[Refusal]) -> Self {
        let of = |role| holds.iter().filter(move |hold| hold.role == role);
        let waits = |role| {
            let waits: Recorder = of(role).map(|hold| hold.granted.saturating_since(hold.requested)).collect();
            let waits = waits.latency();
            [waits.p50, waits.p99, waits.max].map(|micros| micros / 1e3)
        };
        Self {
            reads: of(Role::Reader).count(),
            writes: of(Role::Writer).count(),
            read_waits: waits(Role::Reader),
            write_waits: waits(Role::Writer),
            verdict: judge(holds, refusals),
        }
    }

    /// The promise that was broken, if one was.
    fn broken(&self) -> Option<String> {
        let Verdict { overlaps, overtakes, .. } = self.verdict;
        (overlaps > 0 || overtakes > 0).then(|| {
            format!(
                "{overlaps} holds beside a writer, {overtakes} readers granted before a writer that had waited before they \
                 came"
            )
        })
    }

    /// Why the run could not have broken a promise, if it could not.
    fn shows_nothing(&self) -> Option<String> {
        let Verdict { readers_at_once, behind, .. } = self.verdict;
        (readers_at_once < 2 || self.writes == 0 || behind == 0).then(|| {
            format!(
                "at most {readers_at_once} readers at once, {} writes, {behind} readers that came behind a waiting writer",
                self.writes
            )
        })
    }
}

/// The worst of what the backends show: a broken promise before a backend that failed, and that before a run that shows
/// nothing.
fn check(results: &[(String, Outcome<Summary>)]) -> Result<(), LabError> {
    let first = |problem: fn(&Outcome<Summary>) -> Option<String>| {
        results.iter().find_map(|(title, outcome)| Some(format!("{title}: {}", problem(outcome)?)))
    };
    if let Some(what) = first(|outcome| outcome.measured()?.broken()) {
        return Err(LabError::Broken { what });
    }
    let failed = |outcome: &Outcome<Summary>| match outcome {
        Outcome::Failed(why) => Some(why.clone()),
        _ => None,
    };
    if let Some(why) = first(failed) {
        return Err(LabError::run(why));
    }
    first(|outcome| outcome.measured()?.shows_nothing()).map_or(Ok(()), |what| Err(LabError::ProvesNothing { what }))
}

const LEGEND: &str = "Waits are p50 / p99 / longest. At once: the most readers that held together. Beside a writer: holds that
overlapped a writer's. Came behind: readers that asked after a writer was seen waiting and before it was granted; overtook:
those of them that were granted before it.";

/// Runs the load on each backend in turn and prints a table. A backend without read-write locks is a row that says so, as
/// is one whose servers are not installed.
///
/// # Errors
/// [`LabError`] when a promise was broken, or a run shows nothing: after all backends had their turn.
pub async fn run(options: &Options) -> Result<Vec<(String, Outcome<Summary>)>, LabError> {
    let mut results = Vec::new();
    let progress = Progress::new(options.deployments.len());
    for deployment in &options.deployments {
        let title = deployment.title.to_string();
        let (readers, writers, time) = (options.readers, options.writers, options.time);
        progress.doing(format!("{title}: {readers} readers and {writers} writers for {time:?}"));
        let outcome = match on(*deployment, options).await {
            Err(LabError::Lock { source: source @ lock_core::Error::Unsupported { .. }, .. }) => {
                Outcome::Missing(source.to_string())
            }
            outcome => outcome.into(),
        };
        results.push((title, outcome));
        progress.done(1);
    }
    progress.finish();
    let printed = print(&format!("{}\n{LEGEND}", table(&results)));
    check(&results)?;
    printed.map(|()| results)
}

async fn on(deployment: Deployment, options: &Options) -> Result<Summary, LabError> {
    let running = deployment.start().await?;
    // A release or a try that is not answered in time ends the run: on a machine that stands still it is answered late.
    let url = running.url(&Connection::default().with_answer_limit(ANSWER_LIMIT));
    let locks = lock::connect(&url).await.map_err(LabError::lock("connecting"))?;
    let supported = locks.require(Feature::ReadWrite);
    // Nothing was held on it.
    let _ = locks.close(Duration::from_secs(1)).await;
    supported.map_err(LabError::lock("reading and writing"))?;
    let record = load::run(&url, options).await?;
    Ok(Summary::of(&record.holds, &record.refusals))
}

/// The table of the backends, for a terminal.
#[must_use]
pub fn table(results: &[(String, Outcome<Summary>)]) -> String {
    let waits = |waits: [f64; 3]| waits.map(|millis| format!("{millis:.1}")).join(" / ");
    let cells = |summary: &Summary| {
        let Verdict { overlaps, readers_at_once, behind, overtakes } = summary.verdict;
        vec![
            summary.reads.to_string(),
            waits(summary.read_waits),
            readers_at_once.to_string(),
            summary.writes.to_string(),
            waits(summary.write_waits),
            overlaps.to_string(),
            behind.to_string(),
            overtakes.to_string(),
        ]
    };
    let table = ReportTable {
        title: "Readers and writers",
        columns: vec![
            "backend",
            "reads",
            "waits (ms)",
            "at once",
            "writes",
            "waits (ms)",
            "beside a writer",
            "came behind",
            "overtook",
        ],
        rows: results.iter().map(|(name, outcome)| TableRow::new(name, outcome.cells(cells))).collect(),
        ..ReportTable::default()
    };
    table.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(writes: usize, overlaps: usize) -> Outcome<Summary> {
        let verdict = Verdict { overlaps, readers_at_once: 2, behind: 1, overtakes: 0 };
        Outcome::Measured(Summary { reads: 2, writes, read_waits: [0.0; 3], write_waits: [0.0; 3], verdict })
    }

    fn problem(outcomes: &[Outcome<Summary>]) -> String {
        let results: Vec<_> =
            ["first", "second", "third"].map(String::from).into_iter().zip(outcomes.iter().cloned()).collect();
        check(&results).unwrap_err().to_string()
    }

    #[test]
    fn a_broken_promise_is_told_before_what_went_wrong_on_another_backend() {
        let [fine, idle, broken] = [summary(1, 0), summary(0, 0), summary(1, 1)];
        let failed = Outcome::Failed("no answer".to_owned());
        let missing = Outcome::Missing("not installed".to_owned());
        for around in [[&idle, &failed], [&failed, &idle]] {
            let [before, after] = around.map(Clone::clone);
            let told = problem(&[before.clone(), broken.clone(), after.clone()]);
            assert!(told.starts_with("a promise was broken: second: 1 holds"), "{told}");
            let told = problem(&[before, fine.clone(), after]);
            assert!(told.ends_with(": no answer"), "{told}");
        }
        let told = problem(&[fine.clone(), idle, missing.clone()]);
        assert!(told.starts_with("this run could not have failed: second: "), "{told}");
        assert!(check(&[("first".to_owned(), fine), ("second".to_owned(), missing)]).is_ok());
    }
}
