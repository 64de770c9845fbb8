//! The jobs of this workspace, one command each: `cargo xtask --help`.

#[cfg(test)]
mod book;
mod checks;
#[cfg(test)]
mod circles;
mod dependencies;
#[cfg(test)]
mod design;
mod packages;
mod safeguards;
mod setup;
mod soak;
mod tests;
mod tools;

use std::{
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};

/// One-command jobs of this workspace.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    job: XtaskCommand,
}

/// The subcommands of `cargo xtask`.
#[derive(Debug, Subcommand)]
enum XtaskCommand {
    /// Installs the servers and the packages that the tests need, where they are missing.
    Setup,
    /// Set-up, then every test of the workspace on real servers.
    Test {
        /// Passed on to the test runner, such as a part of a test's name.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Set-up, format, lints, documentation, dependencies, then every test.
    Ci,
    /// All that `ci` does, several times on a machine that is busy and stands still for a second and a half now and then. Takes root,
    /// for a control group.
    Soak {
        /// How many times.
        #[arg(long, default_value_t = 5)]
        runs: u32,
    },
    /// Set-up, then the comparison of all backends on real servers: a report with tables and pictures.
    Compare {
        /// Where the report goes.
        #[arg(long, default_value = "target/compare")]
        out: PathBuf,
        /// Passed on to `lock-lab compare`, after `--`.
        #[arg(last = true)]
        rest: Vec<String>,
    },
    /// Set-up, then fifteen contenders for one lock, on every backend.
    Demo {
        /// Passed on to `lock-lab demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Set-up, then readers and writers that share a lock, for half a minute on every backend.
    ReadWrite {
        /// Passed on to `lock-lab read-write`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Set-up, then faults on real servers under load, with every promise checked: a report with a picture of each run.
    Failover {
        /// Passed on to `lock-lab failover`; the report goes to target/failover unless --out says otherwise.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Set-up, then what acquisitions cost on Redlock while one of three nodes is frozen, and how they fail while two are.
    Frozen,
    /// Set-up, then thousands of acquisitions that are cancelled at random moments, on every backend, half of them over
    /// connections that are cut; fails when something of one is left on a server longer than promised.
    Cancellations {
        /// How many on each backend.
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Repeats the choices of an earlier run.
        #[arg(long)]
        seed: Option<u64>,
        /// Only the backends whose test has this in its name.
        #[arg(default_value = "nothing_is_left_of_cancelled_acquisitions")]
        only: String,
    },
    /// Writes docs/capabilities.md from what the backends say of themselves, on running servers.
    Capabilities,
    /// Writes docs/reports/metrics.md: what a scrape and the alerts show while a majority of Redlock fails. Eight minutes.
    Scrape,
    /// Looks whether there are advisories about dependencies, in the database of `RustSec`, which is fetched.
    Advisories,
    /// Makes the package of each crate that is published, and looks whether all is in it that building it takes.
    Packages,
    /// Makes the Debian package of the program `lock`.
    Debian {
        /// The directory that it goes to.
        #[arg(long, default_value = "target/debian")]
        out: PathBuf,
    },
    /// Compares the public face of each published crate with that of an earlier revision, and fails where a change asks for
    /// another version than the crate has.
    Semver {
        /// A revision of git, such as the tag of the last release.
        #[arg(long)]
        baseline: String,
    },
    /// Writes docs/configuration.md from what the drivers say of their settings.
    Configuration,
    /// Plays schedules on simulated servers: each machine with all its safeguards, then without each of them.
    Simulate {
        /// Passed on to the simulator: `--seeds N`, `--machine NAME`, `--seed S`, `--without SAFEGUARD`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        rest: Vec<String>,
    },
    /// Breaks one safeguard after another in a copy of the workspace, and checks that a test notices.
    Safeguards {
        /// Only those whose name contains this.
        #[arg(default_value = "")]
        only: String,
    },
}

fn main() -> ExitCode {
    match work(Arguments::parse().job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(job: XtaskCommand) -> Result<()> {
    match job {
        XtaskCommand::Setup => setup::require_all(),
        XtaskCommand::Test { rest } => {
            setup::require_all()?;
            if rest.is_empty() { tests::all(|| Ok(())) } else { tests::some(&rest) }
        }
        XtaskCommand::Ci => {
            setup::require_all()?;
            checks::all()
        }
        XtaskCommand::Soak { runs } => soak::soak(runs),
        XtaskCommand::Compare { out, rest } => {
            setup::try_servers();
            let out = out.to_str().context("the path of the report is not UTF-8")?;
            run_lab(["compare", "--out", out], &rest)
        }
        XtaskCommand::Demo { rest } => {
            setup::try_servers();
            run_lab(["demo"], &rest)
        }
        XtaskCommand::ReadWrite { rest } => {
            setup::try_servers();
            run_lab(["read-write"], &rest)
        }
        XtaskCommand::Failover { rest } => {
            setup::require_servers()?;
            let elsewhere = rest.iter().any(|argument| argument == "--out" || argument.starts_with("--out="));
            let out: &[&str] = if elsewhere { &[] } else { &["--out", "target/failover"] };
            run_lab(["failover"].iter().chain(out).copied(), &rest)
        }
        XtaskCommand::Frozen => {
            setup::require_servers()?;
            run_lab(["frozen"], &[])
        }
        XtaskCommand::Cancellations { count, seed, only } => {
            setup::require_servers()?;
            let mut tests = cargo();
            tests.args([
                "test",
                "--release",
                "--package",
                "fenced-lock",
                "--all-features",
                "--test",
                "conformance",
                "--",
                &only,
            ]);
            tests.args(["--nocapture", "--test-threads", "1"]).env("CANCEL_COUNT", count.to_string());
            if let Some(seed) = seed {
                tests.env("CANCEL_SEED", seed.to_string());
            }
            run(&mut tests)
        }
        XtaskCommand::Capabilities => {
            setup::require_servers()?;
            checks::write_capabilities()
        }
        XtaskCommand::Configuration => checks::write_configuration(),
        XtaskCommand::Scrape => {
            setup::require_servers()?;
            scrape()
        }
        XtaskCommand::Advisories => dependencies::advisories(),
        XtaskCommand::Packages => packages::check(),
        XtaskCommand::Debian { out } => packages::debian(&out),
        XtaskCommand::Semver { baseline } => packages::semver(&baseline),
        XtaskCommand::Simulate { rest } => {
            run(cargo().args(["run", "--profile", "simulate", "--package", "lock-sim", "--"]).args(&rest))
        }
        XtaskCommand::Safeguards { only } => {
            setup::require_servers()?;
            safeguards::run(&root()?, &only)
        }
    }
}

/// Has the laboratory write docs/reports/metrics.md.
fn scrape() -> Result<()> {
    let example = ["--package", "fenced-lock", "--features", "metrics", "--example", "metrics"];
    run(cargo().args(["build", "--release"]).args(example))?;
    let (root, target) = (root()?, packages::workspace()?.target_directory.into_std_path_buf());
    let options = [
        ("example", target.join("release/examples/metrics")),
        ("alerts", root.join("docs/observability/alerts.yml")),
        ("out", root.join("docs/reports/metrics.md")),
    ];
    run_lab(["scrape"], &options.map(|(option, path)| format!("--{option}={}", path.display())))
}

/// Builds the program `lock-lab` with optimisations and runs it.
fn run_lab<'a>(arguments: impl IntoIterator<Item = &'a str>, rest: &[String]) -> Result<()> {
    // Cargo names a package when it begins to build that, and the last ones take the longest.
    eprintln!("building lock-lab with optimisations, which takes some minutes when it is not built yet");
    let mut lab = cargo();
    lab.args(["run", "--release", "--package", "lock-lab", "--bin", "lock-lab", "--"]);
    run(lab.args(arguments).args(rest))
}

/// Cargo, as it runs this program, in the caller's directory.
fn cargo() -> Command {
    of_no_package(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())))
}

/// The command without what cargo tells this program of its own package. There are build scripts (that of ring is one) that look at
/// these variables: they would run anew, and all that depends on them would be compiled anew, after each `cargo` without xtask.
fn of_no_package(mut command: Command) -> Command {
    for (variable, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|begin| variable.to_string_lossy().starts_with(begin)) {
            command.env_remove(variable);
        }
    }
    command
}

/// Runs a command, shown first; an error when it fails.
fn run(command: &mut Command) -> Result<()> {
    let words = std::iter::once(command.get_program()).chain(command.get_args()).map(|word| word.to_string_lossy());
    let shown = words.collect::<Vec<_>>().join(" ");
    eprintln!("$ {}", shown.replacen(&*cargo().get_program().to_string_lossy(), "cargo", 1));
    let status = command.status().with_context(|| format!("starting {shown}"))?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// The root of the workspace.
fn root() -> Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").context("run it as `cargo xtask`")?;
    let package = PathBuf::from(package);
    Ok(package.parent().context("the package has no parent directory")?.to_path_buf())
}
