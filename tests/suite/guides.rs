//! The code on the pages of docs/ is code that is tested.

/// The blocks of code of that language on a page.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    page.split(&opening).skip(1).filter_map(|rest| Some(rest.split_once("```")?.0.to_owned())).collect()
}

#[test]
fn what_the_page_on_testing_shows_is_run() {
    let code = blocks(include_str!("../../docs/testing.md"), "rust");
    assert!(code.len() >= 8, "{} blocks", code.len());
    for block in code {
        assert!(include_str!("testing_guide.rs").contains(&block), "not in tests/suite/testing_guide.rs:\n{block}");
    }
}

#[test]
fn what_the_page_on_fencing_shows_in_rust_is_run() {
    let code = blocks(include_str!("../../docs/fencing.md"), "rust");
    assert!(!code.is_empty());
    for block in code {
        assert!(include_str!("fences/guide.rs").contains(&block), "not in tests/suite/fences/guide.rs:\n{block}");
    }
}

/// `readme.rs` indents what stands in a function.
#[test]
fn what_the_readme_shows_in_rust_is_compiled_and_run() {
    let code = blocks(include_str!("../../README.md"), "rust");
    assert!(code.len() >= 2, "{} blocks", code.len());
    let unindented = |text: &str| text.lines().map(str::trim_start).collect::<Vec<_>>().join("\n");
    let tested = unindented(include_str!("readme.rs"));
    for block in code {
        assert!(tested.contains(&unindented(&block)), "not in tests/suite/readme.rs:\n{block}");
    }
}
