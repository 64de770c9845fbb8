//! What is said of a wait: who holds the lock, or that the service does not answer.

use lock_lab::servers::Redis;
use nix::{
    sys::{
        signal::Signal,
        wait::{Id, WaitPidFlag, WaitStatus, waitid},
    },
    unistd::Pid,
};

use crate::common::{
    Running, lock, output,
    services::{Service, on_each_service, on_local_files},
    within,
};

on_each_service! { a_wait_and_a_refusal_say_who_holds_the_lock, a_wait_for_the_service_is_said }
on_local_files! { a_wait_and_a_refusal_say_who_holds_the_lock }

/// Ends when its input does.
const UNTIL_EOF: &str = "echo held; cat >/dev/null";

async fn a_wait_and_a_refusal_say_who_holds_the_lock(service: Service) {
    let url = service.lasting_url();
    let hold = ["run", "a", "--payload", "the nightly build", "--", "sh", "-c", UNTIL_EOF];
    let mut holder = Running::start(&url, &hold);
    holder.expect("held").await;
    let mut waiter = Running::start(&url, &["run", "a", "--", "echo", "next"]);
    let mut candidate = Running::start(&url, &["elect", "a", "--", "echo", "leads"]);
    for waiting in [&mut waiter, &mut candidate] {
        let said = waiting.stderr_line().await;
        assert!(said.starts_with("lock: waiting for lock \"a\", held by the nightly build"), "{said}");
    }
    for (limit, expected) in [
        (&["--no-wait"][..], "lock: lock \"a\" is held by the nightly build"),
        // Long enough to connect, and for the line on waiting, which is not wanted of the second.
        (&["--wait", "3s"], "lock: lock \"a\" was not acquired within 3s: it is held by the nightly build"),
        (&["--wait", "3s", "--quiet"], "lock: lock \"a\" was not acquired within 3s: it is held by the nightly build"),
    ] {
        let refused = output(&url, &[&["run", "a"], limit, &["--", "true"]].concat()).await;
        assert_eq!(refused.status, Some(75), "{refused:?}");
        let said: Vec<&str> = refused.stderr.lines().collect();
        assert!(said.last().is_some_and(|line| line.starts_with(expected)), "{refused:?}");
        assert!(said.len() == 1 || *limit == ["--wait", "3s"], "{refused:?}");
    }
    holder.close_stdin();
    assert_eq!(holder.end().await.code(), Some(0));
    waiter.expect("next").await;
    candidate.expect("leads").await;
    for waited in [&mut waiter, &mut candidate] {
        assert_eq!((waited.end().await.code(), waited.stderr().await.as_str()), (Some(0), ""));
    }
}

async fn a_wait_for_the_service_is_said(service: Service) {
    service.freeze();
    let mut waiter = Running::start(&service.patient_url(), &["run", "a", "--", "true"]);
    let said = waiter.stderr_line().await;
    let scheme = service.url();
    let (scheme, _) = scheme.split_once("://").unwrap();
    assert!(said.starts_with("lock: waiting for ") && said.contains(&format!(" {scheme}://")), "{said}");
}

#[tokio::test]
async fn permits_are_held_by_holders_of_permits() {
    let service = Service::local().await;
    let permit = |payload| ["run", "a", "--permits", "1", "--payload", payload, "--", "sh", "-c", UNTIL_EOF];
    let mut lock = Running::start(&service.url(), &["run", "a", "--payload", "lock", "--", "sh", "-c", UNTIL_EOF]);
    lock.expect("held").await;
    let mut holder = Running::start(&service.url(), &permit("permit"));
    holder.expect("held").await;
    let refused = output(&service.url(), &["run", "a", "--permits", "1", "--no-wait", "--", "true"]).await;
    assert!(refused.stderr.starts_with("lock: lock \"a\" is held by permit"), "{refused:?}");
}

#[tokio::test]
async fn a_quarantine_is_said() {
    let mut nodes = Vec::new();
    for _ in 0..3 {
        nodes.push(Redis::start().await.unwrap());
    }
    let hosts: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
    let url = format!("redlock://{}", hosts.join(","));
    // Nobody has said that nobody holds a lock.
    assert_eq!(output(&url, &["redlock", "init"]).await.status, Some(0));
    let refused = output(&url, &["run", "a", "--wait", "5s", "--", "true"]).await;
    assert_eq!(refused.status, Some(69), "{refused:?}");
    let waits = refused.stderr.lines().next().unwrap_or_default();
    assert!(waits.starts_with("lock: waiting for lock \"a\"") && waits.contains("quarantine"), "{refused:?}");
    assert!(refused.stderr.lines().last().is_some_and(|line| line.contains("quarantine")), "{refused:?}");
}

#[tokio::test]
async fn what_waits_for_a_lock_is_not_suspended_and_says_so() {
    let service = Service::local().await;
    let url = service.url();
    let mut holder = Running::start(&url, &["run", "a", "--", "sh", "-c", UNTIL_EOF]);
    holder.expect("held").await;
    for waits in ["run", "elect"] {
        // In a group of its own: one that nobody could continue is not stopped by this signal anyway.
        let mut waiter = Running::spawn(lock(&url, &[waits, "a", "--", "true"]).process_group(0));
        assert!(waiter.stderr_line().await.starts_with("lock: waiting for lock"));
        waiter.signal("TSTP");
        let said = waiter.stderr_line().await;
        assert!(said.starts_with("lock: not suspended, since"), "{said}");
        waiter.signal("TERM");
        assert_eq!(waiter.end().await.code(), Some(143));
    }
}

#[tokio::test]
async fn what_only_looks_on_is_suspended_as_any_program() {
    let service = Service::local().await;
    for looks in [&["watch", "a"][..], &["elect", "a", "--observe"]] {
        let mut observer = Running::spawn(lock(&service.url(), looks).process_group(0));
        observer.catches_signals().await;
        observer.signal("TSTP");
        let pid = Id::Pid(Pid::from_raw(observer.pid().try_into().unwrap()));
        let stopped = tokio::task::spawn_blocking(move || waitid(pid, WaitPidFlag::WSTOPPED));
        let stopped = within(stopped).await.unwrap();
        assert!(matches!(stopped, Ok(WaitStatus::Stopped(_, Signal::SIGTSTP))), "{stopped:?}");
        observer.signal("TERM");
        observer.signal("CONT");
        assert_eq!(observer.end().await.code(), Some(143));
    }
}
