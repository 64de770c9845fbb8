//! The validity cell: who renews, who looks, who ends it and who limits it, one atomic access at a time in any order.
//!
//! The cell itself is made of atomics, which cannot be stopped in between; so its operations are written here once more,
//! access by access, and a test compares them with the cell of `lock-core` where nobody interrupts them. What is checked
//! (L): once somebody was told that it is lost, everybody who asks later is told so, and for the same reason; and nobody
//! who asks after a limit was set is told of a validity beyond it.

mod cell;

use self::cell::{Came, Operation, Rules, Running, Shared};
use crate::{Chance, Counts, Fact, Machine, Outcome, Safeguard, Sort, Trace, Violation};

/// The cell and those who share it.
#[derive(Debug)]
pub struct Cell;

const SAFEGUARDS: &[Safeguard] = &[
    Safeguard {
        name: "compare-and-swap",
        about: "A renewal is stored only over the very value that it was judged by.",
        seeds: 100_000,
    },
    Safeguard { name: "first-reason", about: "An end is stored only over a value that is valid.", seeds: 100_000 },
    Safeguard { name: "seen-is-final", about: "Whoever sees it expired makes that final.", seeds: 100_000 },
    Safeguard { name: "limit", about: "No renewal moves the end of the longest holding time.", seeds: 100_000 },
];

const RENEWED: usize = 0;
const REFUSED: usize = 1;
const RAN_OUT: usize = 2;
const LIMITED: usize = 3;

const FACTS: &[Fact] = &[
    Fact { name: "a renewal that others may interrupt", sort: Sort::Coverage },
    Fact { name: "a renewal that found it lost", sort: Sort::Coverage },
    Fact { name: "a look that found it expired", sort: Sort::Coverage },
    Fact { name: "a limit", sort: Sort::Coverage },
];

/// One that uses the cell.
#[derive(Debug, Clone, Copy, Default)]
struct Actor {
    running: Option<(Running, Began)>,
    observed: Option<u64>,
}

/// What was known when an operation began.
#[derive(Debug, Clone, Copy)]
struct Began {
    lost: Option<u64>,
    limit: u64,
}

impl Machine for Cell {
    fn name(&self) -> &'static str {
        "validity"
    }

    fn about(&self) -> &'static str {
        "the validity cell: renewal, look, end and limit, interrupted at every access"
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        let mut chance = Chance::new(seed);
        let rules = Rules {
            compare_and_swap: without != Some(0),
            first_reason: without != Some(1),
            seen_is_final: without != Some(2),
            limit: without != Some(3),
        };
        let mut cell = Shared { state: chance.between(110, 140), limit: u64::MAX, suspicion: 0, now: 100 };
        let mut actors = [Actor::default(); 4];
        let mut known = Began { lost: None, limit: u64::MAX };
        let mut outcome = Outcome { grants: 1, ..Outcome::default() };
        for step in 0..80 {
            outcome.steps += 1;
            if chance.one_in(6) {
                cell.now += chance.mostly_short(30);
                continue;
            }
            let which = chance.place(actors.len());
            let actor = &mut actors[which];
            let (running, began) = actor.running.get_or_insert_with(|| {
                let operation = draw(&mut chance, which, actor.observed.take(), cell.now);
                (Running::new(operation), known)
            });
            let began = *began;
            trace.note(step, format_args!("actor {which}"), format_args!("{running:?} {cell:?}"));
            let Some(came) = running.step(&mut cell, rules) else { continue };
            actor.running = None;
            trace.note(step, format_args!("actor {which}"), format_args!("{came:?}"));
            count(&mut outcome.counts, came);
            if let Came::Observed(value) = came {
                actor.observed = Some(value);
            }
            if let Some(text) = wrong(came, began) {
                outcome.violation = Some(Violation { invariant: "L", text, at: step });
                return outcome;
            }
            if let Came::Lost(reason) = came {
                known.lost.get_or_insert(reason);
            }
            known.limit = known.limit.min(cell.limit);
        }
        outcome
    }
}

/// What an actor does next: the first renews, the second looks, the third ends it now and then, the fourth does anything.
fn draw(chance: &mut Chance, actor: usize, observed: Option<u64>, now: u64) -> Operation {
    let actor = if actor == 3 { chance.place(3) } else { actor };
    match (actor, observed) {
        (0, Some(from)) => Operation::Advance { from, until: now.saturating_sub(10) + chance.below(60) },
        (0, None) => Operation::Observe,
        (2, _) => match chance.below(8) {
            0 => Operation::End(chance.between(2, 5)),
            1 => Operation::Limit(now + chance.below(80)),
            2 => Operation::Suspect(1),
            _ => Operation::Look,
        },
        _ => Operation::Look,
    }
}

fn count(counts: &mut Counts, came: Came) {
    match came {
        Came::Valid(_) => counts.add(RENEWED),
        Came::Refused => counts.add(REFUSED),
        Came::Lost(_) => counts.add(RAN_OUT),
        Came::Done => counts.add(LIMITED),
        Came::Observed(_) => {}
    }
}

/// What may not have come of an operation that began when that was known.
fn wrong(came: Came, began: Began) -> Option<String> {
    match (came, began.lost) {
        (Came::Valid(until), Some(_)) => Some(format!("valid until {until} after somebody was told that it is lost")),
        (Came::Lost(reason), Some(before)) if reason != before => {
            Some(format!("lost for another reason ({reason}) than before ({before})"))
        }
        (Came::Valid(until), None) if until > began.limit => {
            Some(format!("valid until {until}, beyond the limit {}", began.limit))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use lock_core::{BootInstant, Clock, Validity};

    use super::{cell::LOSSES, *};

    const RULES: Rules = Rules { compare_and_swap: true, first_reason: true, seen_is_final: true, limit: true };

    fn alone(operation: Operation, cell: &mut Shared) -> Came {
        let mut running = Running::new(operation);
        loop {
            if let Some(came) = running.step(cell, RULES) {
                return came;
            }
        }
    }

    #[test]
    fn uninterrupted_it_does_what_the_cell_of_lock_core_does() {
        let at = BootInstant::from_nanos;
        for seed in 0..5_000 {
            let mut chance = Chance::new(seed);
            let mut cell = Shared { state: chance.between(110, 140), limit: u64::MAX, suspicion: 0, now: 100 };
            let real = Validity::new(Clock::simulated(), at(cell.state));
            let mut observed = None;
            for _ in 0..30 {
                cell.now += if chance.one_in(3) { chance.below(20) } else { 0 };
                Clock::simulate(at(cell.now));
                let which = chance.place(4);
                let operation = draw(&mut chance, which, observed.as_ref().map(|(mine, _)| *mine), cell.now);
                let came = alone(operation, &mut cell);
                match operation {
                    Operation::Look => {}
                    Operation::Observe => {
                        let theirs = real.observe();
                        assert_eq!(matches!(came, Came::Observed(_)), theirs.is_some());
                        if let (Came::Observed(mine), Some(theirs)) = (came, theirs) {
                            observed = Some((mine, theirs));
                        }
                    }
                    Operation::Advance { until, .. } => {
                        let Some((_, theirs)) = observed.take() else { continue };
                        assert_eq!(matches!(came, Came::Valid(_)), real.advance(theirs, at(until)), "seed {seed}");
                    }
                    Operation::End(loss) => real.end(LOSSES[usize::try_from(loss).unwrap()]),
                    Operation::Limit(limit) => real.limit(at(limit)),
                    Operation::Suspect(loss) => real.set_expiry_cause(LOSSES[usize::try_from(loss).unwrap()]),
                }
                match alone(Operation::Look, &mut cell) {
                    Came::Valid(until) => assert_eq!(real.valid_until(), Some(at(until)), "seed {seed}"),
                    Came::Lost(loss) => assert_eq!(real.loss(), Some(LOSSES[usize::try_from(loss).unwrap()])),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
}
