//! What the servers have shown, judged: plain functions over values.

use std::time::Duration;

use lock_core::{Error, Finding};

use super::words::{Listener, Words};
use crate::Config;

/// What a diagnosis has found out about one server: whether it gives a session, and what it says of itself.
#[derive(Debug, Clone)]
pub(super) struct ServerLook {
    pub(super) server: String,
    /// The session time-out that the server made of the one that was asked for; or why there is no session.
    pub(super) session: Result<Duration, String>,
    pub(super) words: Words,
}

/// What came of the attempt to write that a diagnosis makes below the root of the locks.
#[derive(Debug, Clone, Default)]
pub(super) struct WriteLook {
    /// Where it was tried: the root of the locks, or the deepest node on the way to it that is there.
    pub(super) place: String,
    pub(super) root_exists: bool,
    /// What the server said, if it refused.
    pub(super) refused: Option<String>,
    /// The servers through which the node was not to be seen.
    pub(super) strangers: Vec<String>,
}

/// Judges which servers are there, and what they are.
pub(super) fn servers(looks: &[ServerLook]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = looks.iter().flat_map(server).collect();
    let without: Vec<&str> =
        looks.iter().filter(|look| is_without_quorum(look)).map(|look| look.server.as_str()).collect();
    if !without.is_empty() {
        findings.push(Finding::problem(
            "no-quorum",
            without.join(","),
            "The server answers and serves no clients: it is not connected to a majority of its ensemble.",
            "Start the other servers of the ensemble; look at the quorum and election ports between them.",
        ));
    }
    if looks.len().is_multiple_of(2) {
        let what = format!(
            "The settings name {} servers: an ensemble of an even number survives no more failures than with one server less.",
            looks.len()
        );
        findings.push(Finding::warning(
            "even-servers",
            "hosts",
            what,
            "Run an odd number of servers, and name all of them.",
        ));
    }
    findings
}

fn is_without_quorum(look: &ServerLook) -> bool {
    look.session.is_err() && look.words.listener == Some(Listener::NotServing)
}

fn server(look: &ServerLook) -> Vec<Finding> {
    let server = look.server.as_str();
    let mut findings = Vec::new();
    let is_read_only = look.words.mode.as_deref() == Some("read-only");
    if is_read_only {
        findings.push(Finding::problem(
            "read-only-server",
            server,
            "The server is cut off from its ensemble and serves reads only.",
            "Connect the server with the others of its ensemble.",
        ));
    }
    if let Err(said) = &look.session
        && !is_read_only
    {
        findings.extend(match look.words.listener {
            Some(Listener::NotServing) => None,
            Some(Listener::Other) => Some(Finding::problem(
                "wrong-service",
                server,
                format!("Somebody listens there who does not answer as ZooKeeper does: {said}."),
                "Correct host and port: clients use the clientPort of the server, 2181 by default.",
            )),
            _ => Some(Finding::unreachable(server, format!("No session was opened: {said}."))),
        });
    }
    if let Some(version) = &look.words.version {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
        if (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) < (3, 5) {
            let what =
                format!("ZooKeeper {version} has no container nodes: the directory of each lock name stays for good.");
            findings.push(Finding::warning("old-zookeeper", server, what, "Update the servers to 3.5 or later."));
        }
    }
    findings
}

/// Judges what the servers made of the session time-out, and their ticks.
pub(super) fn sessions(config: &Config, looks: &[ServerLook]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for look in looks {
        let server = look.server.as_str();
        if let Ok(negotiated) = look.session {
            findings.extend(session(config, server, negotiated));
        }
        if let Some(tick) = look.words.tick.filter(|tick| *tick > config.tick_time) {
            let what = format!(
                "tick_time is {:?}, and the tickTime of the server {tick:?}: guards would count as valid for too long.",
                config.tick_time
            );
            let cure = format!("Set tick_time to {tick:?}, and session_timeout to three times that or more.");
            findings.push(Finding::problem("tick-time", server, what, cure));
        }
    }
    findings
}

fn session(config: &Config, server: &str, negotiated: Duration) -> Option<Finding> {
    let asked = config.session_timeout;
    if !config.fits(negotiated) {
        let allowed = match config.unfit(negotiated) {
            Error::Config { allowed, .. } => allowed,
            other => other.to_string(),
        };
        let what = format!("The server makes {negotiated:?} of the session_timeout of {asked:?}: clients are refused.");
        return Some(Finding::problem("session-timeout", server, what, format!("Set session_timeout to {allowed}.")));
    }
    (negotiated < asked).then(|| {
        let what = format!(
            "The server shortens the session_timeout of {asked:?} to {negotiated:?}, its maxSessionTimeout: locks end sooner \
             without news of their holder."
        );
        let cure = format!("Set session_timeout to {negotiated:?}, or raise maxSessionTimeout on all servers.");
        Finding::warning("session-timeout", server, what, cure)
    })
}

/// Judges an attempt to write.
pub(super) fn write(root: &str, look: &WriteLook) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(said) = &look.refused {
        let what = match look.root_exists {
            true => format!("No node can be made under {root}: {said}."),
            false => {
                format!("{root} is missing, and cannot be made: no node can be made under {}: {said}.", look.place)
            }
        };
        let cure = "Make the node, and give the user of the locks the rights to create and delete under it (docs/protocols.md, \
                    ZooKeeper), or name another path in the URL.";
        findings.push(Finding::problem("root-not-writable", root, what, cure));
    }
    if !look.strangers.is_empty() {
        findings.push(Finding::problem(
            "different-ensembles",
            look.strangers.join(","),
            "A node that was made through another server of the settings is not to be seen here: the servers are of different \
             ensembles, and each grants the same locks.",
            "Name the servers of one ensemble only.",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use lock_core::Severity::{self, Problem, Warning};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn look(session: Result<Duration, &str>, words: Words) -> ServerLook {
        ServerLook { server: "h:1".to_owned(), session: session.map_err(str::to_owned), words }
    }

    fn listening(listener: Listener) -> Words {
        Words { listener: Some(listener), ..Words::default() }
    }

    fn keys(findings: impl IntoIterator<Item = Finding>) -> Vec<(&'static str, Severity)> {
        findings.into_iter().map(|finding| (finding.key, finding.severity)).collect()
    }

    #[test]
    fn a_server_that_opens_no_session_is_named_for_what_it_is() {
        for (words, key) in [
            (Words::default(), "unreachable"),
            (listening(Listener::Serving), "unreachable"),
            (listening(Listener::Other), "wrong-service"),
            (listening(Listener::NotServing), "no-quorum"),
            (Words { mode: Some("read-only".to_owned()), ..listening(Listener::Serving) }, "read-only-server"),
        ] {
            assert_eq!(keys(servers(&[look(Err("no"), words)])), [(key, Problem)]);
        }
        let old = Words { version: Some("3.4.14".to_owned()), ..listening(Listener::Serving) };
        let new = Words { version: Some("3.8.0".to_owned()), ..old.clone() };
        assert_eq!(
            keys(servers(&[look(Ok(SECOND), old), look(Ok(SECOND), new)])),
            [("old-zookeeper", Warning), ("even-servers", Warning)]
        );
    }

    #[test]
    fn a_session_time_out_is_refused_shortened_or_as_it_was_asked_for() {
        let config = Config::new([("h", 1)]).with_session_timeout(SECOND * 10).with_tick_time(SECOND * 2);
        let judged = |negotiated| keys(sessions(&config, &[look(Ok(negotiated), Words::default())]));
        assert_eq!(judged(SECOND * 10), []);
        assert_eq!(judged(SECOND * 6), [("session-timeout", Warning)]);
        assert_eq!(judged(SECOND * 5), [("session-timeout", Problem)]);
        assert_eq!(judged(SECOND * 11), [("session-timeout", Problem)]);
        let longer = Words { tick: Some(SECOND * 3), ..Words::default() };
        assert_eq!(keys(sessions(&config, &[look(Ok(SECOND * 10), longer)])), [("tick-time", Problem)]);
    }

    #[test]
    fn an_attempt_to_write_shows_rights_and_servers_of_other_ensembles() {
        let written = WriteLook { place: "/".to_owned(), ..WriteLook::default() };
        assert_eq!(keys(write("/locks", &written)), []);
        let refused = WriteLook { refused: Some("no auth".to_owned()), ..written.clone() };
        assert_eq!(keys(write("/locks", &refused)), [("root-not-writable", Problem)]);
        let apart = WriteLook { strangers: vec!["h:2".to_owned()], ..written };
        assert_eq!(keys(write("/locks", &apart)), [("different-ensembles", Problem)]);
    }
}
