//! The metrics without the feature `metrics`: there are none.

use std::time::Duration;

use super::RenewalOutcome;

pub(super) const fn connected(_backend: &'static str) {}

pub(super) const fn waiting(_backend: &'static str, _mode: &'static str, _by: f64) {}

pub(super) const fn unanswered(_backend: &'static str, _by: f64) {}

pub(super) const fn acquisition(_backend: &'static str, _mode: &'static str, _outcome: &'static str) {}

pub(super) const fn wait(_backend: &'static str, _mode: &'static str, _waited: Duration) {}

pub(super) const fn held(_backend: &'static str, _mode: &'static str, _by: f64) {}

pub(super) fn hold_time(_backend: &'static str, _mode: &'static str, _held: impl FnOnce() -> Duration) {}

pub(super) const fn loss(_backend: &'static str, _reason: &'static str) {}

pub(super) const fn renewal_time(_backend: &'static str, _took: Duration) {}

pub(super) const fn renewal(_backend: &'static str, _outcome: RenewalOutcome) {}

pub(super) fn quorum(_backend: &'static str, _count: impl FnOnce() -> (usize, usize)) {}
