//! `lock-lab compare`.

use std::path::PathBuf;

use clap::Args;
use lock_lab::{LabError, compare, topology::Topology};

/// Compare the backends on this machine, with servers of their own, and write a report.
#[derive(Debug, Args)]
pub(crate) struct Compare {
    /// The directory of the report: report.json, report.md, index.html.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Only these backends, as zk1,redis.
    #[arg(long, value_name = "KEY", value_delimiter = ',', num_args = 1..)]
    backend: Vec<Topology>,

    /// How much of the full run is done: 1 takes about three minutes, 0.1 does a tenth of the operations.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    scale: f64,
}

impl Compare {
    /// Runs the comparison and writes its report.
    pub(crate) async fn run(&self) -> Result<u8, LabError> {
        let mut options = compare::Options::new(&self.out, super::this_program()?);
        options.scale = self.scale;
        if !self.backend.is_empty() {
            options.topologies.clone_from(&self.backend);
        }
        compare::run(&options).await?;
        Ok(0)
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse().ok().filter(|factor| (0.001..=100.0).contains(factor));
    factor.ok_or_else(|| "a number from 0.001 to 100".to_owned())
}
