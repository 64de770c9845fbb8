//! The framework by itself, on a machine that fails where it is told to.

use std::sync::Mutex;

use lock_sim::{
    Chance, Counts, Fact, Machine, Missed, Outcome, Safeguard, Sort, Trace, Violation,
    campaign::{Audience, Campaign},
    runner::{Told, Until, explore, play},
};

/// Draws a number, which must not be divisible by 500 without the only safeguard; and panics in the schedule of seed 77,777.
#[derive(Default)]
struct Draws {
    /// What is said to be violated, and where.
    missed: Option<Missed>,
}

/// Keeps what it hears.
#[derive(Default)]
struct Listener(Mutex<Vec<String>>);

impl Listener {
    fn hear(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    fn text(self) -> String {
        self.0.into_inner().unwrap().concat()
    }
}

impl Audience for Listener {
    fn told(&self, told: &Told<'_>) {
        if let Told::Violated(seed, violation) = told {
            self.hear(format!("at once: seed {seed}: {}\n", violation.text));
        }
    }

    fn found(&self, text: &str) {
        self.hear(text.to_owned());
    }
}

const SAFEGUARDS: &[Safeguard] =
    &[Safeguard { name: "the-only", about: "No number is divisible by 500.", seeds: 10_000 }];
const FACTS: &[Fact] = &[
    Fact { name: "an even number", sort: Sort::Coverage },
    Fact { name: "a number that there is not", sort: Sort::Coverage },
];

impl Machine for Draws {
    fn name(&self) -> &'static str {
        "draws"
    }

    fn about(&self) -> &'static str {
        "numbers"
    }

    fn safeguards(&self) -> &'static [Safeguard] {
        SAFEGUARDS
    }

    fn missed(&self, _: &str) -> Option<Missed> {
        self.missed
    }

    fn facts(&self) -> &'static [Fact] {
        FACTS
    }

    fn run(&self, seed: u64, without: Option<usize>, trace: &mut Trace) -> Outcome {
        assert!(seed != 77_777, "seed of bad luck");
        let number = Chance::new(seed).below(1_000_000);
        trace.note(0, "draws", format_args!("{number}"));
        let mut counts = Counts::default();
        if number.is_multiple_of(2) {
            counts.add(0);
        }
        let caught = without.is_some() && number.is_multiple_of(500);
        let violation = caught.then(|| Violation { invariant: "M", text: format!("drew {number}"), at: 0 });
        Outcome { violation, grants: 1, steps: 1, counts }
    }
}

#[test]
fn the_lowest_seed_with_a_violation_is_found_whatever_the_threads_do() {
    for _ in 0..5 {
        let found = explore(&Draws::default(), 0..10_000, Some(0), Until::Violated("M"), &|_| {});
        assert_eq!(found.first.first().map(|(seed, _)| *seed), Some(lowest()));
    }
}

#[test]
fn every_seed_is_played_once_and_progress_says_so() {
    let told = std::sync::atomic::AtomicU64::new(0);
    let progress = |what: Told<'_>| {
        if let Told::Played(more) = what {
            told.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let found = explore(&Draws::default(), 0..1_001, None, Until::End, &progress);
    assert_eq!((found.schedules, found.grants, told.into_inner()), (1_001, 1_001, 1_001));
}

#[test]
fn a_panic_is_a_violation_with_its_seed() {
    let found = explore(&Draws::default(), 77_770..77_780, None, Until::End, &|_| {});
    assert_eq!((found.schedules, found.violations), (10, 1));
    let (seed, violation) = &found.first[0];
    assert!(*seed == 77_777 && violation.text.contains("seed of bad luck"), "{violation:?}");
}

fn lowest() -> u64 {
    let missed = |seed: &u64| play(&Draws::default(), *seed, Some(0), &mut Trace::silent()).violation.is_some();
    (0..).find(missed).unwrap()
}

#[test]
fn a_campaign_tells_what_was_caught_what_never_happened_and_how_to_see_it_again() {
    let (machine, listener) = (Draws { missed: Some(Missed { invariant: "M", seed: 0 }) }, Listener::default());
    let findings = Campaign { seeds: 10_000 }.run(&machine, &listener);
    assert_eq!((findings.intact.violations, findings.never.as_slice()), (0, &["a number that there is not"][..]));
    assert!(findings.removed[0].is_as_it_should_be() && !findings.is_as_it_should_be());
    let (text, seed) = (listener.text(), lowest());
    assert!(text.contains(&format!("cargo xtask simulate --machine draws --seed {seed} --without the-only")), "{text}");
}

#[test]
fn the_schedule_that_is_known_to_miss_a_safeguard_saves_the_search() {
    let machine = Draws { missed: Some(Missed { invariant: "M", seed: lowest() }) };
    let findings = Campaign { seeds: 10 }.run(&machine, &());
    assert!(findings.removed[0].is_as_it_should_be() && findings.removed[0].schedules == 1, "{findings:?}");
}

#[test]
fn a_safeguard_that_is_missed_in_something_that_it_does_not_stand_for_is_not_caught() {
    for missed in [Some(Missed { invariant: "F", seed: lowest() }), None] {
        let findings = Campaign { seeds: 10 }.run(&Draws { missed }, &());
        assert!(!findings.removed[0].is_as_it_should_be(), "{findings:?}");
    }
}

#[test]
fn a_violation_with_all_safeguards_is_told_at_once_and_nothing_is_taken_out_then() {
    let listener = Listener::default();
    let findings = Campaign { seeds: 77_800 }.run(&Draws::default(), &listener);
    assert!(findings.intact.violations == 1 && findings.removed.is_empty() && !findings.is_as_it_should_be());
    let text = listener.text();
    assert!(text.starts_with("at once: seed 77777:"), "{text}");
}
