//! How many replicas have to acknowledge a write.

use std::time::Duration;

/// By how many replicas a write has to be acknowledged, and how soon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replicas {
    /// How many.
    pub count: u32,
    /// Within which time.
    pub within: Duration,
}

impl Replicas {
    /// So many within this time.
    #[must_use]
    pub const fn new(count: u32, within: Duration) -> Self {
        Self { count, within }
    }
}
