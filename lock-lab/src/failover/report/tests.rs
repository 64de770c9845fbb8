use super::*;
use crate::report::Outcome;

/// A run with an overlap, a loss and a late write.
fn struck() -> Run {
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

fn report() -> Report {
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

#[test]
fn runs_of_the_same_pair_share_a_row_with_their_sums_and_longest_times() {
    let report = report();
    let table = table::table(&table::Pair::all(&report));
    assert_eq!(table.rows.len(), 2);
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{table:?}");
    let row = &table.rows[0];
    assert_eq!((row[2].as_str(), row[7].as_str()), ("2", "2 (up to 50 ms)"));
    assert_eq!((row[4].as_str(), row[5].as_str()), ("1400 ms", "1300 ms"));
}

#[test]
fn what_was_left_behind_is_counted_and_where_it_is_nothing_the_table_says_after_which_time() {
    let cell = |report: &Report| table::table(&table::Pair::all(report)).rows[0][12].clone();
    assert_eq!(table::table(&[]).columns[12], "left behind (O)");
    assert_eq!(cell(&report()), "2");
    let with = |left: Option<Vec<String>>, empty_after_ms| {
        let figures = Figures { left, empty_after_ms, ..Figures::default() };
        Report { runs: vec![Run { outcome: Outcome::Measured(figures), ..struck() }], ..Report::default() }
    };
    assert_eq!(cell(&with(Some(Vec::new()), Some(12.0))), "0 (12 ms)");
    assert!(with(Some(Vec::new()), Some(12.0)).html().contains("the servers had nothing left 12 ms after"));
    assert_eq!(cell(&with(None, None)), "–");
}

#[test]
fn the_page_needs_nothing_else_and_shows_each_run() {
    let page = report().html();
    assert_eq!(page.matches("<svg class=\"run\"").count(), 2);
    for outside in [" src=", "<link", "<script", "url(", "href=\"http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("the replica &lt;leads&gt;"));
}

#[test]
fn every_picture_shows_who_held_the_fault_the_overlap_the_loss_and_the_late_write() {
    let page = report().html();
    for class in ["held", "fault", "overlap", "validity", "knew", "late", "moment", "gap"] {
        assert!(page.contains(&format!("class=\"{class}\"")), "{class}");
    }
}

#[test]
fn each_run_says_how_to_repeat_it_and_each_pair_left_out_says_why() {
    for text in [report().html(), report().markdown()] {
        assert!(text.matches("lock failover --backend sentinel --fault failover --out DIR").count() >= 3, "{text}");
        assert!(text.contains("has no scripts"));
    }
}

#[test]
fn a_report_is_good_only_when_every_run_is() {
    assert!(!report().is_good());
    assert!(Report { runs: vec![struck()], ..Report::default() }.is_good());
    assert!(!Report { runs: vec![struck()], interrupted: true, ..Report::default() }.is_good());
    for bad in [Verdict::Broken, Verdict::Failed, Verdict::ProvesNothing] {
        let run = Run { verdict: bad("why".into()), ..struck() };
        assert!(!Report { runs: vec![run], ..Report::default() }.is_good());
    }
}

#[test]
fn the_data_reads_back_as_it_was() {
    let text = report().json().unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report());
    assert_eq!(text.lines().filter(|line| line.contains("\"timeline\"")).count(), 2);
}
