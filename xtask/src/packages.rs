//! The packages that are published: whether they can be, and what changed in their public faces.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, Target};

use crate::{cargo, root, run, tools::tool};

/// What compares public faces, and in which version.
const SEMVER_CHECKS: &str = "cargo-semver-checks@0.51.0";

/// Files that every package has.
const ALWAYS: [&str; 4] = ["Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// Makes the package of each published crate, and looks whether all is in it that building it takes. Nothing is built: cargo
/// resolves the packages among themselves, as the registry would after they were published.
pub(crate) fn check() -> Result<()> {
    let published = published()?;
    let names: HashSet<&str> = published.iter().map(|package| package.name.as_str()).collect();
    published.iter().try_for_each(|package| is_complete(package, &names))?;
    let packages = published.iter().flat_map(|package| ["--package", package.name.as_str()]);
    run(cargo().args(["package", "--quiet", "--no-verify", "--allow-dirty"]).args(packages))
}

/// Compares the public face of each published crate with that at a revision of git, and fails where a program that compiled
/// with that one may not compile any more although the version says so.
pub(crate) fn semver(baseline: &str) -> Result<()> {
    let published = published()?;
    // The program has no public face.
    let libraries = published.iter().filter(|package| package.targets.iter().any(Target::is_lib));
    let packages = libraries.flat_map(|package| ["--package", package.name.as_str()]);
    let options = ["semver-checks", "--all-features", "--baseline-rev", baseline];
    run(tool(SEMVER_CHECKS)?.args(options).args(packages))
}

/// Makes the Debian package of the program, with optimisations, in `out`.
pub(crate) fn debian(out: &Path) -> Result<()> {
    run(cargo().args(["build", "--release", "--package", "lock-cli"]))?;
    let root = root()?;
    let target = workspace()?.target_directory;
    run(Command::new(root.join("packaging/debian/build")).arg(target.join("release/lock")).arg(out))
}

/// What cargo says of the workspace.
pub(crate) fn workspace() -> Result<Metadata> {
    MetadataCommand::new().no_deps().exec().context("asking cargo for the workspace")
}

/// The packages of the workspace that may be published.
fn published() -> Result<Vec<Package>> {
    let is_published = |package: &Package| package.publish.as_ref().is_none_or(|registries| !registries.is_empty());
    Ok(workspace()?.packages.into_iter().filter(is_published).collect())
}

/// Fails when something is missing that a registry asks for, or that a build takes.
fn is_complete(package: &Package, published: &HashSet<&str>) -> Result<()> {
    let name = &package.name;
    let said = package.description.is_some() && package.license.is_some() && package.readme.is_some();
    ensure!(said && !package.keywords.is_empty(), "{name}: description, license, readme or keywords are missing");
    for needed in package.dependencies.iter().filter(|needed| needed.path.is_some()) {
        // cargo leaves what tests need out of a package where it has no version.
        let left_out = needed.kind == DependencyKind::Development && needed.req.comparators.is_empty();
        let is_found = published.contains(needed.name.as_str()) && !needed.req.comparators.is_empty();
        ensure!(left_out || is_found, "{name}: {} is not published, or has no version there", needed.name);
    }
    let files = files(name)?;
    let root = package.manifest_path.parent().context("the manifest has no directory")?.as_std_path();
    let always = ALWAYS.iter().map(PathBuf::from);
    for file in always.chain(included(root, &files)?) {
        ensure!(files.contains(&file), "{name}: the package lacks {}; see `include` in its Cargo.toml", file.display());
    }
    Ok(())
}

/// The files of a package, from its root.
fn files(package: &str) -> Result<HashSet<PathBuf>> {
    let mut list = cargo();
    list.args(["package", "--list", "--allow-dirty", "--package", package]);
    let output = list.stderr(Stdio::inherit()).output().context("starting cargo package")?;
    ensure!(output.status.success(), "cargo package --list: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).collect())
}

/// What the sources of a package have the compiler read beside them, from its root.
fn included(root: &Path, files: &HashSet<PathBuf>) -> Result<Vec<PathBuf>> {
    let mut included = Vec::new();
    for source in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
        let text = fs::read_to_string(root.join(source)).with_context(|| source.display().to_string())?;
        let named = text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next());
        included.extend(named.map(|file| normal(&source.with_file_name(file))));
    }
    Ok(included)
}

/// A path without `..`, where that is possible.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path {
        if part != ".." || !normal.pop() {
            normal.push(part);
        }
    }
    normal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_that_a_program_needs_is_published_and_the_laboratory_is_not() {
        let mut names: Vec<String> = published().unwrap().iter().map(|package| package.name.to_string()).collect();
        names.sort();
        let crates =
            ["cli", "core", "etcd", "local", "redis", "redlock", "tls", "zk"].map(|name| format!("lock-{name}"));
        assert_eq!(names, ["fenced-lock".to_owned()].into_iter().chain(crates).collect::<Vec<_>>());
    }

    #[test]
    fn what_is_included_from_a_neighbour_is_found() {
        assert_eq!(normal(Path::new("src/nodes/../scripts/look.lua")), Path::new("src/scripts/look.lua"));
        assert_eq!(normal(Path::new("src/../../docs/rights.md")), Path::new("../docs/rights.md"));
    }
}
