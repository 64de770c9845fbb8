//! The locks that are held by a `lock run` or `lock elect` which this process was started by.
//!
//! Who asks for one of these waits for a process that waits for it: for ever. So it is refused. Readers are refused, too, although
//! they share: where a writer waits between them, the second reader waits for the writer, which waits for the first.
//!
//! A command may leave something in the background that outlives its lock and asks for it later. So what the environment says
//! counts only while the process that held the lock is an ancestor of this one.

use std::{env, iter};

use lock::Config;
use nix::unistd::{getpid, getppid};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::{
    failure::{Failure, USAGE},
    held_lock::HeldLock,
    process,
};

/// The environment variable with the locks of all ancestors, as a JSON list.
const LOCK_HELD: &str = "LOCK_HELD";

/// A lock that an ancestor holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AncestorLock {
    /// The `lock run` or `lock elect` that holds it.
    pid: i32,
    /// The URL of the service, without user and password.
    service: String,
    name: String,
    /// Whether it is a permit of the semaphore of that name, which is a thing apart from the lock.
    #[serde(default)]
    permit: bool,
}

/// Refuses a lock that an ancestor holds.
pub(crate) fn check(config: &Config, name: &str, permit: bool) -> Result<(), Failure> {
    let service = service(config);
    let is_same = |held: &AncestorLock| held.service == service && held.name == name && held.permit == permit;
    // Safeguard: a lock that an ancestor holds is not waited for (lock run)
    match held().into_iter().find(is_same) {
        None => Ok(()),
        Some(AncestorLock { pid, permit, .. }) => Err(Failure::new(
            USAGE,
            format!(
                "{} {name:?} is held by process {pid}, which has started this one, so it would wait for itself for ever \
                 (--nested asks for it all the same)",
                if permit { "a permit of" } else { "lock" }
            ),
        )),
    }
}

/// Tells a command what is held above it.
pub(crate) fn tell(command: &mut Command, config: &Config, lock: &HeldLock) {
    let mut held = held();
    held.push(AncestorLock {
        pid: getpid().as_raw(),
        service: service(config),
        name: lock.name().as_str().to_owned(),
        permit: matches!(lock, HeldLock::Permit(_)),
    });
    if let Ok(text) = serde_json::to_string(&held) {
        command.env(LOCK_HELD, text);
    }
}

/// What names a service: its URL, without who connects.
fn service(config: &Config) -> String {
    config.without_credentials().to_url()
}

/// What ancestors hold. What cannot be read is of somebody else.
fn held() -> Vec<AncestorLock> {
    let Some(held) = env::var(LOCK_HELD).ok().and_then(|text| read(&text)) else { return Vec::new() };
    let ancestors: Vec<i32> = iter::successors(Some(getppid().as_raw()), |pid| process::parent(*pid)).collect();
    held.into_iter().filter(|lock| ancestors.contains(&lock.pid)).collect()
}

fn read(text: &str) -> Option<Vec<AncestorLock>> {
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_reads_back_and_nothing_else_is_taken_for_it() {
        let service = "redis://h/0".to_owned();
        let held = vec![AncestorLock { pid: 7, service, name: "a \"b\"\u{1f}".to_owned(), permit: true }];
        assert_eq!(read(&serde_json::to_string(&held).unwrap()), Some(held));
        for nothing in ["", "a", "{}", "[1]", r#"[{"pid":"x"}]"#] {
            assert_eq!(read(nothing), None, "{nothing}");
        }
    }
}
