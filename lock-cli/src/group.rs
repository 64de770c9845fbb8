//! A process group, and how it is ended.

use std::{fs, time::Duration};

use lock::Clock;
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

/// How often a group that is ending is looked at: nothing announces that a group is empty.
const LOOK: Duration = Duration::from_millis(10);

/// Sends `signal` to all of `group`. One that is gone has no need of it.
pub(crate) fn send(group: Pid, signal: Signal) {
    let _ = killpg(group, signal);
}

/// Asks all of `group` to end.
pub(crate) fn ask_to_end(group: Pid) {
    send(group, Signal::SIGTERM);
    // A stopped process gets the other signal only when it goes on.
    send(group, Signal::SIGCONT);
}

/// Ends `group`, which was asked to: SIGKILL to what is left of it after `kill_after` or when nobody but its leader is left.
/// The leader is the guardian, which no SIGTERM ends; it goes last, so the group's number cannot become another's.
///
/// The command itself may go at once on SIGTERM, as a shell does, while what it started still cleans up: so it is the
/// whole group that is waited for.
pub(crate) async fn end(group: Pid, kill_after: Duration) {
    let clock = Clock::boot();
    let deadline = clock.now().saturating_add(kill_after);
    while clock.now() < deadline && has_members(group) {
        clock.sleep(LOOK).await;
    }
    // Always: one that was started while the group was looked at is not missed.
    send(group, Signal::SIGKILL);
}

/// Whether anybody but the leader is alive in `group`. When the processes cannot be listed, somebody may be.
fn has_members(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return true };
    let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid != group.as_raw()).any(|pid| is_alive_in(pid, group))
}

fn is_alive_in(pid: i32, group: Pid) -> bool {
    // The name, in parentheses, may hold anything; after it come the state, the parent and the group: `proc_pid_stat(5)`.
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_whitespace();
    let state = fields.next();
    let member = fields.nth(1).and_then(|group| group.parse().ok()) == Some(group.as_raw());
    member && !matches!(state, Some("Z" | "X"))
}
