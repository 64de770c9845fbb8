//! What is wrong with a deployment, for [`Driver::diagnose`](lock_core::Driver::diagnose): each node is looked at as a server,
//! and asked what it is in the deployment. Nothing is changed on the nodes.

use futures::future::join_all;
use lock_core::{Context, Diagnosis, Error, Finding};
use lock_redis::diagnose::{
    Arrangement, Rights, ServerLook, Unreached, judge_clock, judge_durability, judge_server, judge_unreached, look,
};

use crate::{
    Config,
    config::address,
    members::status::{self, DeploymentStatus, NodeState, seconds},
};

/// Looks at the nodes of `config`, which was checked.
pub(crate) async fn diagnose(config: &Config, context: &Context) -> Diagnosis {
    let rights = &Rights::redlock(&config.prefix);
    let nodes: Vec<_> = config.limited_nodes().collect();
    let looks = join_all(nodes.iter().map(|node| look(node, rights, context)));
    let (looks, status) = futures::join!(looks, status::look(config, context.clone()));
    let looks: Vec<_> = nodes.iter().map(address).zip(looks).collect();
    let user = config.nodes.first().and_then(|node| node.username.as_deref());

    let mut diagnosis = Diagnosis::new();
    let max_ttl = status.deployment.as_ref().map_or(Config::MAX_TTL, |deployment| deployment.max_ttl);
    diagnosis.set_lease("ttl", config.default_ttl(max_ttl));
    for (server, look) in &looks {
        match look {
            Ok(look) => {
                look.add_facts(server, &mut diagnosis);
                diagnosis.findings.extend(judge_server(server, look, Arrangement::Independent));
                diagnosis.findings.extend(judge_clock(server, look));
            }
            Err(unreached) => {
                unreached.add_facts(server, &mut diagnosis);
                diagnosis.find(judge_unreached(server, user, unreached));
            }
        }
    }
    add_facts(&status, &mut diagnosis);
    diagnosis.findings.extend(durability(config, &status, &looks));
    let known: Vec<String> = diagnosis.findings.iter().map(|finding| finding.subject.clone()).collect();
    diagnosis.findings.extend(judge_nodes(&status, &known));
    diagnosis.findings.extend(judge_majority(&status));
    diagnosis.findings.extend(judge_settings(config, &status));
    diagnosis
}

fn add_facts(status: &DeploymentStatus, diagnosis: &mut Diagnosis) {
    for node in &status.nodes {
        diagnosis.fact(&node.address, "in the deployment", &node.state);
    }
    if let Some(deployment) = &status.deployment {
        diagnosis.fact("deployment", "record", deployment);
    }
    let votes = format!("{} of {}, a majority is {}", status.voting(), status.nodes.len(), status.majority());
    diagnosis.fact("deployment", "votes", votes);
}

/// Judges the disks of the nodes where the deployment says that they forget nothing.
fn durability(
    config: &Config,
    status: &DeploymentStatus,
    looks: &[(String, Result<ServerLook, Unreached>)],
) -> Vec<Finding> {
    let recorded = status.deployment.as_ref().map(|deployment| deployment.quarantine);
    if recorded.or(config.restart_quarantine).unwrap_or(true) {
        return Vec::new();
    }
    let seen = looks.iter().filter_map(|(server, look)| Some((server, look.as_ref().ok()?)));
    seen.filter_map(|(server, look)| judge_durability(server, look.persistence.as_ref())).collect()
}

/// Judges what each node is in the deployment. `known` are the nodes of which it was said already why they cannot be used.
fn judge_nodes(status: &DeploymentStatus, known: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let new: Vec<&str> = status
        .nodes
        .iter()
        .filter(|node| node.state == NodeState::Uninitialized)
        .map(|node| node.address.as_str())
        .collect();
    if !new.is_empty() {
        let (what, cure) = match &status.deployment {
            None => (
                "The servers are no deployment yet, or have all lost their data: nothing is granted.",
                "Make them one by `lock redlock init`, before any client connects; with --no-holders if nobody has ever used them.",
            ),
            Some(_) => (
                "The server was never marked as a member, or has lost its data: it gives no vote.",
                "Nothing while a majority votes: the next client makes it a member again, and it votes max_ttl later. Else \
                 `lock redlock init`.",
            ),
        };
        findings.push(Finding::problem("not-initialized", new.join(","), what, cure));
    }
    for node in &status.nodes {
        let server = node.address.as_str();
        findings.extend(match &node.state {
            NodeState::Votes | NodeState::Uninitialized => None,
            state @ (NodeState::Quarantined { .. } | NodeState::Restarted { .. }) => Some(Finding::warning(
                "in-quarantine",
                server,
                format!("The server may have forgotten for whom it voted, and gives no vote: {state}."),
                "Wait; restart no other node before it votes again.",
            )),
            NodeState::Stranger { stamp } => Some(Finding::problem(
                "other-deployment",
                server,
                format!("The server is marked as {stamp:?}, which is no member of the deployment of the others: it has no vote."),
                "Correct the list of servers; a server that was replaced is to be emptied before it is used again. After an `init` \
                 that was broken off: `lock redlock init`.",
            )),
            NodeState::SameServer { other } => Some(Finding::problem(
                "same-server-twice",
                format!("{other},{server}"),
                "Both addresses lead to one server, which has one vote: clients are refused.",
                "Name another server in the place of one of them.",
            )),
            NodeState::Unusable { .. } if known.iter().any(|known| known == server) => None,
            NodeState::Unusable { reason } => Some(Finding::problem(
                "refused",
                server,
                format!("The server does not say what it is in the deployment: {reason}."),
                "See what the message names; docs/rights.md has the rights of the user.",
            )),
        });
    }
    findings
}

/// Judges how many nodes vote.
fn judge_majority(status: &DeploymentStatus) -> Option<Finding> {
    let (voting, all, majority) = (status.voting(), status.nodes.len(), status.majority());
    let votes = format!("{voting} of {all} nodes vote, and a majority is {majority}");
    if !status.has_majority() {
        let until = match status.majority_in() {
            Some(left) => format!("a majority votes in {}", seconds(left)),
            None => "no quarantine ends that would change it".to_owned(),
        };
        let cure = "Wait for the quarantine, and repair what the other findings name.";
        return Some(Finding::problem(
            "no-majority",
            "deployment",
            format!("{votes}: nothing is granted; {until}."),
            cure,
        ));
    }
    (voting == majority).then(|| {
        let what = format!("{votes}: no further node may fail, restart or have a clock that jumps.");
        Finding::warning(
            "bare-majority",
            "deployment",
            what,
            "Repair what the other findings name, one node after the other.",
        )
    })
}

/// Judges the settings beside those of the deployment.
fn judge_settings(config: &Config, status: &DeploymentStatus) -> Option<Finding> {
    match status.deployment.as_ref()?.admit(config) {
        Err(Error::Config { key, value, allowed }) => Some(Finding::problem(
            "differs-from-deployment",
            key,
            format!("The settings say {value}, and the deployment {allowed}: clients are refused."),
            "Leave the setting out, so that it is the deployment's, or set it to the same.",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::Severity::{self, Problem, Warning};
    use lock_redis::node::NodeConfig;

    use super::*;
    use crate::{members::status::NodeStatus, protocol::deployment::Deployment};

    fn config() -> Config {
        Config::new((1..=3).map(|port| NodeConfig::new("h", port)).collect()).unwrap()
    }

    fn status(states: [NodeState; 3]) -> DeploymentStatus {
        let node = |(port, state)| NodeStatus { address: format!("h:{port}"), state, answered_in: None };
        DeploymentStatus {
            id: Some("d1".to_owned()),
            nodes: (1..).zip(states).map(node).collect::<Vec<NodeStatus>>(),
            deployment: Some(Deployment::new("d1".to_owned(), &config())),
        }
    }

    fn keys(findings: impl IntoIterator<Item = Finding>) -> Vec<(&'static str, String, Severity)> {
        findings.into_iter().map(|finding| (finding.key, finding.subject, finding.severity)).collect()
    }

    fn nodes(states: [NodeState; 3]) -> Vec<(&'static str, String, Severity)> {
        keys(judge_nodes(&status(states), &["h:3".to_owned()]))
    }

    use NodeState::{Quarantined, SameServer, Stranger, Uninitialized, Unusable, Votes};

    #[test]
    fn each_node_that_gives_no_vote_is_named_with_the_reason_once() {
        assert_eq!(nodes([Votes, Votes, Votes]), []);
        let unusable = || Unusable { reason: "refused".to_owned() };
        assert_eq!(nodes([Votes, unusable(), unusable()]), [("refused", "h:2".to_owned(), Problem)]);
        let left = Duration::from_secs(41);
        let other = SameServer { other: "h:1".to_owned() };
        assert_eq!(
            nodes([Quarantined { left }, other, Stranger { stamp: "d2 1 1".to_owned() }]),
            [
                ("in-quarantine", "h:1".to_owned(), Warning),
                ("same-server-twice", "h:1,h:2".to_owned(), Problem),
                ("other-deployment", "h:3".to_owned(), Problem)
            ]
        );
        let new = DeploymentStatus { deployment: None, ..status([Uninitialized, Uninitialized, Uninitialized]) };
        assert_eq!(keys(judge_nodes(&new, &[])), [("not-initialized", "h:1,h:2,h:3".to_owned(), Problem)]);
    }

    #[test]
    fn a_majority_and_how_long_it_is_missing_is_told() {
        let judged = |states| judge_majority(&status(states));
        assert_eq!(judged([Votes, Votes, Votes]), None);
        assert_eq!(judged([Votes, Votes, Uninitialized]).unwrap().key, "bare-majority");
        let left = Duration::from_millis(40_500);
        let lost = judged([Votes, Quarantined { left }, Uninitialized]).unwrap();
        assert_eq!((lost.key, lost.severity), ("no-majority", Problem));
        assert!(lost.what.contains("in 41 s"), "{}", lost.what);
        assert!(judged([Votes, Uninitialized, Uninitialized]).unwrap().what.contains("no quarantine ends"));
    }

    #[test]
    fn settings_that_differ_from_the_deployments_are_named() {
        let mut other = config();
        assert_eq!(judge_settings(&other, &status([Votes, Votes, Votes])), None);
        other.max_ttl = Some(Duration::from_secs(120));
        let found = judge_settings(&other, &status([Votes, Votes, Votes])).unwrap();
        assert_eq!((found.key, found.subject.as_str()), ("differs-from-deployment", "max_ttl"));
        assert!(found.what.contains("120s") && found.what.contains("60s"), "{}", found.what);
    }
}
