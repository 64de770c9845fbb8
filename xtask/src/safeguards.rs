//! Shows that the safety tests can fail: takes out one safeguard after another, in a copy of the workspace, and runs the
//! test that must notice.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail, ensure};
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
    /// What it upholds, in a few words, as the comment says it.
    name: String,
    /// What is replaced: it occurs once between the comment and the next blank line.
    replace: String,
    /// What is put in its place.
    with: String,
    /// The arguments of `cargo test` that run the test which fails then.
    test: Vec<String>,
    /// The arguments of `cargo build` that build what the test starts, beside itself.
    #[serde(default)]
    build: Vec<String>,
    /// The environment that the broken copy needs to fail quickly, such as a fixed seed.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Breaks each safeguard whose name contains `only`, and fails when a test does not notice.
pub(crate) fn run(root: &Path, only: &str) -> Result<()> {
    let mut chosen = place(read(root)?, &sources(root)?)?;
    chosen.retain(|placed| placed.safeguard.name.contains(only));
    ensure!(!chosen.is_empty(), "no safeguard's name contains {only:?}");
    // Those of one file together: what is built for one serves the next.
    chosen.sort_by(|one, other| one.file.cmp(&other.file));
    let scratch = root.join("target/safeguards");
    let copy = scratch.join("workspace");
    copy_workspace(root, &copy)?;
    let mut faults = Vec::new();
    chosen.retain(|Placed { safeguard, .. }| {
        let whole = test(safeguard, &copy, &scratch);
        if !matches!(whole, Ok(true)) {
            faults.push(format!("{}: fails before anything is broken: {whole:?}", safeguard.name));
        }
        matches!(whole, Ok(true))
    });
    println!("{} tests pass before anything is broken", chosen.len());
    for (index, Placed { safeguard, file, at }) in chosen.iter().enumerate() {
        let file = copy.join(file);
        let intact = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let mut broken = intact.clone();
        broken.replace_range(at.clone(), &safeguard.with);
        fs::write(&file, broken)?;
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

/// Fails when the test of a safeguard is none of those that ran, which were these by the titles of their programs: a package and
/// a target. Nobody would notice then that the safeguard is gone.
pub(crate) fn refuse_unknown_tests(root: &Path, ran: &BTreeMap<String, BTreeSet<String>>) -> Result<()> {
    let unknown = read(root)?.into_iter().filter(|safeguard| !safeguard.is_tested_by(ran));
    let names: Vec<String> = unknown.map(|safeguard| safeguard.name).collect();
    ensure!(names.is_empty(), "{LIST}: the tests of these have not run:\n{}", names.join("\n"));
    Ok(())
}

impl Safeguard {
    /// The package of its test, and the target, which is the library unless another one is named.
    fn tested(&self) -> (Option<&str>, Option<&str>) {
        let after =
            |option: &str| self.test.iter().skip_while(|argument| *argument != option).nth(1).map(String::as_str);
        (after("-p"), after("--test").or_else(|| after("--bin")))
    }

    fn is_tested_by(&self, ran: &BTreeMap<String, BTreeSet<String>>) -> bool {
        let (package, target) = self.tested();
        let is_meant = |title: &str| {
            let its = title.split_once(' ').unwrap_or_default();
            package == Some(its.0) && target.is_none_or(|target| target == its.1)
        };
        let test = self.test.last();
        ran.iter().any(|(title, tests)| is_meant(title) && test.is_some_and(|test| tests.contains(test)))
    }
}

fn read(root: &Path) -> Result<Vec<Safeguard>> {
    let text = fs::read_to_string(root.join(LIST)).context(LIST)?;
    let list: SafeguardList = toml::from_str(&text).context(LIST)?;
    Ok(list.safeguard)
}

/// Before the name of a safeguard, in the comment above what upholds it.
const MARK: &str = "Safeguard: ";
/// Of the files with these ends the comments are read.
const SOURCES: [&str; 4] = [".rs", ".lua", ".c", ".md"];

/// A safeguard of the list, and where in the sources it stands.
struct Placed {
    safeguard: Safeguard,
    file: PathBuf,
    /// Which bytes of the file are replaced.
    at: Range<usize>,
}

/// A comment that marks a safeguard.
struct Mark<'a> {
    name: &'a str,
    file: &'a Path,
    /// What it stands above: the bytes of the file up to the next blank line.
    below: Range<usize>,
}

/// The sources that git tracks, with their texts.
fn sources(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut sources = Vec::new();
    for path in tracked(root)? {
        if SOURCES.iter().any(|end| path.ends_with(end)) {
            let text = fs::read_to_string(root.join(&path)).with_context(|| path.clone())?;
            sources.push((path.into(), text));
        }
    }
    Ok(sources)
}

/// Every comment that marks a safeguard.
fn marks(sources: &[(PathBuf, String)]) -> Vec<Mark<'_>> {
    let mut marks = Vec::new();
    for (file, text) in sources {
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            start += line.len();
            let comment = line.trim().trim_end_matches("*/").trim_end_matches("-->").trim_end();
            let bare = ["// ", "-- ", "/* ", "<!-- "].iter().find_map(|open| comment.strip_prefix(open));
            let Some(name) = bare.and_then(|comment| comment.strip_prefix(MARK)) else { continue };
            let end = text[start..].find("\n\n").map_or(text.len(), |end| start + end);
            marks.push(Mark { name, file, below: start..end });
        }
    }
    marks
}

/// Finds each safeguard in the sources.
fn place(list: Vec<Safeguard>, sources: &[(PathBuf, String)]) -> Result<Vec<Placed>> {
    let marks = marks(sources);
    let mut placed = Vec::new();
    for safeguard in list {
        let name = &safeguard.name;
        let mut found = marks.iter().filter(|mark| mark.name == name);
        let (Some(mark), None) = (found.next(), found.next()) else {
            bail!("not one comment says `{MARK}{name}`");
        };
        let text = sources.iter().find(|(file, _)| file == mark.file).map_or("", |(_, text)| text);
        let below = &text[mark.below.clone()];
        ensure!(below.matches(&safeguard.replace).count() == 1, "{name}: {:?} is not there once", safeguard.replace);
        let start = mark.below.start + below.find(&safeguard.replace).unwrap_or_default();
        let at = start..start + safeguard.replace.len();
        placed.push(Placed { file: mark.file.to_path_buf(), at, safeguard });
    }
    let listed = |mark: &Mark<'_>| placed.iter().any(|placed| placed.safeguard.name == mark.name);
    if let Some(mark) = marks.iter().find(|mark| !listed(mark)) {
        bail!("{}: {LIST} has no safeguard {:?}", mark.file.display(), mark.name);
    }
    Ok(placed)
}

/// The paths that git tracks.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("git ls-files")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    Ok(String::from_utf8(listed.stdout)?.split_terminator('\0').map(str::to_owned).collect())
}

/// Copies what git tracks, as it stands in the working tree. Files that did not change keep their time stamps, so that
/// only what was broken is built again.
fn copy_workspace(root: &Path, copy: &Path) -> Result<()> {
    for path in tracked(root)? {
        let (from, to) = (root.join(&path), copy.join(&path));
        let Ok(content) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|present| present == content) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(&to, content)?;
    }
    Ok(())
}

/// How many seconds a build or a test may take. A test that waits for what never comes without its safeguard is a defect.
const LIMIT: &str = "1200";
/// How `timeout(1)` ends when the limit has passed.
const TIMED_OUT: i32 = 124;

/// Runs the safeguard's test in the copy; whether it passed. A copy that does not build is an error.
fn test(safeguard: &Safeguard, copy: &Path, scratch: &Path) -> Result<bool> {
    let cargo = |what: &str, args: &[&str]| {
        let mut command = Command::new("timeout");
        command.args([LIMIT, "cargo", what]).args(args).current_dir(copy);
        command.env("CARGO_TARGET_DIR", scratch.join("target")).envs(&safeguard.env);
        // Also where an environment of CI turns it off: one line differs between two builds.
        command.env("CARGO_INCREMENTAL", "1");
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
    ensure!(ran.status.code() != Some(TIMED_OUT), "{}: its test did not end within {LIMIT} s", safeguard.name);
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
    fn each_safeguard_is_marked_once_and_each_mark_is_of_one() {
        let list = read(root()).unwrap();
        let count = list.len();
        assert_eq!(place(list, &sources(root()).unwrap()).unwrap().len(), count);
    }

    #[test]
    fn a_safeguard_whose_test_did_not_run_is_refused() {
        let list = read(root()).unwrap();
        let mut ran = BTreeMap::<String, BTreeSet<String>>::new();
        for safeguard in &list {
            let (package, target) = safeguard.tested();
            let title = format!("{} {}", package.unwrap(), target.unwrap_or("a library"));
            ran.entry(title).or_default().extend(safeguard.test.last().cloned());
        }
        refuse_unknown_tests(root(), &ran).unwrap();
        let missing = list.first().unwrap();
        for tests in ran.values_mut() {
            tests.remove(missing.test.last().unwrap());
        }
        let error = refuse_unknown_tests(root(), &ran).unwrap_err();
        assert!(error.to_string().contains(&missing.name), "{error}");
    }

    #[test]
    fn a_mark_without_a_safeguard_and_a_safeguard_without_a_mark_are_refused() {
        let text = format!("fn f() {{\n    // {MARK}one\n    a(1);\n    b(1);\n\n    a(2);\n}}\n");
        let sources = [(PathBuf::from("f.rs"), text)];
        let safeguard = |name: &str, replace: &str| Safeguard {
            name: name.to_owned(),
            replace: replace.to_owned(),
            with: String::new(),
            test: Vec::new(),
            build: Vec::new(),
            env: BTreeMap::new(),
        };
        let placed = place(vec![safeguard("one", "a(")], &sources).unwrap();
        assert_eq!(&sources[0].1[placed[0].at.start..][..4], "a(1)");
        for wrong in
            [vec![], vec![safeguard("one", "(1)")], vec![safeguard("one", "a(2)")], vec![safeguard("two", "a(")]]
        {
            assert!(place(wrong, &sources).is_err());
        }
    }
}
