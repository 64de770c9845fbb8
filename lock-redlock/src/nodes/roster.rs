//! Which member of the deployment is at each place of a client. A client keeps its places for life; the server at a place
//! changes when an operator replaces a member.

use std::sync::{Arc, Mutex, PoisonError};

use crate::protocol::deployment::Deployment;

/// What is known of the server at one place.
#[derive(Debug, Clone)]
enum NodeIdentity {
    /// The server is this member, and answers to this stamp.
    Member { member: u32, stamp: Arc<str> },
    /// The server is not counted.
    Unknown {
        why: String,
        /// The member that the server was or is to be. A server that lost its data becomes it again, whatever its address.
        was: Option<u32>,
    },
}

impl NodeIdentity {
    fn unknown(was: Option<u32>) -> Self {
        Self::Unknown { why: "it has not said yet which member it is".to_owned(), was }
    }

    const fn member(&self) -> Option<u32> {
        match self {
            Self::Member { member, .. } => Some(*member),
            Self::Unknown { was, .. } => *was,
        }
    }

    fn is(&self, sought: u32) -> bool {
        matches!(self, Self::Member { member, .. } if *member == sought)
    }
}

/// Which member of the deployment is at each place, as far as this client knows.
#[derive(Debug)]
pub(crate) struct Members(Mutex<Arc<Vec<NodeIdentity>>>);

/// The members of a deployment at one moment, by their places. A question that a majority decides is asked by one roster,
/// so that all counted answers are of one generation.
#[derive(Debug, Clone)]
pub(crate) struct Roster(Arc<Vec<NodeIdentity>>);

impl Roster {
    /// The stamp of the server at `node`.
    ///
    /// # Errors
    /// Why the server is not counted.
    pub(crate) fn stamp(&self, node: usize) -> Result<&str, &str> {
        match &self.0[node] {
            NodeIdentity::Member { stamp, .. } => Ok(stamp),
            NodeIdentity::Unknown { why, .. } => Err(why),
        }
    }

    /// Which member is at each place; 0 where no member is known.
    pub(crate) fn members(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|node| node.member().unwrap_or(0))
    }
}

impl Members {
    pub(crate) fn new(nodes: usize) -> Self {
        Self(Mutex::new(Arc::new(vec![NodeIdentity::unknown(None); nodes])))
    }

    /// The members as known now.
    pub(crate) fn roster(&self) -> Roster {
        Roster(Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Whether the server at `node` is known as a member.
    pub(crate) fn is_member(&self, node: usize) -> bool {
        self.roster().stamp(node).is_ok()
    }

    /// The nodes that are not known as members.
    pub(crate) fn unknown(&self) -> Vec<usize> {
        let roster = self.roster();
        (0..roster.0.len()).filter(|node| roster.stamp(*node).is_err()).collect()
    }

    /// Forgets what the servers have said: from now on they are of the deployment or generation `now`.
    pub(crate) fn reset_for(&self, known: &Deployment, now: &Deployment) {
        self.change(|nodes| {
            for node in nodes {
                let stays = |member: &u32| known.id == now.id && now.has(*member);
                *node = NodeIdentity::unknown(node.member().filter(stays));
            }
        });
    }

    /// Another server was put at `node`: the one that is this member.
    pub(crate) fn expect(&self, node: usize, member: u32) {
        self.change(|nodes| nodes[node] = NodeIdentity::unknown(Some(member)));
    }

    /// The server at `node` is this member, unless another address leads to it: a member has one vote.
    pub(crate) fn set_member(&self, node: usize, deployment: &Deployment, member: u32) {
        self.change(|nodes| {
            let other = nodes.iter().position(|node| node.is(member));
            // Safeguard: a member has one vote, whatever addresses lead to it (Redlock)
            nodes[node] = match other.filter(|other| *other != node) {
                None => NodeIdentity::Member { member, stamp: deployment.stamp(member).into() },
                Some(_) => {
                    let why = format!("it is the member {}, which another address leads to", deployment.name(member));
                    NodeIdentity::Unknown { why, was: None }
                }
            };
        });
    }

    /// The server at `node` is not, or no longer, the member that it was taken for.
    pub(crate) fn set_unknown(&self, node: usize, why: String) {
        self.change(|nodes| nodes[node] = NodeIdentity::Unknown { why, was: nodes[node].member() });
    }

    /// The member that the unmarked server at `node` is to become: the one that it was or whose address it has, unless
    /// another address leads to that member.
    pub(crate) fn candidate(&self, node: usize, deployment: &Deployment, address: &str) -> Option<u32> {
        let roster = self.roster();
        let NodeIdentity::Unknown { was, .. } = roster.0[node] else { return None };
        let member = was.or_else(|| deployment.named(address))?;
        (!roster.0.iter().any(|node| node.is(member))).then_some(member)
    }

    fn change(&self, work: impl FnOnce(&mut Vec<NodeIdentity>)) {
        work(Arc::make_mut(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)));
    }
}
