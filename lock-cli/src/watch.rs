//! `lock watch`.

use lock::{Config, Locks, Snapshot};
use serde::Serialize;

use crate::{
    arguments::WatchArguments,
    escaped,
    failure::Failure,
    follow::{follow, now},
    shown::{StatusJson, line},
};

/// Prints the lock now and after each change. Returns the exit status.
pub(crate) async fn watch(config: Config, options: &WatchArguments) -> Result<u8, Failure> {
    let name = options.name.as_str();
    let mut last: Option<Snapshot> = None;
    let changed = |locks: &Locks, snapshot: Snapshot| {
        if last.as_ref().is_some_and(|last| last.is_like(&snapshot)) {
            return None;
        }
        let shown = if options.json { json(locks, name, &snapshot) } else { text(locks, name, &snapshot) };
        last = Some(snapshot);
        Some(shown)
    };
    follow(config, |locks| locks.watch(name), changed).await
}

fn text(locks: &Locks, name: &str, snapshot: &Snapshot) -> String {
    let mut text = format!("{} {name:?} is ", now());
    match snapshot.holders.as_slice() {
        [] => text += "free",
        holders => {
            text += "held by ";
            text += &holders.iter().map(|holder| line(locks, holder)).collect::<Vec<_>>().join(" and ");
        }
    }
    if !snapshot.queue.is_empty() {
        text += &format!("; {} wait", snapshot.queue.len());
    }
    text
}

fn json(locks: &Locks, name: &str, snapshot: &Snapshot) -> String {
    /// One line of `lock watch --json`: the state of the lock at a moment, as a JSON object.
    #[derive(Serialize)]
    struct SnapshotLine<'a> {
        time: String,
        #[serde(flatten)]
        shown: StatusJson<'a>,
    }
    let line = SnapshotLine { time: now(), shown: StatusJson::new(locks, name, snapshot) };
    escaped::json(&line)
}
