//! A Prometheus that scrapes programs of a test.

use std::{fs, path::Path, time::Duration};

use lock_core::Clock;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tempfile::TempDir;

use super::{
    http, ports,
    process::{self, Process, Program},
};
use crate::LabError;

/// How long a start may take. A second is usual.
const START_LIMIT: Duration = Duration::from_secs(60);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// How often a start is repeated when somebody else took the port.
const ATTEMPTS: u32 = 8;

/// One Prometheus server, which scrapes its targets several times a second.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    dir: TempDir,
    process: Process,
}

impl Prometheus {
    /// Starts a server that scrapes what listens on those loopback ports, and evaluates the alert rules of the file `rules`.
    ///
    /// # Errors
    /// [`LabError`]; `Missing` when Prometheus is not installed.
    pub async fn start(targets: &[u16], rules: &Path) -> Result<Self, LabError> {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let mut server = Self::prepare(targets, rules)?;
            match server.wait_until_ready().await {
                // Somebody else may have taken the port since it was looked at.
                Err(LabError::NotStarted { .. }) if attempts > 0 => {}
                done => return done.map(|()| server),
            }
        }
    }

    fn prepare(targets: &[u16], rules: &Path) -> Result<Self, LabError> {
        let (port, dir) = (ports::free(), process::directory()?);
        let targets: Vec<String> = targets.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
        // Paths in its configuration are relative to the file.
        let config = format!(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\n\
             rule_files: [rules.yml]\n\
             scrape_configs:\n- job_name: lock\n  static_configs:\n  - targets: [{}]\n",
            targets.join(", ")
        );
        let written = fs::write(dir.path().join("prometheus.yml"), config)
            .and_then(|()| fs::copy(rules, dir.path().join("rules.yml")));
        written.map_err(|source| LabError::io("writing the configuration of Prometheus", source))?;
        let listen = format!("--web.listen-address=127.0.0.1:{port}");
        let arguments = ["--config.file=prometheus.yml", "--storage.tsdb.path=data", "--log.level=warn", &listen];
        let arguments = arguments.map(str::to_owned).to_vec();
        let program = Program { name: "prometheus", package: "prometheus", arguments, environment: Vec::new() };
        let process = program.start(dir.path())?;
        Ok(Self { port, dir, process })
    }

    /// Resolves when the very process that was started answers.
    async fn wait_until_ready(&mut self) -> Result<(), LabError> {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(START_LIMIT);
        loop {
            if let Some(status) = self.process.ended() {
                return Err(self.not_started(format!("it ended with {status}")));
            }
            if let Ok(data) = self.ask("/api/v1/status/runtimeinfo").await {
                let own = self.dir.path().canonicalize().ok();
                return match data["CWD"].as_str() {
                    Some(dir) if Path::new(dir).canonicalize().ok() == own => Ok(()),
                    _ => Err(self.not_started("another server answers on its port".to_owned())),
                };
            }
            if clock.now() >= deadline {
                return Err(self.not_started(format!("no answer within {START_LIMIT:?}")));
            }
            clock.sleep(Duration::from_millis(10)).await;
        }
    }

    fn not_started(&self, reason: String) -> LabError {
        LabError::NotStarted { server: self.label(), reason, log: self.process.log() }
    }

    /// The time series that `query` has now, as its HTTP interface gives them.
    ///
    /// # Errors
    /// [`LabError::Control`], also when the query is not allowed, with the reason.
    pub async fn query(&self, query: &str) -> Result<Vec<Value>, LabError> {
        let path = format!("/api/v1/query?query={}", utf8_percent_encode(query, NON_ALPHANUMERIC));
        match self.ask(&path).await?["result"].take() {
            Value::Array(series) => Ok(series),
            other => Err(self.control(&format!("{query} has no series: {other}"))),
        }
    }

    /// Its alert rules: the name of each, its query, and its health, which is `ok` once the rule was evaluated.
    ///
    /// # Errors
    /// [`LabError::Control`].
    pub async fn alert_rules(&self) -> Result<Vec<[String; 3]>, LabError> {
        let data = self.ask("/api/v1/rules?type=alert").await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let groups = data["groups"].as_array().into_iter().flatten();
        let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        Ok(rules.map(|rule| ["name", "query", "health"].map(|field| text(&rule[field]))).collect())
    }

    /// The alerts that are pending or fire: the name of each, its labels, and its state.
    ///
    /// # Errors
    /// [`LabError::Control`].
    pub async fn alerts(&self) -> Result<Vec<[String; 3]>, LabError> {
        let data = self.ask("/api/v1/alerts").await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let labels = |alert: &Value| {
            let labels = alert["labels"].as_object().into_iter().flatten();
            let shown = labels.filter(|(name, _)| !["alertname", "severity"].contains(&name.as_str()));
            shown.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(" ")
        };
        let alerts = data["alerts"].as_array().into_iter().flatten();
        let mut alerts: Vec<_> =
            alerts.map(|alert| [text(&alert["labels"]["alertname"]), labels(alert), text(&alert["state"])]).collect();
        alerts.sort_unstable();
        Ok(alerts)
    }

    /// The data of an answer.
    async fn ask(&self, path: &str) -> Result<Value, LabError> {
        let answer = Clock::boot().timeout(ANSWER_LIMIT, http::get(self.port, path)).await;
        let body = answer.ok_or_else(|| self.control("no answer"))?.map_err(|error| self.control(&error))?;
        let mut body: Value = serde_json::from_str(&body).map_err(|error| self.control(&format!("{error}: {body}")))?;
        if body["status"] == "success" { Ok(body["data"].take()) } else { Err(self.control(&body)) }
    }

    fn label(&self) -> String {
        format!("the Prometheus on port {}", self.port)
    }

    fn control(&self, reason: &(impl ToString + ?Sized)) -> LabError {
        LabError::control(self.label(), "a request", reason)
    }
}
