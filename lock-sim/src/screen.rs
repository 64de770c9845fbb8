//! What a person sees of schedules while they are played.

use std::{
    io::{ErrorKind, IsTerminal, Write as _, stderr, stdout},
    process,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use lock_core::{BootInstant, Clock};
use lock_sim::{
    Machine,
    campaign::{Audience, replay},
    runner::Told,
};

/// How often something is said where there is no terminal to draw a bar on.
const PAUSE: Duration = Duration::from_secs(10);

/// Shows the progress of the schedules: a bar on a terminal, a line now and then elsewhere. What was found goes to the output, all
/// else to the errors.
pub(crate) struct Screen<'a> {
    machine: &'a dyn Machine,
    bar: Option<ProgressBar>,
    clock: Clock,
    progress: Mutex<Progress>,
}

/// How many schedules of a machine were played, and how many violations they found, for the progress line.
#[derive(Default)]
struct Progress {
    title: String,
    seeds: u64,
    played: u64,
    violations: u64,
    said: Option<BootInstant>,
}

impl<'a> Screen<'a> {
    pub(crate) fn new(machine: &'a dyn Machine) -> Self {
        let bar = stderr().is_terminal().then(bar);
        Self { machine, bar, clock: Clock::boot(), progress: Mutex::default() }
    }

    fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| eprintln!("{text}")),
            None => eprintln!("{text}"),
        }
    }

    /// The line that is due, if one is.
    fn line(&self, progress: &mut Progress) -> Option<String> {
        let now = self.clock.now();
        if self.bar.is_some() || progress.said.is_some_and(|said| now < said.saturating_add(PAUSE)) {
            return None;
        }
        progress.said = Some(now);
        let Progress { title, seeds, played, violations, .. } = progress;
        Some(format!("{title}: {played} of {seeds} schedules, {violations} violations"))
    }
}

impl Audience for Screen<'_> {
    fn begins(&self, title: &str, seeds: u64) {
        let said = Some(self.clock.now());
        let progress = Progress { title: title.to_owned(), seeds, said, ..Progress::default() };
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
        if let Some(bar) = &self.bar {
            bar.reset();
            bar.set_length(seeds);
            bar.set_message(title.to_owned());
        }
    }

    fn told(&self, told: &Told<'_>) {
        let mut progress = self.progress.lock().unwrap_or_else(PoisonError::into_inner);
        match told {
            Told::Played(more) => {
                progress.played += more;
                if let Some(bar) = &self.bar {
                    bar.inc(*more);
                }
                if let Some(line) = self.line(&mut progress) {
                    self.say(&line);
                }
            }
            Told::Violated(seed, violation) => {
                progress.violations += 1;
                self.say(&format!("seed {seed}: {}: {}", violation.invariant, violation.text));
                self.say(&format!("  {}", replay(self.machine, *seed, None)));
            }
        }
    }

    fn found(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| print(text)),
            None => print(text),
        }
    }
}

impl Drop for Screen<'_> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Writes to standard output. Ends the program when nobody reads it any more, such as `head`, which has seen enough.
pub(crate) fn print(text: &str) {
    let mut output = stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => process::exit(0),
        Err(error) => {
            eprintln!("error: writing to standard output: {error}");
            process::exit(1);
        }
        Ok(()) => {}
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:<44} {wide_bar} {human_pos}/{human_len} {eta:>5}");
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
