//! Virtual time, and what happens when.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
};

/// A moment, or a length of time, in nanoseconds of true time since the schedule began. No participant sees it: each has
/// its own [`LocalClock`](crate::LocalClock).
pub type Time = u64;

/// A microsecond.
pub const US: Time = 1_000;
/// A millisecond.
pub const MS: Time = 1_000_000;
/// A second.
pub const SECOND: Time = 1_000_000_000;

/// The events to come. What is due at the same moment happens in the order in which it was scheduled, so that a seed
/// replays exactly.
#[derive(Debug)]
pub struct Agenda<E> {
    now: Time,
    number: u64,
    events: BinaryHeap<Reverse<ScheduledEvent<E>>>,
}

/// An event of the [`Agenda`] with the moment at which it is due.
#[derive(Debug)]
struct ScheduledEvent<E> {
    at: Time,
    number: u64,
    event: E,
}

impl<E> ScheduledEvent<E> {
    const fn key(&self) -> (Time, u64) {
        (self.at, self.number)
    }
}

impl<E> PartialEq for ScheduledEvent<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<E> Eq for ScheduledEvent<E> {}

impl<E> PartialOrd for ScheduledEvent<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for ScheduledEvent<E> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Self { now: 0, number: 0, events: BinaryHeap::new() }
    }
}

impl<E> Agenda<E> {
    /// The present moment: that of the event that came last.
    #[must_use]
    pub const fn now(&self) -> Time {
        self.now
    }

    /// How many events have come so far.
    #[must_use]
    pub fn scheduled(&self) -> u64 {
        self.number
    }

    /// Lets `event` happen at `at`, or now when that has passed.
    pub fn at(&mut self, at: Time, event: E) {
        let at = at.max(self.now);
        self.events.push(Reverse(ScheduledEvent { at, number: self.number, event }));
        self.number += 1;
    }

    /// Lets `event` happen after `delay`.
    pub fn after(&mut self, delay: Time, event: E) {
        self.at(self.now.saturating_add(delay), event);
    }

    /// The next event; time moves on to it. `None` when nothing is left to happen.
    pub fn next_event(&mut self) -> Option<E> {
        let Reverse(entry) = self.events.pop()?;
        self.now = entry.at;
        Some(entry.event)
    }
}
