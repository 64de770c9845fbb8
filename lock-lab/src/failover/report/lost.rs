//! The section on lost updates: the workload of the published test of etcd's locks.

use super::{Figures, Run};
use crate::{
    failover::{check::Counted, fault::Fault},
    report::Table,
};

/// A table with a row for each run of that workload; none when there was none.
pub(super) fn section(runs: &[Run]) -> Option<Table> {
    let of_workload = runs.iter().filter(|run| run.fault == Fault::Pauses.key());
    let rows: Vec<_> = of_workload.filter_map(|run| Some(row(run, run.outcome.measured()?))).collect();
    (!rows.is_empty()).then(|| Table {
        title: "Lost updates, under the workload of a published test",
        how: HOW.into(),
        columns: vec![
            "backend",
            "updates acknowledged, fenced",
            "of these lost",
            "share",
            "updates acknowledged, unfenced",
            "of these lost",
            "share",
        ],
        rows,
    })
}

fn row(run: &Run, figures: &Figures) -> Vec<String> {
    let mut row = vec![run.backend_title.clone()];
    for Counted { acknowledged, lost } in [figures.updates.fenced, figures.updates.unfenced] {
        row.extend([acknowledged.to_string(), lost.to_string(), share(lost, acknowledged)]);
    }
    row
}

#[allow(clippy::cast_precision_loss)] // Thousands.
fn share(lost: usize, of: usize) -> String {
    if of == 0 { "–".into() } else { format!("{:.1} %", lost as f64 / of as f64 * 100.0) }
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
        assert_eq!(table.rows, [["Redis", "200", "0", "0.0 %", "250", "50", "20.0 %"]]);
        assert!(table.rows.iter().all(|row| row.len() == table.columns.len()));
    }
}
