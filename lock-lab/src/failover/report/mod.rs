//! The report of the matrix: as data, as text, and as a page with pictures.

mod figures;
mod lost;
mod page;
mod picture;
mod seen;
mod table;
mod timeline;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub(crate) use self::timeline::TimelineContext;
pub use self::{
    figures::{Figures, Run, Turned, Verdict},
    timeline::{Hold, Lane, LateWrite, Mark, Span, Timeline},
};
use crate::{
    LabError,
    failover::frozen::Frozen,
    report::{Machine, Outcome, json},
};

/// What a run of the matrix found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Report {
    /// When the matrix began, in UTC.
    pub date: String,
    /// How long the matrix took, in seconds.
    pub seconds: f64,
    /// The command that ran the matrix.
    pub command: String,
    /// The machine on which everything ran.
    pub machine: Machine,
    /// What was done in each run.
    pub settings: Settings,
    /// Whether the matrix was interrupted: then the report has only the runs that were finished.
    pub interrupted: bool,
    /// What came out, run by run.
    pub runs: Vec<Run>,
    /// What was not run, and why.
    pub left_out: Vec<LeftOut>,
    /// Redlock with frozen nodes; not there when it was not asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen: Option<Outcome<Frozen>>,
}

/// What was done in each run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Settings {
    /// The version of this program.
    pub version: String,
    /// Whether this program was built with optimisations.
    pub optimised: bool,
    /// Whether this was the full matrix.
    pub full: bool,
    /// The ttl or session time-out, in a sentence.
    pub leases: String,
    /// The load, in a sentence.
    pub load: String,
}

/// A pair that does not apply.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LeftOut {
    /// Key of the arrangement of servers.
    pub backend: String,
    /// Key of the fault.
    pub fault: String,
    /// The reason why the fault does not apply.
    pub why: String,
}

impl Report {
    /// Writes `report.json`, `report.md` and `index.html`.
    ///
    /// # Errors
    /// [`LabError::Io`] when a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), LabError> {
        self.document().write(dir, &self.json()?)
    }

    /// As data: each run on one line, since its timeline is long.
    fn json(&self) -> Result<String, LabError> {
        const NONE: &str = "\"runs\": []";
        let failed = |error: serde_json::Error| LabError::io("writing the report as JSON", error.into());
        let mut runs = Vec::new();
        for run in &self.runs {
            runs.push(serde_json::to_string(run).map_err(failed)?);
        }
        let rest = json(&Self { runs: Vec::new(), ..self.clone() })?;
        let lines = format!("\"runs\": [\n    {}\n  ]", runs.join(",\n    "));
        Ok(if runs.is_empty() { rest } else { rest.replacen(NONE, &lines, 1) })
    }

    /// Whether every run counts and no promise was broken.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let frozen = self.frozen.as_ref().is_none_or(|frozen| frozen.measured().is_some_and(Frozen::is_within_bounds));
        !self.interrupted && frozen && self.runs.iter().all(|run| run.verdict.is_good())
    }

    /// The whole report in a sentence.
    #[must_use]
    pub fn sum(&self) -> String {
        let count = |is: fn(&Verdict) -> bool| self.runs.iter().filter(|run| is(&run.verdict)).count();
        let runs = if self.runs.len() == 1 { "run" } else { "runs" };
        let mut text = format!("{} {runs}: {} kept every promise", self.runs.len(), count(|one| *one == Verdict::Kept));
        for (number, what) in [
            (count(|one| matches!(one, Verdict::Shown(_))), "showed what is not promised"),
            (count(|one| matches!(one, Verdict::Recorded(_))), "kept what is not promised"),
            (count(|one| matches!(one, Verdict::ProvesNothing(_))), "PROVE NOTHING"),
            (count(|one| matches!(one, Verdict::Failed(_))), "FAILED"),
            (count(|one| matches!(one, Verdict::Broken(_))), "BROKE A PROMISE"),
        ] {
            if number > 0 {
                text.push_str(&format!(", {number} {what}"));
            }
        }
        text.push('.');
        match &self.frozen {
            Some(Outcome::Measured(frozen)) if frozen.is_within_bounds() => {
                text.push_str(" Redlock with frozen nodes kept its bounds.");
            }
            Some(_) => text.push_str(" REDLOCK WITH FROZEN NODES DID NOT KEEP ITS BOUNDS."),
            None => {}
        }
        text + if self.interrupted { " Interrupted: only what was finished is here." } else { "" }
    }

    /// Where and when, with which versions and settings.
    fn circumstances(&self) -> String {
        let mut versions: Vec<String> = Vec::new();
        for run in self.runs.iter().filter(|run| !run.version.is_empty()) {
            let version = format!("{} on {}", run.backend_title, run.version);
            if !versions.contains(&version) {
                versions.push(version);
            }
        }
        format!(
            "Taken on {} in {:.0} s by `{}`: {}. {}. Version {} of the locks{}. {} {} Clients and servers share this machine, over loopback.",
            self.date,
            self.seconds,
            self.command,
            self.machine,
            if versions.is_empty() { "No servers".into() } else { versions.join(", ") },
            self.settings.version,
            if self.settings.optimised { "" } else { ", built without optimisations" },
            self.settings.load,
            self.settings.leases,
        )
    }
}

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod tests;
