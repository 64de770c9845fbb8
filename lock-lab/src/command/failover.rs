//! `lock-lab failover`.

use std::path::PathBuf;

use clap::Args;
use lock_lab::{
    LabError,
    failover::{self, arrangement::Arrangement, fault::Fault},
};

use super::signals::Signals;
use crate::UNAVAILABLE;

/// With the number of a signal added: it ended the program.
const SIGNALLED: u8 = 128;

/// Strike real servers with faults under load, check what the locks promise, and write a report.
///
/// Without --backend and --fault it runs the quick matrix, in about eight minutes: each arrangement of servers with its
/// most telling faults. Fails when a promise was broken, when a run could not have shown that, and when what is not promised
/// did not show where it must. Ctrl-C ends it with the report of what is finished.
#[derive(Debug, Args)]
pub(crate) struct Failover {
    /// The directory of the report: report.json, report.md, index.html.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Only these arrangements of servers.
    #[arg(long, value_name = "KEY", value_delimiter = ',', num_args = 1..)]
    backend: Vec<Arrangement>,

    /// Only these faults.
    #[arg(long, value_name = "KEY", value_delimiter = ',', num_args = 1..)]
    fault: Vec<Fault>,

    /// Everything that applies, of what --backend and --fault leave; the report lists what does not, and why.
    #[arg(long)]
    all: bool,

    /// As --all, twice each; takes more than an hour.
    #[arg(long)]
    full: bool,
}

impl Failover {
    /// Runs the matrix of faults and writes its report, also when it is interrupted.
    pub(crate) async fn run(&self) -> Result<u8, LabError> {
        let mut matrix = failover::Options::new(&self.out, super::this_program()?);
        matrix.wanted.backends.clone_from(&self.backend);
        matrix.wanted.faults.clone_from(&self.fault);
        (matrix.wanted.all, matrix.wanted.full) = (self.all, self.full);
        let mut signals = Signals::listen()?;
        let mut interrupted = None;
        let report = failover::run(&matrix, async { interrupted = Some(signals.next().await) }).await?;
        Ok(match interrupted {
            Some(signal) => SIGNALLED.saturating_add(signal),
            None if report.is_good() => 0,
            None => UNAVAILABLE,
        })
    }
}
