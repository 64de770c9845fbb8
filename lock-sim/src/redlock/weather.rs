//! What kind of schedule it is: how many nodes, how long a lease, and what may go wrong.

use std::time::Duration;

use crate::{Chance, MS, Time, Wire};

/// What a schedule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything that the algorithm has to bear.
    Usual,
    /// Counters are lost by themselves, and all clocks are right: then only they make tokens rise.
    Evictions,
    /// The wall clock of nodes jumps, which may let two hold.
    Jumps,
    /// Somebody deletes the lock on nodes, which may let two hold, too; and many requests arrive twice.
    Deletions,
    /// The same, and so much of it that a grant finds its own holdings come again, after others. Counters are ahead of all
    /// clocks, so that numbers follow each other closely.
    Resent,
    /// A writer among readers that come all the time, and nothing goes wrong.
    Crowd,
}

/// What the world of a schedule is like.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weather {
    pub(super) kind: Kind,
    pub(super) nodes: usize,
    pub(super) clients: usize,
    pub(super) ttl: Duration,
    pub(super) max_ttl: u64,
    /// How long a client waits for a node.
    pub(super) limit: Time,
    /// From when on nothing goes wrong any more and nobody begins.
    pub(super) end: Time,
    pub(super) wire: Wire,
    /// How many of a thousand requests arrive although their connection broke: late, and without an answer.
    pub(super) stray_per_mille: u64,
    /// How many of a hundred attempts are those of readers.
    pub(super) readers: u64,
    /// How much clocks run wrong at most, in millionths.
    pub(super) drift: i64,
    /// By how much wall clocks are wrong at most, in microseconds.
    pub(super) offset: i64,
    /// By how much the wall clocks of some clients are slow, in microseconds.
    pub(super) slow: i64,
    /// For how long a lock is held at least.
    pub(super) least_hold: Time,
    /// How many nodes fail at most, each as often as it likes; and in how many ways.
    pub(super) faults: u64,
    /// Whether programs stop or die.
    pub(super) stops: bool,
}

impl Weather {
    pub(super) fn draw(chance: &mut Chance) -> Self {
        let kind = match chance.below(100) {
            0..66 => Kind::Usual,
            66..76 => Kind::Evictions,
            76..82 => Kind::Jumps,
            82..90 => Kind::Deletions,
            90..96 => Kind::Resent,
            _ => Kind::Crowd,
        };
        let ttl = chance.one_of(&[300, 500, 1_000, 4_000]);
        let nodes = if chance.one_in(2) { 3 } else { 5 };
        let lossy = chance.one_in(2);
        let twice_per_mille = if chance.one_in(3) { chance.one_of(&[20, 150]) } else { 0 };
        let least = 100_000;
        let most = chance.one_of(&[MS, 5 * MS, 20 * MS]);
        let wire = Wire {
            least,
            most,
            late: if chance.one_in(2) { ttl * MS / 2 } else { most * 4 },
            late_per_mille: chance.one_of(&[0, 10, 60]),
            lost_per_mille: if lossy { chance.one_of(&[10, 60]) } else { 0 },
            twice_per_mille,
        };
        let weather = Self {
            kind,
            nodes,
            clients: 2 + chance.place(3),
            ttl: Duration::from_millis(ttl),
            max_ttl: ttl.max(700) + chance.one_of(&[0, 300]),
            limit: (most * 3).clamp(20 * MS, ttl * MS / 6).max(8 * MS),
            end: ttl * MS * chance.between(2, 5),
            wire,
            stray_per_mille: if lossy { 20 } else { 0 },
            readers: chance.one_of(&[0, 0, 40, 70]),
            drift: chance.one_of(&[0, 1_000, 4_500]),
            offset: chance.one_of(&[0, 20_000, 100_000]),
            slow: 0,
            least_hold: 0,
            faults: chance.below(4),
            stops: chance.one_in(3),
        };
        match kind {
            Kind::Usual => weather,
            Kind::Jumps => Self { faults: 0, ..weather },
            Kind::Deletions if chance.one_in(4) => {
                Self { faults: 0, wire: Wire { twice_per_mille: 300, ..wire }, ..weather }
            }
            Kind::Deletions => {
                // So slow that what goes wrong comes between a request and the next.
                let wire = Wire { twice_per_mille: 400, most: 20 * MS, late: 40 * MS, late_per_mille: 300, ..wire };
                Self {
                    faults: 0,
                    wire,
                    limit: 45 * MS,
                    ttl: Duration::from_millis(300),
                    max_ttl: 700,
                    clients: 4,
                    ..weather
                }
            }
            Kind::Resent => {
                let wire = Wire {
                    twice_per_mille: 500,
                    most: 5 * MS,
                    late: 80 * MS,
                    late_per_mille: 100,
                    lost_per_mille: 0,
                    ..wire
                };
                let (ttl, max_ttl, end) = (Duration::from_millis(600), 700, 1_500 * MS);
                let readers = weather.readers.min(40);
                Self {
                    wire,
                    ttl,
                    max_ttl,
                    end,
                    readers,
                    limit: 100 * MS,
                    clients: 4,
                    stray_per_mille: 0,
                    faults: 0,
                    stops: false,
                    ..weather
                }
            }
            // The bound: clocks differ by less than the time between two grants, and requests do not outlive it.
            Kind::Evictions => {
                let wire = Wire { most: MS, late_per_mille: 0, ..wire };
                let calm = Self { drift: 0, offset: 0, wire, stray_per_mille: 0, faults: 3, ..weather };
                if chance.one_in(2) {
                    return calm;
                }
                // A node that has lost its counter takes a proposal for right that is at most a quarter of a second old. One of
                // a client whose clock is slow may be what it saw last, and so that has to be longer ago.
                let (ttl, max_ttl) = (Duration::from_secs(1), 1_000);
                Self { slow: 5_000_000, least_hold: 270 * MS, readers: 0, ttl, max_ttl, ..calm }
            }
            Kind::Crowd => Self {
                clients: 6,
                ttl: Duration::from_secs(4),
                max_ttl: 4_000,
                limit: 50 * MS,
                end: 1_500 * MS,
                wire: Wire { most: MS, late_per_mille: 0, lost_per_mille: 0, twice_per_mille: 0, ..wire },
                stray_per_mille: 0,
                faults: 0,
                stops: false,
                offset: 0,
                ..weather
            },
        }
    }

    /// Whether two may hold because of what went wrong.
    pub(super) fn may_come_apart(&self) -> bool {
        matches!(self.kind, Kind::Jumps | Kind::Deletions | Kind::Resent)
    }

    pub(super) fn ttl_ms(&self) -> u64 {
        u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn ttl(&self) -> Time {
        self.ttl_ms() * MS
    }
}
