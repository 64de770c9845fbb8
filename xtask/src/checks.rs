//! What must hold for every commit.

use std::process::Command;

use anyhow::Result;

use crate::{
    cargo, dependencies, packages, run,
    tests::{self, Job},
};

/// Every check, the quick ones first, and the last ones beside the tests.
pub(crate) fn all() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    dependencies::check()?;
    packages::check()?;
    run(&mut clippy(&["--workspace", "--all-targets", "--all-features"]))?;
    tests::all(beside_the_tests())?;
    eprintln!("all checks passed");
    Ok(())
}

/// The lints with fewer features, and the documentation.
fn beside_the_tests() -> Vec<Job> {
    let mut jobs = vec![Job::new("lints with the default features", clippy(&["--workspace", "--all-targets"]))];
    // Without targets whose dependencies would bring every feature back.
    jobs.extend(["", "zk,redis,redlock,local", "zk,redis,redlock,tls-ring"].map(|features| {
        let facade = ["--package", "fenced-lock", "--lib", "--no-default-features", "--features", features];
        Job::new(format!("lints of the facade with the features {features:?}"), clippy(&facade))
    }));
    let mut documentation = cargo();
    documentation.args(["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    jobs.push(Job::new("documentation", documentation));
    jobs
}

/// Lints what cargo is told to build; a warning is an error.
fn clippy(what: &[&str]) -> Command {
    let mut clippy = cargo();
    clippy.arg("clippy").args(what).args(["--", "-D", "warnings"]);
    clippy
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
