//! The values that tell attempts from each other.

use std::sync::atomic::{AtomicU64, Ordering};

use super::packed::VALUE;

/// The values of the attempts of one connection: 80 random bits, and a count.
#[derive(Debug)]
pub struct Values {
    id: String,
    attempts: AtomicU64,
}

impl Values {
    /// Those of a connection with this unique id, of at least 20 characters.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self { id: id[..20].to_owned(), attempts: AtomicU64::new(0) }
    }

    /// A value that no other attempt has, of this connection or of another one.
    pub fn next(&self) -> String {
        let value = format!("{}{:012x}", self.id, self.attempts.fetch_add(1, Ordering::Relaxed));
        debug_assert_eq!(value.len(), VALUE);
        value
    }
}
