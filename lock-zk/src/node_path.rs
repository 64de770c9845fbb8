//! Where a lock's directory is, and a contender's node in it.

use std::sync::Arc;

use lock_core::{Error, LockName};
use tokio::sync::Mutex;

use crate::protocol::queue::{self, Layout};

/// The directory of the sessions' own nodes. No lock's directory is called so: an escaped lock name has no dot.
const SESSIONS: &str = ".sessions";

/// The same in the layout of another library, where it must not come before the digits of contenders: Curator counts every
/// child of a directory, and the root may be one.
const SESSIONS_BESIDE_OTHERS: &str = "_sessions";

/// What the directory of the sessions' own nodes is called.
pub(crate) fn sessions(layout: Layout) -> &'static str {
    if layout.is_foreign() { SESSIONS_BESIDE_OTHERS } else { SESSIONS }
}

/// The path below the root of what is called `name`: of its directory, or in the strategy `herd` of its one node.
///
/// In the layout of another library the name is that path, since nothing else is what the other library's programs have. So no
/// two names share a directory there, either.
pub(crate) fn of_lock(layout: Layout, name: &LockName) -> Result<String, Error> {
    // Safeguard: what other libraries share is found by its path (ZooKeeper)
    if !layout.is_foreign() {
        return Ok(name.to_component());
    }

    let path = name.as_str();
    let problem = if !is_path(path) {
        "with layout=curator or layout=kazoo it is a path of ZooKeeper: parts between single slashes, none of them a dot, two \
         dots or with control characters, and the first one not \"zookeeper\""
    } else if path.split('/').next() == Some(SESSIONS_BESIDE_OTHERS) {
        "with layout=curator or layout=kazoo \"_sessions\" is where the sessions' own nodes are"
    } else if path.split('/').any(queue::is_contender) {
        "with layout=curator or layout=kazoo a part of it that is called as a contender's node would stand in line for a lock"
    } else {
        return Ok(path.to_owned());
    };
    Err(Error::InvalidName { name: path.to_owned(), problem })
}

/// Whether ZooKeeper takes `path`, which has no slash in front, as one of a program.
pub(crate) fn is_path(path: &str) -> bool {
    let mut parts = path.split('/');
    let fits = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_allowed);
    parts.clone().next() != Some("zookeeper") && parts.all(fits)
}

/// What ZooKeeper takes in a path.
const fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
}

/// The path of a contender's node: the lock's directory, and the node's name except for the sequence number.
#[derive(Debug, Clone)]
pub(crate) struct NodePath {
    /// The lock's directory.
    pub(crate) directory: Arc<str>,
    /// The attempt's unique id, the first part of the prefix.
    pub(crate) unique: Arc<str>,
    /// The node's name but for the server's digits.
    pub(crate) prefix: Arc<str>,
    /// Strategy `herd`: whether the attempt has removed its node. Locked while it does.
    pub(crate) removed: Arc<Mutex<bool>>,
}

impl NodePath {
    /// The path of the node of that name in the directory.
    pub(crate) fn of(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_foreign_layout_a_name_is_its_path_or_none() {
        let path = |layout, name| of_lock(layout, &LockName::new(name).unwrap());
        for layout in [Layout::Curator, Layout::Kazoo] {
            for name in
                ["a", "orders/4711", "a b/%2F/\u{e9}", "..a/.b/c..", "orders/zookeeper", "a/_sessions", "lock-1"]
            {
                assert_eq!(path(layout, name).unwrap(), name);
            }
            for (name, why) in [
                ("/a", "single slashes"),
                ("a/", "single slashes"),
                ("a//b", "single slashes"),
                ("a/./b", "a dot"),
                ("..", "two dots"),
                ("a\n", "control characters"),
                ("zookeeper", "zookeeper"),
                ("zookeeper/a", "zookeeper"),
                ("_sessions/a", "sessions"),
                ("a/lock-0000000001", "stand in line"),
                ("__rlock__0000000001/b", "stand in line"),
            ] {
                let error = path(layout, name).unwrap_err();
                assert!(matches!(&error, Error::InvalidName { name: given, .. } if given == name), "{error}");
                assert!(error.to_string().contains(why) && error.to_string().contains("layout"), "{error}");
            }
        }
        assert_eq!(path(Layout::Native, "orders/4711").unwrap(), "orders%2F4711");
    }

    #[test]
    fn the_sessions_nodes_are_behind_all_contenders_for_curator_and_are_none() {
        let name = sessions(Layout::Curator);
        // What is called without a marker is sorted by its whole name, among the digits of the others.
        assert!(name > "9999999999" && !queue::is_contender(name));
    }
}
