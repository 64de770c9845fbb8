//! Sentinels, and the primary that they name.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::future::join_all;
use lock_core::{Context, Diagnosis, Finding};
use redis::Value;

use super::{Arrangement, judge_unreached, look::ask, look_at_data_server, rights};
use crate::{
    Config,
    config::Sentinel,
    node::{Address, sentinel::address, text},
};

/// What one sentinel says of a service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct SentinelLook {
    took: Duration,
    /// Whether it is a sentinel at all; `None` where it does not say.
    is_sentinel: Option<bool>,
    /// The primary that it names; `None` when it does not know the service.
    primary: Option<Address>,
    /// How many sentinels have to agree that the primary is down.
    quorum: Option<usize>,
    /// How many other sentinels of the service it knows.
    others: Option<usize>,
    /// What it thinks of the primary, such as `master,o_down`.
    flags: String,
    /// What it refuses to say.
    refused: Option<String>,
}

pub(super) async fn diagnose(config: &Config, sentinel: &Sentinel, context: &Context, diagnosis: &mut Diagnosis) {
    let asked = sentinel.sentinels.iter().map(|at| async move {
        let questions = ["GET-MASTER-ADDR-BY-NAME", "MASTER"].map(|what| {
            let mut question = redis::cmd("SENTINEL");
            question.arg(what).arg(&sentinel.service);
            question
        });
        let questions = [redis::cmd("HELLO")].into_iter().chain(questions).collect::<Vec<_>>();
        let answers = ask(&config.sentinel_at(sentinel, at), &questions, context.clock()).await;
        (at.to_string(), answers.map(|(took, answers)| read(took, &answers)))
    });
    let looks = join_all(asked).await;
    for (server, look) in &looks {
        match look {
            Ok(look) => diagnosis.answered(server, look.took, None),
            Err(unreached) => {
                unreached.add_facts(server, diagnosis);
                diagnosis.find(judge_unreached(server, sentinel.username.as_deref(), unreached));
            }
        }
    }
    let seen: Vec<_> = looks.iter().filter_map(|(server, look)| Some((server.as_str(), look.as_ref().ok()?))).collect();
    diagnosis.findings.extend(judge(&sentinel.service, sentinel.sentinels.len(), &seen));
    if let Some(primary) = named(&seen) {
        diagnosis.fact(&sentinel.service, "primary", &primary);
        let at = config.address_map.reached(&primary);
        look_at_data_server(config, at, Arrangement::Sentinel, context, diagnosis).await;
    }
}

fn read(took: Duration, answers: &[Value]) -> SentinelLook {
    let pairs = |answer: Option<&Value>| -> BTreeMap<String, String> {
        let Some(Value::Array(parts)) = answer else { return BTreeMap::new() };
        let pair = |pair: &[Value]| Some((text(&pair[0])?.to_owned(), text(&pair[1])?.to_owned()));
        parts.chunks_exact(2).filter_map(pair).collect()
    };
    let greeting = pairs(answers.first());
    let service = pairs(answers.get(2));
    let number = |name: &str| service.get(name)?.parse().ok();
    SentinelLook {
        took,
        is_sentinel: greeting.get("mode").map(|mode| mode == "sentinel"),
        primary: answers.get(1).and_then(address),
        quorum: number("quorum"),
        others: number("num-other-sentinels"),
        flags: service.get("flags").cloned().unwrap_or_default(),
        refused: answers.get(1).and_then(rights::error),
    }
}

/// The primary that most of the sentinels name.
fn named(seen: &[(&str, &SentinelLook)]) -> Option<Address> {
    let mut votes: BTreeMap<&Address, usize> = BTreeMap::new();
    for (_, look) in seen {
        if let Some(primary) = &look.primary {
            *votes.entry(primary).or_default() += 1;
        }
    }
    votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(primary, _)| primary.clone())
}

/// Judges what those sentinels say that have answered, of `listed` in the settings.
fn judge(service: &str, listed: usize, seen: &[(&str, &SentinelLook)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let majority = listed / 2 + 1;
    if seen.len() < majority {
        findings.push(Finding::problem(
            "too-few-sentinels",
            service,
            format!(
                "{} of {listed} sentinels answer, and {majority} are a majority: nobody may fail over.",
                seen.len()
            ),
            "Start the others, or correct their addresses.",
        ));
    }
    for (server, look) in seen {
        findings.extend(judge_one(service, server, look));
    }
    let primaries = || seen.iter().filter_map(|(server, look)| Some((server, look.primary.as_ref()?)));
    if primaries().map(|(_, primary)| primary).collect::<BTreeSet<_>>().len() > 1 {
        let primaries: Vec<_> = primaries().map(|(server, primary)| format!("{primary} by {server}")).collect();
        findings.push(Finding::problem(
            "sentinels-disagree",
            service,
            format!("The sentinels name different primaries: {}.", primaries.join("; ")),
            "Wait for a failover to end. If they go on, they watch over different servers, or were cut off: compare `SENTINEL \
             MASTER` on each.",
        ));
    }
    let known = seen.iter().filter_map(|(_, look)| Some(look.others? + 1)).max();
    let quorum = seen.iter().filter_map(|(_, look)| look.quorum).max();
    findings.extend(judge_numbers(service, listed, known, quorum));
    findings
}

fn judge_one(service: &str, server: &str, look: &SentinelLook) -> Option<Finding> {
    if look.is_sentinel == Some(false) {
        return Some(Finding::problem(
            "not-a-sentinel",
            server,
            "The server is no Sentinel.",
            "Name the Sentinels, whose port is 26379 by default; for one server without Sentinels use redis://.",
        ));
    }
    if let Some(said) = &look.refused {
        return Some(Finding::problem(
            "missing-right",
            server,
            format!("The sentinel does not say which server is the primary: {said}."),
            "Set sentinel_username and sentinel_password to a user with the rights of docs/rights.md.",
        ));
    }
    if look.primary.is_none() {
        return Some(Finding::problem(
            "unknown-service",
            server,
            format!("The sentinel knows no service {service:?}."),
            "Name the service in the path of the URL as `sentinel monitor` calls it.",
        ));
    }
    let is_down = look.flags.split(',').any(|flag| flag == "s_down" || flag == "o_down");
    is_down.then(|| {
        Finding::problem(
            "primary-down",
            server,
            format!("The sentinel holds the primary of {service:?} for down ({}).", look.flags),
            "Start the primary, or see why no replica takes its place.",
        )
    })
}

fn judge_numbers(service: &str, listed: usize, known: Option<usize>, quorum: Option<usize>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(known) = known else { return findings };
    if let Some(quorum) = quorum.filter(|quorum| *quorum > known) {
        findings.push(Finding::problem(
            "sentinel-quorum",
            service,
            format!("A failover takes {quorum} sentinels that hold the primary for down, and there are {known}."),
            "Start more sentinels, or lower the quorum: `SENTINEL SET <service> quorum`.",
        ));
    }
    if known < 3 {
        findings.push(Finding::warning(
            "few-sentinels",
            service,
            format!("There are {known} sentinels: when one is down, no majority can fail over."),
            "Run three sentinels, on hosts of their own.",
        ));
    }
    if listed != known {
        findings.push(Finding::warning(
            "sentinels-not-listed",
            service,
            format!("The settings name {listed} sentinels, and there are {known}."),
            "Name all sentinels in the URL: a client counts the majority of those that it knows.",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use lock_core::Severity::{self, Problem, Warning};

    use super::*;

    fn look(port: u16) -> SentinelLook {
        SentinelLook {
            is_sentinel: Some(true),
            primary: Some(Address::new("h", port)),
            quorum: Some(2),
            others: Some(2),
            flags: "master".to_owned(),
            ..SentinelLook::default()
        }
    }

    fn found(listed: usize, looks: &[SentinelLook]) -> Vec<(&'static str, Severity)> {
        let seen: Vec<_> = looks.iter().map(|look| ("s:1", look)).collect();
        judge("orders", listed, &seen).into_iter().map(|finding| (finding.key, finding.severity)).collect()
    }

    #[test]
    fn three_that_agree_have_no_findings() {
        assert_eq!(found(3, &[look(1), look(1), look(1)]), []);
        assert_eq!(found(3, &[look(1), look(1)]), []);
    }

    #[test]
    fn what_keeps_sentinels_from_a_failover_is_found() {
        assert_eq!(found(3, &[look(1)]), [("too-few-sentinels", Problem)]);
        assert_eq!(found(3, &[look(1), look(2), look(1)]), [("sentinels-disagree", Problem)]);
        let greedy = SentinelLook { quorum: Some(4), ..look(1) };
        assert_eq!(found(3, &[look(1), greedy]), [("sentinel-quorum", Problem)]);
        let alone = SentinelLook { others: Some(0), quorum: Some(1), ..look(1) };
        assert_eq!(found(1, &[alone]), [("few-sentinels", Warning)]);
        assert_eq!(found(2, &[look(1), look(1)]), [("sentinels-not-listed", Warning)]);
        let down = SentinelLook { flags: "s_down,o_down,master".to_owned(), ..look(1) };
        assert_eq!(found(3, &[look(1), down]), [("primary-down", Problem)]);
    }

    #[test]
    fn who_does_not_know_the_service_or_is_no_sentinel_is_named() {
        let ignorant = SentinelLook { primary: None, quorum: None, others: None, ..look(1) };
        assert_eq!(found(2, &[ignorant.clone(), ignorant.clone()]), [("unknown-service", Problem); 2]);
        let other = SentinelLook { is_sentinel: Some(false), ..ignorant.clone() };
        assert_eq!(found(1, &[other]), [("not-a-sentinel", Problem)]);
        let closed = SentinelLook { refused: Some("NOPERM no".to_owned()), ..ignorant };
        assert_eq!(found(1, &[closed]), [("missing-right", Problem)]);
    }

    #[test]
    fn what_most_of_them_name_is_looked_at() {
        let looks = [look(2), look(1), look(1)];
        let seen: Vec<_> = looks.iter().map(|look| ("s:1", look)).collect();
        assert_eq!(named(&seen), Some(Address::new("h", 1)));
        assert_eq!(named(&[]), None);
    }
}
