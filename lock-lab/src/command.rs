//! The commands of the program, an option struct and a function each.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts, which show no markup")]

mod compare;
mod demo;
mod failover;
mod frozen;
mod read_write;
mod signals;

use std::{env, path::PathBuf};

use clap::Subcommand;
use lock_lab::{LabError, failover::worker::Worker, holder};

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Demo(demo::Demo),
    Compare(compare::Compare),
    ReadWrite(read_write::ReadWrite),
    Failover(failover::Failover),
    /// Measure what acquisitions cost on Redlock while one of three nodes is frozen, and how they fail while two are.
    ///
    /// On servers of its own. Fails when a bound is not kept.
    Frozen,
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

impl Command {
    /// Runs the command: the exit status.
    pub(crate) async fn run(&self) -> Result<u8, LabError> {
        match self {
            Self::Demo(demo) => demo.run().await,
            Self::Compare(compare) => compare.run().await,
            Self::ReadWrite(load) => load.run().await,
            Self::Failover(failover) => failover.run().await,
            Self::Frozen => frozen::run().await,
            Self::Worker { worker } => worker.run().await.map(|()| 0),
            Self::Hold { url, name } => holder::hold(url, name).await.map(|()| 0),
        }
    }
}

fn worker(json: &str) -> Result<Box<Worker>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

/// This program, of which workers and holders are further processes.
fn this_program() -> Result<PathBuf, LabError> {
    env::current_exe().map_err(|source| LabError::Io { action: "finding this program".into(), source })
}
