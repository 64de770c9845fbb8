//! Options of the commands, which are the options of the functions behind them.

use std::{env, path::PathBuf};

use clap::{
    Args, Command,
    builder::{RangedU64ValueParser, TypedValueParser},
};

/// The options of a command line that names none.
///
/// # Panics
/// When an option has no default, which is a mistake of this program.
pub(crate) fn defaults<T: Args>() -> T {
    let none = T::augment_args(Command::new("defaults")).get_matches_from(["defaults"]);
    T::from_arg_matches(&none).expect("every option has a default")
}

/// A number of clients, each with a connection of its own: at least so many, and not more than a machine can bear.
pub(crate) fn clients(least: u64) -> impl TypedValueParser<Value = usize> {
    RangedU64ValueParser::new().range(least..=1000)
}

/// This program, of which workers and holders are further processes; empty where the system does not tell.
pub(crate) fn this_program() -> PathBuf {
    env::current_exe().unwrap_or_default()
}
