//! What a look at one server means: plain functions over what was seen.

use std::time::Duration;

use lock_core::Finding;

use super::{Arrangement, Persistence, ServerLook, Unreached};
use crate::node::Replicas;

/// Fencing tokens begin with the time where a counter was lost, so a clock is to be right to about a second.
const CLOCK_WARNING: Duration = Duration::from_secs(1);
/// From here on a server does not follow the clock of a client that is ahead.
const CLOCK_PROBLEM: Duration = Duration::from_secs(60);
/// How many keys are named in a finding.
const NAMED: usize = 3;

/// Judges why a server cannot be used. `user` is as whom it was tried.
#[must_use]
pub fn judge_unreached(server: &str, user: Option<&str>, unreached: &Unreached) -> Finding {
    match unreached {
        Unreached::Silent(said) => Finding::unreachable(server, format!("The server cannot be reached: {said}.")),
        Unreached::NoRedis(said) => Finding::problem(
            "wrong-service",
            server,
            format!("Somebody listens there who does not speak as Redis does: {said}."),
            "Correct host and port. A server that wants TLS needs a scheme with TLS.",
        ),
        Unreached::SignIn { said, .. } => {
            let user = user.map_or_else(|| "the default user".to_owned(), |user| format!("the user {user:?}"));
            Finding::problem(
                "wrong-credentials",
                server,
                format!("The server does not let {user} in: {said}."),
                "Set the user and the password that the server has (`ACL GETUSER`, `requirepass`), in the URL or beside it.",
            )
        }
        Unreached::Refused { said, .. } => Finding::problem(
            "refused",
            server,
            format!("The server refuses what a connection begins with: {said}."),
            "Correct the number of the database in the URL, or the setting of the server that the message names.",
        ),
    }
}

/// Judges a server by itself: its place in the arrangement, its version, what it does to keys, and what the user may do.
#[must_use]
pub fn judge_server(server: &str, look: &ServerLook, arrangement: Arrangement) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(kind(server, look, arrangement));
    if let Some(Some(eviction)) = &look.eviction {
        findings.push(Finding::problem(
            "evicts-keys",
            server,
            format!("The server deletes keys, locks among them, when it is short of memory: {eviction}."),
            "Set `maxmemory-policy noeviction`, or `maxmemory 0`, on the server. Until then connections are refused.",
        ));
    }
    findings.extend(version(server, look));
    findings.extend(missing_rights(server, look));
    findings.extend(endless(server, look));
    findings.extend(unseen(server, look));
    findings
}

fn kind(server: &str, look: &ServerLook, arrangement: Arrangement) -> Option<Finding> {
    match (look.mode.as_deref(), arrangement) {
        (Some("sentinel"), _) => {
            return Some(Finding::problem(
                "is-a-sentinel",
                server,
                "This is a Sentinel, which has no locks.",
                "Use redis+sentinel:// with all Sentinels and the name of the service.",
            ));
        }
        (Some("cluster"), Arrangement::Independent | Arrangement::Sentinel) => {
            return Some(Finding::problem(
                "cluster-node",
                server,
                "This is a node of a Redis Cluster: it has some of the locks only, and others take its place.",
                "Use redis+cluster:// with several nodes of the cluster.",
            ));
        }
        (Some("standalone"), Arrangement::Cluster) => {
            return Some(Finding::problem(
                "not-a-cluster-node",
                server,
                "The server is no node of a Redis Cluster.",
                "Use redis:// for one server, or name nodes of the cluster.",
            ));
        }
        _ => {}
    }
    if look.is_replica != Some(true) {
        return None;
    }
    let cure = match arrangement {
        Arrangement::Independent => {
            "Name the primary; where another server may take over, use redis+sentinel://. The nodes of a Redlock \
             replicate nobody: end it with `REPLICAOF NO ONE`."
        }
        Arrangement::Sentinel | Arrangement::Cluster => {
            "Wait for the failover to end; if the server stays a replica, look at its log and at those who name it."
        }
    };
    Some(Finding::problem("is-a-replica", server, "The server is a replica, which takes no writes.", cure))
}

fn version(server: &str, look: &ServerLook) -> Option<Finding> {
    let version = look.version.as_deref()?;
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let known = (numbers.next()?, numbers.next().unwrap_or_default());
    let cure = "Update the server; 7.0 and later are what is tested most.";
    if known < (6, 2) {
        let what = format!("Redis {version} gives channels to everybody, and before 6.0 has no users: docs/rights.md.");
        return Some(Finding::warning("old-redis", server, what, cure));
    }
    let what = format!("Redis {version} wraps errors of scripts in others, and is no longer maintained.");
    (known < (7, 0)).then(|| Finding::note("old-redis", server, what, cure))
}

fn missing_rights(server: &str, look: &ServerLook) -> Vec<Finding> {
    let listed = |is_needed: bool| {
        let denied = look.denied.iter().filter(|denied| denied.is_needed == is_needed);
        denied.map(|denied| denied.right.as_str()).collect::<Vec<_>>().join(", ")
    };
    let cure = "Give the user the rights of docs/rights.md, on every server.";
    let (needed, convenient) = (listed(true), listed(false));
    let mut findings = Vec::new();
    if !needed.is_empty() {
        let what = format!("The user lacks rights without which locks do not work: {needed}.");
        findings.push(Finding::problem("missing-right", server, what, cure));
    }
    if !convenient.is_empty() {
        let what =
            format!("The user lacks rights that locks do not need, and without which less is possible: {convenient}.");
        findings.push(Finding::warning("missing-right", server, what, cure));
    }
    findings
}

fn endless(server: &str, look: &ServerLook) -> Option<Finding> {
    if look.endless.is_empty() {
        return None;
    }
    let named = look.endless.iter().take(NAMED).map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ");
    let what = format!(
        "{} keys of locks have no expiry, {named} among them: this library gives one to each, so such a lock may never be free.",
        look.endless.len()
    );
    Some(Finding::warning(
        "endless-lock",
        server,
        what,
        "See who made the keys; delete them where nobody holds the locks.",
    ))
}

fn unseen(server: &str, look: &ServerLook) -> Option<Finding> {
    if look.unseen.is_empty() {
        return None;
    }
    let what = look.unseen.iter().map(|(what, right)| format!("{what} ({right})")).collect::<Vec<_>>().join("; ");
    Some(Finding::note(
        "not-looked-at",
        server,
        format!("The user may not ask, so this was not looked at: {what}."),
        "Nothing, or run this once as a user who may; locks do without these commands.",
    ))
}

/// Judges the wall clock of a server beside that of this host.
#[must_use]
pub fn judge_clock(server: &str, look: &ServerLook) -> Option<Finding> {
    let clock = look.clock?;
    let off = clock.off().saturating_sub(clock.within);
    let what = format!(
        "The wall clock of the server is {clock}, by the clock of this host. Where a counter is lost, fencing tokens go on from \
         the clock."
    );
    let cure = "Let NTP set the clocks of all hosts. If the clock jumps, leases end early.";
    if off > CLOCK_PROBLEM {
        Some(Finding::problem("clock-differs", server, what, cure))
    } else {
        (off > CLOCK_WARNING).then(|| Finding::warning("clock-differs", server, what, cure))
    }
}

/// Judges whether as many replicas are there as have to acknowledge each grant.
pub(super) fn judge_replicas(server: &str, look: &ServerLook, wanted: Option<Replicas>) -> Option<Finding> {
    let (wanted, connected) = (wanted?.count, look.replicas?);
    if connected >= wanted || look.is_replica == Some(true) {
        return None;
    }
    Some(Finding::problem(
        "too-few-replicas",
        server,
        format!("min_replicas={wanted}, and {connected} replicas are connected: no grant and no renewal counts."),
        "Start the missing replicas, or lower min_replicas.",
    ))
}

/// Says what a server forgets that restarts.
pub(super) fn judge_restart(server: &str, look: &ServerLook) -> Option<Finding> {
    let persistence = look.persistence.as_ref()?;
    if persistence.appends {
        return None;
    }
    Some(Finding::note(
        "forgets-on-restart",
        server,
        "The server appends no writes to a file: when it restarts, locks that are held are granted again.",
        "Check fencing tokens in the store that the locks protect; `appendonly yes` makes it less likely.",
    ))
}

/// Judges a server of which the deployment says that it forgets nothing.
#[must_use]
pub fn judge_durability(server: &str, persistence: Option<&Persistence>) -> Option<Finding> {
    let (what, is_known) = match persistence {
        Some(Persistence { appends: true, fsync: Some(fsync) }) if fsync == "always" => return None,
        Some(Persistence { appends: false, .. }) => {
            ("it appends no writes to a file (`appendonly no`)".to_owned(), true)
        }
        Some(Persistence { fsync: Some(fsync), .. }) => (format!("it has `appendfsync {fsync}`"), true),
        _ => ("whether it has `appendfsync always` may not be asked (config|get)".to_owned(), false),
    };
    let what = format!("restart_quarantine=off says that a restart loses nothing, and {what}.");
    let cure = "Set `appendonly yes` and `appendfsync always` on every node, or make the deployment anew with \
                restart_quarantine=on.";
    Some(match is_known {
        true => Finding::problem("forgets-without-quarantine", server, what, cure),
        false => Finding::note("not-looked-at", server, what, cure),
    })
}

#[cfg(test)]
mod tests {
    use lock_core::Severity::{self, Note, Problem, Warning};

    use super::*;
    use crate::{
        diagnose::{ClockOffset, Denied},
        node::Eviction,
    };

    fn keys(findings: impl IntoIterator<Item = Finding>) -> Vec<(&'static str, Severity)> {
        findings.into_iter().map(|finding| (finding.key, finding.severity)).collect()
    }

    fn healthy() -> ServerLook {
        ServerLook {
            version: Some("7.0.15".to_owned()),
            mode: Some("standalone".to_owned()),
            is_replica: Some(false),
            eviction: Some(None),
            replicas: Some(0),
            ..ServerLook::default()
        }
    }

    #[test]
    fn a_server_that_is_what_it_should_be_has_no_findings() {
        assert_eq!(keys(judge_server("h:1", &healthy(), Arrangement::Independent)), []);
        assert_eq!(keys(judge_server("h:1", &ServerLook::default(), Arrangement::Sentinel)), []);
        let member = ServerLook { mode: Some("cluster".to_owned()), ..healthy() };
        assert_eq!(keys(judge_server("h:1", &member, Arrangement::Cluster)), []);
    }

    #[test]
    fn a_server_of_another_kind_is_named_for_what_it_is() {
        use Arrangement::{Cluster, Independent, Sentinel};
        for (mode, is_replica, arrangement, key) in [
            ("cluster", false, Independent, "cluster-node"),
            ("cluster", true, Sentinel, "cluster-node"),
            ("standalone", false, Cluster, "not-a-cluster-node"),
            ("sentinel", false, Independent, "is-a-sentinel"),
            ("standalone", true, Independent, "is-a-replica"),
            ("cluster", true, Cluster, "is-a-replica"),
        ] {
            let look = ServerLook { mode: Some(mode.to_owned()), is_replica: Some(is_replica), ..healthy() };
            assert_eq!(keys(judge_server("h:1", &look, arrangement)), [(key, Problem)], "{mode}");
        }
    }

    #[test]
    fn what_a_server_does_to_keys_and_what_its_user_lacks_is_found() {
        let denied = |right: &str, is_needed| Denied { right: right.to_owned(), is_needed };
        let look = ServerLook {
            version: Some("6.0.16".to_owned()),
            eviction: Some(Some(Eviction::of("maxmemory:1\nmaxmemory_policy:allkeys-lru\n").unwrap())),
            denied: vec![denied("zrem", true), denied("subscribe", false), denied("~{lock:*", true)],
            unseen: vec![("appendfsync", "config|get")],
            endless: ["a", "b", "c", "d"].map(str::to_owned).into(),
            ..healthy()
        };
        let findings = judge_server("h:1", &look, Arrangement::Independent);
        assert!(findings[2].what.ends_with("zrem, ~{lock:*."), "{}", findings[2].what);
        assert!(findings[4].what.starts_with("4 keys") && !findings[4].what.contains("\"d\""), "{}", findings[4].what);
        assert_eq!(
            keys(findings),
            [
                ("evicts-keys", Problem),
                ("old-redis", Warning),
                ("missing-right", Problem),
                ("missing-right", Warning),
                ("endless-lock", Warning),
                ("not-looked-at", Note)
            ]
        );
        let old = ServerLook { version: Some("6.2.1".to_owned()), ..healthy() };
        assert_eq!(keys(judge_server("h:1", &old, Arrangement::Independent)), [("old-redis", Note)]);
    }

    #[test]
    fn a_clock_is_off_by_more_than_the_round_trip_explains() {
        let found = |ahead_micros, within| {
            let clock = Some(ClockOffset { ahead_micros, within: Duration::from_millis(within) });
            keys(judge_clock("h:1", &ServerLook { clock, ..healthy() }))
        };
        assert_eq!(found(-1_500_000, 400), [("clock-differs", Warning)]);
        assert_eq!(found(1_500_000, 500), []);
        assert_eq!(found(61_000_000, 1), [("clock-differs", Problem)]);
        assert_eq!(keys(judge_clock("h:1", &healthy())), []);
    }

    #[test]
    fn what_a_restart_costs_depends_on_what_is_said_of_it() {
        let with = |appends, fsync: Option<&str>| Persistence { appends, fsync: fsync.map(str::to_owned) };
        for (persistence, expected) in [
            (Some(with(true, Some("always"))), None),
            (Some(with(true, Some("everysec"))), Some(Problem)),
            (Some(with(false, Some("always"))), Some(Problem)),
            (Some(with(true, None)), Some(Note)),
            (None, Some(Note)),
        ] {
            let found = judge_durability("h:1", persistence.as_ref()).map(|finding| finding.severity);
            assert_eq!(found, expected, "{persistence:?}");
        }
        let forgets = ServerLook { persistence: Some(with(false, None)), ..healthy() };
        assert_eq!(keys(judge_restart("h:1", &forgets)), [("forgets-on-restart", Note)]);
    }

    #[test]
    fn as_many_replicas_are_connected_as_have_to_acknowledge() {
        let wanted = Some(Replicas::new(2, Duration::from_secs(1)));
        let with = |count| ServerLook { replicas: Some(count), ..healthy() };
        assert_eq!(keys(judge_replicas("h:1", &with(1), wanted)), [("too-few-replicas", Problem)]);
        assert_eq!(keys(judge_replicas("h:1", &with(2), wanted)), []);
        assert_eq!(keys(judge_replicas("h:1", &with(0), None)), []);
    }

    #[test]
    fn why_a_server_cannot_be_used_is_told_apart() {
        let (said, took) = (String::new(), Duration::ZERO);
        for (unreached, key) in [
            (Unreached::Silent(said.clone()), "unreachable"),
            (Unreached::NoRedis(said.clone()), "wrong-service"),
            (Unreached::SignIn { said: said.clone(), took }, "wrong-credentials"),
            (Unreached::Refused { said, took }, "refused"),
        ] {
            assert_eq!(judge_unreached("h:1", Some("anna"), &unreached).key, key);
        }
    }
}
