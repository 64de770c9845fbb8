//! The `lock-lab` program: see `lock-lab --help`.

mod command;

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    process,
};

use clap::{ArgAction, Parser, error::ErrorKind};
use lock_lab::LabError;
use tokio::runtime::Builder;
use tracing_subscriber::EnvFilter;

use crate::command::LabCommand;

/// Wrong usage (`EX_USAGE`).
const USAGE: u8 = 64;
/// Servers are unavailable, or what was measured breaks a promise or proves nothing (`EX_UNAVAILABLE`).
const UNAVAILABLE: u8 = 69;
/// The machine did not do what it always does (`EX_OSERR`).
const SYSTEM: u8 = 71;

/// The laboratory: measure the locks on real servers of this machine, and strike the servers with faults.
///
/// Servers are started as child processes on free ports, and end with this program.
#[derive(Debug, Parser)]
#[command(name = "lock-lab", version, arg_required_else_help = true, after_help = STATUSES)]
struct Arguments {
    /// Say what happens; twice for everything. Without it, `RUST_LOG` is the filter of what is said, if it is set.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,

    #[command(subcommand)]
    command: LabCommand,
}

const STATUSES: &str = "Exit status: 0 everything was measured and kept; 69 servers are unavailable, a promise was broken, or \
a run proves nothing; 64 wrong usage; 71 the operating system refused something; 128+n interrupted by signal n.";

fn main() {
    let arguments = Arguments::try_parse().unwrap_or_else(|error| {
        let _ = error.print();
        let help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        process::exit(if help { 0 } else { USAGE.into() })
    });
    log(arguments.verbose);
    let status = match start(&arguments.command) {
        Ok(status) => status,
        // The reader, such as `head`, has seen enough.
        Err(LabError::Unread) => 0,
        Err(error) => {
            let _ = writeln!(io::stderr(), "lock-lab: {}", error.with_causes());
            status(&error)
        }
    };
    process::exit(status.into())
}

fn start(command: &LabCommand) -> Result<u8, LabError> {
    let mut runtime = match command {
        // The worker's promise to the failover runs: one thread has all of its clients and connections.
        LabCommand::Worker { .. } => Builder::new_current_thread(),
        // Many contenders, which must not wait for each other's thread.
        _ => Builder::new_multi_thread(),
    };
    let refused = |source| LabError::Io { action: "starting the runtime".into(), source };
    let runtime = runtime.enable_all().build().map_err(refused)?;
    let status = runtime.block_on(command.run());
    // A resolver that hangs in a thread of its own must not keep the program from ending.
    runtime.shutdown_background();
    status
}

fn status(error: &LabError) -> u8 {
    match error {
        LabError::Refused { .. } | LabError::Lock { source: lock::Error::Config { .. }, .. } => USAGE,
        LabError::Io { .. } => SYSTEM,
        _ => UNAVAILABLE,
    }
}

/// Silent unless asked, by `-v` or by `RUST_LOG`. The filter takes every target that begins with `lock`: all crates of the workspace.
fn log(verbose: u8) {
    let filter = match verbose {
        0 => match env::var(EnvFilter::DEFAULT_ENV).ok().filter(|filter| !filter.is_empty()) {
            None => return,
            Some(filter) => EnvFilter::builder().parse_lossy(filter),
        },
        1 => EnvFilter::new("off,lock=debug"),
        _ => EnvFilter::new("trace"),
    };
    let coloured = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(coloured).with_writer(io::stderr).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use proptest::prelude::*;

    use super::*;

    /// A word that the program knows, or any other.
    fn word() -> impl Strategy<Value = String> {
        let program = Arguments::command();
        let commands = || program.get_subcommands();
        let options = commands().flat_map(|command| command.get_arguments().filter_map(|option| option.get_long()));
        let values = ["--", "-v", "redis", "1s", "99999999999999999999y", "{}", "-1", "0", ""].map(str::to_owned);
        let known = commands().map(|command| command.get_name().to_owned()).chain(values);
        let known: Vec<String> = known.chain(options.map(|option| format!("--{option}"))).collect();
        prop_oneof![3 => proptest::sample::select(known), 1 => "\\PC{0,6}"]
    }

    proptest! {
        #[test]
        fn no_command_line_makes_it_panic(words in proptest::collection::vec(word(), 0..8)) {
            let _ = Arguments::try_parse_from(std::iter::once("lock-lab".to_owned()).chain(words));
        }
    }

    #[test]
    fn the_definition_has_no_contradiction() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_cannot_be_done_is_wrong_usage_and_what_the_system_refuses_is_not() {
        let source = io::Error::other("refused");
        assert_eq!(status(&LabError::Io { action: "writing".into(), source }), SYSTEM);
        assert_eq!(status(&LabError::Refused { reason: "does not apply".into() }), USAGE);
        assert_eq!(status(&LabError::Run { reason: "a promise was broken".into() }), UNAVAILABLE);
    }
}
