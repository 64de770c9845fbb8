//! `lock run --at-least`: a lock that stays held after its command has ended.

use std::{path::Path, time::Duration};

use lock::Clock;

use crate::common::{
    Running, output,
    services::{Service, on_each_service, on_local_files},
    within,
};

on_each_service! { a_loss_after_the_command_has_ended_is_said_and_no_failure }
on_local_files! { a_loss_after_the_command_has_ended_is_said_and_no_failure }

/// A `lock run --at-least 1h` whose command has ended with status 3.
async fn holding_on(url: &str) -> Running {
    let mut run = Running::start(url, &["run", "a", "--at-least", "1h", "--", "sh", "-c", "echo $$; exit 3"]);
    let command = run.line().await.expect("the number of the process");
    within(async {
        while Path::new("/proc").join(&command).exists() {
            Clock::boot().sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    run
}

const NOW: [&str; 5] = ["run", "a", "--no-wait", "--", "true"];

#[tokio::test]
async fn the_lock_stays_held_after_a_quick_command_until_a_signal_asks_to_end() {
    let service = Service::local().await;
    let mut run = holding_on(&service.url()).await;
    let refused = output(&service.url(), &NOW).await;
    assert_eq!(refused.status, Some(75), "{refused:?}");
    run.signal("TERM");
    assert_eq!(run.end().await.code(), Some(143));
    let said = run.stderr().await;
    assert!(said.starts_with("lock: lock \"a\" is given back ") && said.lines().count() == 1, "{said}");
    assert_eq!(output(&service.url(), &NOW).await.status, Some(0));
}

async fn a_loss_after_the_command_has_ended_is_said_and_no_failure(service: Service) {
    let mut run = holding_on(&service.url()).await;
    service.delete("a").await;
    assert_eq!(run.end().await.code(), Some(3));
    let said = run.stderr().await;
    let begin = "lock: lock \"a\" was lost after its command had ended, ";
    assert!(said.starts_with(begin) && said.contains("--at-least"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[tokio::test]
async fn the_time_counts_from_the_grant_and_the_status_is_that_of_the_command() {
    let url = Service::local().await.url();
    let clock = Clock::boot();
    for (script, status, least) in [
        ("exit 3", 3, Duration::from_secs(1)),
        ("sleep 1; exit 4", 4, Duration::from_millis(1)),
        ("kill -KILL $$", 137, Duration::from_millis(500)),
    ] {
        let begun = clock.now();
        let limit = format!("{}ms", least.as_millis());
        let ran = output(&url, &["run", "a", "--at-least", &limit, "--", "sh", "-c", script]).await;
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(status), ""), "{script}");
        assert!(clock.now().saturating_since(begun) >= least, "{script}");
    }
    // Where it cannot run, another host may.
    let failed = output(&url, &["run", "a", "--at-least", "1h", "--", "/no/such/program"]).await;
    assert_eq!(failed.status, Some(127), "{failed:?}");
    // What ends the command at the limit does not give the lock back before it.
    let begun = clock.now();
    let limits = ["--at-least", "2s", "--max-hold", "2s", "--kill-after", "1s"];
    let ended = output(&url, &[&["run", "a"], &limits[..], &["--", "sleep", "1000"]].concat()).await;
    assert_eq!(ended.status, Some(76), "{ended:?}");
    assert!(clock.now().saturating_since(begun) >= Duration::from_secs(2));
}

#[tokio::test]
async fn a_signal_that_has_ended_the_command_ends_the_hold_too() {
    let url = Service::local().await.url();
    let script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.1; done";
    let mut run = Running::start(&url, &["run", "a", "--at-least", "1h", "--", "sh", "-c", script]);
    run.expect("ready").await;
    run.signal("TERM");
    assert_eq!(run.end().await.code(), Some(7));
    assert_eq!(output(&url, &NOW).await.status, Some(0));
}

#[tokio::test]
async fn the_death_of_the_one_who_holds_on_leaves_the_lock_to_its_ttl() {
    let service = Service::redis().await;
    let run = holding_on(&service.url()).await;
    let mut next = Running::start(&service.url(), &["run", "a", "--", "echo", "next"]);
    run.signal("KILL");
    next.expect("next").await;
}
