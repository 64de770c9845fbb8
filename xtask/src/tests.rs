//! The tests of the workspace, several test programs at a time: most of their time they wait, for servers and for leases to end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    panic::resume_unwind,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{Artifact, Message};
use rustix::{fs::Mode, process::umask};

use crate::{cargo, of_no_package, packages, root, run, safeguards};

/// How many test programs run at once. Each has several tests under way, and servers of its own.
const AT_ONCE: usize = 3;

/// The programs that take longest. They do not begin last, with nothing beside them.
const LONGEST: [&str; 5] =
    ["fenced-lock conformance", "fenced-lock suite", "lock-cli suite", "lock-zk suite", "lock-lab suite"];

/// What the examples in the documentation are called.
const DOCUMENTATION: &str = "documentation";

/// How many tests a program has under way, unless `RUST_TEST_THREADS` says otherwise. The conformance suite has its own number.
const TESTS_AT_ONCE: &str = "4";

/// What the test harness takes the number from.
const THREADS: &str = "RUST_TEST_THREADS";

/// A file system in memory. Servers that keep their data there wait for no disk.
const MEMORY: &str = "/dev/shm";

/// How much room there has to be: seven times what the servers of all tests that are under way take.
const ROOM_BYTES: u64 = 2 << 30;

/// Where the laboratory takes from where servers keep their data, if not among the temporary files.
const DATA: &str = "LOCK_LAB_DATA";

/// The package whose tests keep databases among the temporary files, and execute nothing there.
const WITH_DATABASES: &str = "lock-sqlite-example";

/// Where temporary files are.
const TEMPORARY: &str = "TMPDIR";

/// What the laboratory takes from whether ZooKeeper waits until its transactions are on the disk.
const SYNC: &str = "LOCK_LAB_SYNC";

/// What every build of tests is told.
const WHOLE: [&str; 2] = ["--workspace", "--all-features"];

/// Every test of the workspace. The conformance suite shares its servers among the trials of one process, so a runner that
/// gives each test a process of its own would start them hundreds of times. When they are built, `beside` is done while they run.
pub(crate) fn all(beside: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    permit_as_usual();
    let mut programs = programs()?;
    programs.push(documentation());
    for longest in LONGEST {
        ensure!(
            programs.iter().any(|program| program.title == longest),
            "no test program is named {longest}: see LONGEST"
        );
    }
    let place = |title: &str| LONGEST.iter().position(|longest| *longest == title).unwrap_or(LONGEST.len());
    // The simulator's come last: they use all processors with nothing beside them. What cargo runs waits for what it builds beside.
    programs.sort_by_key(|program| {
        (program.title.starts_with("lock-sim"), program.title == DOCUMENTATION, place(&program.title))
    });
    let (results, beside) = thread::scope(|scope| {
        let beside = scope.spawn(beside);
        (run_all(programs), beside.join())
    });
    let results = results?;
    eprintln!("test programs, by how long they took:");
    for TestOutcome { title, took, failures, .. } in &results {
        eprintln!("{:>8.1} s  {title}{}", took.as_secs_f64(), if failures.is_some() { "  FAILED" } else { "" });
    }
    let (mut failed, mut ran) = (Vec::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for TestOutcome { title, failures, ran: tests, .. } in results {
        ran.entry(title.clone()).or_default().extend(tests);
        let Some(failures) = failures else { continue };
        eprintln!("---- {title}, again ----\n{failures}");
        failed.push(title);
    }
    if let Err(error) = beside.unwrap_or_else(|panic| resume_unwind(panic)) {
        failed.push(format!("{error:#}"));
    }
    ensure!(failed.is_empty(), "failed: {}", failed.join(", "));
    safeguards::refuse_unknown_tests(&root()?, &ran)?;
    eprintln!("all tests passed");
    Ok(())
}

/// Some tests, by what cargo is told besides.
pub(crate) fn some(rest: &[String]) -> Result<()> {
    permit_as_usual();
    let mut test = with_signals(cargo().get_program());
    run(test.args(["test", "--no-fail-fast"]).args(WHOLE).args(rest))?;
    eprintln!("all tests passed");
    Ok(())
}

/// What tests make has the permissions that it has on most systems, whatever the umask of who runs them. Where the group may write (002),
/// local locks would refuse every directory of a test; where only the user may read (077), so would servers that run as another.
fn permit_as_usual() {
    umask(Mode::WGRP | Mode::WOTH);
}

/// A compiled test program and the command that runs it.
struct TestProgram {
    title: String,
    command: Command,
}

/// How one [`TestProgram`] ended: how long it took, which tests it ran and, unless it succeeded, what it said of its failures.
struct TestOutcome {
    title: String,
    took: Duration,
    ran: BTreeSet<String>,
    failures: Option<String>,
}

/// The tests of which a program has said how they ended.
fn tests_that_ran(output: &str) -> BTreeSet<String> {
    let names = output.lines().filter_map(|line| line.strip_prefix("test ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

/// What test harnesses begin their list of failures with.
const FAILURES: &str = "\nfailures:\n";

/// How many lines are shown again of a program that ended without a list of failures, such as one that was killed.
const LAST_LINES: usize = 40;

/// The part of the output of a failed program that says what failed. It is shown last, where a log that is cut still has it.
fn failures(output: &str) -> String {
    if let Some(begin) = output.find(FAILURES) {
        return output[begin..].trim().to_owned();
    }
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

/// What is started in the background of a script ignores SIGINT and SIGQUIT, and SIGHUP after `nohup`, and so does all that it
/// starts; some tests send them.
fn with_signals(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = of_no_package(Command::new("env"));
    command.arg("--default-signal=HUP,INT,QUIT").arg(program);
    command
}

/// Builds all test programs.
fn programs() -> Result<Vec<TestProgram>> {
    let packages = packages::workspace()?.packages;
    let mut build = cargo();
    build.args(["test", "--no-run", "--message-format", "json-render-diagnostics"]).args(WHOLE);
    let mut building = build.stdout(Stdio::piped()).spawn().context("starting cargo")?;
    let output = building.stdout.take().context("cargo has no output")?;
    let mut programs = Vec::new();
    for message in Message::parse_stream(std::io::BufReader::new(output)) {
        if let Message::CompilerArtifact(artifact) = message.context("reading what cargo built")?
            && artifact.profile.test
            && let Some(package) = packages.iter().find(|package| package.id == artifact.package_id)
        {
            programs.extend(program(&package.name, &artifact));
        }
    }
    ensure!(building.wait().context("waiting for cargo")?.success(), "the tests could not be built");
    ensure!(!programs.is_empty(), "cargo has built no tests");
    Ok(programs)
}

/// The examples in the documentation.
fn documentation() -> TestProgram {
    let mut command = cargo();
    command.args(["test", "--doc", "--no-fail-fast"]).args(WHOLE);
    TestProgram { title: DOCUMENTATION.to_owned(), command }
}

/// The program of an artifact of `package` as `cargo test` runs it: in the directory of the package.
fn program(package: &str, artifact: &Artifact) -> Option<TestProgram> {
    let executable = artifact.executable.as_ref()?;
    let directory = artifact.manifest_path.parent()?;
    let mut command = with_signals(executable);
    command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
    if std::env::var_os(THREADS).is_none() {
        command.env(THREADS, TESTS_AT_ONCE);
    }
    let place = if package == WITH_DATABASES { TEMPORARY } else { DATA };
    if std::env::var_os(place).is_none() && has_room(MEMORY) {
        command.env(place, MEMORY);
    }
    if std::env::var_os(SYNC).is_none() {
        command.env(SYNC, "no");
    }
    // By name: a checkout may be in any directory.
    let title = format!("{package} {}", artifact.target.name);
    Some(TestProgram { title, command })
}

/// Whether there is such a file system, with [`ROOM_BYTES`] to spare.
fn has_room(place: &str) -> bool {
    rustix::fs::statvfs(place).is_ok_and(|there| there.f_bavail.saturating_mul(there.f_frsize) >= ROOM_BYTES)
}

/// The present moment, for figures on a screen.
#[expect(clippy::disallowed_methods, reason = "nothing depends on it")]
fn now() -> Instant {
    Instant::now()
}

/// Runs all, in this order, and shows what each said when it has ended.
fn run_all(programs: Vec<TestProgram>) -> Result<Vec<TestOutcome>> {
    let waiting = Mutex::new(VecDeque::from(programs));
    let (ended, outcomes) = mpsc::channel();
    let mut results = thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            let (waiting, ended) = (&waiting, ended.clone());
            scope.spawn(move || {
                loop {
                    let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(TestProgram { title, mut command }) = next else { return };
                    eprintln!("running {title}");
                    let begin = now();
                    // Nobody reads these after a failure here, which ends all.
                    let _ = ended
                        .send(command.stdin(Stdio::null()).output().map(|output| (title, begin.elapsed(), output)));
                }
            });
        }
        drop(ended);
        let mut results = Vec::new();
        for outcome in outcomes {
            let (title, took, output) = outcome.context("starting a test program")?;
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            println!("---- {title} ----\n{text}");
            let failures = (!output.status.success()).then(|| failures(&text));
            results.push(TestOutcome { title, took, ran: tests_that_ran(&text), failures });
        }
        Ok::<_, anyhow::Error>(results)
    })?;
    if results.is_empty() {
        bail!("no test program was run");
    }
    results.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    Ok(results)
}

#[cfg(test)]
mod unit {
    use super::{LAST_LINES, LONGEST, WITH_DATABASES, failures};
    use crate::packages;

    #[test]
    fn a_test_program_is_called_as_its_package_and_not_as_the_directory_of_the_checkout() {
        let packages = packages::workspace().unwrap().packages;
        let is_package = |name: &str| packages.iter().any(|package| *package.name == name);
        assert!(LONGEST.iter().all(|title| title.split_once(' ').is_some_and(|(name, _)| is_package(name))));
        assert!(is_package(WITH_DATABASES));
    }

    #[test]
    fn what_failed_is_shown_again_and_without_a_list_the_last_that_was_said() {
        let listed = "test a ... FAILED\n\nfailures:\n\n---- a ----\nwhy\n\nfailures:\n    a\n";
        assert_eq!(failures(listed), "failures:\n\n---- a ----\nwhy\n\nfailures:\n    a");
        let killed: Vec<String> = (0..2 * LAST_LINES).map(|line| line.to_string()).collect();
        assert_eq!(failures(&killed.join("\n")), killed[LAST_LINES..].join("\n"));
    }
}
