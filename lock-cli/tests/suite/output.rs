//! How much is said, where it goes, and what happens when nobody reads it.

use std::{io, process::Stdio};

use crate::common::{finish, lock, output, within};

const MEMORY: &str = "memory://output";
const RUN: [&str; 4] = ["run", "a", "--", "true"];

#[tokio::test]
async fn the_log_is_filtered_by_rust_log_unless_it_is_asked_for_and_has_no_colours_in_a_pipe() {
    let logged = |arguments: &[&str], filter: &str| {
        let mut command = lock(MEMORY, arguments);
        command.env("RUST_LOG", filter);
        command
    };
    let ran = finish(&mut logged(&RUN, "lock_core=debug")).await;
    assert!(ran.stderr.contains("granted") && !ran.stderr.contains('\u{1b}'), "{ran:?}");
    for filter in ["", "lock_core=error", "another_program=trace"] {
        let ran = finish(&mut logged(&RUN, filter)).await;
        assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{filter}");
    }
    let asked = finish(&mut logged(&[&["-v"], &RUN[..]].concat(), "off")).await;
    assert!(asked.stderr.contains("granted") && !asked.stderr.contains('\u{1b}'), "{asked:?}");
    // It may be meant for the command.
    let wrong = finish(&mut logged(&RUN, "a=b=c")).await;
    assert!(wrong.status == Some(0) && wrong.stderr.starts_with("lock: RUST_LOG is not taken"), "{wrong:?}");
    assert_eq!(wrong.stderr.lines().count(), 1, "{wrong:?}");
}

/// Runs the program with a standard output that nobody reads any more.
async fn unread(arguments: &[&str]) -> (Option<i32>, String) {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let mut command = lock(MEMORY, arguments);
    let ran = command.stdin(Stdio::null()).stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
    let ran = within(ran.wait_with_output()).await.expect("it can be waited for");
    (ran.status.code(), String::from_utf8_lossy(&ran.stderr).into_owned())
}

#[tokio::test]
async fn a_pipe_that_nobody_reads_any_more_ends_it_quietly() {
    for arguments in [
        &["status", "a"][..],
        &["status", "a", "--json"],
        &["watch", "a"],
        &["watch", "a", "--json"],
        &["elect", "a", "--observe"],
        &["doctor", "memory://"],
        &["doctor", "memory://", "--json"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["run", "--help"],
        &["--version"],
    ] {
        assert_eq!(unread(arguments).await, (Some(0), String::new()), "{arguments:?}");
    }
}

#[tokio::test]
async fn where_the_locks_of_a_machine_are_is_said_when_asked() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("locks").display().to_string();
    let told = output(&format!("local://{path}"), &["-v", "status", "a"]).await;
    assert!(told.status == Some(0) && told.stderr.contains(&path), "{told:?}");
}
