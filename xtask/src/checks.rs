//! What must hold for every commit.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{cargo, packages, run, tests, tools::tool};

/// What must not be in the dependency tree of a package, and why.
const WITHOUT: [(&str, &str, &[&str]); 2] = [
    (
        "lock-core",
        "the vocabulary and what is written once must not know the wire",
        &["redis", "zookeeper-client", "hyper", "reqwest", "mio", "socket2", "rustls", "native-tls", "openssl"],
    ),
    ("lock-cli", "the laboratory is a program of its own", &["lock-lab"]),
];

/// Every check, the quick ones first.
pub(crate) fn all() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    WITHOUT.iter().try_for_each(|(package, why, crates)| is_without(package, why, crates))?;
    for what in [&["--workspace", "--all-targets"][..], &["--workspace", "--all-targets", "--all-features"]] {
        run(cargo().arg("clippy").args(what).args(["--", "-D", "warnings"]))?;
    }
    // Without targets whose dependencies would bring every feature back.
    for features in ["", "zk,redis,redlock,local", "zk,redis,redlock,tls-ring"] {
        let facade = ["clippy", "--package", "fenced-lock", "--lib", "--no-default-features", "--features", features];
        run(cargo().args(facade).args(["--", "-D", "warnings"]))?;
    }
    dependencies()?;
    packages::check()?;
    run(cargo().args(["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    tests::all()?;
    eprintln!("all checks passed");
    Ok(())
}

/// What checks the licences and the sources of dependencies, and in which version.
const DENY: &str = "cargo-deny@0.20.2";

/// Checks the licences and the sources of all dependencies, as deny.toml has them. Not whether there are advisories about them:
/// these are in a repository on the network, which a build does not depend on (`cargo xtask advisories`).
fn dependencies() -> Result<()> {
    deny(&["check", "licenses", "bans", "sources"])
}

/// Checks whether there are advisories about dependencies.
pub(crate) fn advisories() -> Result<()> {
    deny(&["check", "advisories"])
}

fn deny(arguments: &[&str]) -> Result<()> {
    run(tool(DENY)?.args(arguments))
}

/// Has the test of docs/capabilities.md write it instead.
pub(crate) fn write_capabilities() -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--package", "fenced-lock", "--all-features", "--test", "suite", "the_table_of_capabilities"]);
    run(test.env("LOCK_WRITE_CAPABILITIES", "1"))
}

/// Has the test of docs/configuration.md write it instead.
pub(crate) fn write_configuration() -> Result<()> {
    let mut test = cargo();
    test.args(["test", "--package", "fenced-lock", "--all-features", "--test", "suite", "configuration::the_page"]);
    run(test.env("LOCK_WRITE_CONFIGURATION", "1"))
}

/// Has a test write docs/reports/metrics.md.
pub(crate) fn write_scrape() -> Result<()> {
    run(cargo().args(["build", "--package", "fenced-lock", "--all-features", "--examples"]))?;
    let mut test = cargo();
    test.args([
        "test",
        "--package",
        "fenced-lock",
        "--all-features",
        "--test",
        "suite",
        "what_a_scrape_shows",
        "--",
        "--ignored",
    ]);
    run(&mut test)
}

/// Fails when one of these crates is in the dependency tree of a package.
fn is_without(package: &str, why: &str, crates: &[&str]) -> Result<()> {
    let mut tree: Command = cargo();
    tree.args(["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let output = tree.stderr(Stdio::inherit()).output().context("starting cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", output.status);
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = lines.lines().filter_map(|line| line.split(' ').next());
    let found: Vec<&str> = names.filter(|name| crates.contains(name)).collect();
    ensure!(found.is_empty(), "{package} depends on {found:?}, but {why}");
    Ok(())
}
