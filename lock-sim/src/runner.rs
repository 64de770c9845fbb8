//! Many schedules on all cores.

use std::{
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{available_parallelism, scope},
};

use crate::{
    Machine, Outcome, Trace, Violation,
    machine::{Counts, KINDS},
};

/// How many seeds a thread takes at once.
const CHUNK: u64 = 64;

/// How many violations are kept, those of the lowest seeds.
const KEPT: usize = 5;

/// When to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// When all seeds have been played.
    End,
    /// When all have been played, or that many have violated anything.
    Violations(u64),
    /// When the lowest seed is found with a violation of that invariant. Those of others do not count.
    Violated(&'static str),
}

/// What is told while schedules are played.
#[derive(Debug)]
pub enum Told<'a> {
    /// So many more of them were.
    Played(u64),
    /// The schedule of that seed has violated something.
    Violated(u64, &'a Violation),
}

impl Until {
    fn counts(self, violation: &Violation) -> bool {
        !matches!(self, Self::Violated(invariant) if invariant != violation.invariant)
    }

    /// Up to which seed is played after that many violations, of which that of `seed` is the last.
    const fn limit(self, seed: u64, violations: u64) -> u64 {
        match self {
            Self::Violated(_) => seed + 1,
            Self::Violations(most) if violations >= most => 0,
            Self::Violations(_) | Self::End => u64::MAX,
        }
    }
}

/// What came of many schedules.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// How many were played.
    pub schedules: u64,
    /// How many grants there were.
    pub grants: u64,
    /// How many events were played.
    pub steps: u64,
    /// In how many schedules each fact happened.
    pub schedules_with: [u64; KINDS],
    /// How often each fact happened.
    pub times: [u64; KINDS],
    /// How many schedules ended in a violation.
    pub violations: u64,
    /// The first of them, by seed.
    pub first: Vec<(u64, Violation)>,
}

impl Summary {
    fn count(&mut self, seed: u64, outcome: Outcome) {
        self.schedules += 1;
        self.grants += outcome.grants;
        self.steps += outcome.steps;
        let Counts(counts) = outcome.counts;
        for (place, count) in counts.into_iter().enumerate() {
            self.times[place] += u64::from(count);
            self.schedules_with[place] += u64::from(count > 0);
        }
        if let Some(violation) = outcome.violation {
            self.violations += 1;
            self.first.push((seed, violation));
        }
    }

    fn merge(&mut self, other: Self) {
        self.schedules += other.schedules;
        self.grants += other.grants;
        self.steps += other.steps;
        for place in 0..KINDS {
            self.times[place] += other.times[place];
            self.schedules_with[place] += other.schedules_with[place];
        }
        self.violations += other.violations;
        self.first.extend(other.first);
        self.first.sort_by_key(|(seed, _)| *seed);
        self.first.truncate(KEPT);
    }
}

/// Plays one schedule. A panic in it is a violation, too.
pub fn play(machine: &dyn Machine, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
    catch_unwind(AssertUnwindSafe(|| machine.run(seed, without, trace))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        let text = format!("the algorithm or its world panicked: {}", said.unwrap_or("without a message"));
        Outcome { violation: Some(Violation { invariant: "panic", text, at: 0 }), ..Outcome::default() }
    })
}

/// Plays the schedules of `seeds` on all cores. `told` hears of each violation at once, and now and then how many more were
/// played.
///
/// # Panics
/// When a thread cannot be started.
pub fn explore(
    machine: &dyn Machine,
    seeds: Range<u64>,
    without: Option<usize>,
    until: Until,
    told: &(dyn Fn(Told<'_>) + Sync),
) -> Summary {
    let next = AtomicU64::new(seeds.start);
    // Nothing above this seed is of interest. All below are played, so the lowest violation is found on every machine.
    let limit = AtomicU64::new(seeds.end);
    let violations = AtomicU64::new(0);
    let total = Mutex::new(Summary::default());
    let work = || {
        let mut part = Summary::default();
        loop {
            let from = next.fetch_add(CHUNK, Ordering::Relaxed);
            let to = seeds.end.min(from.saturating_add(CHUNK));
            if from >= limit.load(Ordering::Relaxed) {
                break;
            }
            for seed in from..to {
                if seed >= limit.load(Ordering::Relaxed) {
                    break;
                }
                let mut outcome = play(machine, seed, without, &mut Trace::silent());
                outcome.violation = outcome.violation.filter(|violation| until.counts(violation));
                if let Some(violation) = &outcome.violation {
                    told(Told::Violated(seed, violation));
                    let before = violations.fetch_add(1, Ordering::Relaxed);
                    limit.fetch_min(until.limit(seed, before + 1), Ordering::Relaxed);
                }
                part.count(seed, outcome);
            }
            told(Told::Played(to.saturating_sub(from)));
        }
        total.lock().unwrap_or_else(PoisonError::into_inner).merge(part);
    };
    scope(|scope| {
        for _ in 0..available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}
