//! What must hold for every commit.

use anyhow::Result;

use crate::{cargo, dependencies, packages, run, tests};

/// Every check, the quick ones first.
pub(crate) fn all() -> Result<()> {
    run(cargo().args(["fmt", "--all", "--check"]))?;
    dependencies::check()?;
    // Every target is linted with every feature; then the libraries that are published, with fewer of them, as users build these. The
    // latter runs leave tests and examples out, whose dependencies would bring every feature back.
    clippy(&["--workspace", "--all-targets", "--all-features"])?;
    clippy(&["--package", "fenced-lock", "--lib"])?;
    for features in ["", "zk,redis,redlock,local", "zk,redis,redlock,tls-ring"] {
        clippy(&["--package", "fenced-lock", "--lib", "--no-default-features", "--features", features])?;
    }
    packages::check()?;
    // With an example come the features that only tests and examples ask for: so cargo uses what it has compiled for the lints.
    let mut documentation = cargo();
    documentation.args([
        "doc",
        "--workspace",
        "--all-features",
        "--no-deps",
        "--lib",
        "--bins",
        "--example",
        "first_look",
    ]);
    run(documentation.env("RUSTDOCFLAGS", "-D warnings"))?;
    tests::all()?;
    eprintln!("all checks passed");
    Ok(())
}

/// Lints what cargo is told to build; a warning is an error.
fn clippy(what: &[&str]) -> Result<()> {
    run(cargo().arg("clippy").args(what).args(["--", "-D", "warnings"]))
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
