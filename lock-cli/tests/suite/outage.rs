//! Services that are down before the connect, while somebody connects, and while somebody waits in line: `--wait` bounds all of
//! it, and what is waited for is said.

use std::time::Duration;

use lock::Clock;

use crate::common::{
    Running, output,
    services::{Service, on_each_service},
};

on_each_service! {
    a_service_that_comes_back_in_time_is_waited_for,
    a_service_that_goes_and_comes_back_is_waited_for_in_line,
    a_wait_for_a_service_that_is_down_ends_at_its_limit_and_says_what_was_waited_for,
}

/// A command under the lock `a`, which is waited for.
const PATIENT: [&str; 7] = ["run", "a", "--wait", "10m", "--", "echo", "ran"];

/// The service is out of reach for as long as a whole attempt takes.
async fn is_down(url: &str) {
    let probe = output(url, &["run", "probe", "--no-wait", "--", "true"]).await;
    assert_eq!(probe.status, Some(69), "{probe:?}");
}

async fn a_service_that_comes_back_in_time_is_waited_for(mut service: Service) {
    let url = service.url();
    service.take_down();
    let mut patient = Running::start(&url, &PATIENT);
    let said = patient.stderr_line().await;
    assert!(said.contains("waiting for") && said.contains(service.deployment().scheme), "{said}");
    is_down(&url).await;
    service.bring_up().await;
    patient.expect("ran").await;
    assert_eq!(patient.end().await.code(), Some(0));
}

async fn a_service_that_goes_and_comes_back_is_waited_for_in_line(mut service: Service) {
    let url = service.url();
    let mut holder = Running::start(&url, &["run", "a", "--", "sh", "-c", "echo held; cat >/dev/null"]);
    holder.expect("held").await;
    let mut patient = Running::start(&url, &PATIENT);
    let said = patient.stderr_line().await;
    assert!(said.contains("waiting for lock \"a\", held by"), "{said}");
    service.take_down();
    is_down(&url).await;
    service.bring_up().await;
    // It may have lost the lock by now, and ended its command itself.
    holder.close_stdin();
    holder.end().await;
    patient.expect("ran").await;
    assert_eq!(patient.end().await.code(), Some(0));
}

async fn a_wait_for_a_service_that_is_down_ends_at_its_limit_and_says_what_was_waited_for(mut service: Service) {
    let url = service.url();
    service.take_down();
    let clock = Clock::boot();
    let begin = clock.now();
    let late = output(&url, &["run", "a", "--wait", "3s", "--", "echo", "ran"]).await;
    assert!(clock.now().saturating_since(begin) >= Duration::from_secs(3), "{late:?}");
    assert_eq!((late.status, late.stdout.as_str()), (Some(69), ""), "{late:?}");
    let said = late.stderr.lines().last().unwrap_or_default();
    assert!(said.contains("unavailable") && said.contains(service.deployment().scheme), "{late:?}");
}
