//! Figures, written for people.

use std::time::Duration;

/// The sign in the place of a figure that there is not.
pub(crate) const NONE: &str = "–";

/// Microseconds as a time.
pub(crate) fn micros(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.2} µs"),
        ..1_000.0 => format!("{micros:.0} µs"),
        ..100_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.0} ms", micros / 1e3),
    }
}

/// Milliseconds as a time.
pub(crate) fn millis(millis: f64) -> String {
    match millis.abs() {
        0.0 => "0".into(),
        ..10.0 => format!("{millis:.1} ms"),
        ..10_000.0 => format!("{millis:.0} ms"),
        _ => format!("{:.1} s", millis / 1e3),
    }
}

/// A duration in milliseconds.
#[allow(clippy::cast_precision_loss)] // Durations of a run, to the microsecond.
pub(crate) fn in_millis(duration: Duration) -> f64 {
    duration.as_micros() as f64 / 1e3
}

/// A part of a whole.
#[allow(clippy::cast_precision_loss)] // Thousands.
pub(crate) fn share(part: usize, whole: usize) -> String {
    if whole == 0 { NONE.into() } else { format!("{:.1} %", part as f64 / whole as f64 * 100.0) }
}

/// A count of something that should not be.
pub(crate) fn count(count: usize) -> String {
    if count == 0 { "none".into() } else { count.to_string() }
}

/// A yes or a no.
pub(crate) fn yes(yes: bool) -> String {
    if yes { "yes" } else { "no" }.into()
}
