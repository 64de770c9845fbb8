//! `lock elect`: terms that end with their command, and leaders that are killed one after another.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{
    Running, kill, output,
    services::{Service, on_each_service, on_local_files},
    within,
};

on_each_service! { killed_leaders_follow_each_other_in_token_order_and_no_two_act_at_once }
on_local_files! { killed_leaders_follow_each_other_in_token_order_and_no_two_act_at_once }

const CANDIDATES: usize = 5;

#[tokio::test]
async fn a_term_ends_with_its_command_and_the_next_candidate_leads() {
    let service = Service::local().await;
    let url = service.url();
    let mut first = Running::start(&url, &["elect", "a", "--", "sh", "-c", "echo $LOCK_NAME; cat >/dev/null; exit 3"]);
    first.expect("a").await;
    let mut second = Running::start(&url, &["elect", "a", "--", "echo", "leads"]);
    first.close_stdin();
    assert_eq!(first.end().await.code(), Some(3));
    second.expect("leads").await;
    assert_eq!(second.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_candidate_campaigns_again_until_it_is_interrupted() {
    let service = Service::local().await;
    let script = "echo leads; exec cat >/dev/null";
    let mut candidate = Running::start(&service.url(), &["elect", "a", "--again", "--", "sh", "-c", script]);
    candidate.expect("leads").await;
    candidate.close_stdin();
    candidate.expect("leads").await;
    candidate.signal("TERM");
    candidate.all_end().await;
    assert!(matches!(candidate.end().await.code(), Some(0 | 143)));
}

#[tokio::test]
async fn a_command_that_cannot_be_run_is_not_tried_again() {
    let failed = output(&Service::local().await.url(), &["elect", "a", "--again", "--", "/no/such/program"]).await;
    assert_eq!(failed.status, Some(127), "{failed:?}");
}

/// What a leader's command does: it says its token in a file that is only appended to, over and over.
const LEAD: &str = "while :; do echo $LOCK_TOKEN >>\"$0\"; sleep 0.02; done";

async fn killed_leaders_follow_each_other_in_token_order_and_no_two_act_at_once(service: Service) {
    let (url, directory) = (service.url(), tempfile::tempdir().unwrap());
    let log = directory.path().join("log");
    fs::write(&log, "").unwrap();
    let mut observer = Running::start(&url, &["elect", "chief", "--observe", "--json"]);
    let mut candidates: BTreeMap<String, Running> = (0..CANDIDATES)
        .map(|number| {
            let payload = format!("candidate {number}");
            let file = log.to_str().unwrap();
            let arguments = ["elect", "chief", "--payload", &payload, "--", "sh", "-c", LEAD, file];
            let candidate = Running::start(&url, &arguments);
            (payload, candidate)
        })
        .collect();

    let mut observed = Vec::new();
    while !candidates.is_empty() {
        let line = observer.line().await.expect("the next leader");
        let leader = |key: &str| -> String {
            let (_, rest) = line.split_once(&format!("\"{key}\":\"")).unwrap_or_else(|| panic!("no {key} in {line}"));
            rest.split('"').next().unwrap_or_default().to_owned()
        };
        let token = leader("token");
        acts(&log, &token).await;
        // For a second at least, which is what an observer is promised to see.
        lock::Clock::boot().sleep(std::time::Duration::from_secs(1)).await;
        let mut killed = candidates.remove(&leader("payload")).unwrap_or_else(|| panic!("{line} was killed already"));
        kill("KILL", killed.pid());
        killed.end().await;
        observed.push(token);
    }
    assert_eq!(observed.len(), CANDIDATES);
    assert!(observed.is_sorted_by(|a, b| a < b), "{observed:?}");

    // The file has one order, in which every write stands: once a later term has begun, no earlier one writes.
    let written = fs::read_to_string(&log).unwrap();
    let written: Vec<_> = written.lines().collect();
    assert!(written.is_sorted(), "a former leader has acted: {written:?}");
    let mut acted = written;
    acted.dedup();
    assert_eq!(acted, observed, "the leaders that acted are those that were observed");

    observer.signal("INT");
    assert_eq!(observer.end().await.code(), Some(130));
}

/// Waits until the leader with that token has written.
async fn acts(log: &Path, token: &str) {
    within(async {
        while !fs::read_to_string(log).unwrap().contains(token) {
            lock::Clock::boot().sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
