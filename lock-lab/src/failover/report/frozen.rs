//! The sections on Redlock with frozen nodes.

use crate::{
    failover::frozen::{Clients, Frozen, Majority, Minority, P99_BOUND},
    report::{Outcome, Table, tables::micros},
};

/// A table for a frozen minority and one for a majority; if they were not measured, one that says why.
pub(super) fn sections(outcome: &Outcome<Frozen>) -> Vec<Table> {
    match outcome {
        Outcome::Measured(frozen) => tables(frozen),
        other => vec![Table {
            title: "Redlock with frozen nodes",
            how: String::new(),
            columns: vec!["measurement", "outcome"],
            rows: vec![vec!["acquisitions with frozen nodes".into(), other.problem().unwrap_or_default()]],
        }],
    }
}

/// A table for a frozen minority and one for a majority.
pub(crate) fn tables(frozen: &Frozen) -> Vec<Table> {
    vec![minority(frozen), most(frozen)]
}

fn minority(frozen: &Frozen) -> Table {
    let row = |run: &Minority| {
        let times = |phase: &crate::failover::frozen::Phase| {
            [micros(phase.acquisitions.p50), micros(phase.acquisitions.p99), micros(phase.acquisitions.max)]
        };
        let failures = match (&run.frozen.failure, run.frozen.failures) {
            (Some(why), count @ 1..) => format!("{count}: {why}"),
            (_, count) => count.to_string(),
        };
        let mut row = vec![clients(run.clients), format!("{} ms", run.ttl_ms)];
        row.extend(times(&run.healthy));
        row.extend(times(&run.frozen));
        row.extend([
            run.frozen.acquisitions.count.to_string(),
            failures,
            match (run.frozen.is_within_bound(), run.healthy.is_within_bound()) {
                (true, _) => "kept",
                (false, true) => "BROKEN",
                (false, false) => "PROVES NOTHING: above it without the fault, too",
            }
            .into(),
        ]);
        row
    };
    Table {
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
            "ttl",
            "healthy p50",
            "p99",
            "longest",
            "frozen p50",
            "p99",
            "longest",
            "acquisitions",
            "failures",
            "bound",
        ],
        rows: frozen.minority.iter().map(row).collect(),
    }
}

fn most(frozen: &Frozen) -> Table {
    let row = |run: &Majority| {
        vec![
            format!("{} ms", run.node_limit_ms),
            if run.waiting { "waits" } else { "does not wait" }.into(),
            run.attempts.to_string(),
            micros(run.errors.p50),
            micros(run.errors.max),
            format!("{} ms", 2 * run.node_limit_ms),
            run.granted.to_string(),
            run.left.to_string(),
            if run.is_within_bound() { "kept" } else { "BROKEN" }.into(),
        ]
    };
    Table {
        title: "Redlock with a majority frozen",
        how: "The other nodes are frozen, too: no attempt can succeed. The times are from the request to the error. The \
              bound: an error within twice the node limit, nothing granted, and 100 ms later no key left on the node that \
              can be reached."
            .into(),
        columns: vec!["node limit", "attempt", "attempts", "error p50", "longest", "at most", "granted", "keys left", "bound"],
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
