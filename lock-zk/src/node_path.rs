//! Where a contender's node is.

use std::sync::Arc;

use tokio::sync::Mutex;

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
