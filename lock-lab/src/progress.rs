//! What a run shows of itself while it goes on.

use std::{
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};

use crate::LabError;

/// Prints a line to standard output.
///
/// # Errors
/// [`LabError::Unread`] when nobody reads it. What writes a report goes on, and whatever is only printed has no use any more.
pub(crate) fn print(text: &str) -> Result<(), LabError> {
    writeln!(io::stdout(), "{text}").map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => LabError::Unread,
        _ => LabError::io("writing to standard output", error),
    })
}

/// Shows the progress of the laboratory: a bar at a terminal, elsewhere a line for each step.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    terminal: bool,
}

impl Progress {
    /// For a run of so many steps.
    pub(crate) fn new(steps: usize) -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::new(steps as u64) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{spinner} [{elapsed_precise}] {bar:30} {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        if terminal {
            bar.enable_steady_tick(Duration::from_millis(120));
        }
        Self { bar, terminal }
    }

    /// Shows what is being done now: a step that takes its time.
    pub(crate) fn doing(&self, what: String) {
        if !self.terminal {
            // Whether anybody reads it does not matter.
            let _ = writeln!(io::stderr(), "{what}");
        }
        self.shows(what);
    }

    /// Shows what is being done now, beside the bar only.
    pub(crate) fn shows(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Counts steps as done.
    pub(crate) fn done(&self, steps: usize) {
        self.bar.inc(steps as u64);
    }

    /// As [`print()`], above the bar.
    ///
    /// # Errors
    /// As those of [`print()`].
    pub(crate) fn line(&self, text: &str) -> Result<(), LabError> {
        self.bar.suspend(|| print(text))
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
