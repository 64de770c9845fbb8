//! What the servers keep: a tree of nodes, and what a transaction changes.

use std::{collections::BTreeMap, rc::Rc};

use lock_zk::protocol::queue::NUMBERS_END;

use super::message::{News, SessionId};

/// Where the counter of a directory sticks: all later nodes are given that number. Real servers do so at 2^31 - 1, which is
/// a million numbers behind the end that contenders keep to and not three.
const STUCK: i32 = NUMBERS_END + 2;

/// A node of the simulated ensemble's tree, with its data and its statistics.
#[derive(Debug, Clone)]
pub(super) struct TreeNode {
    pub(super) data: Rc<[u8]>,
    /// The session that it ends with; 0 for a node that ends with none.
    pub(super) owner: SessionId,
    /// The servers remove it when its last child has gone.
    pub(super) is_container: bool,
    /// The transaction that created it.
    pub(super) czxid: u64,
    /// The transaction that wrote it last.
    pub(super) mzxid: u64,
    /// The transaction that changed last which children it has.
    pub(super) pzxid: u64,
    /// How often its data were written.
    pub(super) version: i32,
    /// What the next sequential child is numbered with.
    pub(super) counter: i32,
    /// Whether it has ever had a child.
    pub(super) had_children: bool,
    /// The names of its children, oldest first.
    pub(super) children: Vec<Rc<str>>,
    /// When its contender arrived, whatever its name says: by this the checks go.
    pub(super) arrival: u64,
}

/// The tree of nodes as one simulated server has it, by their paths.
#[derive(Debug, Clone)]
pub(super) struct NodeTree {
    pub(super) nodes: BTreeMap<Rc<str>, TreeNode>,
}

/// One change that a transaction makes to the tree.
#[derive(Debug, Clone)]
pub(super) enum TreeChange {
    Create { path: Rc<str>, data: Rc<[u8]>, owner: SessionId, is_container: bool },
    Write { path: Rc<str>, data: Rc<[u8]> },
    Delete { path: Rc<str> },
    Close(SessionId),
}

/// The path and the name of the node above and below.
pub(super) fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("/", path),
    }
}

impl NodeTree {
    /// Only the root.
    pub(super) fn new() -> Self {
        let root = TreeNode::new(0, Rc::from([]), 0, false);
        Self { nodes: BTreeMap::from([(Rc::from("/"), root)]) }
    }

    pub(super) fn get(&self, path: &str) -> Option<&TreeNode> {
        self.nodes.get(path)
    }

    /// The children of a node, oldest first.
    pub(super) fn children(&self, path: &str) -> Option<Vec<String>> {
        self.get(path).map(|node| node.children.iter().map(|name| name.as_ref().to_owned()).collect())
    }

    /// The paths of the containers that have had children and have none.
    pub(super) fn empty_containers(&self) -> Vec<Rc<str>> {
        let is_empty = |node: &TreeNode| node.is_container && node.had_children && node.children.is_empty();
        self.nodes.iter().filter(|(_, node)| is_empty(node)).map(|(path, _)| Rc::clone(path)).collect()
    }

    fn create(&mut self, zxid: u64, path: &Rc<str>, node: TreeNode) {
        let (above, name) = split(path);
        if let Some(parent) = self.nodes.get_mut(above) {
            parent.counter = parent.counter.saturating_add(1).min(STUCK);
            parent.pzxid = zxid;
            parent.had_children = true;
            parent.children.push(Rc::from(name));
        }
        self.nodes.insert(Rc::clone(path), node);
    }

    fn remove(&mut self, zxid: u64, path: &str) -> Option<TreeNode> {
        let node = self.nodes.remove(path)?;
        let (above, name) = split(path);
        if let Some(parent) = self.nodes.get_mut(above) {
            parent.pzxid = zxid;
            parent.children.retain(|child| child.as_ref() != name);
        }
        Some(node)
    }

    /// Does what the transaction `zxid` does, and hands what may be heard of it to `tell`, in its order.
    pub(super) fn apply(&mut self, zxid: u64, changes: &[TreeChange], mut tell: impl FnMut(News)) {
        let mut created: Option<&Rc<str>> = None;
        for change in changes {
            match change {
                TreeChange::Create { path, data, owner, is_container } => {
                    self.create(zxid, path, TreeNode::new(zxid, Rc::clone(data), *owner, *is_container));
                    created = Some(path);
                    tell(News::Created(path.to_string()));
                    tell(News::Children(split(path).0.to_owned()));
                }
                TreeChange::Write { path, data } => {
                    let Some(node) = self.nodes.get_mut(path) else { continue };
                    node.version += 1;
                    node.mzxid = zxid;
                    node.data = Rc::clone(data);
                    tell(News::Changed(path.to_string()));
                }
                TreeChange::Delete { path } => {
                    if let Some(node) = self.delete(zxid, path, &mut tell)
                        && let Some(replacement) = created.and_then(|path| self.nodes.get_mut(path))
                    {
                        // It stands in the place of the one that it replaces.
                        replacement.arrival = node.arrival;
                    }
                }
                TreeChange::Close(session) => {
                    let owned = self.nodes.iter().filter(|(_, node)| node.owner == *session);
                    let owned: Vec<Rc<str>> = owned.map(|(path, _)| Rc::clone(path)).collect();
                    for path in owned {
                        self.delete(zxid, &path, &mut tell);
                    }
                }
            }
        }
    }

    fn delete(&mut self, zxid: u64, path: &str, tell: &mut impl FnMut(News)) -> Option<TreeNode> {
        let node = self.remove(zxid, path)?;
        tell(News::Deleted(path.to_owned()));
        tell(News::Children(split(path).0.to_owned()));
        Some(node)
    }
}

impl TreeNode {
    fn new(zxid: u64, data: Rc<[u8]>, owner: SessionId, is_container: bool) -> Self {
        Self {
            data,
            owner,
            is_container,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            version: 0,
            counter: 0,
            had_children: false,
            children: Vec::new(),
            arrival: zxid,
        }
    }
}
