//! The section on lost updates: the workload of the published test of etcd's locks.

use super::{Figures, Run};
use crate::{
    failover::{check::Counted, fault::Fault},
    report::{ReportTable, TableRow, share},
};

/// A table with a row for each run of that workload; none when there was none.
pub(super) fn section(runs: &[Run]) -> Option<ReportTable> {
    let of_workload = runs.iter().filter(|run| run.fault == Fault::Pauses.key());
    let rows: Vec<_> = of_workload.filter_map(|run| Some(row(run, run.outcome.measured()?))).collect();
    (!rows.is_empty()).then(|| ReportTable {
        title: "Lost updates, under the workload of a published test",
        how: HOW.into(),
        columns: vec![
            "backend",
            "updates acknowledged, fenced",
            "fenced, lost",
            "fenced, share",
            "updates acknowledged, unfenced",
            "unfenced, lost",
            "unfenced, share",
        ],
        rows,
        ..ReportTable::default()
    })
}

fn row(run: &Run, figures: &Figures) -> TableRow {
    let mut cells = Vec::new();
    for Counted { acknowledged, lost } in [figures.updates.fenced, figures.updates.unfenced] {
        cells.extend([acknowledged.to_string(), lost.to_string(), share(lost, acknowledged)]);
    }
    TableRow::new(&*run.backend_title, Ok(cells))
}

const HOW: &str = "As in the published test of the locks of etcd 3.4.3 (Jepsen): the lease is 2 s, and every 5 s a process is \
paused, here for 3 s and always one that holds the lock. Whoever holds it reads a value, and after 20 ms writes it back with an \
element of its own, without looking whether it still holds the lock; there some 18 % of the acknowledged updates were lost, the \
clients having no fence. An update is *lost* when the store took it and it is not in the last value. The store *with* a fence is \
told the token with the read and with the write, and compares it; the one without takes all. How many it loses depends on how \
long the pauses are, and on whether the late write falls between the read and the write of another holder, which then overwrites \
it; it does not depend on the backend: no lock service can stop a client that does not look.";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{failover::check::Updates, report::Outcome};

    #[test]
    fn each_run_of_the_workload_has_its_shares_and_no_other_run_a_row() {
        let updates = Updates {
            fenced: Counted { acknowledged: 200, lost: 0 },
            unfenced: Counted { acknowledged: 250, lost: 50 },
        };
        let run = |fault: Fault| Run {
            backend_title: "Redis".into(),
            fault: fault.key().into(),
            outcome: Outcome::Measured(Figures { updates, ..Figures::default() }),
            ..Run::default()
        };
        assert!(section(&[run(Fault::Delay)]).is_none());
        let table = section(&[run(Fault::Delay), run(Fault::Pauses)]).unwrap();
        let cells = ["200", "0", "0.0 %", "250", "50", "20.0 %"].map(str::to_owned);
        assert_eq!(table.rows, [TableRow::new("Redis", Ok(cells.to_vec()))]);
        assert_eq!(table.columns.len(), 1 + cells.len());
    }
}
