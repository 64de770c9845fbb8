//! The table in docs/reliability.md names exactly the tests that there are, and each of them was seen to fail.

use std::{collections::BTreeSet, fs, path::Path};

const HEADING: &str = "## Other people's bugs, tried on us";

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The text under a heading.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, rest) = page.split_once(heading).unwrap_or_else(|| panic!("no {heading:?}"));
    rest.split_once("\n## ").map_or(rest, |(section, _)| section)
}

/// The tests in a source file: what is listed for each backend, and what is a test by itself.
fn tests(source: &str) -> BTreeSet<&str> {
    let mut tests = BTreeSet::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("on_each") {
            let listed = lines.by_ref().take_while(|line| *line != "}");
            tests.extend(listed.filter_map(|line| line.trim().split([':', ',']).next()));
        } else if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            let name = lines.next().and_then(|line| line.split_once("fn ")?.1.split('(').next());
            tests.insert(name.expect("a function"));
        }
    }
    tests
}

/// Every test of the catalogue, as the table writes it.
fn there_are() -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/suite/catalogue");
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("the folder") {
        let file = entry.expect("an entry").file_name().into_string().expect("a name");
        if file != "table.rs" && file != "world.rs" {
            let path = format!("tests/suite/catalogue/{file}");
            all.extend(tests(&read(&path)).into_iter().map(|test| format!("{path}::{test}")));
        }
    }
    all
}

/// Every test that the table names.
fn named() -> BTreeSet<String> {
    let page = read("docs/reliability.md");
    let quoted = section(&page, HEADING).split('`').skip(1).step_by(2);
    quoted.filter(|quoted| quoted.starts_with("tests/suite/catalogue/")).map(str::to_owned).collect()
}

#[test]
fn the_table_of_other_peoples_bugs_names_every_test_and_no_other() {
    assert_eq!(named(), there_are());
}

#[test]
fn each_test_of_the_catalogue_was_seen_to_fail_without_its_safeguard() {
    let (page, list) = (read("docs/reliability.md"), read("docs/safeguards.toml"));
    let (_, by_hand) = page.split_once("These were broken by hand as well").expect("the second table");
    let by_hand = by_hand.split_once("\n## ").map_or(by_hand, |(section, _)| section);
    for test in there_are() {
        let (_, name) = test.split_once("::").expect("a name");
        assert!(list.contains(name) || by_hand.contains(name), "{test}");
    }
}
