//! What the packages of the workspace may depend on.

use std::{
    fs,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{CargoOpt, MetadataCommand, Package};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use crate::{cargo, root, run, tools::tool};

/// What must not be in the dependency tree of a package, and why.
const WITHOUT: [(&str, &str, &[&str]); 2] = [
    (
        "lock-core",
        "the vocabulary and what is written once must not know the wire",
        &["redis", "zookeeper-client", "hyper", "reqwest", "mio", "socket2", "rustls", "native-tls", "openssl"],
    ),
    ("lock-cli", "the laboratory is a program of its own", &["lock-lab"]),
];

/// What looks for advisories, and in which version.
const DENY: &str = "cargo-deny@0.20.2";

/// What `deny.toml` says about licences. `cargo deny` reads the whole of it.
#[derive(Deserialize)]
struct DenyFile {
    licenses: Licences,
}

/// The table `licenses` of a [`DenyFile`].
#[derive(Deserialize)]
struct Licences {
    /// Those that a dependency may have, by their SPDX names.
    allow: Vec<String>,
}

/// Checks that no package depends on what it must not know, and that every dependency is from the public registry and has a
/// licence that `deny.toml` allows. `cargo deny check` looks at the same and more, but takes a minute to be built.
pub(crate) fn check() -> Result<()> {
    WITHOUT.iter().try_for_each(|(package, why, crates)| is_without(package, why, crates))?;
    let text = fs::read_to_string(root()?.join("deny.toml")).context("reading deny.toml")?;
    let DenyFile { licenses } = toml::from_str(&text).context("reading deny.toml")?;
    let all = MetadataCommand::new().features(CargoOpt::AllFeatures).exec().context("asking cargo for dependencies")?;
    let foreign: Vec<&Package> =
        all.packages.iter().filter(|package| !all.workspace_members.contains(&package.id)).collect();
    ensure!(!foreign.is_empty(), "cargo names no dependencies");
    foreign.into_iter().try_for_each(|package| may_be_used(package, &licenses.allow))
}

/// Fails when it is from elsewhere, or none of the licences that it can be had under is allowed.
fn may_be_used(package: &Package, allowed: &[String]) -> Result<()> {
    let Package { name, source, license, .. } = package;
    let source = source.as_ref().with_context(|| format!("{name}: its sources are not in the public registry"))?;
    ensure!(source.is_crates_io(), "{name}: its sources are not in the public registry, but in {source}");
    let license = license.as_ref().with_context(|| format!("{name}: it names no licence"))?;
    let is_allowed = is_allowed(license, allowed).with_context(|| format!("{name}: its licence is {license}"))?;
    ensure!(is_allowed, "{name}: its licence is {license}; deny.toml allows {}", allowed.join(", "));
    Ok(())
}

/// Whether one of the ways in which `license`, an expression of SPDX, can be fulfilled needs nothing but what is allowed.
fn is_allowed(license: &str, allowed: &[String]) -> Result<bool> {
    let expression = Expression::parse_mode(license, ParseMode::LAX)?;
    Ok(expression.evaluate(|needed| {
        needed.license.id().is_some_and(|license| allowed.iter().any(|allowed| allowed == license.name))
    }))
}

/// Checks whether there are advisories about dependencies. They are in a repository on the network, which a build does not
/// depend on.
pub(crate) fn advisories() -> Result<()> {
    run(tool(DENY)?.args(["check", "advisories"]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_allowed_when_all_that_it_needs_is() {
        let allowed = ["MIT", "Unicode-3.0"].map(str::to_owned);
        let asked = |license| is_allowed(license, &allowed).unwrap();
        for license in ["MIT", "Apache-2.0 OR MIT", "MIT/Apache-2.0", "(MIT OR Apache-2.0) AND Unicode-3.0"] {
            assert!(asked(license), "{license}");
        }
        for license in ["GPL-3.0-only", "MIT AND GPL-3.0-only", "LicenseRef-of-our-own"] {
            assert!(!asked(license), "{license}");
        }
        assert!(is_allowed("whatever you like", &allowed).is_err());
    }
}
