//! The framework by itself, on a machine that fails where it is told to.

use lock_sim::{
    Chance, Counts, Fact, Machine, Outcome, Safeguard, Sort, Trace, Violation,
    campaign::{Campaign, report},
    runner::{Until, explore, play},
};

/// Draws a number, which must not be divisible by 500 without the only safeguard; and panics in the schedule of seed 77,777.
struct Draws;

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
    let lowest = (0..).find(|seed| play(&Draws, *seed, Some(0), &mut Trace::silent()).violation.is_some());
    for _ in 0..5 {
        let found = explore(&Draws, 0..10_000, Some(0), Until::Violation, &|_| {});
        assert_eq!(found.first.first().map(|(seed, _)| *seed), lowest);
    }
}

#[test]
fn every_seed_is_played_once_and_progress_says_so() {
    let told = std::sync::atomic::AtomicU64::new(0);
    let progress = |more| {
        told.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
    };
    let found = explore(&Draws, 0..1_001, None, Until::End, &progress);
    assert_eq!((found.schedules, found.grants, told.into_inner()), (1_001, 1_001, 1_001));
}

#[test]
fn a_panic_is_a_violation_with_its_seed() {
    let found = explore(&Draws, 77_770..77_780, None, Until::End, &|_| {});
    assert_eq!((found.schedules, found.violations), (10, 1));
    let (seed, violation) = &found.first[0];
    assert!(*seed == 77_777 && violation.text.contains("seed of bad luck"), "{violation:?}");
}

#[test]
fn a_campaign_tells_what_was_caught_what_never_happened_and_how_to_see_it_again() {
    let findings = Campaign { seeds: 10_000 }.run(&Draws, &mut |_, _| {}, &|_| {});
    assert_eq!((findings.intact.violations, findings.never.as_slice()), (0, &["a number that there is not"][..]));
    assert!(findings.removed[0].is_as_it_should_be() && !findings.is_as_it_should_be());
    let seed = findings.removed[0].caught.as_ref().map(|(seed, _)| *seed).unwrap_or_default();
    let text = report(&Draws, &findings);
    assert!(text.contains(&format!("cargo xtask simulate --machine draws --seed {seed} --without the-only")), "{text}");
}
