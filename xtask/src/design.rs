//! What docs/design.md says about the sources, checked.

use std::{fs, path::Path};

/// How many functions an uncontended acquisition may pass.
const MOST: usize = 15;

#[test]
fn the_functions_on_the_way_of_an_acquisition_are_where_the_design_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let design = fs::read_to_string(root.join("docs/design.md")).unwrap();
    let (_, section) = design.split_once("## The way of an acquisition").unwrap();
    let rows = section.split("\n## ").next().unwrap().lines().filter_map(|line| {
        let mut quoted = line.strip_prefix("| ")?.split('`');
        Some((quoted.nth(1)?, quoted.nth(1)?))
    });
    let rows: Vec<_> = rows.collect();
    assert!((10..=MOST).contains(&rows.len()), "{rows:?}");
    for (function, file) in rows {
        let source = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let (owner, name) = function.rsplit_once("::").unwrap_or(("", function));
        let is_there = source.contains(&format!("fn {name}(")) || source.contains(&format!("fn {name}<"));
        assert!(is_there && source.contains(owner), "{function} is not in {file}");
    }
}
