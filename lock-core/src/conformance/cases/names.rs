//! Lock names: anything goes, and none stands for another.

use std::{collections::BTreeSet, sync::Arc};

use super::super::{
    failure::{CaseResult, ensure},
    guards::CheckedGuard,
    run::CaseRun,
};
use crate::LockName;

/// Names with a meaning somewhere: in paths, in key patterns, in escapes, in the formats of other clients.
pub(super) const ODD: &[&str] = &[
    "/",
    "//",
    "/a",
    "a/",
    "a//b",
    ".",
    "..",
    "...",
    "a/../b",
    "./a",
    " ",
    "  ",
    " a",
    "a ",
    "a b",
    "\t",
    "\n",
    "\r\n",
    "\u{1}",
    "\u{7f}",
    "\u{85}",
    "\u{feff}",
    "\u{ffff}",
    "\u{d7ff}\u{e000}",
    "🔒",
    "👩‍👩‍👧‍👦",
    "ключ",
    "锁",
    "{a}",
    "}{",
    "{}",
    "{",
    "*",
    "?",
    "[a-z]",
    "\\",
    "'",
    "\"",
    "`",
    "$(x)",
    "%",
    "%s",
    "%2F",
    "%00",
    "+",
    "&",
    "#",
    ":",
    "a:b",
    ";",
    ",",
    "-",
    "-lock-",
    "__lock__",
    "lock-0000000001",
    "zookeeper",
    "members",
    "~",
    "^",
    "|",
    "<>",
    "é",
];

/// Pairs that some way of escaping, joining or folding makes one.
const ALIKE: &[(&str, &str)] = &[
    ("x/y", "x%2Fy"),
    ("x/y", "x_y"),
    ("x/y", "x:y"),
    ("x y", "x+y"),
    ("x y", "x%20y"),
    ("x.y", "x%2Ey"),
    ("x", "X"),
    ("x", "x "),
    ("x", "x/"),
    ("x", "/x"),
    ("x", "{x}"),
    ("x}", "x"),
    ("x}y", "x"),
    ("x:token", "x"),
    ("x%", "x%25"),
    ("x%2f", "x%2F"),
    ("caf\u{e9}", "cafe\u{301}"),
    ("ß", "ss"),
    ("\u{fffd}", "\u{fffe}"),
    ("x\\", "x\\\\"),
];

pub(super) async fn any_name_can_be_locked_and_excludes_only_itself(run: Arc<CaseRun>) -> CaseResult {
    let mut names: BTreeSet<_> = ODD.iter().map(|name| (*name).to_owned()).collect();
    names.insert("n".repeat(LockName::MAX_BYTES));
    names.insert("/".repeat(LockName::MAX_BYTES));
    names.insert("🔒".repeat(LockName::MAX_BYTES / 4));
    all_apart(&run, names).await
}

pub(super) async fn names_that_escape_alike_do_not_collide(run: Arc<CaseRun>) -> CaseResult {
    let mut names: BTreeSet<_> = ALIKE.iter().flat_map(|(a, b)| [(*a).to_owned(), (*b).to_owned()]).collect();
    for last in ["x", "y", "%", "/"] {
        names.insert("l".repeat(LockName::MAX_BYTES - 1) + last);
    }
    all_apart(&run, names).await
}

/// Each can be held while all the others are, by another connection and by the same, and not twice.
async fn all_apart(run: &CaseRun, names: BTreeSet<String>) -> CaseResult {
    let [first, second] = [run.connect().await?, run.connect().await?];
    let names: Vec<_> = names.into_iter().map(LockName::new).collect::<Result<_, _>>()?;
    let mut guards: Vec<CheckedGuard> = Vec::with_capacity(names.len());
    for (turn, name) in names.iter().enumerate() {
        let client = if turn % 2 == 0 { &first } else { &second };
        let guard = client.try_lock(name).await?;
        ensure!(guard.is_some(), "{name:?} was not free: another name stands for it");
        guards.extend(guard);
    }
    for (turn, name) in names.iter().enumerate() {
        let client = if turn % 2 == 0 { &second } else { &first };
        ensure!(client.try_lock(name).await?.is_none(), "{name:?} was granted twice");
        let holders = client.inspect(name).await?.holders;
        ensure!(holders.len() == 1, "{name:?} shows as held by {holders:?}");
    }
    for guard in guards {
        run.is_kept(&guard).await?;
        guard.release().await?;
    }
    Ok(())
}
