//! Latencies in an HDR histogram, and the figures that a report keeps of them.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Collects durations with three significant digits, whatever their size.
#[derive(Debug, Clone)]
pub struct Recorder(Histogram<u64>);

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Recorder {
    /// An empty one.
    ///
    /// # Panics
    /// Never: three significant digits are allowed.
    #[must_use]
    pub fn new() -> Self {
        Self(Histogram::new(3).expect("three significant digits are allowed"))
    }

    /// Records one duration; one beyond centuries counts as the longest that can be recorded.
    pub fn record(&mut self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 4).max(1);
        // The histogram grows as needed; a value that even so has no place counts as its longest.
        if self.0.record(nanos).is_err() {
            self.0.saturating_record(nanos);
        }
    }

    /// The figures.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let at = |quantile| micros(self.0.value_at_quantile(quantile));
        Latency {
            count: self.0.len(),
            min: micros(self.0.min()),
            mean: self.0.mean() / 1e3,
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            max: micros(self.0.max()),
            curve: CURVE.iter().map(|quantile| (*quantile, at(*quantile))).collect(),
        }
    }
}

impl FromIterator<Duration> for Recorder {
    fn from_iter<T: IntoIterator<Item = Duration>>(durations: T) -> Self {
        let mut recorder = Self::new();
        durations.into_iter().for_each(|duration| recorder.record(duration));
        recorder
    }
}

/// The quantiles of the curve.
const CURVE: [f64; 17] = [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99, 1.0];

#[allow(clippy::cast_precision_loss)] // Three significant digits are kept anyway.
fn micros(nanos: u64) -> f64 {
    nanos as f64 / 1e3
}

/// Figures of a distribution of latencies, in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Latency {
    /// How many were recorded.
    pub count: u64,
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// Nine of ten are shorter.
    pub p90: f64,
    /// Ninety-nine of a hundred are shorter.
    pub p99: f64,
    /// The longest.
    pub max: f64,
    /// Quantiles from 0 to 1 with their latencies.
    pub curve: Vec<(f64, f64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_kept_to_three_digits() {
        let latency = (1..=1000).map(Duration::from_micros).collect::<Recorder>().latency();
        assert_eq!(latency.count, 1000);
        assert!((latency.p50 - 500.0).abs() < 1.0, "{latency:?}");
        assert!((latency.p99 - 990.0).abs() < 1.0, "{latency:?}");
        assert!((latency.max - 1000.0).abs() < 1.0, "{latency:?}");
    }

    #[test]
    fn nothing_recorded_is_no_error() {
        assert_eq!(Recorder::new().latency().count, 0);
    }
}
