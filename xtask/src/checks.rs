//! What must hold for every commit.

use std::process::Command;

use anyhow::Result;

use crate::{cargo, dependencies, packages, run, tests};

/// Every check, the quick ones first. While the tests wait for time to pass, a processor is free: the checks that wait for
/// nothing are done beside them, and not behind them: what is left of these when the tests end keeps one processor busy, not both.
pub(crate) fn all() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    dependencies::check()?;
    run(clippy(&mut cargo(), &["--workspace", "--all-targets", "--all-features"]))?;
    packages::check()?;
    tests::all(beside_tests)?;
    eprintln!("all checks passed");
    Ok(())
}

/// Lints the libraries that are published with fewer features, as users build them, and makes the documentation. The lints leave
/// tests and examples out, whose dependencies would bring every feature back.
fn beside_tests() -> Result<()> {
    let narrow: [&[&str]; 4] = [
        &[],
        &["--no-default-features"],
        &["--no-default-features", "--features", "zk,redis,redlock,etcd,local"],
        &["--no-default-features", "--features", "zk,redis,redlock,tls-ring"],
    ];
    for features in narrow {
        run(clippy(&mut cargo(), &[&["--package", "fenced-lock", "--lib"], features].concat()))?;
    }
    // With an example come the features that only tests and examples ask for: so cargo uses what it has compiled for the lints.
    let what = ["--workspace", "--all-features", "--no-deps", "--lib", "--bins", "--example", "first_look"];
    run(cargo().args(["doc", "--quiet"]).args(what).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Has cargo lint what it is told to build; a warning is an error.
fn clippy<'a>(cargo: &'a mut Command, what: &[&str]) -> &'a mut Command {
    cargo.arg("clippy").args(what).args(["--", "-D", "warnings"])
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
