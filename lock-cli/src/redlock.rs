//! `lock redlock`: what concerns a deployment and not a lock.

use std::{
    io::{self, Write},
    time::Duration,
};

use lock::{Config, DeploymentStatus, InitOptions, NodeState};
use serde::Serialize;

use crate::{
    escaped::{json, plain},
    failure::{Failure, UNAVAILABLE, say},
    shown::rounded,
};

/// The nodes of a deployment as the JSON object of `lock redlock status --json`, whose help is the contract.
#[derive(Debug, Serialize)]
struct DeploymentJson<'a> {
    id: Option<&'a str>,
    majority: usize,
    voting: usize,
    majority_in_ms: Option<u64>,
    nodes: Vec<NodeJson<'a>>,
}

/// One node within a [`DeploymentJson`].
#[derive(Debug, Serialize)]
struct NodeJson<'a> {
    address: &'a str,
    state: &'static str,
    quarantine_ms: Option<u64>,
    answered_in_us: Option<u64>,
    text: String,
}

/// Shows how the nodes are.
pub(crate) async fn status(config: Config, as_json: bool) -> Result<u8, Failure> {
    let deployment = config.deployment_status().await?;
    let status = if deployment.has_majority() { 0 } else { UNAVAILABLE };
    let mut out = io::stdout().lock();
    let written = match as_json {
        true => writeln!(out, "{}", json(&DeploymentJson::new(&deployment))),
        false => write(&mut out, &deployment),
    };
    match written {
        // The reader, such as `head`, has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(status),
        written => Ok(written.map(|()| status)?),
    }
}

fn write(out: &mut impl Write, deployment: &DeploymentStatus) -> io::Result<()> {
    let width = deployment.nodes.iter().map(|node| node.address.len()).max().unwrap_or_default();
    for node in &deployment.nodes {
        let took = node.answered_in.map(|took| format!(" (answered in {took:.1?})")).unwrap_or_default();
        let (address, state) = (plain(&node.address), node.state.to_string());
        writeln!(out, "{address:width$}  {}{took}", plain(&state))?;
    }
    let (voting, all, majority) = (deployment.voting(), deployment.nodes.len(), deployment.majority());
    let rest = match (deployment.missing(), deployment.majority_in()) {
        (0, _) => match voting - majority {
            0 => "no further one may fail".to_owned(),
            spare => format!("{spare} may fail"),
        },
        (missing, None) => format!("no majority: {missing} more must vote, and none does by itself"),
        (missing, Some(left)) => {
            format!("no majority: {missing} more must vote, quarantine for {}", rounded(left))
        }
    };
    writeln!(out, "{voting} of {all} vote, and a majority is {majority}: {rest}")
}

impl<'a> DeploymentJson<'a> {
    fn new(deployment: &'a DeploymentStatus) -> Self {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let node = |node: &'a lock::NodeStatus| {
            let (state, quarantine) = match &node.state {
                NodeState::Votes => ("votes", None),
                NodeState::Quarantined { left } => ("quarantined", Some(*left)),
                NodeState::Restarted { quarantine } => ("restarted", Some(*quarantine)),
                NodeState::Uninitialized => ("uninitialized", None),
                NodeState::Stranger { .. } => ("stranger", None),
                NodeState::SameServer { .. } => ("same-server", None),
                _ => ("unusable", None),
            };
            NodeJson {
                address: &node.address,
                state,
                quarantine_ms: quarantine.map(millis),
                answered_in_us: node.answered_in.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX)),
                text: node.state.to_string(),
            }
        };
        Self {
            id: deployment.id.as_deref(),
            majority: deployment.majority(),
            voting: deployment.voting(),
            majority_in_ms: deployment.majority_in().map(millis),
            nodes: deployment.nodes.iter().map(node).collect(),
        }
    }
}

/// Makes the servers of `config` a deployment, and says for how long it grants nothing.
pub(crate) async fn init(config: Config, no_holders: bool, reset: bool) -> Result<(), Failure> {
    let mut options = InitOptions::default();
    if no_holders {
        options = options.with_no_holders();
    }
    if reset {
        options = options.with_reset();
    }
    let wait = config.initialize(options).await?;
    if !wait.is_zero() {
        say(format_args!(
            "the deployment grants nothing for {}, because its servers may have forgotten who holds a lock \
             (--no-holders says that they are new)",
            rounded(wait)
        ));
    }
    Ok(())
}

/// Puts another server in the place of a member, and says what holds until it votes.
pub(crate) async fn replace(config: Config, old: &str, new: &str) -> Result<(), Failure> {
    let replaced = config.replace(old, new).await?;
    say(format_args!("{new} has the place of {old}: give clients that start from now on the new list"));
    if !replaced.no_vote_for.is_zero() {
        say(format_args!(
            "for {} {new} gives no vote, because leases may stand of which it knows nothing: so long no other member may fail",
            rounded(replaced.no_vote_for)
        ));
    }
    if !replaced.old_was_told {
        say(format_args!("{old} could not be told: stop it for good, or empty it before it comes back"));
    }
    Ok(())
}
