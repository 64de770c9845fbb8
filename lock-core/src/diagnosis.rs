//! Diagnosis: what a driver sees of a service, and what it finds wrong with the service or with the settings.
//!
//! A driver looks in [`Driver::diagnose`](crate::Driver::diagnose). What is the same for every backend is judged once, in
//! [`Registry::diagnose`](crate::Registry::diagnose): clear text over a network, and a lease that is short beside the round
//! trips and the stalls that were measured.

mod judge;
mod stalls;

use std::{error::Error as _, fmt, time::Duration};

pub(crate) use self::{judge::judge, stalls::longest_stall};
use crate::Error;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Severity {
    /// Something does not work or is unsafe, and has to be repaired.
    Problem,
    /// Locks work, and something may break them or make them unavailable later.
    Warning,
    /// Worth knowing. A note also says what could not be looked at.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Problem => "problem",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// How much it matters.
    pub severity: Severity,
    /// What kind of finding it is: a stable identifier for programs, such as `same-server-twice`.
    pub key: &'static str,
    /// Which server or which setting it is about.
    pub subject: String,
    /// What is the case, with the figures.
    pub what: String,
    /// What to do about it.
    pub cure: String,
}

impl Finding {
    /// A finding with [`Severity::Problem`].
    pub fn problem(
        key: &'static str,
        subject: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Problem, key, subject: subject.into(), what: what.into(), cure: cure.into() }
    }

    /// A finding with [`Severity::Warning`].
    pub fn warning(
        key: &'static str,
        subject: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(key, subject, what, cure) }
    }

    /// A finding with [`Severity::Note`].
    pub fn note(
        key: &'static str,
        subject: impl Into<String>,
        what: impl Into<String>,
        cure: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Note, ..Self::problem(key, subject, what, cure) }
    }

    /// The finding that a server cannot be reached.
    pub fn unreachable(server: impl Into<String>, what: impl Into<String>) -> Self {
        Self::problem(
            "unreachable",
            server,
            what,
            "Start the server, or correct its address; look at firewalls and at the address that it is bound to.",
        )
    }
}

/// One thing that was seen of a server, a setting or this host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// Which server or which setting it is about.
    pub subject: String,
    /// What was seen, such as `version`.
    pub what: String,
    /// Its value.
    pub value: String,
}

/// How quickly one server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    server: String,
    connected_in: Duration,
    round_trip: Option<Duration>,
}

/// What was seen of a service, and what was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What was seen.
    pub facts: Vec<Fact>,
    /// What was found, in the order in which it was looked for.
    pub findings: Vec<Finding>,
    answers: Vec<Answer>,
    lease: Option<(&'static str, Duration)>,
}

impl Diagnosis {
    /// A diagnosis without facts and findings.
    #[must_use]
    pub const fn new() -> Self {
        Self { facts: Vec::new(), findings: Vec::new(), answers: Vec::new(), lease: None }
    }

    /// Adds a fact.
    pub fn fact(&mut self, subject: impl Into<String>, what: impl Into<String>, value: impl fmt::Display) {
        self.facts.push(Fact { subject: subject.into(), what: what.into(), value: value.to_string() });
    }

    /// Adds a finding.
    pub fn find(&mut self, finding: Finding) {
        self.findings.push(finding);
    }

    /// Notes that `server` (as `host:port`) has answered: after what time the connection could be used, and how long a request
    /// took after that, where it was measured.
    pub fn answered(&mut self, server: impl Into<String>, connected_in: Duration, round_trip: Option<Duration>) {
        let server = server.into();
        self.fact(&server, "connected in", figure(connected_in));
        if let Some(round_trip) = round_trip {
            self.fact(&server, "round trip", figure(round_trip));
        }
        self.answers.push(Answer { server, connected_in, round_trip });
    }

    /// Notes for how long the service keeps a lock without news of its holder, and by which setting.
    pub fn set_lease(&mut self, setting: &'static str, lease: Duration) {
        self.fact(setting, "lease", figure(lease));
        self.lease = Some((setting, lease));
    }

    /// Whether any server has answered.
    #[must_use]
    pub fn is_reached(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Whether there is a finding with [`Severity::Problem`].
    #[must_use]
    pub fn has_problems(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Problem)
    }
}

/// A duration for people, to one digit behind the point.
#[must_use]
pub fn figure(duration: Duration) -> String {
    format!("{duration:.1?}")
}

/// An error with all its causes, on one line.
#[must_use]
pub fn with_causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}

/// Why a service cannot be used, for a finding: the reason and its causes, without the URL of the service.
#[must_use]
pub fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable { reason, source: Some(source), .. }
        | Error::Refused { reason, source: Some(source), .. } => {
            let causes = with_causes(source.as_ref());
            if reason.contains(&causes) { reason.clone() } else { format!("{reason}: {causes}") }
        }
        Error::Unavailable { reason, source: None, .. } | Error::Refused { reason, source: None, .. } => reason.clone(),
        other => other.source().map_or_else(|| other.to_string(), |_| with_causes(other)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_service_is_reached_when_a_server_has_answered_and_has_problems_only_by_findings_that_say_so() {
        let mut diagnosis = Diagnosis::new();
        diagnosis.find(Finding::warning("a", "s", "w", "c"));
        diagnosis.find(Finding::note("b", "s", "w", "c"));
        assert!(!diagnosis.is_reached() && !diagnosis.has_problems());
        diagnosis.answered("h:1", Duration::from_micros(1_540), None);
        diagnosis.find(Finding::unreachable("h:2", "connection refused"));
        assert!(diagnosis.is_reached() && diagnosis.has_problems());
        assert_eq!(diagnosis.facts[0].value, "1.5ms");
    }

    #[test]
    fn a_reason_has_the_causes_once_and_no_url() {
        let cause = io::Error::other("refused");
        let error = Error::unavailable("redis://h:1", "connecting failed", cause);
        assert_eq!(reason(&error), "connecting failed: refused");
        assert_eq!(reason(&Error::no_answer("redis://h:1", "no answer")), "no answer");
    }
}
