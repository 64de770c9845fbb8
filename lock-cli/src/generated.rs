//! Completions and manual pages, made from the definition of the command line.

use std::{
    io::{self, Write as _},
    path::Path,
};

use clap::{Command, CommandFactory as _};
use clap_complete::{Shell, generate};
use clap_mangen::{Man, generate_to};

use crate::{
    arguments::Arguments,
    failure::{Failure, SYSTEM},
};

fn program() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

/// Prints the completions of `shell`.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let whole = program();
    // Hidden subcommands would be offered, too.
    let shown = whole.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()).cloned();
    let program = Command::new("lock").version(env!("CARGO_PKG_VERSION")).disable_help_subcommand(true);
    let mut program = program.args(whole.get_arguments().cloned()).subcommands(shown);
    let mut script = Vec::new();
    generate(shell, &mut program, "lock", &mut script);
    Ok(print(&script)?)
}

/// Prints the manual page of `lock`, or writes that and those of its subcommands into `directory`.
pub(crate) fn man(directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else {
        let mut page = Vec::new();
        Man::new(program()).render(&mut page)?;
        return Ok(print(&page)?);
    };
    let refused = |error| Failure::new(SYSTEM, format!("cannot write into {}: {error}", directory.display()));
    generate_to(program(), directory).map_err(refused)
}

/// Writes to standard output; that nobody reads it any more is no failure.
fn print(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
