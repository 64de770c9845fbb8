//! Exit statuses, those of sysexits.h where it has one.

use std::{
    error::Error as _,
    fmt,
    io::{self, Write as _},
    sync::atomic::{AtomicBool, Ordering},
};

use lock::Error;

use crate::escaped::plain;

/// Wrong usage (`EX_USAGE`).
pub(crate) const USAGE: u8 = 64;
/// The backend is unavailable (`EX_UNAVAILABLE`).
pub(crate) const UNAVAILABLE: u8 = 69;
/// The machine did not do what it always does (`EX_OSERR`).
pub(crate) const SYSTEM: u8 = 71;
/// Not acquired in time (`EX_TEMPFAIL`).
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// The lock was lost while the command ran (`EX_PROTOCOL` is the nearest).
pub(crate) const LOST: u8 = 76;
/// The lock was lost, and the command could not be ended, since it has become another user (`EX_NOPERM`).
pub(crate) const NOT_ENDED: u8 = 77;
/// Wrong configuration (`EX_CONFIG`).
pub(crate) const CONFIG: u8 = 78;
/// The command was found and could not be run, as shells say it.
pub(crate) const NOT_RUN: u8 = 126;
/// The command was not found, as shells say it.
pub(crate) const NOT_FOUND: u8 = 127;
/// With the number of a signal added: it ended the command, or `lock` itself.
pub(crate) const SIGNALLED: u8 = 128;

/// Whether only errors are said.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Has [`notice`] say nothing from now on.
pub(crate) fn be_quiet() {
    QUIET.store(true, Ordering::Relaxed);
}

/// Says something that is no error, unless that is not wanted.
pub(crate) fn notice(line: impl fmt::Display) {
    if !QUIET.load(Ordering::Relaxed) {
        say(line);
    }
}

/// Writes one line to standard error, fit for a terminal: parts of it may come from a server. Whether somebody reads it must not
/// matter to a program that supervises another, so not by `eprintln`, which panics when nobody does.
pub(crate) fn say(line: impl fmt::Display) {
    // Safeguard: messages are fit for a terminal (command line)
    let _ = writeln!(io::stderr(), "lock: {}", plain(&line.to_string()));
}

/// The error that ends the program: one line for standard error, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    message: String,
}

impl Failure {
    pub(crate) fn new(status: u8, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    /// Says it. Returns the exit status.
    pub(crate) fn said(self) -> u8 {
        say(&self);
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever a server wrote into its error.
        f.write_str(&self.message.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::NotAcquired { .. } => NOT_ACQUIRED,
            Error::InvalidName { .. } => USAGE,
            Error::Config { .. } | Error::Unsupported { .. } => CONFIG,
            // A grant that came later than its lease lived: the service is too slow to be used.
            _ => UNAVAILABLE,
        };
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !message.contains(&cause_text) {
                message = format!("{message}: {cause_text}");
            }
            source = cause.source();
        }
        Self { status, message }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(SYSTEM, format!("the operating system refused: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_one_line_with_its_causes() {
        let cause = io::Error::other("connection\nrefused");
        let failure = Failure::from(Error::unavailable("redis://h:1", "connecting failed", cause));
        assert_eq!(failure.status, UNAVAILABLE);
        let line = failure.to_string();
        assert!(line.contains("redis://h:1") && line.ends_with("connection refused"), "{line}");
    }
}
