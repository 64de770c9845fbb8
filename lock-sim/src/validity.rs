//! The validity cell as it is shipped, under those who share it: who renews, who looks, who ends it and who limits it, each
//! of them interrupted by the others.
//!
//! Whatever the cell decides it decides between a load and a swap, and reads the clock in between. The clock is the
//! machine's own: while it is read, time passes, and others do with the same cell what they want, who may be interrupted
//! in their turn. What is checked (L): once somebody was told that it is lost, everybody who asks later is told so, and for
//! the same reason; and nobody who asks after a limit was set is told of a validity beyond it.

use std::{cell::RefCell, time::Duration};

use futures::future::BoxFuture;
use lock_core::{BootInstant, Clock, Loss, TimeSource, Validity, validity::Observed};

use crate::{
    Chance, Fact, Machine, Outcome, Safeguard, Sort, Time, Trace, Violation,
    contest::{Placed, Stands, Without, alone, placed},
};

/// The cell and those who share it.
#[derive(Debug)]
pub struct Cell;

const ALL: [Placed; 4] = [
    placed(
        "compare-and-swap",
        "A renewal is stored only over the very value that it was judged by.",
        Stands::Code,
        100_000,
    ),
    placed("first-reason", "An end is stored only over a value that is valid.", Stands::Code, 100_000),
    placed("seen-is-final", "Whoever sees it expired makes that final.", Stands::Code, 100_000),
    placed("limit", "No renewal moves the end of the longest holding time.", Stands::Code, 100_000),
];

static SAFEGUARDS: [Safeguard; 4] = alone(&ALL);

const RENEWED: usize = 0;
const REFUSED: usize = 1;
const RAN_OUT: usize = 2;
const LIMITED: usize = 3;
const INTERRUPTED: usize = 4;

const FACTS: &[Fact] = &[
    Fact { name: "a renewal", sort: Sort::Coverage },
    Fact { name: "a renewal that found it lost", sort: Sort::Coverage },
    Fact { name: "a look that found it lost", sort: Sort::Coverage },
    Fact { name: "a limit", sort: Sort::Coverage },
    Fact { name: "somebody interrupted between a load and a swap", sort: Sort::Coverage },
];

/// How deep interruptions go.
const DEPTH: u32 = 3;
/// How many things are done in a schedule by those whom nobody interrupts.
const STEPS: u32 = 40;

thread_local! {
    static PLAYED: RefCell<Option<Played>> = const { RefCell::new(None) };
}

/// The schedule that this thread plays: its clock, the [`Validity`] that all share, and what is known of that.
#[derive(Debug)]
struct Played {
    chance: Chance,
    now: u64,
    validity: Option<Validity>,
    observed: Option<Observed>,
    known: Known,
    depth: u32,
    steps: u64,
    outcome: Outcome,
    trace: Trace,
}

/// What callers of the shared [`Validity`] have learnt of it: a loss, and the earliest end that was asked for.
#[derive(Debug, Clone, Copy)]
struct Known {
    lost: Option<Loss>,
    limit: u64,
}

/// One operation on the shared [`Validity`], with its arguments.
#[derive(Debug, Clone, Copy)]
enum Operation {
    Observe,
    Advance(Observed, u64),
    Look,
    End(Loss),
    Limit(u64),
    Suspect(Loss),
}

/// A clock that is slow to read: other operations come in between.
#[derive(Debug)]
struct Interrupting;

impl TimeSource for Interrupting {
    fn now(&self) -> BootInstant {
        let (before, others) = with(|played| {
            if played.depth < DEPTH && played.chance.one_in(3) {
                played.outcome.counts.add(INTERRUPTED);
                (played.now, played.chance.between(1, 2))
            } else {
                (played.now, 0)
            }
        });
        for _ in 0..others {
            act();
        }
        // The others come before it is read, or between that and what is made of it.
        let shown = with(|played| if played.chance.one_in(2) { before } else { played.now });
        BootInstant::from_nanos(shown)
    }

    fn wall_micros(&self) -> u64 {
        0
    }

    fn sleep_until(&self, _: BootInstant) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

fn with<T>(work: impl FnOnce(&mut Played) -> T) -> T {
    PLAYED.with_borrow_mut(|played| work(played.as_mut().expect("a schedule is played")))
}

impl Machine for Cell {
    fn name(&self) -> &'static str {
        "validity"
    }

    fn about(&self) -> &'static str {
        "the validity cell: renewal, look, end and limit, interrupted where they decide"
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        &SAFEGUARDS
    }

    fn facts(&self) -> &'static [Fact] {
        FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        let _without = Without::taking_out(&ALL, without);
        let mut chance = Chance::new(seed);
        let until = chance.between(110, 140);
        PLAYED.set(Some(Played {
            chance,
            now: 100,
            validity: None,
            observed: None,
            known: Known { lost: None, limit: u64::MAX },
            depth: 0,
            steps: 0,
            outcome: Outcome { grants: 1, ..Outcome::default() },
            trace: std::mem::take(trace),
        }));
        let validity = Validity::new(Clock::custom(&Interrupting), BootInstant::from_nanos(until));
        with(|played| played.validity = Some(validity));
        for _ in 0..STEPS {
            act();
            if with(|played| played.outcome.violation.is_some()) {
                break;
            }
        }
        let played = PLAYED.take().expect("a schedule is played");
        *trace = played.trace;
        Outcome { steps: played.steps, ..played.outcome }
    }
}

/// Somebody does something, and is told what came of it.
fn act() {
    let (validity, operation, began) = with(|played| {
        played.steps += 1;
        played.depth += 1;
        if played.chance.one_in(3) {
            played.now += played.chance.mostly_short(30);
        }
        let operation = draw(&mut played.chance, &mut played.observed, played.now);
        played.note(format_args!("{operation:?}"));
        (played.validity.clone().expect("there is a cell"), operation, played.known)
    });
    let mut told = None;
    let at = BootInstant::from_nanos;
    match operation {
        Operation::Observe => {
            let observed = validity.observe();
            with(|played| played.observed = observed);
        }
        Operation::Advance(from, until) => {
            let count = if validity.advance(from, at(until)) { RENEWED } else { REFUSED };
            with(|played| played.outcome.counts.add(count));
        }
        Operation::Look => {
            let until = validity.valid_until();
            told = Some(until.map_or_else(|| Err(validity.loss()), Ok));
        }
        Operation::End(loss) => validity.end(loss),
        Operation::Limit(limit) => {
            validity.limit(at(limit));
            with(|played| {
                played.outcome.counts.add(LIMITED);
                played.known.limit = played.known.limit.min(limit);
            });
        }
        Operation::Suspect(loss) => validity.set_expiry_cause(loss),
    }
    with(|played| {
        played.depth -= 1;
        played.note(format_args!("{operation:?}: {told:?}"));
        if let Some(text) = told.and_then(|told| wrong(told, began)) {
            let at: Time = played.now;
            played.outcome.violation.get_or_insert(Violation { invariant: "L", text, at });
        }
        if let Some(Err(Some(loss))) = told {
            played.outcome.counts.add(RAN_OUT);
            played.known.lost.get_or_insert(loss);
        }
    });
}

impl Played {
    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        let depth = self.depth;
        self.trace.note(self.now, format_args!("depth {depth}"), what);
    }
}

fn draw(chance: &mut Chance, observed: &mut Option<Observed>, now: u64) -> Operation {
    match chance.below(12) {
        0..3 => Operation::Observe,
        3..6 => match observed.take() {
            Some(from) => Operation::Advance(from, now.saturating_sub(10) + chance.below(60)),
            None => Operation::Observe,
        },
        6 if chance.one_in(2) => Operation::End(chance.one_of(&[Loss::Revoked, Loss::Closed, Loss::Released])),
        7 if chance.one_in(3) => Operation::Limit(now + chance.below(80)),
        8 => Operation::Suspect(Loss::Unreachable),
        _ => Operation::Look,
    }
}

/// What nobody may be told who asked when that was known.
fn wrong(told: Result<BootInstant, Option<Loss>>, began: Known) -> Option<String> {
    match (told, began.lost) {
        (Ok(until), Some(_)) => Some(format!("valid until {until:?} after somebody was told that it is lost")),
        (Err(Some(loss)), Some(before)) if loss != before => {
            Some(format!("lost for another reason ({loss:?}) than before ({before:?})"))
        }
        (Ok(until), None) => {
            let beyond = until.saturating_since(BootInstant::from_nanos(began.limit));
            (beyond > Duration::ZERO).then(|| format!("valid for {beyond:?} beyond the limit"))
        }
        // It was valid when it was asked until when, and lost when it was asked why.
        (Err(_), _) => None,
    }
}
