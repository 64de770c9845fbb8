//! The settings of a connection that are the same for every backend.

use std::{sync::Arc, time::Duration};

/// Settings of [`Locks`](crate::Locks) that do not depend on the backend.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LocksOptions {
    /// The era of the fencing tokens; 0 if not set.
    pub era: u32,
    /// Who this program is, shown to those who look at a lock; at most [`Request::MAX_PAYLOAD`](crate::Request::MAX_PAYLOAD) bytes.
    pub payload: Arc<[u8]>,
    /// For how long an outage of the service is bridged by an acquisition that has no limit of its own;
    /// [`LocksOptions::OUTAGE_TIMEOUT`] if not set.
    pub outage_timeout: Duration,
}

impl Default for LocksOptions {
    fn default() -> Self {
        Self { era: 0, payload: Arc::default(), outage_timeout: Self::OUTAGE_TIMEOUT }
    }
}

impl LocksOptions {
    /// For how long an outage is bridged unless something else is said.
    pub const OUTAGE_TIMEOUT: Duration = Duration::from_secs(30);

    /// Sets the era of the fencing tokens.
    #[must_use]
    pub const fn with_era(mut self, era: u32) -> Self {
        self.era = era;
        self
    }

    /// Sets who this program is.
    #[must_use]
    pub fn with_payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.payload = payload.as_ref().into();
        self
    }

    /// Sets for how long an outage is bridged by an acquisition that waits without a limit; with zero it fails at once. One with
    /// a limit ([`Mutex::timeout`](crate::Mutex::timeout)) bridges outages until that, whatever is set here.
    #[must_use]
    pub const fn with_outage_timeout(mut self, limit: Duration) -> Self {
        self.outage_timeout = limit;
        self
    }
}
