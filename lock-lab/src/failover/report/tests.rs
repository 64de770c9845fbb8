use std::{fs, path::Path};

use plotters::style::RGBColor;

use super::{
    fixtures::{report, struck},
    *,
};
use crate::report::Outcome;

/// What the first row has in that column.
fn cell(report: &Report, column: &str) -> String {
    let table = table::table(&table::RunGroup::all(report));
    let place = table.columns.iter().position(|heading| *heading == column).expect("a column");
    table.rows[0].cells.as_ref().unwrap()[place - 1].clone()
}

#[test]
fn runs_of_the_same_pair_share_a_row_with_their_sums_and_longest_times() {
    let report = report();
    let table = table::table(&table::RunGroup::all(&report));
    let names: Vec<&str> = table.rows.iter().map(|row| &*row.name).collect();
    assert_eq!(names[0], "Redis with Sentinel: failover before replication (2 runs)");
    assert_eq!((names.len(), table.columns.len()), (2, 11));
    assert!(table.rows.iter().all(|row| row.cells.as_ref().is_ok_and(|cells| cells.len() == 10)), "{table:?}");
    assert_eq!(cell(&report, "two holders (M)"), "2 (up to 50 ms)");
    assert_eq!(cell(&report, "late writes: fenced (F) / not"), "0 / 2");
    assert_eq!((cell(&report, "longest gap"), cell(&report, "servers alone")), ("1400 ms".into(), "1300 ms".into()));
}

/// The verdict matters most, and columns to the right may be out of sight.
#[test]
fn the_verdict_comes_first_behind_what_it_is_about() {
    let table = table::table(&[]);
    assert_eq!((table.columns[1], table.sentences), ("verdict", &["verdict"][..]));
}

#[test]
fn what_was_left_behind_is_counted_and_where_it_is_nothing_the_table_says_after_which_time() {
    let left = |report: &Report| cell(report, "left behind (O)");
    assert_eq!(left(&report()), "2");
    let with = |left: Option<Vec<String>>, empty_after_ms| {
        let figures = Figures { left, empty_after_ms, ..Figures::default() };
        Report { runs: vec![Run { outcome: Outcome::Measured(figures), ..struck() }], ..Report::default() }
    };
    assert_eq!(left(&with(Some(Vec::new()), Some(12.0))), "0 (12 ms)");
    let page = with(Some(Vec::new()), Some(12.0)).document().html();
    assert!(page.contains("the servers had nothing left 12 ms after"));
    assert_eq!(left(&with(None, None)), "–");
}

/// The report of a run that was kept, from its data alone.
#[test]
fn a_report_can_be_written_again_from_the_data_of_its_run() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reports/failover/report.json");
    let report: Report = serde_json::from_str(&fs::read_to_string(data).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    report.write(dir.path()).unwrap();
    let page = fs::read_to_string(dir.path().join("index.html")).unwrap();
    assert_eq!(page.matches("<svg role=\"img\"").count(), report.runs.len());
    let links = page.split("href=\"#").skip(1).filter_map(|rest| rest.split_once('"')).map(|(id, _)| id);
    assert!(links.clone().count() >= 20 && links.into_iter().all(|id| page.contains(&format!("id=\"{id}\""))));
    assert!(fs::read_to_string(dir.path().join("report.md")).unwrap().contains(&report.sum()));
}

#[test]
fn the_page_needs_nothing_else_and_shows_each_run() {
    let page = report().document().html();
    assert_eq!(page.matches("<svg role=\"img\"").count(), 2);
    for outside in [" src=", "<link", "<script", "url(", "href=\"http"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("the replica &lt;leads&gt;"));
}

#[test]
fn every_picture_scales_and_every_cell_may_wrap() {
    let page = report().document().html();
    assert!(page.split("<svg").skip(1).all(|svg| svg.split('>').next().is_some_and(|tag| tag.contains("viewBox"))));
    assert!(!page.contains("nowrap"));
}

#[test]
fn every_picture_shows_who_held_the_fault_the_overlap_the_loss_and_the_late_write() {
    let svg = picture::draw(&struck().outcome.measured().unwrap().timeline, "a run").into_string();
    for (sign, colour, words) in picture::SIGNS {
        let RGBColor(red, green, blue) = colour;
        let is_there = svg.contains(&format!("#{red:02X}{green:02X}{blue:02X}"));
        assert_eq!(is_there, colour != picture::LATE_FENCED, "{sign} {words}");
    }
    for words in
        ["validity until 900 ms", "lost at 850 ms", "two valid holders for 50 ms", "the fault strikes", "late write"]
    {
        assert!(svg.contains(words), "{words}");
    }
}

#[test]
fn each_run_says_how_to_repeat_it_and_each_pair_left_out_says_why() {
    for text in [report().document().html(), report().document().markdown()] {
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
