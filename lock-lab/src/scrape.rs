//! What a scrape of the example with metrics shows while a majority of Redlock fails, and which alerts it raises.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use clap::{Args, ValueHint};
use lock_core::Clock;
use tokio::process::{Child, Command};

use crate::{
    LabError,
    servers::{Prometheus, RedisNodes, RedisOptions, free_port, http},
};

/// Long enough for the rules that look at the last five minutes to see a change, and for those that wait two minutes to fire.
const STAGE: Duration = Duration::from_secs(150);
/// How long the example may take until it shows its metrics. A second is usual.
const START_LIMIT: Duration = Duration::from_secs(60);
/// Between two attempts to reach the example.
const PAUSE: Duration = Duration::from_millis(100);

const HEAD: &str = "\
# A scrape while a majority fails

`examples/metrics.rs` on a Redlock of three nodes with `ttl=5s`: one lock that it holds, and one that three tasks contend for. A
Prometheus scrapes it and evaluates the rules of [alerts.yml](../observability/alerts.yml). Each scrape below is taken two and a half
minutes after what its heading says; without the buckets and sums of the histograms. Written by `cargo xtask scrape`.
";

/// What is run and what is written.
#[derive(Debug, Args)]
pub struct Options {
    /// The program of examples/metrics.rs.
    #[arg(long, value_name = "PROGRAM", value_hint = ValueHint::ExecutablePath)]
    pub example: PathBuf,
    /// The alert rules.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub alerts: PathBuf,
    /// Where the report goes.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub out: PathBuf,
}

/// Writes the report, on servers of its own. Takes eight minutes.
///
/// # Errors
/// [`LabError`], also when the example ends before it should or shows nothing.
pub async fn run(options: &Options) -> Result<(), LabError> {
    let mut nodes = RedisNodes::start_as(3, RedisOptions::default(), &[("max_ttl", "5s")]).await?;
    let mut observed = Observed::start(&options.example, &format!("{}?ttl=5s", nodes.url()), &options.alerts).await?;
    let mut report = String::from(HEAD);
    report += &observed.stage("Three nodes answer").await?;
    nodes.nodes_mut()[0].kill();
    nodes.nodes_mut()[1].kill();
    report += &observed.stage("Two of three are killed").await?;
    for node in &mut nodes.nodes_mut()[..2] {
        node.restart().await?;
    }
    // Their data are gone: an operator makes them members again, and they vote when the longest lease has ended.
    nodes.mark_again().await?;
    report += &observed.stage("They are back").await?;
    std::fs::write(&options.out, report)
        .map_err(|source| LabError::io(format!("writing {}", options.out.display()), source))
}

/// The example and the Prometheus that scrapes it.
struct Observed {
    /// Ends with this value.
    example: Child,
    port: u16,
    prometheus: Prometheus,
}

impl Observed {
    async fn start(program: &Path, url: &str, alerts: &Path) -> Result<Self, LabError> {
        let port = free_port();
        let mut command = Command::new(program);
        command.args([url, &format!("127.0.0.1:{port}")]).stdout(Stdio::null()).kill_on_drop(true);
        let refused = |source| LabError::io(format!("starting {}", program.display()), source);
        let example = command.spawn().map_err(refused)?;
        let mut observed = Self { example, port, prometheus: Prometheus::start(&[port], alerts).await? };
        observed.wait_until_it_shows("lock_quorum_nodes{backend=\"redlock\",state=\"answering\"} 3").await?;
        Ok(observed)
    }

    /// Waits until the example shows a metric that begins so.
    async fn wait_until_it_shows(&mut self, metric: &str) -> Result<(), LabError> {
        let clock = Clock::boot();
        let deadline = clock.now().saturating_add(START_LIMIT);
        while !self.scrape().await.is_ok_and(|scraped| scraped.lines().any(|line| line.starts_with(metric))) {
            self.check_example()?;
            if clock.now() >= deadline {
                return Err(LabError::run(format!("the example does not show {metric} within {START_LIMIT:?}")));
            }
            clock.sleep(PAUSE).await;
        }
        Ok(())
    }

    /// One section of the report: what is shown a while from now.
    async fn stage(&mut self, title: &str) -> Result<String, LabError> {
        eprintln!("{title}: observed for {STAGE:?}");
        Clock::boot().sleep(STAGE).await;
        self.check_example()?;
        let scraped = self.scrape().await.map_err(|error| LabError::control("the example", "a scrape", &error))?;
        let alerts: Vec<String> = self.prometheus.alerts().await?.iter().map(alert).collect();
        let alerts = if alerts.is_empty() { "none".to_owned() } else { alerts.join("; ") };
        Ok(format!("\n## {title}\n\nAlerts: {alerts}.\n\n```text\n{scraped}\n```\n"))
    }

    /// The metrics that the example shows now, without the buckets and sums of histograms.
    async fn scrape(&self) -> io::Result<String> {
        let answer = http::get(self.port, "/metrics").await?;
        let is_shown = |line: &&str| line.starts_with("lock_") && !line.contains("_bucket{") && !line.contains("_sum{");
        let mut lines: Vec<_> = answer.lines().filter(is_shown).collect();
        lines.sort_unstable();
        Ok(lines.join("\n"))
    }

    fn check_example(&mut self) -> Result<(), LabError> {
        match self.example.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(LabError::run(format!("the example ended with {status}"))),
            Err(source) => Err(LabError::io("looking after the example", source)),
        }
    }
}

fn alert([name, labels, state]: &[String; 3]) -> String {
    format!("`{name}` {labels}: {state}")
}
