//! A look at a lock: who holds it and who waits for it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::Mode;

/// Who holds a name and who waits for it, at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Who holds it; empty when it is free. In the order of their grants, as far as the backend knows it.
    pub holders: Vec<Contender>,
    /// Who waits, first in line first; empty without [`Feature::Queue`](crate::Feature::Queue).
    pub queue: Vec<Contender>,
}

impl Snapshot {
    /// A snapshot of these contenders.
    #[must_use]
    pub const fn new(holders: Vec<Contender>, queue: Vec<Contender>) -> Self {
        Self { holders, queue }
    }

    /// Whether both show the same contenders in the same places. How long they still have does not count.
    #[must_use]
    pub fn is_like(&self, other: &Self) -> bool {
        let alike = |these: &[Contender], those: &[Contender]| {
            these.len() == those.len() && these.iter().zip(those).all(|(this, that)| this.is_like(that))
        };
        alike(&self.holders, &other.holders) && alike(&self.queue, &other.queue)
    }
}

/// A holder or a waiter, as the server shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// What tells it apart from all others: the unique value or the node's name.
    pub id: String,
    /// Who it is, in its own words.
    pub payload: Vec<u8>,
    /// The number of its fencing token, once granted.
    pub token: Option<u64>,
    /// How long the server still keeps it without a renewal, where the server tells.
    pub remaining: Option<Duration>,
    /// How it shares the lock, where the server tells.
    pub mode: Option<Mode>,
    /// Since when it is there, by the server's wall clock: a waiter since its arrival, a holder since its grant, or since
    /// its arrival where the server keeps only that.
    pub since: Option<SystemTime>,
}

impl Contender {
    /// A contender of which only the identity is known.
    pub fn new(id: impl Into<String>) -> Self {
        Self { id: id.into(), ..Self::default() }
    }

    /// With who it is.
    #[must_use]
    pub fn with_payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// With the number of its fencing token.
    #[must_use]
    pub const fn with_token(mut self, token: u64) -> Self {
        self.token = Some(token);
        self
    }

    /// With how long the server still keeps it.
    #[must_use]
    pub const fn with_remaining(mut self, remaining: Duration) -> Self {
        self.remaining = Some(remaining);
        self
    }

    /// With how it shares the lock.
    #[must_use]
    pub const fn with_mode(mut self, mode: Mode) -> Self {
        self.mode = Some(mode);
        self
    }

    /// With since when it is there, in microseconds since 1970.
    #[must_use]
    pub fn with_since_micros(mut self, micros: u64) -> Self {
        self.since = UNIX_EPOCH.checked_add(Duration::from_micros(micros));
        self
    }

    fn is_like(&self, other: &Self) -> bool {
        (&self.id, &self.payload, self.token, self.mode) == (&other.id, &other.payload, other.token, other.mode)
    }
}
