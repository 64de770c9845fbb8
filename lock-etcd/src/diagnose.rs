//! What is wrong with an etcd cluster, for [`Driver::diagnose`](lock_core::Driver::diagnose): each server is asked by itself, and nothing
//! is written.

use std::time::Duration;

use etcd_client::AlarmType;
use futures::future::join_all;
use lock_core::{Clock, Context, Diagnosis, Error, Finding, LockName, diagnosis::reason};

use crate::{
    Config, protocol,
    wire::{Distrust, EtcdServers, ServerStatus, is_about_no_leader},
};

/// From this revision on the doctor warns of a history that was never compacted. Each acquisition adds a few revisions.
const MANY_REVISIONS: i64 = 10_000;

/// Looks at the servers of `config`, which was checked.
pub(crate) async fn diagnose(config: &Config, context: &Context) -> Result<Diagnosis, Error> {
    let mut diagnosis = Diagnosis::new();
    diagnosis.set_lease("session_ttl", config.session_ttl);
    let unused = LockName::new(format!("lock-doctor-{}", context.unique_id()))?;
    let directory = protocol::directory(&config.path, &unused);
    let looks = config.servers.iter().map(|server| {
        let alone = Config { servers: vec![server.clone()], ..config.clone() };
        let directory = &directory;
        async move { look(&alone, directory, context.clock()).await }
    });
    let mut answered = Vec::new();
    for (server, look) in config.addresses().into_iter().zip(join_all(looks).await) {
        match look {
            Ok(look) => {
                diagnosis.answered(&server, look.connected_in, look.round_trip.as_ref().ok().copied());
                diagnosis.fact(&server, "version", &look.status.version);
                diagnosis.fact(&server, "database", format_args!("{} bytes", look.status.database_bytes));
                answered.push((server, look));
            }
            Err(error) => diagnosis.find(unusable(server, &error)),
        }
    }
    diagnosis.findings.extend(judge(&answered));
    Ok(diagnosis)
}

/// What was seen of one server.
struct ServerLook {
    /// Until it had answered for the first time.
    connected_in: Duration,
    /// How long a look at a lock took, for which the server has to ask the others.
    round_trip: Result<Duration, Error>,
    status: ServerStatus,
    /// Whether the oldest revisions are gone; `None` where it would not say.
    is_compacted: Option<bool>,
}

async fn look(config: &Config, directory: &str, clock: Clock) -> Result<ServerLook, Error> {
    let begin = clock.now();
    let servers = EtcdServers::connect(config, clock).await?;
    let status = servers.status().await?;
    let connected_in = clock.now().saturating_since(begin);
    let sent = clock.now();
    let seen = servers.contenders(directory).await;
    let round_trip = seen.map(|_| clock.now().saturating_since(sent));
    let is_compacted = servers.is_compacted(directory).await.ok();
    Ok(ServerLook { connected_in, round_trip, status, is_compacted })
}

/// Why a server did not say how it is.
fn unusable(server: String, error: &Error) -> Finding {
    let said = reason(error);
    match error {
        Error::Refused { source: Some(source), .. } if source.is::<Distrust>() => Finding::unreachable(server, said),
        Error::Refused { .. } => {
            let cure = "Set the user and the password that etcd has, or neither where etcd has no users.";
            Finding::problem("wrong-credentials", server, said, cure)
        }
        Error::Unavailable { source: Some(source), .. } if source.downcast_ref().is_some_and(is_about_no_leader) => {
            let cure = "Start the other servers of the cluster, or see why they do not reach each other.";
            Finding::problem("no-quorum", server, said, cure)
        }
        _ => Finding::unreachable(server, said),
    }
}

/// Judges the servers that have answered.
fn judge(looks: &[(String, ServerLook)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (server, look) in looks {
        if let Err(error) = &look.round_trip {
            let cure = "Look at the servers of the cluster, and at the rights of the user.";
            findings.push(Finding::problem("no-look", server, reason(error), cure));
        }
    }
    let Some((first, look)) = looks.first() else { return findings };
    for (server, other) in &looks[1..] {
        if other.status.cluster != look.status.cluster {
            let what =
                format!("It is a server of another cluster than {first}: who is connected to it sees other locks.");
            findings.push(Finding::problem("different-clusters", server, what, "Name the servers of one cluster."));
        }
    }
    for (server, look) in looks {
        for alarm in &look.status.own_alarms {
            findings.extend(alarm_finding(server, *alarm));
        }
    }
    let revision = look.status.revision;
    if look.is_compacted == Some(false) && revision >= MANY_REVISIONS {
        findings.push(Finding::warning(
            "never-compacted",
            first,
            format!(
                "Its history has {revision} revisions and was never compacted. Each acquisition adds to it, until the space quota is \
                 full and etcd takes no writes."
            ),
            "Start the servers with --auto-compaction-retention, for example 5m.",
        ));
    }
    findings
}

fn alarm_finding(server: &str, alarm: AlarmType) -> Option<Finding> {
    match alarm {
        AlarmType::Nospace => Some(Finding::problem(
            "no-space",
            server,
            "Its database has reached the space quota, and the cluster takes no writes: nobody is granted a lock.",
            "Compact the history, defragment the servers and disarm the alarm (etcd's documentation, Maintenance).",
        )),
        AlarmType::Corrupt => Some(Finding::problem(
            "corrupt",
            server,
            "etcd has found that its data differ from those of the other servers.",
            "Replace this member by an empty one (etcd's documentation, Data corruption).",
        )),
        AlarmType::None => None,
    }
}

#[cfg(test)]
mod tests {
    use etcd_client::{AlarmAction, AlarmOptions, Client};
    use lock_core::Severity;
    use lock_lab::deployment::{Deployment, Running};

    use super::*;

    async fn etcd() -> (Running, u16) {
        let deployment: Deployment = "etcd1".parse().unwrap();
        let running = deployment.start().await.unwrap();
        let port = running.ports()[0];
        (running, port)
    }

    fn keys(findings: &[Finding]) -> Vec<(&str, Severity)> {
        findings.iter().map(|finding| (finding.key, finding.severity)).collect()
    }

    #[tokio::test]
    async fn servers_of_two_clusters_and_those_with_alarms_are_found() {
        let [(_first, one), (_second, other)] = [etcd().await, etcd().await];
        let at = |ports: &[u16]| Config::new(ports.iter().map(|port| ("127.0.0.1", *port)));
        let context = Context::current();
        let well = diagnose(&at(&[one]), &context).await.unwrap();
        assert!(well.is_reached() && well.findings.is_empty(), "{well:?}");
        let both = diagnose(&at(&[one, other]), &context).await.unwrap();
        assert_eq!(keys(&both.findings), [("different-clusters", Severity::Problem)]);

        for (port, alarm, key) in [(one, AlarmType::Nospace, "no-space"), (other, AlarmType::Corrupt, "corrupt")] {
            let mut client = Client::connect([format!("127.0.0.1:{port}")], None).await.unwrap();
            let member = client.status().await.unwrap().header().unwrap().member_id();
            let mut options = AlarmOptions::new();
            options.with_member(member);
            client.alarm(AlarmAction::Activate, alarm, Some(options)).await.unwrap();
            let alarmed = diagnose(&at(&[port]), &context).await.unwrap();
            assert_eq!(keys(&alarmed.findings), [(key, Severity::Problem)]);
        }
    }

    #[test]
    fn a_server_that_knows_of_no_leader_is_told_from_one_that_is_not_there() {
        let said = |message| etcd_client::Error::GRpcStatus(tonic::Status::unavailable(message));
        let finding = |message| unusable("e1".to_owned(), &Error::unavailable("etcd://e1", "no look", said(message)));
        assert_eq!(finding("etcdserver: no leader").key, "no-quorum");
        assert_eq!(finding("connection refused").key, "unreachable");
    }

    #[tokio::test]
    async fn one_server_of_three_that_is_left_has_no_quorum() {
        let deployment: Deployment = "etcd3".parse().unwrap();
        let mut running = deployment.start().await.unwrap();
        let config = Config::new(running.ports().iter().map(|port| ("127.0.0.1", *port)));
        let well = diagnose(&config, &Context::current()).await.unwrap();
        assert!(well.is_reached() && well.findings.is_empty(), "{well:?}");
        running.kill(0);
        running.kill(1);
        // Until it has noticed, its answers stay away.
        let noticed = async {
            loop {
                let seen = diagnose(&config, &Context::current()).await.unwrap();
                if seen.findings[2].key != "unreachable" {
                    return seen;
                }
            }
        };
        let seen = Clock::boot().timeout(Duration::from_secs(60), noticed).await.expect("it notices");
        let problem = |key| (key, Severity::Problem);
        assert_eq!(keys(&seen.findings), ["unreachable", "unreachable", "no-quorum"].map(problem), "{seen:?}");
    }

    #[tokio::test]
    async fn a_long_history_that_was_never_compacted_is_told_of() {
        let (_running, port) = etcd().await;
        let config = Config::new([("127.0.0.1", port)]);
        let findings_at = async |revision| {
            let mut look = look(&config, "/locks/a/", Context::current().clock()).await.unwrap();
            look.status.revision = revision;
            keys(&judge(&[("e1".to_owned(), look)])).len()
        };
        assert_eq!((findings_at(MANY_REVISIONS - 1).await, findings_at(MANY_REVISIONS).await), (0, 1));
        let mut client = Client::connect([format!("127.0.0.1:{port}")], None).await.unwrap();
        let written = client.put("/a", "", None).await.unwrap().header().unwrap().revision();
        client.compact(written, None).await.unwrap();
        assert_eq!(findings_at(MANY_REVISIONS).await, 0);
    }
}
