//! Every machine, on as many schedules as a test run has time for; `cargo xtask simulate` plays them by the million.

use lock_sim::{
    Sort, Trace, machines,
    runner::{Until, explore, play},
};

/// A name of a person's choice, such as `own-session`.
fn is_a_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

#[test]
fn with_all_safeguards_nothing_is_violated_and_everything_that_could_go_wrong_came_about() {
    for machine in machines() {
        let found = explore(machine, 0..machine.tested(), None, Until::End, &|_| {});
        assert_eq!(found.violations, 0, "{}: {:?}", machine.name(), found.first);
        for (fact, schedules) in machine.facts().iter().zip(found.schedules_with) {
            assert!(schedules > 0, "{}: never: {}", machine.name(), fact.name);
        }
        assert!(found.grants >= machine.tested(), "{}: {} grants", machine.name(), found.grants);
    }
}

#[test]
fn a_safeguard_that_is_taken_out_is_missed_in_a_schedule_that_is_clean_with_it() {
    let mut wrong = Vec::new();
    for machine in machines() {
        for (place, safeguard) in machine.safeguards().iter().enumerate() {
            let name = format!("{} without {}", machine.name(), safeguard.name);
            let known = machine.missed(safeguard.name).unwrap_or_else(|| panic!("{name}: no schedule is known"));
            let violated = |out| play(machine, known.seed, out, &mut Trace::silent()).violation;
            let missed = violated(Some(place)).map(|violation| violation.invariant);
            if missed != Some(known.invariant) {
                wrong.push(format!("{name}, seed {}: {missed:?} and not {}", known.seed, known.invariant));
            }
            if let Some(violation) = violated(None) {
                wrong.push(format!("{name}, seed {}: the same schedule with it: {violation:?}", known.seed));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_seed_replays_exactly_and_whether_somebody_reads_along_changes_nothing() {
    for machine in machines() {
        for seed in 0..20 {
            let (mut first, mut second) = (Trace::kept(), Trace::kept());
            let outcome = play(machine, seed, None, &mut first);
            assert_eq!(play(machine, seed, None, &mut second), outcome, "{}: seed {seed}", machine.name());
            assert_eq!(play(machine, seed, None, &mut Trace::silent()), outcome, "{}: seed {seed}", machine.name());
            assert_eq!(first.text(), second.text(), "{}: seed {seed}", machine.name());
            assert!(!first.text().is_empty(), "{}: seed {seed} has nothing to read", machine.name());
        }
    }
}

#[test]
fn a_machine_says_what_it_is_in_words_of_the_command_line() {
    for machine in machines() {
        assert!(is_a_name(machine.name()) && !machine.about().is_empty());
        assert!(machine.facts().iter().any(|fact| fact.sort == Sort::Coverage));
        let names: Vec<_> = machine.safeguards().iter().map(|safeguard| safeguard.name).collect();
        for (place, safeguard) in machine.safeguards().iter().enumerate() {
            assert!(is_a_name(safeguard.name) && safeguard.about.ends_with('.'), "{safeguard:?}");
            assert!(!names[..place].contains(&safeguard.name), "{safeguard:?} is there twice");
        }
    }
}
