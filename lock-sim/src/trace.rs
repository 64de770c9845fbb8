//! What a person reads of a schedule.

use std::fmt::{self, Write};

use crate::{MS, Time};

/// The account of one schedule. A silent one costs next to nothing: what would be written is not even formatted.
#[derive(Debug, Default)]
pub struct Trace(Option<String>);

impl Trace {
    /// One that keeps nothing.
    #[must_use]
    pub const fn silent() -> Self {
        Self(None)
    }

    /// One that keeps every line.
    #[must_use]
    pub const fn kept() -> Self {
        Self(Some(String::new()))
    }

    /// Whether anything is kept.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        self.0.is_some()
    }

    /// Writes what `who` did at `at`.
    #[inline]
    pub fn note(&mut self, at: Time, who: impl fmt::Display, what: fmt::Arguments<'_>) {
        if let Some(text) = &mut self.0 {
            // A string takes everything.
            let _ = writeln!(text, "{:>12.3} ms  {:<10}  {what}", millis(at), Padded(who));
        }
    }

    /// All lines.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// Displays a value of a trace with the width of its column.
struct Padded<T>(T);

impl<T: fmt::Display> fmt::Display for Padded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0.to_string())
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown to a person, to three places")]
fn millis(at: Time) -> f64 {
    at as f64 / MS as f64
}
