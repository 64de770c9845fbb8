//! A process group, and how it is ended.

use std::{fs, time::Duration};

use lock::{BootInstant, Clock};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use crate::process;

/// How often a group that is ending is looked at: nothing announces that a group is empty.
pub(crate) const LOOK: Duration = Duration::from_millis(10);

/// Sends `signal` to all of `group`. One that is gone has no need of it.
pub(crate) fn send(group: Pid, signal: Signal) {
    // Safeguard: catalogue: a signal is for the whole group of a command
    let _ = killpg(group, signal);
}

/// Asks all of `group` to end.
pub(crate) fn ask_to_end(group: Pid) {
    send(group, Signal::SIGTERM);
    // A stopped process gets the other signal only when it goes on.
    send(group, Signal::SIGCONT);
}

/// Ends `group`, which was asked to: SIGKILL to what is left of it at `deadline` or when nobody but its leader is left.
/// The leader is the guardian, which no SIGTERM ends; it goes last, so the group's number cannot become another's.
///
/// The command itself may go at once on SIGTERM, as a shell does, while what it started still cleans up: so it is the
/// whole group that is waited for.
pub(crate) async fn end(group: Pid, deadline: BootInstant) {
    until_empty(group, deadline).await;
    // Always: one that was started while the group was looked at is not missed, and the guardian may be gone.
    // Safeguard: what is left of a command is killed although its guardian is gone (lock run)
    send(group, Signal::SIGKILL);
}

/// As [`end`], for the leader itself: it does not go before those that it cannot end, because they belong to another user.
/// Those are told to `says`, once.
pub(crate) async fn end_own(group: Pid, deadline: BootInstant, says: impl FnOnce(&str)) {
    until_empty(group, deadline).await;
    let mut says = Some(says);
    loop {
        let members = GroupMembers::of(group);
        let immune: Vec<_> =
            members.living.iter().copied().filter(|pid| kill(*pid, None) == Err(Errno::EPERM)).collect();
        // Safeguard: the guardian stays while somebody lives whom it cannot end (lock run)
        if immune.is_empty() {
            break;
        }
        for pid in members.living {
            let _ = kill(pid, Signal::SIGKILL);
        }
        if let Some(says) = says.take() {
            says(&named(&immune));
        }
        Clock::boot().sleep(LOOK).await;
    }
    send(group, Signal::SIGKILL);
}

async fn until_empty(group: Pid, deadline: BootInstant) {
    let clock = Clock::boot();
    while clock.now() < deadline {
        let members = GroupMembers::of(group);
        if members.is_known && members.living.is_empty() {
            break;
        }
        clock.sleep(LOOK.min(deadline.saturating_since(clock.now()))).await;
    }
}

/// Who is left of `group`, in words, after it got SIGKILL and its leader was waited for; `None` when nobody is.
pub(crate) fn left(group: Pid) -> Option<String> {
    let there = killpg(group, None);
    if there == Err(Errno::ESRCH) {
        return None;
    }
    let members = GroupMembers::of(group);
    match members.living.as_slice() {
        // Somebody is there whom the kernel hides from us, as it does with other users' processes under `hidepid`.
        [] if !members.is_known || (there == Err(Errno::EPERM) && !members.has_dead) => {
            Some("a process that is not shown".to_owned())
        }
        [] => None,
        living => Some(named(living)),
    }
}

fn named(pids: &[Pid]) -> String {
    let numbers: Vec<_> = pids.iter().map(Pid::to_string).collect();
    format!("{} {}", if pids.len() == 1 { "process" } else { "processes" }, numbers.join(", "))
}

/// The processes of a process group, except for the group's leader.
#[derive(Debug)]
struct GroupMembers {
    living: Vec<Pid>,
    /// Whether there are some that have ended and were not waited for.
    has_dead: bool,
    /// False when the processes cannot be listed: then somebody may be there.
    is_known: bool,
}

impl GroupMembers {
    fn of(group: Pid) -> Self {
        let mut members = Self { living: Vec::new(), has_dead: false, is_known: true };
        let Ok(processes) = fs::read_dir("/proc") else { return Self { is_known: false, ..members } };
        let pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        for pid in pids.filter(|pid| *pid != group.as_raw()) {
            match is_alive_in(pid, group) {
                Some(true) => members.living.push(Pid::from_raw(pid)),
                Some(false) => members.has_dead = true,
                None => {}
            }
        }
        members
    }
}

/// Whether that process is alive; `None` when it is not in `group`.
fn is_alive_in(pid: i32, group: Pid) -> Option<bool> {
    let stat = process::stat(pid)?;
    let mut fields = stat.split_whitespace();
    let state = fields.next();
    let member = fields.nth(1).and_then(|group| group.parse().ok()) == Some(group.as_raw());
    // The state is that of the first thread, which may have ended before the others.
    let threads = fields.nth(14).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    member.then_some(!matches!(state, Some("Z" | "X")) || threads > 1)
}
