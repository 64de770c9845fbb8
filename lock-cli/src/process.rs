//! What the kernel says of a process.

use std::fs;

/// The fields of `proc_pid_stat(5)` from the third on: state, parent, group and so on. The second one, the name, is left out: it
/// may hold anything.
pub(crate) fn stat(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')').map(|(_, fields)| fields.to_owned())
}

/// The parent of a process; `None` for one that has none, or that is not shown.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    stat(pid)?.split_whitespace().nth(1)?.parse().ok().filter(|parent| *parent > 0)
}
