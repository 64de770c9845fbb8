//! The commands of the program.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts, which show no markup")]

mod failover;
mod signals;

use std::io::{self, Write as _};

use clap::Subcommand;
use lock_lab::{
    LabError, compare, demo,
    failover::{Options, frozen, worker::Worker},
    holder, readwrite, scrape,
};

use crate::UNAVAILABLE;

/// The subcommands of `lock-lab`, with their options.
#[derive(Debug, Subcommand)]
pub(crate) enum LabCommand {
    /// Show many contenders taking turns: who is granted when, with which place and fencing token.
    ///
    /// Without --url or --config it starts the servers of every backend itself, on free ports of this machine.
    Demo(demo::Options),
    /// Compare the backends on this machine, with servers of their own, and write a report.
    Compare(compare::Options),
    /// Have readers and writers share one lock under load, and check what was granted.
    ///
    /// On each backend, with servers of its own. Fails when a writer was ever beside anybody, when a reader was granted before a
    /// writer that had waited before it came, and when the run was such that neither could have shown.
    ReadWrite(readwrite::Options),
    /// Strike real servers with faults under load, check what the locks promise, and write a report.
    ///
    /// Without --backend and --fault it runs the quick matrix, in about eight minutes: each arrangement of servers with its
    /// most telling faults. Fails when a promise was broken, when a run could not have shown that, and when what is not promised
    /// did not show where it must. Ctrl-C ends it with the report of what is finished.
    Failover(Options),
    /// Measure what acquisitions cost on Redlock while one of three nodes is frozen, and how they fail while two are.
    ///
    /// On servers of its own. Fails when a bound is not kept.
    Frozen,
    /// Write what a scrape of the example with metrics and the alerts show while a majority of Redlock fails, in eight minutes.
    Scrape(scrape::Options),
    /// What a failover run starts to take locks in a process of its own: reads orders and reports events, a line each.
    #[command(hide = true)]
    Worker {
        /// What it does, as JSON.
        #[arg(value_parser = worker)]
        worker: Box<Worker>,
    },
    /// What a comparison starts to hold a lock in a process of its own, until its input ends.
    #[command(hide = true)]
    Hold {
        /// The lock service.
        url: String,
        /// The lock.
        name: String,
    },
}

impl LabCommand {
    /// Runs the command: the exit status.
    pub(crate) async fn run(&self) -> Result<u8, LabError> {
        match self {
            Self::Demo(options) => demo::run(options).await.map(|_| 0),
            Self::Compare(options) => compare::run(options).await.map(|_| 0),
            Self::ReadWrite(options) => readwrite::run(options).await.map(|_| 0),
            Self::Failover(options) => failover::run(options).await,
            Self::Frozen => {
                let measured = frozen::run(&frozen::Options::default()).await?;
                // The exit status says it, too.
                let _ = writeln!(io::stdout(), "{}", frozen::text(&measured));
                Ok(if measured.is_within_bounds() { 0 } else { UNAVAILABLE })
            }
            Self::Scrape(options) => scrape::run(options).await.map(|()| 0),
            Self::Worker { worker } => worker.run().await.map(|()| 0),
            Self::Hold { url, name } => holder::hold(url, name).await.map(|()| 0),
        }
    }
}

fn worker(json: &str) -> Result<Box<Worker>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}
