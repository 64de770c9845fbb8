//! The comparison of the backends: the same load and the same faults on each, in one run on one machine.

mod contended;
mod holder_killed;
mod report;
mod server_killed;
mod uncontended;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use lock::Locks;
use lock_core::Clock;

pub use self::report::{Backend, Contended, HolderKilled, OldHolder, Report, ServerKilled, Settings, Uncontended};
use crate::{
    LabError,
    deployment::{Decides, Deployment, Running},
    options,
    progress::{Progress, print},
    report::{Machine, Outcome, date},
};

/// After a server was killed, the old holder keeps its lock for so many leases before it releases it.
pub(crate) const HOLD_FOR_LEASES: f64 = 1.5;
/// The measurements on each backend.
const MEASUREMENTS: usize = 4;
/// How long a connection may take to close between two measurements.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// What is compared, and where the report goes.
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct Options {
    /// The directory of the report: report.json, report.md, index.html.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,

    /// Which backends, in this order.
    #[arg(long = "backend", value_name = "KEY", value_delimiter = ',', num_args = 1.., value_parser = Deployment::parse_compared, default_values_t = Deployment::compared())]
    pub deployments: Vec<Deployment>,

    /// How much of the full run is done: 1 takes about three minutes, 0.1 does a tenth of the operations.
    #[arg(long, value_name = "FACTOR", default_value = "1", value_parser = factor)]
    pub scale: f64,

    /// The program `lock-lab`, of which the holder that is killed is a process.
    #[arg(skip = options::this_program())]
    pub program: PathBuf,
}

impl Options {
    /// A full run on every backend.
    #[must_use]
    pub fn new(out: impl Into<PathBuf>, program: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), deployments: Deployment::compared(), scale: 1.0, program: program.into() }
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=100.0).contains(factor));
    factor.ok_or_else(|| "a number from 0.001 to 100".to_owned())
}

/// Compares the backends and writes `report.json`, `report.md`, `index.html` and the pictures. Progress goes to standard
/// error, a summary to standard output.
///
/// # Errors
/// [`LabError::Io`] when the report cannot be written. A backend that is missing or fails is a row of the report.
pub async fn run(options: &Options) -> Result<Report, LabError> {
    let clock = Clock::boot();
    let begin = clock.now();
    let settings = settings(options.scale);
    let progress = Progress::new(options.deployments.len() * MEASUREMENTS);
    let mut report = Report { date: date(), machine: Machine::this(), settings, ..Report::default() };
    for deployment in &options.deployments {
        let backend = backend(*deployment, &report.settings, options, &progress).await;
        report.backends.push(backend);
    }
    progress.finish();
    report.seconds = clock.now().saturating_since(begin).as_secs_f64();
    report.write(&options.out)?;
    print(&format!("{}\n\n{}: index.html, report.md, report.json", report.summary(), options.out.display()))?;
    Ok(report)
}

fn settings(scale: f64) -> Settings {
    // A count is at least one, whatever the scale.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
    let scaled = |count: usize| (count as f64 * scale).round().max(1.0) as usize;
    Settings {
        version: env!("CARGO_PKG_VERSION").into(),
        optimised: !cfg!(debug_assertions),
        uncontended: scaled(2_000),
        clients: 16,
        holds: scaled(25),
        hold_ms: 1.0,
        lease_ms: 2_000.0,
        kills: scaled(3),
        load_clients: 4,
    }
}

/// All measurements on one backend.
async fn backend(deployment: Deployment, settings: &Settings, options: &Options, progress: &Progress) -> Backend {
    let title = deployment.title;
    let mut result = Backend {
        key: deployment.key.into(),
        title: title.into(),
        fault: deployment.strike.unwrap_or_default().into(),
        ..Backend::default()
    };
    progress.doing(format!("{title}: starting the servers"));
    let mut running = match deployment.start().await {
        Ok(running) => running,
        Err(error) => {
            progress.done(MEASUREMENTS);
            return without_servers(result, error);
        }
    };
    result.version = running.version().await.unwrap_or_default();
    result.fifo = promises_fifo(&running).await.unwrap_or_default();

    progress.doing(format!("{title}: {} times uncontended", settings.uncontended));
    result.uncontended = uncontended::run(&running, settings.uncontended).await.into();
    progress.done(1);

    progress.doing(format!("{title}: {} clients, {} holds each", settings.clients, settings.holds));
    result.contended = contended::run(&running, settings).await.into();
    progress.done(1);

    progress.doing(format!("{title}: holder killed, {} times", settings.kills));
    result.holder_killed = match deployment.decides {
        Decides::Program => Outcome::Missing("has no other process: its locks live and end with this one".into()),
        _ => holder_killed::run(&running, settings, &options.program).await.into(),
    };
    progress.done(1);

    let no_server = "has no server";
    progress.doing(format!("{title}: {}", deployment.strike.unwrap_or(no_server)));
    result.server_killed = match deployment.strike {
        Some(_) => server_killed::run(&mut running, settings).await.into(),
        None => Outcome::Missing(no_server.into()),
    };
    progress.done(1);
    result
}

/// A row that says what is missing.
fn without_servers(mut result: Backend, error: LabError) -> Backend {
    let why: Outcome<()> = Err(error).into();
    let why = why.problem().unwrap_or_default();
    result.uncontended = Outcome::Missing(why.clone());
    result.contended = Outcome::Missing(why.clone());
    result.holder_killed = Outcome::Missing(why.clone());
    result.server_killed = Outcome::Missing(why);
    result
}

async fn promises_fifo(running: &Running) -> Result<bool, LabError> {
    let locks = lock::connect(&running.plain_url()).await.map_err(LabError::lock("connecting"))?;
    let fifo = locks.capabilities().supports(lock::Feature::Fifo);
    close(&locks).await;
    Ok(fifo)
}

/// Requests per operation, from the servers' counts before and after.
#[allow(clippy::cast_precision_loss)] // Thousands.
fn per(before: Option<u64>, after: Option<u64>, operations: usize) -> Option<f64> {
    let requests = after?.saturating_sub(before?);
    Some(requests as f64 / operations.max(1) as f64)
}

/// Disconnects, so that the next measurement finds the servers idle. What a dead server left undone is the next
/// measurement's business as little.
async fn close(locks: &Locks) {
    let _ = locks.close(CLOSE_LIMIT).await;
}
