//! What a comparison found, and how it is shown: as data, as text, and as a page with pictures.

mod figures;
pub(crate) mod html;
mod machine;
pub(crate) mod markdown;
mod picture;
pub(crate) mod tables;
pub(crate) mod terminal;

use std::{
    fs,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use lock_core::clock::wall_micros;
use serde::{Deserialize, Serialize};

pub use self::{
    figures::{Contended, HolderKilled, OldHolder, ServerKilled, Uncontended},
    machine::Machine,
    tables::{Table, summary, tables},
};
use crate::LabError;

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// When it began, in UTC.
    pub date: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Where it ran.
    pub machine: Machine,
    /// What was done on each backend.
    pub settings: Settings,
    /// What came out, backend by backend.
    pub backends: Vec<Backend>,
}

/// What was done on each backend.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// The version of this program.
    pub version: String,
    /// Whether it was built with optimisations.
    pub optimised: bool,
    /// Uncontended: how many acquire and release pairs, after the warm-up.
    pub uncontended: usize,
    /// Contended: how many clients, each with a connection of its own.
    pub clients: usize,
    /// Contended: how often each holds the lock.
    pub holds: usize,
    /// Contended: for how long, in milliseconds.
    pub hold_ms: f64,
    /// Faults: the ttl or session time-out, in milliseconds.
    pub lease_ms: f64,
    /// Holder killed: how often.
    pub kills: usize,
    /// Server killed: how many clients keep another lock busy.
    pub load_clients: usize,
}

/// One backend on one arrangement of servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Backend {
    /// Its key, as on the command line.
    pub key: String,
    /// Its name.
    pub title: String,
    /// The version of its servers; empty where there is none.
    pub version: String,
    /// What strikes its servers; empty where there is none.
    pub fault: String,
    /// Whether it promises grants in the order of arrival.
    pub fifo: bool,
    /// One client.
    pub uncontended: Outcome<Uncontended>,
    /// Many clients.
    pub contended: Outcome<Contended>,
    /// A holder that is killed.
    pub holder_killed: Outcome<HolderKilled>,
    /// A server that is killed.
    pub server_killed: Outcome<ServerKilled>,
}

/// A measurement, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome<T> {
    /// What was measured.
    Measured(T),
    /// It was tried, and this went wrong.
    Failed(String),
    /// It cannot be measured here, and why; for missing servers, how to get them.
    Missing(String),
}

impl<T> Default for Outcome<T> {
    fn default() -> Self {
        Self::Missing("not measured".into())
    }
}

impl<T> Outcome<T> {
    /// What was measured.
    pub const fn measured(&self) -> Option<&T> {
        match self {
            Self::Measured(value) => Some(value),
            Self::Failed(_) | Self::Missing(_) => None,
        }
    }

    /// Why there is no measurement.
    pub fn problem(&self) -> Option<String> {
        match self {
            Self::Measured(_) => None,
            Self::Failed(error) => Some(format!("failed: {error}")),
            Self::Missing(why) => Some(why.clone()),
        }
    }
}

impl<T> From<Result<T, LabError>> for Outcome<T> {
    fn from(result: Result<T, LabError>) -> Self {
        match result {
            Ok(value) => Self::Measured(value),
            Err(error @ LabError::Missing { .. }) => Self::Missing(error.to_string()),
            Err(error) => Self::Failed(error.with_causes()),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // Durations of a run, to the microsecond.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

/// Now, by the wall clock, in UTC and to the second.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(wall_micros())).to_string()
}

/// A report as data that people can read, too.
pub(crate) fn json(report: &impl Serialize) -> Result<String, LabError> {
    let json = serde_json::to_string_pretty(report)
        .map_err(|error| LabError::io("writing the report as JSON", std::io::Error::other(error)))?;
    Ok(json + "\n")
}

/// Writes one file of a report; its directory is made if need be.
pub(crate) fn put(dir: &Path, name: &str, text: &str) -> Result<(), LabError> {
    fs::create_dir_all(dir).map_err(|source| LabError::io(format!("creating {}", dir.display()), source))?;
    let file = dir.join(name);
    fs::write(&file, text).map_err(|source| LabError::io(format!("writing {}", file.display()), source))
}

impl Report {
    /// Writes `report.json`, `report.md`, `index.html`, and each picture as an SVG file of its own.
    ///
    /// # Errors
    /// [`LabError::Io`] when a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        let put = |name: &str, text: &str| put(dir, name, text);
        put("report.json", &json(self)?)?;
        put("report.md", &self.markdown())?;
        put("index.html", &self.html())?;
        for picture in self.pictures() {
            put(&format!("{}.svg", picture.id), &picture.svg)?;
        }
        Ok(())
    }

    /// Whether every measurement that can be made on this machine was made.
    #[must_use]
    pub fn complete(&self) -> bool {
        let whole = |backend: &Backend| {
            !matches!(backend.uncontended, Outcome::Failed(_))
                && !matches!(backend.contended, Outcome::Failed(_))
                && !matches!(backend.holder_killed, Outcome::Failed(_))
                && !matches!(backend.server_killed, Outcome::Failed(_))
        };
        self.backends.iter().all(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Latency;

    /// A measured backend, one that is missing, and one that failed in part.
    fn report() -> Report {
        let latency =
            Latency { count: 3, p50: 68.0, p99: 114.0, curve: vec![(0.0, 1.0), (1.0, 99.0)], ..Latency::default() };
        let missing = "redis-server is not installed; on Debian and Ubuntu: apt-get install redis-server";
        let measured = Backend {
            key: "zk1".into(),
            title: "ZooKeeper 1".into(),
            version: "3.8.0".into(),
            uncontended: Outcome::Measured(Uncontended {
                both: latency.clone(),
                requests: Some(3.0),
                ..Uncontended::default()
            }),
            contended: Outcome::Measured(Contended { waits: latency, utilisation: 0.9, ..Contended::default() }),
            holder_killed: Outcome::Measured(HolderKilled { next_grant_ms: vec![3.0, 1.0, 2.0], bound_ms: 9.0 }),
            server_killed: Outcome::Failed("the server <did> not come | back".into()),
            ..Backend::default()
        };
        let absent = Backend {
            key: "redis".into(),
            title: "Redis".into(),
            uncontended: Outcome::Missing(missing.into()),
            contended: Outcome::Missing(missing.into()),
            holder_killed: Outcome::Missing(missing.into()),
            server_killed: Outcome::Missing(missing.into()),
            ..Backend::default()
        };
        Report { date: "2026-01-02T03:04:05Z".into(), backends: vec![measured, absent], ..Report::default() }
    }

    #[test]
    fn a_missing_backend_is_a_row_that_says_how_to_get_it() {
        for text in [report().markdown(), report().html()] {
            // In the summary and in each of the four tables.
            assert_eq!(text.matches("apt-get install redis-server").count(), 5, "{text}");
        }
    }

    #[test]
    fn a_measurement_that_failed_is_said_and_makes_the_report_incomplete() {
        assert!(report().markdown().contains("failed: the server <did> not come \\| back"));
        assert!(report().html().contains("failed: the server &lt;did&gt; not come | back"));
        assert!(!report().complete());
    }

    #[test]
    fn every_row_of_a_markdown_table_has_all_columns() {
        for table in tables(&report()).iter().chain([&summary(&report())]) {
            for line in markdown::table(table).replace("\\|", "").lines() {
                assert_eq!(line.matches('|').count(), table.columns.len() + 1, "{line}");
            }
        }
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = report().html();
        assert_eq!(page.matches("<svg").count(), 4);
        for outside in [" src=", "<link", "<script", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn each_table_says_how_its_figures_were_taken() {
        assert!(tables(&report()).iter().all(|table| table.how.len() > 100));
    }

    #[test]
    fn the_median_of_the_kills_is_the_middle_one() {
        let report = report();
        let kills = report.backends[0].holder_killed.measured().unwrap();
        assert!((kills.median_ms() - 2.0).abs() < 1e-9 && (kills.longest_ms() - 3.0).abs() < 1e-9);
    }

    #[test]
    fn the_data_reads_back_as_it_was() {
        let text = serde_json::to_string(&report()).unwrap();
        assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
    }
}
