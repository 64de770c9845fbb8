//! A cluster: what its servers say of it, and the primary of each shard.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use lock_core::{Context, Diagnosis, Finding};
use redis::Value;

use super::{
    Arrangement, judge_unreached,
    look::{self, ask},
    needed_rights, report,
};
use crate::{
    Config,
    cluster::slots::{self, SLOTS, SlotRange},
    node::{Address, text},
};

/// What one server says of its cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct ClusterLook {
    took: Duration,
    /// Whether the server is of a cluster; `None` where it does not say.
    is_member: Option<bool>,
    /// The state of the cluster, such as `ok`; `None` where the user may not ask.
    state: Option<String>,
    ranges: Vec<SlotRange>,
}

pub(super) async fn diagnose(config: &Config, seeds: &[Address], context: &Context, diagnosis: &mut Diagnosis) {
    let rights = &needed_rights(config);
    let asked = seeds.iter().map(|seed| async move {
        let question = |what: &str| {
            let mut question = redis::cmd("CLUSTER");
            question.arg(what);
            question
        };
        let questions = [redis::cmd("HELLO"), question("INFO"), question("SLOTS")];
        let at = config.address_map.reached(seed);
        let answers = ask(&config.node.at(at), &questions, context.clock()).await;
        (seed, answers.map(|(took, answers)| read(took, &answers, seed)))
    });
    let looks = join_all(asked).await;
    let ranges = looks.iter().filter_map(|(_, look)| look.as_ref().ok()).map(|look| look.ranges.as_slice());
    let ranges = ranges.max_by_key(|ranges| covered(ranges)).unwrap_or_default();
    let primaries = primaries(ranges);
    for (seed, look) in &looks {
        let server = seed.to_string();
        match look {
            Ok(look) => {
                if !primaries.contains_key(seed) {
                    diagnosis.answered(&server, look.took, None);
                }
                diagnosis.findings.extend(judge_one(&server, look));
            }
            Err(unreached) => {
                unreached.add_facts(&server, diagnosis);
                diagnosis.find(judge_unreached(&server, config.node.username.as_deref(), unreached));
            }
        }
    }
    diagnosis.findings.extend(judge_ranges(ranges));
    diagnosis.fact("cluster", "primaries", primaries.len());
    let looks = primaries.keys().map(|primary| async move {
        let at = config.address_map.reached(primary);
        (primary, look::look(&config.node.at(at), rights, context).await)
    });
    let known: Vec<String> = diagnosis.findings.iter().map(|finding| finding.subject.clone()).collect();
    for (primary, look) in join_all(looks).await {
        // A seed that cannot be used was found before.
        if look.is_ok() || !known.contains(&primary.to_string()) {
            report(look, primary, config, Arrangement::Cluster, diagnosis);
        }
    }
}

fn read(took: Duration, answers: &[Value], asked: &Address) -> ClusterLook {
    let [hello, info, slots] = answers else { return ClusterLook { took, ..ClusterLook::default() } };
    let mode = match hello {
        Value::Array(parts) => parts.chunks_exact(2).find(|pair| text(&pair[0]) == Some("mode")),
        _ => None,
    };
    let is_member = mode.and_then(|pair| text(&pair[1])).map(|mode| mode == "cluster");
    let mut lines = text(info).unwrap_or_default().lines();
    let state = lines.find_map(|line| line.trim_end().strip_prefix("cluster_state:")).map(str::to_owned);
    ClusterLook { took, is_member, state, ranges: slots::ranges(slots, asked).unwrap_or_default() }
}

fn judge_one(server: &str, look: &ClusterLook) -> Option<Finding> {
    if look.is_member == Some(false) {
        return Some(Finding::problem(
            "not-a-cluster-node",
            server,
            "The server is no node of a Redis Cluster.",
            "Use redis:// for one server, or name nodes of the cluster.",
        ));
    }
    let state = look.state.as_ref().filter(|state| *state != "ok")?;
    Some(Finding::problem(
        "cluster-down",
        server,
        format!("The node says that the state of its cluster is {state:?}: it is cut off, or slots are missing."),
        "Start the missing nodes; `redis-cli --cluster check` says which slots nobody has.",
    ))
}

/// How many slots somebody has.
fn covered(ranges: &[SlotRange]) -> u32 {
    ranges.iter().map(|range| u32::from(range.last) + 1 - u32::from(range.first)).sum()
}

/// The primaries, and how many replicas each has.
fn primaries(ranges: &[SlotRange]) -> BTreeMap<Address, usize> {
    let shards = ranges.iter().filter_map(|range| range.members.split_first());
    shards.map(|(primary, replicas)| (primary.address.clone(), replicas.len())).collect()
}

fn judge_ranges(ranges: &[SlotRange]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !ranges.is_empty() && covered(ranges) < u32::from(SLOTS) {
        findings.push(Finding::problem(
            "slots-missing",
            "cluster",
            format!(
                "{} of {SLOTS} slots are nobody's: locks of these slots cannot be taken.",
                u32::from(SLOTS) - covered(ranges)
            ),
            "Assign the slots: `redis-cli --cluster fix`.",
        ));
    }
    for (primary, replicas) in primaries(ranges) {
        if replicas == 0 {
            findings.push(Finding::warning(
                "no-replica",
                primary.to_string(),
                "The primary has no replica: when it fails, its locks cannot be taken until it is back.",
                "Add a replica.",
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::slots::ClusterMember;

    fn range(first: u16, last: u16, ports: &[u16]) -> SlotRange {
        let member = |port: &u16| ClusterMember { id: port.to_string(), address: Address::new("h", *port) };
        SlotRange { first, last, members: ports.iter().map(member).collect() }
    }

    fn keys(findings: impl IntoIterator<Item = Finding>) -> Vec<&'static str> {
        findings.into_iter().map(|finding| finding.key).collect()
    }

    #[test]
    fn slots_of_nobody_and_primaries_without_replicas_are_found() {
        assert_eq!(keys(judge_ranges(&[range(0, 9_999, &[1, 2]), range(10_000, SLOTS - 1, &[3, 4])])), [""; 0]);
        let found = keys(judge_ranges(&[range(0, 9_999, &[1, 2]), range(10_001, SLOTS - 1, &[3])]));
        assert_eq!(found, ["slots-missing", "no-replica"]);
    }

    #[test]
    fn a_node_that_is_cut_off_or_none_at_all_is_found() {
        let look = |is_member, state: &str| ClusterLook {
            is_member: Some(is_member),
            state: Some(state.to_owned()),
            ..ClusterLook::default()
        };
        assert_eq!(keys(judge_one("h:1", &look(true, "ok"))), [""; 0]);
        assert_eq!(keys(judge_one("h:1", &look(true, "fail"))), ["cluster-down"]);
        assert_eq!(keys(judge_one("h:1", &look(false, "ok"))), ["not-a-cluster-node"]);
    }
}
