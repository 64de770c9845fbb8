//! Shows that the safety tests can fail: takes out one safeguard after another, in a copy of the workspace, and runs the
//! test that must notice.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// Where the safeguards are listed, from the root of the workspace.
const LIST: &str = "docs/safeguards.toml";

/// The contents of docs/safeguards.toml: all safeguards of the workspace.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SafeguardList {
    safeguard: Vec<Safeguard>,
}

/// One row of docs/safeguards.toml: the code that upholds a promise, how to break it, and the test that must fail then.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Safeguard {
    /// What it upholds, in a few words.
    name: String,
    /// The file that it stands in.
    file: PathBuf,
    /// The text that is it; it occurs once in the file.
    intact: String,
    /// What is put in its place.
    broken: String,
    /// The arguments of `cargo test` that run the test which fails then.
    test: Vec<String>,
    /// The arguments of `cargo build` that build what the test starts, beside itself.
    #[serde(default)]
    build: Vec<String>,
    /// The environment that the broken copy needs to fail quickly, such as a fixed seed.
    #[serde(default)]
    env: std::collections::BTreeMap<String, String>,
}

/// Breaks each safeguard whose name contains `only`, and fails when a test does not notice.
pub(crate) fn run(root: &Path, only: &str) -> Result<()> {
    let mut chosen = read(root)?;
    chosen.retain(|safeguard| safeguard.name.contains(only));
    ensure!(!chosen.is_empty(), "no safeguard's name contains {only:?}");
    // Those of one file together: what is built for one serves the next.
    chosen.sort_by(|one, other| one.file.cmp(&other.file));
    let scratch = root.join("target/safeguards");
    let copy = scratch.join("workspace");
    copy_workspace(root, &copy)?;
    let mut faults = Vec::new();
    chosen.retain(|safeguard| {
        let whole = test(safeguard, &copy, &scratch);
        if !matches!(whole, Ok(true)) {
            faults.push(format!("{}: fails before anything is broken: {whole:?}", safeguard.name));
        }
        matches!(whole, Ok(true))
    });
    println!("{} tests pass before anything is broken", chosen.len());
    for (index, safeguard) in chosen.iter().enumerate() {
        let file = copy.join(&safeguard.file);
        let intact = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        fs::write(&file, intact.replacen(&safeguard.intact, &safeguard.broken, 1))?;
        let passed = test(safeguard, &copy, &scratch);
        fs::write(&file, intact)?;
        let found = match &passed {
            Ok(false) => "noticed",
            Ok(true) => "NOT NOTICED",
            Err(_) => "NOT TRIED",
        };
        println!("{}/{} {}: {found}", index + 1, chosen.len(), safeguard.name);
        if !matches!(passed, Ok(false)) {
            faults.push(format!("{}: {found}: {passed:?}", safeguard.name));
        }
    }
    ensure!(faults.is_empty(), "{} of the safeguards:\n{}", faults.len(), faults.join("\n"));
    println!("{} safeguards taken out, each noticed", chosen.len());
    Ok(())
}

fn read(root: &Path) -> Result<Vec<Safeguard>> {
    let text = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let list: SafeguardList = toml::from_str(&text).context(LIST)?;
    Ok(list.safeguard)
}

/// Copies what git tracks, as it stands in the working tree. Files that did not change keep their time stamps, so that
/// only what was broken is built again.
fn copy_workspace(root: &Path, copy: &Path) -> Result<()> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("git ls-files")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    for path in String::from_utf8(listed.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(path), copy.join(path));
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|present| present == content) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(&to, content)?;
    }
    Ok(())
}

/// Runs the safeguard's test in the copy; whether it passed. A copy that does not build is an error.
fn test(safeguard: &Safeguard, copy: &Path, scratch: &Path) -> Result<bool> {
    let cargo = |what: &str, args: &[&str]| {
        let mut command = Command::new("cargo");
        command.arg(what).args(args).current_dir(copy);
        command.env("CARGO_TARGET_DIR", scratch.join("target")).envs(&safeguard.env);
        command.stdin(Stdio::null());
        command
    };
    let end = safeguard.test.iter().position(|arg| arg == "--").unwrap_or(safeguard.test.len());
    let build = |what: &str, args: &[&str]| {
        let built = cargo(what, args).output()?;
        ensure!(built.status.success(), "{}: {}", safeguard.name, String::from_utf8_lossy(&built.stderr));
        Ok(())
    };
    if !safeguard.build.is_empty() {
        build("build", &words(&safeguard.build))?;
    }
    let mut tests = words(&safeguard.test[..end]);
    tests.push("--no-run");
    build("test", &tests)?;
    let ran = cargo("test", &words(&safeguard.test)).output()?;
    let output = String::from_utf8_lossy(&ran.stdout);
    ensure!(
        output.contains("1 passed") || output.contains("1 failed"),
        "{}: not one test ran:\n{output}",
        safeguard.name
    );
    Ok(ran.status.success())
}

fn words(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
    }

    #[test]
    fn each_safeguard_stands_once_where_the_list_says() {
        for safeguard in read(root()).unwrap() {
            let text = fs::read_to_string(root().join(&safeguard.file)).unwrap();
            assert_eq!(text.matches(&safeguard.intact).count(), 1, "{}", safeguard.name);
        }
    }
}
