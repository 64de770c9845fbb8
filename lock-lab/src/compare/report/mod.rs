//! What a comparison found, and what its report says.

mod figures;
mod pictures;
mod tables;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::figures::{Contended, HolderKilled, OldHolder, ServerKilled, Uncontended};
use crate::{
    LabError,
    report::{Document, DocumentBlock, Machine, Outcome, json},
};

/// What a comparison found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// When the comparison began, in UTC.
    pub date: String,
    /// How long the comparison took, in seconds.
    pub seconds: f64,
    /// The machine on which everything ran.
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
    /// Whether this program was built with optimisations.
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
    /// Key of the backend, as on the command line.
    pub key: String,
    /// Name of the backend.
    pub title: String,
    /// Version of the servers; empty where there are none.
    pub version: String,
    /// What strikes the servers; empty where there are none.
    pub fault: String,
    /// Whether the backend promises grants in the order of arrival.
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

impl Report {
    /// Writes `report.json`, `report.md`, `index.html`, and each picture as an SVG file of its own.
    ///
    /// # Errors
    /// [`LabError::Io`] when a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        self.document().write(dir, &json(self)?)
    }

    /// The figures that matter most, for a terminal.
    pub(super) fn summary(&self) -> String {
        tables::summary(self).text()
    }

    /// The report for people.
    fn document(&self) -> Document {
        let mut blocks = vec![DocumentBlock::Table(tables::summary(self)), DocumentBlock::Text(self.circumstances())];
        for (table, picture) in tables::all(self).into_iter().zip(pictures::all(self)) {
            blocks.extend([DocumentBlock::Table(table), picture]);
        }
        Document { title: "The backends side by side", blocks }
    }

    /// Where and when, and what the figures may be used for.
    fn circumstances(&self) -> String {
        let versions: Vec<String> = self
            .backends
            .iter()
            .filter(|backend| !backend.version.is_empty())
            .map(|backend| format!("{} on {}", backend.title, backend.version))
            .collect();
        format!(
            "Taken on {} in {:.0} s: {}. \
             {}, version {}{}. Clients and servers share this machine, over loopback: compare the backends with one \
             another, not these figures with those of another machine.",
            self.date,
            self.seconds,
            self.machine,
            if versions.is_empty() { "No servers".into() } else { versions.join(", ") },
            self.settings.version,
            if self.settings.optimised { "" } else { " built without optimisations" },
        )
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
        for text in [report().document().markdown(), report().document().html()] {
            // In the summary and in each of the four tables.
            assert_eq!(text.matches("apt-get install redis-server").count(), 5, "{text}");
        }
    }

    #[test]
    fn a_measurement_that_failed_is_said_and_makes_the_report_incomplete() {
        assert!(report().document().markdown().contains("failed: the server <did> not come \\| back"));
        assert!(report().document().html().contains("failed: the server &lt;did&gt; not come | back"));
        assert!(!report().complete());
    }

    #[test]
    fn every_row_has_all_columns() {
        for table in tables::all(&report()).iter().chain([&tables::summary(&report())]) {
            for cells in table.rows.iter().filter_map(|row| row.cells.as_ref().ok()) {
                assert_eq!(cells.len() + 1, table.columns.len(), "{table:?}");
            }
        }
    }

    #[test]
    fn the_page_needs_nothing_else() {
        let page = report().document().html();
        assert_eq!(page.matches("<svg").count(), 4);
        for outside in [" src=", "<link", "<script", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn each_table_says_how_its_figures_were_taken() {
        assert!(tables::all(&report()).iter().all(|table| table.how.len() > 100));
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

    /// The report of a run that was kept, from its data alone.
    #[test]
    fn a_report_can_be_written_again_from_the_data_of_its_run() {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reports/compare/report.json");
        let report: Report = serde_json::from_str(&std::fs::read_to_string(data).unwrap()).unwrap();
        let dir = tempfile::tempdir().unwrap();
        report.write(dir.path()).unwrap();
        for backend in &report.backends {
            for file in ["index.html", "report.md", "uncontended.svg"] {
                assert!(std::fs::read_to_string(dir.path().join(file)).unwrap().contains(&backend.title), "{file}");
            }
        }
    }
}
