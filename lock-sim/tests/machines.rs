//! Every machine, on as many schedules as a test run has time for; `cargo xtask simulate` plays them by the million.

use lock_sim::{
    Sort, Trace,
    machine::ENOUGH,
    machines,
    runner::{Until, explore, play},
};

/// A name of a person's choice, such as `own-session`.
fn is_a_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')
}

#[test]
fn with_all_safeguards_nothing_is_violated_and_everything_that_could_go_wrong_came_about() {
    for machine in machines() {
        let found = explore(machine, 0..ENOUGH, None, Until::End, &|_| {});
        assert_eq!(found.violations, 0, "{}: {:?}", machine.name(), found.first);
        for (fact, schedules) in machine.facts().iter().zip(found.schedules_with) {
            assert!(schedules > 0, "{}: never: {}", machine.name(), fact.name);
        }
        assert!(found.grants >= ENOUGH, "{}: {} grants", machine.name(), found.grants);
    }
}

/// A schedule that misses a safeguard: the machine, the safeguard, the invariant that it stands for, the seed. The search
/// for such is the command's business. A change of the weather moves the seeds: the command tells the new ones.
const MISSED: &[(&str, &str, &str, u64)] = &[
    ("zookeeper", "tick-before", "T", 61),
    ("zookeeper", "answered-before", "T", 42_129),
    ("zookeeper", "running-session", "L", 0),
    ("zookeeper", "own-session", "M", 34),
    ("zookeeper", "own-node-watch", "P", 17),
    ("zookeeper", "only-writers-mark", "M", 12),
    ("zookeeper", "only-holders-mark", "M", 9),
    ("zookeeper", "look-after-deletion", "M", 2),
    ("zookeeper", "predecessor", "M", 0),
    ("zookeeper", "writer-behind-readers", "M", 2),
    ("zookeeper", "gate-tells", "P", 0),
    ("zookeeper", "unique-id", "O", 7),
    ("zookeeper", "write-before-search", "O", 14),
    ("zookeeper", "wrap-order", "M", 18),
    ("zookeeper", "one-exchange", "M", 2),
    ("zookeeper", "lapsed-withdraws", "O", 8),
    ("zookeeper", "repeated-removal", "O", 2),
    ("redlock", "majority", "T", 2),
    ("redlock", "write-back", "F", 4),
    ("redlock", "write-back-number", "F", 108_095),
    ("redlock", "renewal-number", "L", 53_540),
    ("redlock", "downgrade-number", "L", 169_157),
    ("redlock", "quarantine", "T", 153),
    ("redlock", "run-id", "M", 1_794),
    ("redlock", "margin", "T", 1),
    ("redlock", "minimum-remainder", "T", 727),
    ("redlock", "from-sending", "T", 9),
    ("redlock", "majority-deadline", "T", 1),
    ("redlock", "undo", "O", 11),
    ("redlock", "tombstone", "O", 12),
    ("redlock", "tombstone-always", "O", 1_489),
    ("redlock", "own-value", "M", 13),
    ("redlock", "writer-behind-readers", "M", 1),
    ("redlock", "reader-behind-writer", "M", 2),
    ("redlock", "number-once", "F", 291),
    ("redlock", "rejoin-if-free", "T", 22_909),
    ("redlock", "joined-later", "L", 29_294),
    ("redlock", "intent", "P", 45),
    ("redlock", "clock-floor", "F", 2_981),
    ("redlock", "end-before-release", "M", 1),
    ("fifo", "from-heartbeat", "T", 3),
    ("fifo", "newer-number", "F", 125_539),
    ("fifo", "claim-number", "F", 33_000),
    ("fifo", "promote-first", "P", 0),
    ("fifo", "skip-dead", "P", 23),
    ("fifo", "rearm", "T", 0),
    ("fifo", "tombstone", "O", 1_652),
    ("fifo", "margin", "T", 0),
    ("validity", "compare-and-swap", "L", 92),
    ("validity", "first-reason", "L", 83),
    ("validity", "seen-is-final", "L", 2),
    ("validity", "limit", "L", 1),
];

#[test]
fn a_safeguard_that_is_taken_out_is_missed_in_a_schedule_that_is_clean_with_it() {
    for (name, safeguard, invariant, seed) in MISSED {
        let machine = machines().into_iter().find(|machine| machine.name() == *name).expect("a machine");
        let place = machine.safeguards().iter().position(|known| known.name == *safeguard).expect("a safeguard");
        let missed = play(machine, *seed, Some(place), &mut Trace::silent()).violation;
        let missed = missed.map(|violation| violation.invariant);
        assert_eq!(missed, Some(*invariant), "{name} without {safeguard}, seed {seed}");
        assert_eq!(play(machine, *seed, None, &mut Trace::silent()).violation, None, "{name}, seed {seed}");
    }
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
