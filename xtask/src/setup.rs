//! The servers that tests and measurements need, and whatever else the tests do, installed where it is missing.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use cargo_metadata::{MetadataCommand, Package};
use serde::Deserialize;

use crate::run;

/// A Debian package that the tests need, and the program or file by which it is known to be installed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequiredPackage {
    /// A program by its name, wherever it is, or a file by its path.
    has: String,
    /// The Debian package that has it: its key in the crate's metadata.
    #[serde(skip)]
    package: String,
    /// The service that the package starts by itself, if any: the tests start servers of their own.
    service: Option<String>,
}

/// What each crate says that it needs beside cargo: `[package.metadata.debian]` in its Cargo.toml.
fn needed() -> Result<Vec<RequiredPackage>> {
    let workspace = MetadataCommand::new().no_deps().exec().context("asking cargo for the workspace")?;
    let mut needed = Vec::new();
    for package in workspace.workspace_packages() {
        let Some(debian) = package.metadata.get("debian") else { continue };
        let debian = BTreeMap::<String, RequiredPackage>::deserialize(debian)
            .with_context(|| format!("{}: [package.metadata.debian]", package.manifest_path))?;
        needed.extend(debian.into_iter().map(|(package, needed)| RequiredPackage { package, ..needed }));
    }
    Ok(needed)
}

/// Has all servers installed, or fails and says what is missing and how to get it.
pub(crate) fn require_servers() -> Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = missing.iter().map(|needed| needed.package.as_str()).collect();
    let packages = packages.join(" ");
    let by_hand = || format!("install them with: apt-get install {packages} (or what your system calls them)");
    eprintln!("missing servers; installing the Debian packages {packages}");
    install(&missing).with_context(by_hand)?;
    match self::missing()?.first() {
        None => Ok(()),
        Some(needed) => bail!("{} is still missing although {} is installed", needed.has, needed.package),
    }
}

/// Has all servers installed, and the packages of npm that tests need, or fails and says what is missing and how to get it.
pub(crate) fn require_all() -> Result<()> {
    require_servers()?;
    for folder in npm_folders()?.iter().filter(|folder| !is_up_to_date(folder)) {
        let by_hand = || format!("install them with: npm ci, in {}", folder.display());
        eprintln!("missing packages of npm; installing those of {}", folder.display());
        // The scripts of packages are not run: what is in them is enough.
        let options = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"];
        run(Command::new("npm").args(options).current_dir(folder)).with_context(by_hand)?;
    }
    Ok(())
}

/// The folders in which crates say what they need of npm: `npm` of `[package.metadata]` in their Cargo.toml.
fn npm_folders() -> Result<Vec<PathBuf>> {
    let workspace = MetadataCommand::new().no_deps().exec().context("asking cargo for the workspace")?;
    let folder = |package: &Package| {
        let folder = package.metadata.get("npm")?.as_str()?;
        Some(package.manifest_path.parent()?.join(folder).into_std_path_buf())
    };
    Ok(workspace.workspace_packages().into_iter().filter_map(folder).collect())
}

/// Whether npm has installed there what its package-lock.json says, and that has not changed since.
fn is_up_to_date(folder: &Path) -> bool {
    let written = |file: &str| folder.join(file).metadata().and_then(|file| file.modified()).ok();
    // npm writes the first one when everything else is there.
    written("node_modules/.package-lock.json").is_some_and(|installed| Some(installed) >= written("package-lock.json"))
}

/// Has all servers installed if possible, and says so if not.
pub(crate) fn try_servers() {
    if let Err(error) = require_servers() {
        eprintln!("going on with the servers that are there: {error:#}");
    }
}

fn missing() -> Result<Vec<RequiredPackage>> {
    Ok(needed()?.into_iter().filter(|needed| !is_there(&needed.has)).collect())
}

/// Whether a file is there, or a program is on the path or where Debian has those of the administrator.
fn is_there(what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/bin", "/usr/sbin"].map(PathBuf::from));
    // A path from the root replaces the place that it is joined to.
    places.into_iter().any(|place| place.join(what).is_file())
}

fn install(missing: &[RequiredPackage]) -> Result<()> {
    run(apt_get()?.arg("update"))?;
    let packages = missing.iter().map(|needed| needed.package.as_str());
    run(apt_get()?.args(["install", "--yes", "--no-install-recommends"]).args(packages))?;
    missing.iter().filter_map(|needed| needed.service.as_deref()).for_each(stop_service);
    Ok(())
}

/// `apt-get` with the rights that it needs.
fn apt_get() -> Result<Command> {
    if !Path::new("/usr/bin/apt-get").exists() {
        bail!("this system has no apt-get");
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let mut command = if root { Command::new("env") } else { Command::new("sudo") };
    if !root {
        // Never asks for a password: this may run where nobody could answer.
        command.args(["-n", "env"]);
    }
    command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "Dpkg::Use-Pty=0"]);
    Ok(command)
}

/// Stops a service that the installation has just started (where `policy-rc.d` denies that, it does not run).
fn stop_service(service: &str) {
    let control = |action: &str| {
        let mut command = Command::new("service");
        command.args([service, action]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if control("status") {
        let outcome = if control("stop") { "stopped" } else { "could not stop" };
        eprintln!("{outcome} the service {service}, which the installation had started");
    }
}
