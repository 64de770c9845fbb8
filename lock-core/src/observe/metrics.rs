//! The metrics, through the facade of the crate `metrics`. No label has the name of a lock: there may be millions of them.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::{RenewalOutcome, reason};
use crate::Loss;

const ACQUISITIONS: &str = "lock_acquisitions_total";
const WAIT: &str = "lock_wait_seconds";
const WAITING: &str = "lock_waiting";
const UNANSWERED: &str = "lock_unanswered";
const HOLD: &str = "lock_hold_seconds";
const HELD: &str = "lock_held";
const LOSSES: &str = "lock_losses_total";
const RENEWALS: &str = "lock_renewals_total";
const RENEWAL: &str = "lock_renewal_seconds";
const VALIDITY_LEFT: &str = "lock_validity_left_seconds";
const QUORUM_NODES: &str = "lock_quorum_nodes";

const ACKNOWLEDGED: &str = "acknowledged";
const MISSED: &str = "missed";
const DENIED: &str = "denied";

/// Describes every metric to the program's recorder, and shows from the start the metrics that alerts are made of: a counter that
/// appears with its first event has not risen as far as Prometheus can tell. Doing so again changes nothing.
pub(super) fn connected(backend: &'static str) {
    describe();
    let lost =
        [Loss::Expired, Loss::Unreachable, Loss::Denied, Loss::Revoked, Loss::SessionEnded, Loss::MaxHoldExceeded];
    for loss in lost {
        counter!(LOSSES, "backend" => backend, "reason" => reason(loss)).increment(0);
    }
    for outcome in [ACKNOWLEDGED, MISSED, DENIED] {
        counter!(RENEWALS, "backend" => backend, "outcome" => outcome).increment(0);
    }
    unanswered(backend, 0.0);
}

fn describe() {
    describe_counter!(ACQUISITIONS, Unit::Count, "Acquisitions that have ended, by how they ended");
    describe_histogram!(WAIT, Unit::Seconds, "Time from the request to the grant, of acquisitions that were granted");
    describe_gauge!(WAITING, Unit::Count, "Acquisitions under way that wait until they are granted");
    describe_gauge!(UNANSWERED, Unit::Count, "Acquisitions without a limit that wait for the service to answer");
    describe_histogram!(HOLD, Unit::Seconds, "Time from the grant to the end of the hold");
    describe_gauge!(HELD, Unit::Count, "Locks and permits that are held");
    describe_counter!(LOSSES, Unit::Count, "Holds that were lost, by the reason");
    describe_counter!(RENEWALS, Unit::Count, "Renewals of leases and sessions, by how they ended");
    describe_histogram!(RENEWAL, Unit::Seconds, "Time from the sending of a batch of renewals to its end");
    describe_histogram!(
        VALIDITY_LEFT,
        Unit::Seconds,
        "What was left of the validity from before a renewal when the renewal was acknowledged"
    );
    describe_gauge!(QUORUM_NODES, Unit::Count, "Nodes of a quorum, by what the client last saw of them");
}

pub(super) fn waiting(backend: &'static str, mode: &'static str, by: f64) {
    gauge!(WAITING, "backend" => backend, "mode" => mode).increment(by);
}

pub(super) fn unanswered(backend: &'static str, by: f64) {
    gauge!(UNANSWERED, "backend" => backend).increment(by);
}

pub(super) fn acquisition(backend: &'static str, mode: &'static str, outcome: &'static str) {
    counter!(ACQUISITIONS, "backend" => backend, "mode" => mode, "outcome" => outcome).increment(1);
}

pub(super) fn wait(backend: &'static str, mode: &'static str, waited: Duration) {
    histogram!(WAIT, "backend" => backend, "mode" => mode).record(waited);
}

pub(super) fn held(backend: &'static str, mode: &'static str, by: f64) {
    gauge!(HELD, "backend" => backend, "mode" => mode).increment(by);
}

pub(super) fn hold_time(backend: &'static str, mode: &'static str, held: impl FnOnce() -> Duration) {
    histogram!(HOLD, "backend" => backend, "mode" => mode).record(held());
}

pub(super) fn loss(backend: &'static str, reason: &'static str) {
    counter!(LOSSES, "backend" => backend, "reason" => reason).increment(1);
}

pub(super) fn renewal_time(backend: &'static str, took: Duration) {
    histogram!(RENEWAL, "backend" => backend).record(took);
}

pub(super) fn renewal(backend: &'static str, outcome: RenewalOutcome) {
    let outcome = match outcome {
        RenewalOutcome::Acknowledged { left } => {
            histogram!(VALIDITY_LEFT, "backend" => backend).record(left);
            ACKNOWLEDGED
        }
        RenewalOutcome::Missed => MISSED,
        RenewalOutcome::Denied => DENIED,
    };
    counter!(RENEWALS, "backend" => backend, "outcome" => outcome).increment(1);
}

pub(super) fn quorum(backend: &'static str, count: impl FnOnce() -> (usize, usize)) {
    let (answering, silent) = count();
    for (state, nodes) in [("answering", answering), ("silent", silent)] {
        let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
        gauge!(QUORUM_NODES, "backend" => backend, "state" => state).set(nodes);
    }
}
