//! The crate is the proof that the SPI is narrow: a whole backend is at most 600 lines of code. It was 500 before it trusted no
//! directory that others can write to.

use std::{fs, path::Path};

const MOST: usize = 600;

/// The lines of `source` that are neither blank, nor comments, nor of its tests, which come last.
fn lines_of_code(source: &str) -> usize {
    let lines = source.lines().map(str::trim).take_while(|line| !line.starts_with("#[cfg(test)]"));
    lines.filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[test]
fn the_whole_backend_is_at_most_600_lines_of_code() {
    let sources = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let files: Vec<_> = sources
        .map(|entry| entry.unwrap().path())
        .map(|path| (lines_of_code(&fs::read_to_string(&path).unwrap()), path))
        .collect();
    let lines: usize = files.iter().map(|(lines, _)| lines).sum();
    assert!(
        lines <= MOST,
        "{lines} lines, so the SPI asks too much of a backend, or lock-core does too little: {files:?}"
    );
}

#[test]
fn blank_lines_comments_and_tests_are_no_code() {
    let source = "//! Docs.\n\nfn code() {\n    // Why.\n}\n\n#[cfg(test)]\nmod tests {}\n";
    assert_eq!(lines_of_code(source), 2);
}
