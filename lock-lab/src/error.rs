//! What can go wrong in the laboratory.

use std::{error::Error as _, io};

/// Why the laboratory could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A program that a server needs is not installed.
    #[error("{program} is not installed; on Debian and Ubuntu: apt-get install {package}")]
    Missing {
        /// What was looked for.
        program: &'static str,
        /// The Debian package that has it.
        package: &'static str,
    },

    /// A server ended or did not answer in time after its start.
    #[error("{server} did not start: {reason}{log}")]
    NotStarted {
        /// Which server.
        server: String,
        /// What was seen.
        reason: String,
        /// The end of what it wrote, on lines of its own; empty if it wrote nothing.
        log: String,
    },

    /// A running server did not answer a control request as it should.
    #[error("{server} did not answer {request}: {reason}")]
    Control {
        /// Which server.
        server: String,
        /// What it was asked.
        request: &'static str,
        /// What came instead.
        reason: String,
    },

    /// A lock could not be used as the measurement needs it.
    #[error("{action}: {source}")]
    Lock {
        /// What was attempted.
        action: String,
        /// Why it failed.
        source: lock_core::Error,
    },

    /// The second process, which is to hold a lock until it is killed, does not.
    #[error("the holder in a process of its own: {reason}")]
    Holder {
        /// What was seen.
        reason: String,
    },

    /// A worker process ended, or does not do what it is told.
    #[error("worker process {process}: {reason}")]
    Worker {
        /// Which process, from 0.
        process: usize,
        /// What was seen, with what it complained about.
        reason: String,
    },

    /// A run went so that its figures would mean nothing.
    #[error("this run does not count: {reason}")]
    Run {
        /// What was seen.
        reason: String,
    },

    /// A run shows that a lock does not do what it promises.
    #[error("a promise was broken: {what}")]
    Broken {
        /// What was seen, and on what.
        what: String,
    },

    /// A run went so that it could not have shown a broken promise.
    #[error("this run could not have failed: {what}")]
    ProvesNothing {
        /// What was missing, and on what.
        what: String,
    },

    /// What was asked for cannot be done, whatever the state of the servers.
    #[error("{reason}")]
    Refused {
        /// Why, and what could be asked for.
        reason: String,
    },

    /// Nobody reads standard output any more: the reader, such as `head`, has seen enough.
    #[error("nobody reads what is printed any more")]
    Unread,

    /// The operating system refused something.
    #[error("{action}: {source}")]
    Io {
        /// What was attempted.
        action: String,
        /// Its answer.
        source: io::Error,
    },
}

impl LabError {
    /// The error and what caused it, as one text.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        text
    }

    pub(crate) fn io(action: impl Into<String>, source: io::Error) -> Self {
        Self::Io { action: action.into(), source }
    }

    pub(crate) fn run(reason: impl Into<String>) -> Self {
        Self::Run { reason: reason.into() }
    }

    /// What a task of the run returned, unless it panicked.
    pub(crate) fn joined<T>(done: Result<T, tokio::task::JoinError>) -> Result<T, Self> {
        done.map_err(|error| Self::run(error.to_string()))
    }

    /// For `map_err`.
    pub(crate) fn lock(action: &str) -> impl FnOnce(lock_core::Error) -> Self {
        move |source| Self::Lock { action: action.into(), source }
    }

    pub(crate) fn control(server: impl Into<String>, request: &'static str, reason: &(impl ToString + ?Sized)) -> Self {
        Self::Control { server: server.into(), request, reason: reason.to_string() }
    }
}
