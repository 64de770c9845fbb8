//! One direction of all connections of a proxy: its faults and its counters.

use std::{
    sync::atomic::{AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use tokio::sync::watch;

/// Both directions of a proxy: one [`Link`] for requests and one for replies.
#[derive(Debug, Default)]
pub(super) struct LinkPair {
    pub(super) requests: Link,
    pub(super) replies: Link,
}

/// What passed in one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes.
    pub bytes: u64,
    /// Pieces that were read at once: requests that were written back to back are one.
    pub bursts: u64,
}

/// One direction of all connections of a proxy, with its delay, its faults and its counters.
#[derive(Debug)]
pub(super) struct Link {
    delay: AtomicU64,
    held: watch::Sender<bool>,
    /// How many bursts pass before one breaks its connection instead; negative: never.
    break_after: AtomicI64,
    bytes: AtomicU64,
    bursts: AtomicU64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: AtomicU64::new(0),
            held: watch::Sender::new(false),
            break_after: AtomicI64::new(NEVER),
            bytes: AtomicU64::new(0),
            bursts: AtomicU64::new(0),
        }
    }
}

const NEVER: i64 = -1;

impl Link {
    pub(super) fn delay(&self, delay: Duration) {
        self.delay.store(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX), Ordering::Release);
    }

    pub(super) fn delay_now(&self) -> Duration {
        Duration::from_nanos(self.delay.load(Ordering::Acquire))
    }

    pub(super) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    /// Waits while the direction is held.
    pub(super) async fn passing(&self) {
        let mut held = self.held.subscribe();
        // The sender is this value, so it cannot be gone.
        let _ = held.wait_for(|held| !held).await;
    }

    pub(super) fn break_after(&self, bursts: u64) {
        self.break_after.store(i64::try_from(bursts).unwrap_or(i64::MAX), Ordering::Release);
    }

    pub(super) fn never_break(&self) {
        self.break_after.store(NEVER, Ordering::Release);
    }

    /// Counts down to the burst that breaks its connection; whether this one is it.
    pub(super) fn breaks_now(&self) -> bool {
        let count = |left: i64| (left > NEVER).then(|| left - 1);
        self.break_after.fetch_update(Ordering::AcqRel, Ordering::Acquire, count) == Ok(0)
    }

    pub(super) fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.bursts.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn traffic(&self) -> Traffic {
        Traffic { bytes: self.bytes.load(Ordering::Relaxed), bursts: self.bursts.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_chosen_burst_breaks_its_connection() {
        let link = Link::default();
        assert!(!link.breaks_now());
        link.break_after(2);
        let broken: Vec<bool> = (0..5).map(|_| link.breaks_now()).collect();
        assert_eq!(broken, [false, false, true, false, false]);
    }
}
