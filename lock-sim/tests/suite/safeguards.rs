//! What can be taken out of the machines: that it is there, and that no list names what there is not.

use std::{fs, path::Path};

use lock_sim::{
    contest::{Placed, Stands},
    machines,
    missed::MISSED,
    one_redis, redlock,
};

#[test]
fn every_known_schedule_is_of_a_safeguard_that_there_is_and_no_safeguard_has_two() {
    for (place, (machine, safeguard, ..)) in MISSED.iter().enumerate() {
        let known = machines().into_iter().find(|known| known.name() == *machine).expect(machine);
        assert!(known.safeguards().iter().any(|known| known.name == *safeguard), "{machine}: {safeguard}");
        let again = MISSED[..place].iter().any(|(its, name, ..)| its == machine && name == safeguard);
        assert!(!again, "{machine}: {safeguard} is there twice");
    }
}

#[test]
fn what_is_taken_out_of_scripts_stands_there() {
    assert_in_scripts(&one_redis::safeguards::ALL, "lock-redis/src/protocol/scripts");
    assert_in_scripts(&one_redis::safeguards::PLAIN, "lock-redis/src/protocol/scripts/plain");
    assert_in_scripts(&redlock::safeguards::ALL, "lock-redlock/src/nodes/scripts");
}

/// Each text that is taken out of scripts stands in one of those in this directory of the workspace.
fn assert_in_scripts(safeguards: &[Placed], directory: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(directory);
    let paths = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_some_and(|extension| extension == "lua"));
    let scripts: Vec<_> = paths.map(|path| fs::read_to_string(path).unwrap()).collect();
    for (safeguard, stands) in safeguards {
        let Stands::Script(removal) = stands else { continue };
        for (text, _) in removal.changes {
            assert!(scripts.iter().any(|script| script.contains(text)), "{}: no script has {text:?}", safeguard.name);
        }
    }
}
