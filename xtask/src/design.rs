//! What docs/design.md says about the sources, and the README about the jobs, checked.

use std::{fs, path::Path};

use clap::CommandFactory as _;

use crate::Arguments;

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

#[test]
fn the_jobs_that_the_readme_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let named: Vec<_> =
        readme.split("cargo xtask ").skip(1).filter_map(|rest| rest.split_whitespace().next()).collect();
    assert!(named.len() > 5, "{named:?}");
    for job in named {
        let job = job.trim_end_matches(|c: char| !c.is_alphanumeric());
        assert!(Arguments::command().find_subcommand(job).is_some(), "there is no job {job}");
    }
}
