//! When the command of a `lock run` is ended, it is ended in time: before another's can run.

use std::{env, path::Path};

use tokio::process::Command;

use crate::common::{
    Running, group_of, kill, output,
    services::{Service, on_each_service, on_local_files},
    unset,
};

on_each_service! {
    a_command_that_does_not_follow_sigterm_is_gone_before_the_next_one_runs_when_its_maximum_time_is_over,
    a_command_is_gone_by_the_end_of_a_lock_that_is_lost_in_silence_however_long_kill_after_is,
    a_command_is_gone_by_the_end_of_a_lock_that_was_deleted_however_long_kill_after_is,
}

on_local_files! {
    a_command_that_does_not_follow_sigterm_is_gone_before_the_next_one_runs_when_its_maximum_time_is_over,
}

/// How many commands follow one another, each of which lives until it is killed: `LOCK_TRIES`, or one more than the first.
fn tries() -> u32 {
    let set = env::var("LOCK_TRIES").ok();
    set.map_or(1, |tries| tries.parse().unwrap_or_else(|_| panic!("LOCK_TRIES is {tries:?}, and no whole number")))
}

/// Does not follow SIGTERM. The kernel tells whether another one lives: each has the file `$0` locked until its last process
/// is gone.
const STUBBORN: &str = "trap '' TERM; exec 9>\"$0\"; flock -n 9 || echo beside another; echo up; \
    for second in $(seq 120); do sleep 1; done";

async fn a_command_that_does_not_follow_sigterm_is_gone_before_the_next_one_runs_when_its_maximum_time_is_over(
    service: Service,
) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("alive");
    // Asked to end after four seconds: by then it does not follow, although the machine stood still as it started.
    let limited = ["run", "a", "--max-hold", "5s", "--kill-after", "1s", "--", "sh", "-c", STUBBORN];
    let arguments: Vec<_> = limited.into_iter().chain([file.to_str().unwrap()]).collect();
    let url = service.url();
    let mut running = Running::start(&url, &arguments);
    running.expect("up").await;
    for _ in 0..tries() {
        let mut next = Running::start(&url, &arguments);
        next.expect("up").await;
        assert_eq!(running.end().await.code(), Some(76), "{}", running.stderr().await);
        let stderr = running.stderr().await;
        assert!(stderr.contains("was held for its maximum time; the command was ended"), "{stderr}");
        running = next;
    }
}

/// Does not follow SIGTERM, for two minutes.
const TOLD: &str = "trap 'echo told' TERM; echo up; for second in $(seq 120); do sleep 1; done";

const HOUR: [&str; 7] = ["run", "a", "--kill-after", "1h", "--", "sh", "-c"];

async fn a_command_is_gone_by_the_end_of_a_lock_that_is_lost_in_silence_however_long_kill_after_is(service: Service) {
    let mut holder = Running::start(&service.url(), &[&HOUR[..], &[TOLD]].concat());
    holder.expect("up").await;
    service.freeze();
    holder.all_end().await;
    assert_eq!(holder.end().await.code(), Some(76));
}

async fn a_command_is_gone_by_the_end_of_a_lock_that_was_deleted_however_long_kill_after_is(service: Service) {
    let mut holder = Running::start(&service.url(), &[&HOUR[..], &[TOLD]].concat());
    holder.expect("up").await;
    service.delete("a").await;
    holder.all_end().await;
    assert_eq!(holder.end().await.code(), Some(76));
}

/// `lock run` without the right to signal other users' processes, and a command that has become another user, which lives
/// until its input ends. Only root can become another user.
fn out_of_reach(url: &str, how: &[&str]) -> Running {
    assert!(nix::unistd::geteuid().is_root(), "only root can run a command as another user: run this test as root");
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-kill").arg(env!("CARGO_BIN_EXE_lock")).args(how);
    let other = ["--", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
    command.args(other).args(["sh", "-c", "echo $$; read end"]);
    Running::spawn(unset(&mut command).env("LOCK_URL", url).kill_on_drop(true))
}

#[tokio::test]
async fn a_lock_is_held_beyond_its_maximum_time_while_a_command_lives_that_cannot_be_ended() {
    let service = Service::local().await;
    let url = service.url();
    // It is asked to end when half of this is over: by then it is another user's.
    let mut running = out_of_reach(&url, &["run", "a", "--max-hold", "6s"]);
    let pid = running.line().await.unwrap();
    // Said after SIGKILL, at the end of that time. Where `lock run` stands still meanwhile, its guardian says something first.
    let cannot = format!("process {pid} of the command cannot be ended; lock \"a\" is held");
    let mut said = running.stderr_line().await;
    while !said.is_empty() && !said.contains(&cannot) {
        said = running.stderr_line().await;
    }
    assert!(said.contains(&cannot), "{said}");
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    let refused = output(&url, &["run", "a", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");

    let mut next = Running::start(&url, &["run", "a", "--", "echo", "ran"]);
    running.close_stdin();
    assert_eq!(running.end().await.code(), Some(76), "{}", running.stderr().await);
    next.expect("ran").await;
}

#[tokio::test]
async fn a_command_that_could_not_be_ended_when_its_lock_was_lost_is_told_of() {
    // Nor does the same candidate lead again beside it.
    tokio::join!(told_of(&["run", "a"]), told_of(&["elect", "a", "--again"]));
}

async fn told_of(how: &[&str]) {
    let service = Service::local().await;
    let mut running = out_of_reach(&service.url(), &[how, &["--kill-after", "100ms"]].concat());
    let pid = running.line().await.unwrap();
    service.delete("a").await;
    assert_eq!(running.end().await.code(), Some(77));
    assert!(Path::new(&format!("/proc/{pid}")).exists(), "it is alive");
    let stderr = running.stderr_line().await;
    assert!(
        stderr.contains("was lost") && stderr.contains(&format!("process {pid} of the command could not")),
        "{stderr}"
    );
    running.close_stdin();
}

#[tokio::test]
async fn the_guardian_of_a_killed_lock_run_keeps_its_local_lock_while_a_command_lives_that_cannot_be_ended() {
    let service = Service::local().await;
    let url = service.url();
    let mut running = out_of_reach(&url, &["run", "a", "--kill-after", "100ms"]);
    let pid = running.line().await.unwrap();
    running.signal("KILL");
    for said in ["`lock run` was killed", &format!("process {pid} of the command cannot be ended")] {
        let line = running.stderr_line().await;
        assert!(line.contains(said), "{line}");
    }
    let refused = output(&url, &["run", "a", "--no-wait", "--", "echo", "ran"]).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(75), ""), "{refused:?}");
    let mut next = Running::start(&url, &["run", "a", "--", "echo", "ran"]);
    running.close_stdin();
    next.expect("ran").await;
}

#[tokio::test]
async fn a_command_whose_guardian_was_killed_is_ended_all_the_same() {
    let script = "trap '' TERM; echo $$; for second in $(seq 120); do sleep 1; done";
    let limited = ["run", "a", "--max-hold", "5s", "--kill-after", "1s", "--", "sh", "-c", script];
    let mut running = Running::start("memory://", &limited);
    let pid = running.line().await.unwrap();
    // The guardian leads the command's group.
    kill("KILL", group_of(&pid).parse().unwrap());
    running.all_end().await;
    assert_eq!(running.end().await.code(), Some(76));
}

#[tokio::test]
async fn a_maximum_time_of_nothing_is_refused() {
    let refused = output("memory://", &["run", "a", "--max-hold", "0s", "--", "echo", "ran"]).await;
    assert_eq!((refused.status, refused.stdout.as_str()), (Some(78), ""), "{refused:?}");
    assert!(refused.stderr.contains("max-hold") && refused.stderr.contains("more than zero"), "{refused:?}");
}
