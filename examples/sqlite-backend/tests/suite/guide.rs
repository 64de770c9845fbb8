//! The guide quotes this package: each of its Rust blocks occurs here, word for word.

use std::{fs, path::Path};

/// Lines without their indentation, so that a method can be quoted without the block around it.
fn lines(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).collect()
}

fn blocks(guide: &str) -> Vec<Vec<&str>> {
    let mut blocks = Vec::new();
    let mut rest = guide.lines();
    while rest.any(|line| line == "```rust") {
        blocks.push(rest.by_ref().take_while(|line| *line != "```").map(str::trim).collect());
    }
    blocks
}

fn sources(directory: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "toml") {
            found.push(fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_rust_block_of_the_guide_occurs_in_the_sources() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(package.join("../../docs/writing-a-backend.md")).unwrap();
    let mut found = Vec::new();
    sources(package, &mut found);
    let sources: Vec<Vec<&str>> = found.iter().map(|text| lines(text)).collect();
    let blocks = blocks(&guide);
    assert!(blocks.len() >= 10, "the guide has only {} blocks", blocks.len());
    for block in blocks {
        let occurs = sources.iter().any(|source| source.windows(block.len()).any(|window| window == block));
        assert!(occurs, "the guide quotes what is not in the sources:\n{}", block.join("\n"));
    }
}
