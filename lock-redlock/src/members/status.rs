//! How each node of a deployment is: whether it votes, and why it does not.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::join_all;
use lock_core::{Context, Error};
use lock_redis::node::Node;

use crate::{
    Config,
    nodes::{
        quorum::Quorum,
        scripts::{read_status, status},
    },
    protocol::deployment::{Deployment, ServerStatus},
};

/// How a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeState {
    /// The node votes.
    Votes,
    /// The node gives no vote for so long, because it may have forgotten for whom it voted.
    Quarantined {
        /// How long that lasts.
        left: Duration,
    },
    /// The node has restarted, and nobody has asked for its vote since. The first request for a vote begins the quarantine.
    Restarted {
        /// How long the quarantine is going to last.
        quarantine: Duration,
    },
    /// The node was never marked as a member, or has lost its data.
    Uninitialized,
    /// The node is a member of another deployment, or was replaced.
    Stranger {
        /// What it is marked as.
        stamp: String,
    },
    /// The node is the server of another address, and has one vote.
    SameServer {
        /// The other address.
        other: String,
    },
    /// The node cannot be used.
    Unusable {
        /// Why.
        reason: String,
    },
}

/// A node of a deployment, as [`DeploymentStatus`] has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStatus {
    /// The address of the node.
    pub address: String,
    /// How the node is.
    pub state: NodeState,
    /// How long a request took; `None` where nothing was answered.
    pub answered_in: Option<Duration>,
}

/// How the nodes of a deployment are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeploymentStatus {
    /// The id of the deployment; `None` where no node knows one.
    pub id: Option<String>,
    /// The nodes, in the order of the configuration.
    pub nodes: Vec<NodeStatus>,
    /// The record, for the diagnosis.
    pub(crate) deployment: Option<Deployment>,
}

impl DeploymentStatus {
    /// How many nodes vote.
    #[must_use]
    pub fn voting(&self) -> usize {
        self.nodes.iter().filter(|node| node.state == NodeState::Votes).count()
    }

    /// How many votes a grant takes.
    #[must_use]
    pub fn majority(&self) -> usize {
        crate::protocol::votes::majority(self.nodes.len())
    }

    /// Whether a majority votes, so that locks can be granted.
    #[must_use]
    pub fn has_majority(&self) -> bool {
        self.voting() >= self.majority()
    }

    /// How many votes a majority lacks.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.majority().saturating_sub(self.voting())
    }

    /// After what time a majority votes if nothing else happens: zero while one does, `None` when too few nodes are in
    /// quarantine for one. A node that has restarted counts from the first request for its vote, here from now.
    #[must_use]
    pub fn majority_in(&self) -> Option<Duration> {
        let Some(last) = self.missing().checked_sub(1) else { return Some(Duration::ZERO) };
        let mut left: Vec<Duration> = self.nodes.iter().filter_map(|node| node.state.votes_in()).collect();
        left.sort_unstable();
        left.get(last).copied()
    }
}

impl NodeState {
    /// After what time the node votes by itself, if it does not now.
    const fn votes_in(&self) -> Option<Duration> {
        match self {
            Self::Quarantined { left } => Some(*left),
            Self::Restarted { quarantine } => Some(*quarantine),
            _ => None,
        }
    }
}

/// Asks the nodes of `config` how they are. Nothing is changed on them.
///
/// # Errors
/// [`Error::Config`] for settings that are not allowed. Nodes that do not answer are in the answer.
///
/// # Panics
/// Outside of a tokio runtime.
///
/// # Cancel safety
/// Nothing is lost when the future is dropped.
pub async fn deployment_status(config: &Config) -> Result<DeploymentStatus, Error> {
    config.check()?;
    Ok(look(config, Context::current()).await)
}

/// As [`deployment_status`], in `context`.
pub(crate) async fn look(config: &Config, context: Context) -> DeploymentStatus {
    let quorum = Arc::new(Quorum::new(config.clone(), context));
    let asked = (0..quorum.len()).map(|node| {
        let quorum = Arc::clone(&quorum);
        async move {
            let (status, took) = ask(&quorum, &quorum.node(node)).await;
            (quorum.address(node), status, took)
        }
    });
    let answers = join_all(asked).await;
    quorum.close();
    judge(answers)
}

async fn ask(quorum: &Quorum, node: &Node) -> (Result<ServerStatus, String>, Option<Duration>) {
    let (limit, clock) = (quorum.config.node_timeout.max(quorum.config.connect_timeout), quorum.clock());
    let connection = match clock.answer_timeout(limit, node.connection()).await {
        Some(Ok(connection)) => connection,
        Some(Err(error)) => return (Err(error.to_string()), None),
        None => return (Err(format!("no connection within {limit:?}")), None),
    };
    let sent = clock.now();
    match connection.call(status()).await.and_then(|answer| read_status(&answer)) {
        Ok(status) => (Ok(status), Some(clock.now().saturating_since(sent))),
        Err(error) => (Err(error.to_string()), None),
    }
}

/// Makes of what the nodes say how they are.
fn judge(answers: Vec<(String, Result<ServerStatus, String>, Option<Duration>)>) -> DeploymentStatus {
    let deployment = prevailing(answers.iter().filter_map(|(_, status, _)| status.as_ref().ok()));
    let mut met: BTreeMap<String, String> = BTreeMap::new();
    let node = |(address, status, answered_in): (String, Result<ServerStatus, String>, Option<Duration>)| {
        let state = match status {
            Err(reason) => NodeState::Unusable { reason },
            Ok(status) => match met.get(&status.run_id) {
                Some(other) => NodeState::SameServer { other: other.clone() },
                None => {
                    met.insert(status.run_id.clone(), address.clone());
                    state_of(&status, deployment.as_ref())
                }
            },
        };
        NodeStatus { address, state, answered_in }
    };
    let nodes = answers.into_iter().map(node).collect();
    DeploymentStatus { id: deployment.as_ref().map(|deployment| deployment.id.clone()), nodes, deployment }
}

/// The deployment and generation that most of the servers are marked for.
fn prevailing<'a>(statuses: impl Iterator<Item = &'a ServerStatus>) -> Option<Deployment> {
    let mut known: Vec<(&Deployment, usize)> = Vec::new();
    for deployment in statuses.filter_map(ServerStatus::marked_for) {
        match known.iter_mut().find(|(other, _)| *other == deployment) {
            Some((_, count)) => *count += 1,
            None => known.push((deployment, 1)),
        }
    }
    let most = known.into_iter().max_by_key(|(deployment, count)| (*count, deployment.generation));
    most.map(|(deployment, _)| deployment.clone())
}

fn state_of(status: &ServerStatus, deployment: Option<&Deployment>) -> NodeState {
    let is_member = deployment.is_some_and(|deployment| deployment.member(&status.stamp).is_some());
    match why_no_vote(status) {
        Some(NodeState::Uninitialized) => NodeState::Uninitialized,
        _ if !is_member => NodeState::Stranger { stamp: status.stamp.clone() },
        Some(state) => state,
        None => NodeState::Votes,
    }
}

/// Why a server gives no vote, by what it says of itself; `None` when it votes for whoever takes it for what it is marked as.
pub(crate) fn why_no_vote(status: &ServerStatus) -> Option<NodeState> {
    if status.is_unmarked() {
        return Some(NodeState::Uninitialized);
    }
    if status.has_restarted() {
        let quarantine = status.deployment.as_ref().map(|deployment| deployment.max_ttl);
        return Some(NodeState::Restarted { quarantine: quarantine.unwrap_or_default() });
    }
    status.quarantine.map(|left| NodeState::Quarantined { left })
}

impl std::fmt::Display for NodeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Votes => f.write_str("it votes"),
            Self::Quarantined { left } => write!(f, "quarantine for {}", seconds(*left)),
            Self::Restarted { quarantine } => {
                write!(
                    f,
                    "it has restarted: quarantine for {} from the next request for its vote",
                    seconds(*quarantine)
                )
            }
            Self::Uninitialized => f.write_str("it was never marked as a member, or has lost its data"),
            Self::Stranger { stamp } => write!(f, "it is marked as another member, {stamp:?}"),
            Self::SameServer { other } => write!(f, "it is the server of {other}, and has one vote"),
            Self::Unusable { reason } => f.write_str(reason),
        }
    }
}

/// A quarantine in whole seconds, rounded up.
pub(crate) fn seconds(left: Duration) -> String {
    format!("{} s", left.as_millis().div_ceil(1_000))
}

#[cfg(test)]
mod tests {
    use lock_redis::node::NodeConfig;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn deployment() -> Deployment {
        let config = Config::new((1..=3).map(|port| NodeConfig::new("h", port)).collect()).unwrap();
        Deployment::new("d1".to_owned(), &config)
    }

    fn status(member: u32) -> ServerStatus {
        let deployment = deployment();
        let (run_id, stamp) = (member.to_string(), deployment.stamp(member));
        ServerStatus { known_run: run_id.clone(), run_id, stamp, quarantine: None, deployment: Some(deployment) }
    }

    fn judged(statuses: Vec<Result<ServerStatus, String>>) -> DeploymentStatus {
        let answer = |(port, status): (i32, _)| (format!("h:{port}"), status, None);
        judge((1..).zip(statuses).map(answer).collect())
    }

    #[test]
    fn members_vote_unless_they_may_have_forgotten() {
        let quarantined = ServerStatus { quarantine: Some(MS * 40_001), ..status(2) };
        let restarted = ServerStatus { run_id: "other".to_owned(), ..status(3) };
        let seen = judged(vec![Ok(status(1)), Ok(quarantined), Ok(restarted)]);
        assert_eq!((seen.voting(), seen.majority(), seen.missing(), seen.has_majority()), (1, 2, 1, false));
        assert_eq!(seen.majority_in(), Some(MS * 40_001));
        assert_eq!(seen.nodes[1].state.to_string(), "quarantine for 41 s");
        assert_eq!(seen.nodes[2].state, NodeState::Restarted { quarantine: Config::MAX_TTL });
        let durable = ServerStatus { known_run: "any".to_owned(), run_id: "other".to_owned(), ..status(2) };
        let seen = judged(vec![Ok(status(1)), Ok(durable), Err("refused".to_owned())]);
        assert_eq!((seen.has_majority(), seen.majority_in()), (true, Some(Duration::ZERO)));
    }

    #[test]
    fn who_is_no_member_never_votes_by_itself() {
        let unmarked = ServerStatus { stamp: String::new(), deployment: None, ..status(2) };
        let stranger = ServerStatus { stamp: "d2 1 3".to_owned(), ..status(3) };
        let seen = judged(vec![Ok(status(1)), Ok(unmarked), Ok(stranger)]);
        assert_eq!(seen.nodes[1].state, NodeState::Uninitialized);
        assert_eq!(seen.nodes[2].state, NodeState::Stranger { stamp: "d2 1 3".to_owned() });
        assert_eq!((seen.missing(), seen.majority_in()), (1, None));
    }

    #[test]
    fn a_server_with_two_addresses_has_one_vote() {
        let seen = judged(vec![Ok(status(1)), Ok(status(1)), Ok(status(2))]);
        assert_eq!(seen.nodes[1].state, NodeState::SameServer { other: "h:1".to_owned() });
        assert_eq!(seen.voting(), 2);
    }
}
