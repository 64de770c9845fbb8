//! The tables on Redlock with frozen nodes.

use super::{Clients, Frozen, Majority, Minority, P99_BOUND, Phase};
use crate::report::{Outcome, ReportTable, TableRow, micros};

/// The tables; where nothing was measured, one that says why.
pub(in crate::failover) fn of(outcome: &Outcome<Frozen>) -> Vec<ReportTable> {
    match outcome {
        Outcome::Measured(frozen) => all(frozen),
        other => vec![ReportTable {
            title: "Redlock with frozen nodes",
            columns: vec!["measurement", "outcome"],
            rows: vec![TableRow::new("acquisitions with frozen nodes", Err(other.problem().unwrap_or_default()))],
            ..ReportTable::default()
        }],
    }
}

/// A table for a frozen minority and one for a majority.
pub(super) fn all(frozen: &Frozen) -> Vec<ReportTable> {
    vec![minority(frozen), majority(frozen)]
}

fn minority(frozen: &Frozen) -> ReportTable {
    let row = |run: &Minority| {
        let times = |phase: &Phase| {
            [micros(phase.acquisitions.p50), micros(phase.acquisitions.p99), micros(phase.acquisitions.max)]
        };
        let failures = match (&run.frozen.failure, run.frozen.failures) {
            (Some(why), count @ 1..) => format!("{count}: {why}"),
            (_, count) => count.to_string(),
        };
        let bound = match (run.frozen.is_within_bound(), run.healthy.is_within_bound()) {
            (true, _) => "kept",
            (false, true) => "BROKEN",
            (false, false) => "PROVES NOTHING: above it without the fault, too",
        };
        let mut cells = vec![bound.to_owned(), format!("{} ms", run.ttl_ms)];
        cells.extend(times(&run.healthy));
        cells.extend(times(&run.frozen));
        cells.extend([run.frozen.acquisitions.count.to_string(), failures]);
        TableRow::new(clients(run.clients), Ok(cells))
    };
    ReportTable {
        title: "Redlock with one of three nodes frozen",
        how: format!(
            "One of {} nodes is stopped with SIGSTOP while clients acquire and release: its connections stay open and it \
             never answers. The times are from the request to the grant, before and from the moment of the freeze on; *all* \
             acquisitions of that time count, those that met the freeze, too. The bound: acquisitions go on without a \
             failure, 99 of 100 within {} ms, also with a ttl of 300 ms.",
            frozen.nodes,
            P99_BOUND.as_millis()
        ),
        columns: vec![
            "clients",
            "bound",
            "ttl",
            "healthy p50",
            "healthy p99",
            "healthy longest",
            "frozen p50",
            "frozen p99",
            "frozen longest",
            "acquisitions",
            "failures",
        ],
        sentences: &["bound", "failures"],
        rows: frozen.minority.iter().map(row).collect(),
    }
}

fn majority(frozen: &Frozen) -> ReportTable {
    let row = |run: &Majority| {
        let cells = vec![
            if run.is_within_bound() { "kept" } else { "BROKEN" }.into(),
            if run.waiting { "waits" } else { "does not wait" }.into(),
            run.attempts.to_string(),
            micros(run.errors.p50),
            micros(run.errors.max),
            format!("{} ms", 2 * run.node_limit_ms),
            run.granted.to_string(),
            run.left.to_string(),
        ];
        TableRow::new(format!("{} ms", run.node_limit_ms), Ok(cells))
    };
    ReportTable {
        title: "Redlock with a majority frozen",
        how: "The other nodes are frozen, too: no attempt can succeed. The times are from the request to the error. The \
              bound: an error within twice the node limit, nothing granted, and 100 ms later no key left on the node that \
              can be reached."
            .into(),
        columns: vec![
            "node limit",
            "bound",
            "attempt",
            "attempts",
            "error p50",
            "longest",
            "at most",
            "granted",
            "keys left",
        ],
        sentences: &["bound", "attempt"],
        rows: frozen.majority.iter().map(row).collect(),
    }
}

fn clients(clients: Clients) -> String {
    match clients {
        Clients::Alone => "one".into(),
        Clients::Apart(count) => format!("{count}, a lock each"),
        Clients::Contending(count) => format!("{count}, one lock"),
    }
}
