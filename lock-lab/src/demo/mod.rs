//! The demonstration: many contenders for one lock, each with a connection of its own.

mod contest;

use std::{path::PathBuf, time::Duration};

use clap::Args;
use lock::Config;

pub use self::contest::Turn;
use crate::{
    LabError,
    deployment::Deployment,
    options,
    progress::{Progress, print},
    report::{Outcome, ReportTable, TableRow, in_millis, millis, yes},
};

/// What is demonstrated.
#[derive(Debug, Clone, Args)]
#[non_exhaustive]
pub struct Options {
    /// The lock service, as `zk://HOST,HOST/PATH`, `redis://HOST`, `redlock://HOST,HOST,HOST` or `local:///DIRECTORY`.
    /// Other users of this machine can read it here: give a password in a file.
    #[arg(long, conflicts_with = "config")]
    pub url: Option<String>,

    /// A TOML file with a table `lock`, which names the lock service.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// How many contenders, each with a connection of its own.
    #[arg(long, value_name = "N", default_value = "15", value_parser = options::clients(1))]
    pub nodes: usize,

    /// How long each holds the lock.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "100ms")]
    pub hold: Duration,
}

impl Default for Options {
    fn default() -> Self {
        options::defaults()
    }
}

impl Options {
    /// The URL of the service to contend on; `None` where the servers of every backend are started in turn.
    fn service(&self) -> Result<Option<String>, LabError> {
        let config = match (&self.url, &self.config) {
            (Some(url), _) => Some(Config::from_url(url)),
            (None, file) => file.as_ref().map(Config::from_file),
        };
        let config = config.transpose().map_err(LabError::lock("reading the configuration"))?;
        Ok(config.map(|config| config.to_url()))
    }
}

/// What came out on one backend.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Summary {
    /// How many contenders were granted the lock.
    pub grants: usize,
    /// Whether they were granted in the order of their places.
    pub fifo: bool,
    /// Whether each fencing token was higher than the one before.
    pub tokens_rise: bool,
    /// The shortest, the mean and the longest wait.
    pub waits: [Duration; 3],
}

impl Summary {
    /// Of the turns in the order of the grants.
    #[must_use]
    pub fn of(turns: &[Turn]) -> Self {
        let waits = || turns.iter().map(|turn| turn.waited);
        let count = u32::try_from(turns.len()).unwrap_or(u32::MAX).max(1);
        Self {
            grants: turns.len(),
            fifo: turns.windows(2).all(|pair| pair[0].place < pair[1].place),
            tokens_rise: turns.windows(2).all(|pair| pair[0].token < pair[1].token),
            waits: [
                waits().min().unwrap_or_default(),
                waits().sum::<Duration>() / count,
                waits().max().unwrap_or_default(),
            ],
        }
    }
}

/// Runs the demonstration: each grant goes to standard output as it comes, then a table of the backends. The result is
/// that table: the backends' names, and what came out on each.
///
/// # Errors
/// [`LabError`] when something fails on the backend of the URL. Without a URL, that is a row of the table, as is a backend
/// whose servers are not installed, with how to get them.
pub async fn run(options: &Options) -> Result<Vec<(String, Outcome<Summary>)>, LabError> {
    let mut results = Vec::new();
    if let Some(url) = options.service()? {
        let name = url.split("://").next().unwrap_or_default().to_string();
        let summary = on(&url, &name, options).await?;
        results.push((name, Outcome::Measured(summary)));
    } else {
        for deployment in Deployment::compared() {
            let name = deployment.title.to_string();
            let summary = on_servers(deployment, options).await;
            match &summary {
                Ok(_) => {}
                Err(LabError::Unread) => return Err(LabError::Unread),
                Err(error) => print(&format!("\n{name}: {error}"))?,
            }
            results.push((name, summary.into()));
        }
    }
    print(&format!("\n{}", table(&results)))?;
    Ok(results)
}

async fn on_servers(deployment: Deployment, options: &Options) -> Result<Summary, LabError> {
    let running = deployment.start().await?;
    on(&running.plain_url(), deployment.title, options).await
}

async fn on(url: &str, name: &str, options: &Options) -> Result<Summary, LabError> {
    let progress = Progress::new(options.nodes);
    progress.line(&format!(
        "\n{name}: {} contenders for one lock, each holds it for {}",
        options.nodes,
        humantime::format_duration(options.hold)
    ))?;
    progress.shows(format!("{name}: contenders connect"));
    let turns = contest::run(url, options, &progress).await;
    progress.finish();
    Ok(Summary::of(&turns?))
}

/// The table of the backends, for a terminal.
#[must_use]
pub fn table(results: &[(String, Outcome<Summary>)]) -> String {
    let cells = |summary: &Summary| {
        let [min, mean, max] = summary.waits.map(|wait| millis(in_millis(wait)));
        vec![summary.grants.to_string(), yes(summary.fifo), yes(summary.tokens_rise), min, mean, max]
    };
    let table = ReportTable {
        title: "The contests",
        columns: vec!["backend", "grants", "FIFO order", "tokens rise", "min wait", "mean wait", "max wait"],
        rows: results.iter().map(|(name, outcome)| TableRow::new(name, outcome.cells(cells))).collect(),
        ..ReportTable::default()
    };
    table.text()
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;

    use super::*;

    fn turn(place: usize, number: u64, millis: u64) -> Turn {
        let token = FencingToken { era: 0, number };
        Turn { node: place, place, token, waited: Duration::from_millis(millis) }
    }

    #[test]
    fn the_order_is_fifo_only_if_places_rise() {
        assert!(Summary::of(&[turn(1, 1, 10), turn(2, 2, 20)]).fifo);
        assert!(!Summary::of(&[turn(2, 1, 10), turn(1, 2, 20)]).fifo);
    }

    #[test]
    fn waits_are_summed_up() {
        let summary = Summary::of(&[turn(1, 5, 10), turn(2, 4, 50), turn(3, 6, 30)]);
        assert_eq!(summary.waits, [10, 30, 50].map(Duration::from_millis));
        assert!(!summary.tokens_rise);
        assert_eq!(Summary::of(&[]).grants, 0);
    }

    #[test]
    fn a_missing_backend_is_a_row_that_says_how_to_get_it() {
        let missing = LabError::Missing { program: "redis-server", package: "redis-server" };
        let table = table(&[("Redis".into(), Err(missing).into())]);
        assert!(table.contains("apt-get install redis-server"), "{table}");
    }
}
