//! `lock-lab read-write`.

use std::time::Duration;

use clap::Args;
use lock_lab::{LabError, readwrite, topology::Topology};

/// Have readers and writers share one lock under load, and check what was granted.
///
/// On each backend, with servers of its own. Fails when a writer was ever beside anybody, when a reader was granted before a
/// writer that had waited before it came, and when the run was such that neither could have shown.
#[derive(Debug, Args)]
pub(crate) struct ReadWrite {
    /// How many readers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(2..=1000))]
    readers: u16,

    /// How many writers, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1000))]
    writers: u16,

    /// For how long, on each backend.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "30s")]
    time: Duration,

    /// For how long each holds the lock, on average.
    #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration, default_value = "5ms")]
    hold: Duration,

    /// Only these backends, as zk1,redis.
    #[arg(long, value_name = "KEY", value_delimiter = ',', num_args = 1..)]
    backend: Vec<Topology>,
}

impl ReadWrite {
    /// Runs readers and writers on every backend, and checks what was granted.
    pub(crate) async fn run(&self) -> Result<u8, LabError> {
        let mut load = readwrite::Options::default();
        (load.readers, load.writers) = (self.readers.into(), self.writers.into());
        (load.time, load.hold) = (self.time, self.hold);
        if !self.backend.is_empty() {
            load.topologies.clone_from(&self.backend);
        }
        readwrite::run(&load).await?;
        Ok(0)
    }
}
