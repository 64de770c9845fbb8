//! `lock-lab frozen`.

use lock_lab::{LabError, failover::frozen};

use crate::UNAVAILABLE;

/// Measures Redlock with frozen nodes, and prints the figures.
pub(crate) async fn run() -> Result<u8, LabError> {
    let measured = frozen::run(&frozen::Options::default()).await?;
    println!("{}", frozen::text(&measured));
    Ok(if measured.is_within_bounds() { 0 } else { UNAVAILABLE })
}
