//! Runs that were never run, to test what the report makes of them.

use super::*;
use crate::report::Outcome;

/// A run with an overlap, a loss and a late write.
pub(super) fn struck() -> Run {
    let span = |from, until| Span { from, until };
    let old = Hold { held: span(-200.0, 900.0), grants: 1, valid_until: Some(900.0), knew: Some(850.0) };
    let next = Hold { held: span(400.0, 450.0), grants: 1, ..Hold::default() };
    let late = LateWrite { at: 500.0, taken_unfenced: true, taken_fenced: false };
    let lane = |client: &str, hold, late_writes| Lane {
        lock: "held".into(),
        client: client.into(),
        holds: vec![hold],
        late_writes,
    };
    let timeline = Timeline {
        whole: span(-1000.0, 3000.0),
        close: span(-250.0, 1000.0),
        fault: span(0.0, 700.0),
        gap: span(0.0, 1400.0),
        marks: vec![Mark { at: 300.0, text: "the replica <leads>".into() }],
        lanes: vec![lane("process 1", old, vec![late]), lane("process 2", next, Vec::new())],
        overlaps: vec![span(400.0, 450.0)],
    };
    Run {
        backend: "sentinel".into(),
        backend_title: "Redis with Sentinel".into(),
        fault: "failover".into(),
        fault_title: "failover before replication".into(),
        version: "7.0.15".into(),
        repetition: 1,
        command: "lock failover --backend sentinel --fault failover --out DIR".into(),
        outcome: Outcome::Measured(Figures {
            before_per_second: 123.0,
            gap_ms: 1400.0,
            re_election_ms: Some(1300.0),
            overlaps: 1,
            overlap_ms: 50.0,
            lost: 1,
            stale_unfenced: 1,
            knew_ms: Some(850.0),
            left: Some(vec!["the key {lock:a} (for another 900 ms)".into()]),
            timeline,
            ..Figures::default()
        }),
        verdict: Verdict::Shown("two holders | at once".into()),
        ..Run::default()
    }
}

pub(super) fn report() -> Report {
    let failed = Run {
        backend: "zk3".into(),
        fault: "leader-killed".into(),
        outcome: Outcome::Failed("no leader".into()),
        verdict: Verdict::Failed("no leader".into()),
        ..struck()
    };
    let left_out = LeftOut { backend: "zk3".into(), fault: "script-flush".into(), why: "has no scripts".into() };
    Report { runs: vec![struck(), failed, struck()], left_out: vec![left_out], ..Report::default() }
}
