//! `lock run --shared`, `--permits` and `--max-hold`; `lock status --json` and `lock watch`.

use tokio::process::Command;

use crate::common::{
    Running, output,
    services::{Service, on_each_service, on_local_files},
    unset,
};

on_each_service! {
    those_who_share_hold_together_and_exclude_the_others,
    so_many_hold_as_there_are_permits_and_they_have_no_token,
    a_command_that_holds_for_its_maximum_time_is_ended,
    a_watch_shows_each_change_and_ends_with_its_reader_or_its_signal,
    a_watch_says_that_the_service_is_away_and_goes_on,
}

on_local_files! {
    those_who_share_hold_together_and_exclude_the_others,
    so_many_hold_as_there_are_permits_and_they_have_no_token,
    a_command_that_holds_for_its_maximum_time_is_ended,
    a_watch_shows_each_change_and_ends_with_its_reader_or_its_signal,
}

/// Ends when its input does.
const UNTIL_EOF: &str = "echo \"held ${LOCK_TOKEN-none}\"; cat >/dev/null";

async fn held(running: &mut Running) -> String {
    let line = running.line().await.unwrap_or_default();
    let Some(token) = line.strip_prefix("held ") else { panic!("{line:?}: {}", running.stderr().await) };
    token.to_owned()
}

async fn those_who_share_hold_together_and_exclude_the_others(service: Service) {
    let url = service.lasting_url();
    let shared = ["run", "a", "--shared", "--", "sh", "-c", UNTIL_EOF];
    let mut readers = [Running::start(&url, &shared), Running::start(&url, &shared)];
    for reader in &mut readers {
        assert_ne!(held(reader).await, "none");
    }
    let alone = ["run", "a", "--no-wait", "--", "echo", "ran"];
    assert_eq!(output(&url, &alone).await.status, Some(75));
    for reader in &mut readers {
        reader.close_stdin();
        assert_eq!(reader.end().await.code(), Some(0));
    }
    assert_eq!(output(&url, &alone).await.stdout, "ran\n");
}

async fn so_many_hold_as_there_are_permits_and_they_have_no_token(service: Service) {
    let url = service.lasting_url();
    let permit = ["run", "a", "--permits", "2", "--", "sh", "-c", UNTIL_EOF];
    if service.deployment().is_quorum() {
        let refused = output(&url, &permit).await;
        assert_eq!((refused.status, refused.stdout.as_str()), (Some(78), ""), "{refused:?}");
        assert!(refused.stderr.contains("a semaphore is not supported by the backend redlock"), "{refused:?}");
        return;
    }
    let mut holders = [Running::start(&url, &permit), Running::start(&url, &permit)];
    for holder in &mut holders {
        assert_eq!(held(holder).await, "none");
    }
    let third = output(&url, &["run", "a", "--permits", "2", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!(third.status, Some(75), "{third:?}");
    let other = output(&url, &["run", "a", "--permits", "3", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!(other.status, Some(78), "{other:?}");
    assert!(other.stderr.contains("permits") && other.stderr.contains("\"3\""), "{other:?}");
    // The lock of that name is another thing.
    assert_eq!(output(&url, &["run", "a", "--no-wait", "--", "echo", "ran"]).await.stdout, "ran\n");
    holders[0].close_stdin();
    assert_eq!(holders[0].end().await.code(), Some(0));
    assert_eq!(output(&url, &["run", "a", "--permits", "2", "--", "echo", "ran"]).await.stdout, "ran\n");
}

#[tokio::test]
async fn what_the_service_does_not_offer_is_a_configuration_error() {
    let service = Service::local().await;
    let ttl = output(&service.url(), &["run", "a", "--ttl", "5s", "--", "echo", "ran"]).await;
    assert_eq!((ttl.status, ttl.stdout.as_str()), (Some(78), ""), "{ttl:?}");
    assert!(ttl.stderr.contains("a ttl for a single lock is not supported by the backend local"), "{ttl:?}");
}

async fn a_command_that_holds_for_its_maximum_time_is_ended(service: Service) {
    let arguments = ["run", "a", "--max-hold", "300ms", "--kill-after", "200ms", "--", "sleep", "1000"];
    let ended = output(&service.url(), &arguments).await;
    assert_eq!(ended.status, Some(76), "{ended:?}");
    assert!(ended.stderr.contains("maximum time"), "{ended:?}");
}

async fn a_watch_shows_each_change_and_ends_with_its_reader_or_its_signal(service: Service) {
    let url = service.lasting_url();
    let mut watch = Running::start(&url, &["watch", "a", "--json"]);
    let free = watch.line().await.unwrap();
    assert!(free.contains(r#""name":"a","held":false,"holders":[],"queue":[]"#), "{free}");
    let mut holder = Running::start(&url, &["run", "a", "--", "sh", "-c", UNTIL_EOF]);
    let token = held(&mut holder).await;
    let line = watch.line().await.unwrap();
    assert!(line.starts_with("{\"time\":\"20") && line.contains(r#""held":true"#), "{line}");
    assert!(line.contains(&token) && line.contains(r#""mode":"exclusive""#), "{line}");
    let status = output(&url, &["status", "a", "--json"]).await;
    assert!(status.stdout.starts_with(r#"{"name":"a","held":true,"holders":[{"id":"#), "{status:?}");
    assert!(status.stdout.contains(&token), "{line} {status:?}");
    holder.close_stdin();
    let free = watch.line().await.unwrap();
    assert!(free.contains(r#""held":false"#), "{free}");
    watch.signal("INT");
    assert_eq!(watch.end().await.code(), Some(130));

    let mut watch = Running::start(&url, &["watch", "a"]);
    let free = watch.line().await.unwrap();
    assert!(free.ends_with("\"a\" is free"), "{free}");
    watch.close_stdout();
    assert_eq!(watch.end().await.code(), Some(0));
}

async fn a_watch_says_that_the_service_is_away_and_goes_on(mut service: Service) {
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" watch a 2>&1", env!("CARGO_BIN_EXE_lock")]);
    unset(&mut command).env("LOCK_URL", service.url());
    let mut watch = Running::spawn(command.kill_on_drop(true));
    let free = watch.line().await.unwrap();
    assert!(free.ends_with("\"a\" is free"), "{free}");
    service.kill();
    let away = watch.line().await.unwrap();
    assert!(away.starts_with("lock: ") && away.contains("unavailable"), "{away}");
    watch.signal("INT");
    assert_eq!(watch.end().await.code(), Some(130));
}

#[tokio::test]
async fn a_killed_lock_run_keeps_its_local_lock_until_its_command_is_gone() {
    let (service, directory) = (Service::local().await, tempfile::tempdir().unwrap());
    let (url, log) = (service.url(), directory.path().join("log"));
    let file = log.to_str().unwrap();
    let script = "trap '' TERM; echo up; while :; do echo old >>\"$0\"; sleep 0.01; done";
    let mut old = Running::start(&url, &["run", "a", "--kill-after", "500ms", "--", "sh", "-c", script, file]);
    old.expect("up").await;
    let mut new = Running::start(&url, &["run", "a", "--", "sh", "-c", "echo new >>\"$0\"; echo up; cat", file]);
    old.signal("KILL");
    new.expect("up").await;
    old.all_end().await;
    let written = std::fs::read_to_string(&log).unwrap();
    assert!(
        written.ends_with("new\n"),
        "the command of the one that was killed went on beside the next one's: {written}"
    );
    new.close_stdin();
    assert_eq!(new.end().await.code(), Some(0));
}
