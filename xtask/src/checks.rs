//! What must hold for every commit.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::{cargo, run};

/// Crates that talk to a network; `lock-core` has none of them.
const NETWORK: [&str; 9] =
    ["redis", "zookeeper-client", "hyper", "reqwest", "mio", "socket2", "rustls", "native-tls", "openssl"];

/// Every check, the quick ones first.
pub(crate) fn all() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    core_has_no_network()?;
    for features in [&["--workspace"][..], &["--workspace", "--all-features"], &["-p", "lock", "--no-default-features"]]
    {
        run(cargo().args(["clippy", "--all-targets"]).args(features).args(["--", "-D", "warnings"]))?;
    }
    run(cargo().args(["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"))?;
    tests(&[])?;
    eprintln!("all checks passed");
    Ok(())
}

/// Every test of the workspace, with `cargo nextest` where it is installed.
pub(crate) fn tests(rest: &[String]) -> Result<()> {
    let everything = ["--workspace", "--all-features"];
    let nextest = cargo().args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if nextest.is_ok_and(|status| status.success()) {
        run(cargo().args(["nextest", "run", "--no-fail-fast"]).args(everything).args(rest))?;
        // It runs no examples of the documentation.
        if rest.is_empty() {
            run(cargo().args(["test", "--doc"]).args(everything))?;
        }
    } else {
        run(cargo().args(["test", "--no-fail-fast"]).args(everything).args(rest))?;
    }
    eprintln!("all tests passed");
    Ok(())
}

/// The vocabulary and what is written once must not know the wire.
fn core_has_no_network() -> Result<()> {
    let mut tree: Command = cargo();
    tree.args(["tree", "--package", "lock-core", "--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let output = tree.stderr(Stdio::inherit()).output().context("starting cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", output.status);
    let crates = String::from_utf8_lossy(&output.stdout).into_owned();
    let names = crates.lines().filter_map(|line| line.split(' ').next());
    let found: Vec<&str> = names.filter(|name| NETWORK.contains(name)).collect();
    ensure!(found.is_empty(), "lock-core depends on a network: {found:?}");
    Ok(())
}
