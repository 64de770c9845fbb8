//! `lock-lab failover`.

use lock_lab::{LabError, failover};

use super::signals::EndingSignals;
use crate::UNAVAILABLE;

/// With the number of a signal added: it ended the program.
const SIGNALLED: u8 = 128;

/// Runs the matrix of faults and writes its report, also when it is interrupted.
pub(super) async fn run(options: &failover::Options) -> Result<u8, LabError> {
    let mut signals = EndingSignals::listen()?;
    let mut interrupted = None;
    let report = failover::run(options, async { interrupted = Some(signals.next().await) }).await?;
    Ok(match interrupted {
        Some(signal) => SIGNALLED.saturating_add(signal),
        None if report.is_good() => 0,
        None => UNAVAILABLE,
    })
}
