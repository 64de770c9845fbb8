//! The log: silent unless asked.

use std::{
    env,
    io::{self, IsTerminal as _, Write},
};

use tracing::{Level, Metadata};
use tracing_subscriber::{EnvFilter, fmt::MakeWriter};

use crate::{escaped::plain, failure::notice};

/// Begins to log on standard error: as often as `-v` was given, else what `RUST_LOG` says. Without both nothing is said: a
/// script reads what a failure says, not what a client library thinks.
pub(crate) fn start(verbose: u8) {
    let filter = match verbose {
        0 => match env::var(EnvFilter::DEFAULT_ENV).ok().filter(|filter| !filter.is_empty()).map(EnvFilter::try_new) {
            None => return,
            Some(Ok(filter)) => filter,
            // It may be meant for the command.
            Some(Err(error)) => return notice(format_args!("RUST_LOG is not taken as the filter of the log: {error}")),
        },
        // Every target that begins with `lock`: all crates of the workspace.
        1 => EnvFilter::new("off,lock=debug"),
        _ => EnvFilter::new("trace"),
    };
    let coloured = io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    // The colours are put around the lines when these have lost their control characters.
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(LogOutput { coloured }).init();
}

/// The output of the log, which makes the [`LogWriter`] of each event.
#[derive(Debug)]
struct LogOutput {
    coloured: bool,
}

/// Writes an event to standard error, on one line and without control characters of its own.
#[derive(Debug)]
struct LogWriter {
    /// The number of a colour of terminals.
    colour: Option<u8>,
}

impl<'a> MakeWriter<'a> for LogOutput {
    type Writer = LogWriter;

    fn make_writer(&'a self) -> LogWriter {
        LogWriter { colour: None }
    }

    fn make_writer_for(&'a self, event: &Metadata<'_>) -> LogWriter {
        let colour = match *event.level() {
            Level::ERROR => 31,
            Level::WARN => 33,
            Level::INFO => 32,
            Level::DEBUG => 34,
            _ => 35,
        };
        LogWriter { colour: self.coloured.then_some(colour) }
    }
}

impl Write for LogWriter {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = plain(text.trim_end_matches('\n'));
        match self.colour {
            Some(colour) => writeln!(io::stderr(), "\u{1b}[{colour}m{line}\u{1b}[0m")?,
            None => writeln!(io::stderr(), "{line}")?,
        }
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
