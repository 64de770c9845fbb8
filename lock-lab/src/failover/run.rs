//! The runner: one run after the other, since two at a time would measure each other.

mod expected;
mod one;
mod play;
mod post_check;
mod watch;

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use lock_core::Clock;

use super::{
    frozen,
    matrix::{Pair, Plan, Wanted},
    report::{Report, Run, Settings, Verdict},
};
use crate::{
    LabError, options,
    progress::{Progress, print},
    report::{Machine, Outcome, date},
};

/// What is run, and where the report goes.
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct Options {
    /// The directory of the report: report.json, report.md, index.html.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Which faults on which arrangements, and how often.
    #[command(flatten)]
    pub wanted: Wanted,

    /// The program `lock-lab`, of which the workers of a run are processes.
    #[arg(skip = options::this_program())]
    pub program: PathBuf,
}

impl Options {
    /// The quick matrix.
    #[must_use]
    pub fn new(out: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), wanted: Wanted::default(), program: program.into() }
    }
}

/// Runs what is wanted and writes `report.json`, `report.md` and `index.html`. Progress goes to standard error, a line for
/// each run to standard output. When `interrupt` is done first, the run under way is given up and its processes and servers
/// are taken down, and what is finished is written.
///
/// # Errors
/// [`LabError::Refused`] when something is wanted that does not apply; [`LabError::Io`] when the report cannot be written,
/// which is found before the first run. A run that fails is in the report.
pub async fn run(options: &Options, interrupt: impl Future<Output = ()>) -> Result<Report, LabError> {
    let plan = Plan::of(&options.wanted)?;
    check_writable(&options.out)?;
    let clock = Clock::boot();
    let begin = clock.now();
    let mut report = Report {
        date: date(),
        command: command(&options.wanted),
        machine: Machine::this(),
        settings: settings(&options.wanted),
        left_out: plan.left_out.clone(),
        ..Report::default()
    };
    let progress = Progress::new(plan.runs() + usize::from(!plan.is_picked));
    report.interrupted = tokio::select! {
        biased;
        () = interrupt => true,
        // Dropped when interrupted: servers and processes end with it.
        () = work(&plan, options, &mut report, &progress) => false,
    };
    progress.finish();
    report.seconds = clock.now().saturating_since(begin).as_secs_f64();
    report.write(&options.out)?;
    // The report is written, whether anybody reads that or not.
    let _ = print(&format!("\n{}\n{}: index.html, report.md, report.json", report.sum(), options.out.display()));
    Ok(report)
}

async fn work(plan: &Plan, options: &Options, report: &mut Report, progress: &Progress) {
    for repetition in 1..=plan.repetitions {
        for pair in &plan.pairs {
            progress.doing(format!("{}: {}", pair.on.title, pair.fault.title()));
            let first = tried(*pair, repetition, options).await;
            let is_repeated = !first.verdict.is_good() && !matches!(first.verdict, Verdict::Broken(_));
            let _ = progress.line(&shown(&first));
            report.runs.push(first);
            if is_repeated {
                progress.doing(format!("{}: {}, once more", pair.on.title, pair.fault.title()));
                let second = Run { second_try: true, ..tried(*pair, repetition, options).await };
                let _ = progress.line(&shown(&second));
                // Whoever interrupts before finds the first one in the report.
                report.runs.pop();
                report.runs.push(second);
            }
            progress.done(1);
        }
    }
    if !plan.is_picked {
        progress.doing("Redlock with frozen nodes".into());
        let settings = frozen_options(options.wanted.full);
        let mut measured = frozen::run(&settings).await;
        if !measured.as_ref().is_ok_and(frozen::Frozen::is_within_bounds) {
            progress.doing("Redlock with frozen nodes, once more".into());
            measured = frozen::run(&settings).await;
        }
        report.frozen = Some(measured.into());
        progress.done(1);
    }
}

fn shown(run: &Run) -> String {
    format!("{}, {}: {}", run.backend_title, run.fault_title, run.verdict.words())
}

/// One run, whatever comes of it.
async fn tried(pair: Pair, repetition: usize, options: &Options) -> Run {
    let run = Run {
        backend: pair.on.key.into(),
        backend_title: pair.on.title.into(),
        fault: pair.fault.key().into(),
        fault_title: pair.fault.title().into(),
        what: pair.fault.what().into(),
        not_promised: pair.fault.expects(pair.on).reason().unwrap_or_default().into(),
        repetition,
        command: format!("cargo xtask failover --backend {} --fault {}", pair.on, pair.fault),
        ..Run::default()
    };
    match one::run(pair, &options.program).await {
        Ok(one::RunOutcome { version, figures, verdict }) => {
            Run { version, outcome: Outcome::Measured(figures), verdict, ..run }
        }
        Err(error) => {
            let outcome = Outcome::from(Err(error));
            let verdict = Verdict::Failed(outcome.problem().unwrap_or_default());
            Run { outcome, verdict, ..run }
        }
    }
}

fn settings(wanted: &Wanted) -> Settings {
    Settings {
        version: env!("CARGO_PKG_VERSION").into(),
        optimised: !cfg!(debug_assertions),
        full: wanted.full,
        leases: one::leases(),
        load: one::load(),
    }
}

/// Less than everything unless asked for, but each load for as long: of a shorter time, one stall of all clients is
/// nearly all of the worst hundredth.
fn frozen_options(full: bool) -> frozen::Options {
    let mut options = frozen::Options::default();
    if !full {
        options.loads = vec![frozen::Clients::Alone, frozen::Clients::Contending(4), frozen::Clients::Contending(16)];
        options.attempts = 2;
    }
    options
}

/// The command that does the same.
fn command(wanted: &Wanted) -> String {
    let mut text = "cargo xtask failover".to_owned();
    wanted.backends.iter().for_each(|on| text.push_str(&format!(" --backend {on}")));
    wanted.faults.iter().for_each(|fault| text.push_str(&format!(" --fault {fault}")));
    for (asked, option) in [(wanted.all, " --all"), (wanted.full, " --full")] {
        if asked {
            text.push_str(option);
        }
    }
    text
}

/// Finds out before the runs, which take minutes, what would lose them after.
fn check_writable(dir: &Path) -> Result<(), LabError> {
    let refused = |source| LabError::io(format!("writing a report to {}", dir.display()), source);
    fs::create_dir_all(dir).map_err(refused)?;
    tempfile::tempfile_in(dir).map(drop).map_err(refused)?;
    for name in ["report.json", "report.md", "index.html"] {
        let file = dir.join(name);
        if file.exists() {
            fs::OpenOptions::new().append(true).open(file).map(drop).map_err(refused)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::fault::Fault;

    #[tokio::test]
    async fn a_place_that_cannot_be_written_is_found_before_the_first_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        let error =
            run(&Options::new(file.join("report"), "no-such-program"), std::future::pending()).await.unwrap_err();
        assert!(matches!(error, LabError::Io { .. }), "{error}");
    }

    #[tokio::test]
    async fn what_does_not_apply_is_refused_before_the_first_run() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::new(dir.path().join("report"), "no-such-program");
        (options.wanted.backends, options.wanted.faults) = (vec!["zk3".parse().unwrap()], vec![Fault::ScriptFlush]);
        let error = run(&options, std::future::pending()).await.unwrap_err();
        assert!(matches!(error, LabError::Refused { .. }), "{error}");
        assert!(!options.out.exists());
    }

    #[tokio::test]
    async fn an_interrupted_matrix_writes_what_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let report = run(&Options::new(dir.path(), "no-such-program"), async {}).await.unwrap();
        assert!(report.interrupted && !report.is_good() && report.runs.is_empty());
        assert!(fs::read_to_string(dir.path().join("index.html")).unwrap().contains("Interrupted"));
    }

    #[test]
    fn the_command_of_a_report_asks_for_the_same() {
        let wanted = Wanted {
            backends: vec!["zk3".parse().unwrap()],
            faults: vec![Fault::Delay, Fault::ReplyCut],
            all: true,
            ..Wanted::default()
        };
        assert_eq!(command(&wanted), "cargo xtask failover --backend zk3 --fault delay --fault reply-cut --all");
    }
}
