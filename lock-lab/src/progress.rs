//! What a run shows of itself while it goes on.

use std::{io::IsTerminal, time::Duration};

use indicatif::{ProgressBar, ProgressStyle};

/// Shows the progress of the laboratory: a bar at a terminal, elsewhere a line for each step.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    terminal: bool,
}

impl Progress {
    /// For a run of so many steps.
    pub(crate) fn new(steps: usize) -> Self {
        let terminal = std::io::stderr().is_terminal();
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
            eprintln!("{what}");
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

    /// Prints a line above the bar, to standard output.
    pub(crate) fn line(&self, text: &str) {
        self.bar.suspend(|| println!("{text}"));
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
