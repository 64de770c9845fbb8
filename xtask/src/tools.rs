//! Programs of other projects that jobs use, each in a version that is written down.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{cargo, root, run};

/// The program of a crate, `NAME@VERSION`, which is built where it is missing.
pub(crate) fn tool(crate_and_version: &str) -> Result<Command> {
    let (name, _) = crate_and_version.split_once('@').context("a tool has a version")?;
    let tools = root()?.join("target").join("tools");
    // Does nothing where that version is there.
    run(cargo().args(["install", "--quiet", "--locked", "--debug", crate_and_version, "--root"]).arg(&tools))?;
    Ok(Command::new(tools.join("bin").join(name)))
}
