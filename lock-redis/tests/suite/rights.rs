//! The rights that the documentation asks for are those that the scripts need, and no others.

use std::{collections::BTreeSet, fs, path::Path};

/// What is sent by itself, not by a script.
const SENT: [&str; 5] = ["ping", "eval", "evalsha", "subscribe", "unsubscribe"];

/// The commands in a script, or in the scripts of a folder and those below it, but for the fence, which has a user of its own.
fn called(at: &Path, found: &mut BTreeSet<String>) {
    let inside = || fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path());
    for path in if at.is_dir() { inside().collect() } else { vec![at.to_path_buf()] } {
        if path.is_dir() {
            called(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "lua") && !path.ends_with("fence.lua") {
            let script = fs::read_to_string(&path).unwrap();
            for call in script.split("call('").skip(1) {
                let mut words = call.split('\'');
                let command = words.next().unwrap().to_lowercase();
                let subcommand = words.nth(1).unwrap_or_default().to_lowercase();
                found.insert(if command == "pubsub" { format!("{command}|{subcommand}") } else { command });
            }
        }
    }
}

/// That the section asks for what is sent and what the scripts call.
fn assert_documented(section: &str, scripts: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../docs/rights.md")).unwrap();
    let heading = format!("{section}\n");
    let section = page.split("\n## ").find(|section| section.starts_with(&heading)).unwrap();
    let rules = section.lines().filter(|line| line.starts_with("ACL SETUSER program "));
    let granted: BTreeSet<_> =
        rules.flat_map(str::split_whitespace).filter_map(|rule| rule.strip_prefix('+')).map(str::to_owned).collect();
    let mut needed: BTreeSet<_> = SENT.map(str::to_owned).into();
    scripts.iter().for_each(|scripts| called(&root.join(scripts), &mut needed));
    assert_eq!(granted, needed);
}

#[test]
fn the_documented_rights_are_those_of_the_scripts() {
    // Those of the strategy `plain` call nothing that the others do not.
    assert_documented("Redis", &["src"]);
}

#[test]
fn the_documented_rights_for_plain_are_those_of_its_scripts() {
    let shared = "src/protocol/scripts/list.lua";
    assert_documented("Redis with strategy=plain", &["src/protocol/scripts/plain", shared]);
}
