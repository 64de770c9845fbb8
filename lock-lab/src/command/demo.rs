//! `lock-lab demo`.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use lock::Config;
use lock_lab::{LabError, demo};

/// Show many contenders taking turns: who is granted when, with which place and fencing token.
///
/// Without --url or --config it starts the servers of every backend itself, on free ports of this machine.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The lock service, as zk://HOST,HOST/PATH, redis://HOST, redlock://HOST,HOST,HOST or local:///DIRECTORY.
    /// Other users of this machine can read it here: give a password in a file.
    #[arg(long, conflicts_with = "config")]
    url: Option<String>,

    /// A TOML file with a table [lock].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// How many contenders, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    nodes: u16,

    /// How long each holds the lock.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "100ms")]
    hold: Duration,
}

impl Demo {
    /// Runs the demonstration, on one backend or on the servers of every backend.
    pub(crate) async fn run(&self) -> Result<u8, LabError> {
        let config = match (&self.url, &self.config) {
            (Some(url), _) => Some(Config::from_url(url)),
            (None, file) => file.as_ref().map(Config::from_file),
        };
        let unusable = |source| LabError::Lock { action: "reading the configuration".into(), source };
        let mut options = demo::Options::default();
        options.nodes = self.nodes.into();
        options.hold = self.hold;
        options.url = config.transpose().map_err(unusable)?.map(|config| config.to_url());
        demo::run(&options).await?;
        Ok(0)
    }
}
