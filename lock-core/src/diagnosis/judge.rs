//! What is judged alike for every backend: plain functions over what was seen.

use std::{net::IpAddr, time::Duration};

use super::{Answer, Diagnosis, Finding, figure, stalls::LOOK};
use crate::{Scheme, Settings};

/// A lease has to be this many times as long as a round trip. Renewals go out several times in a lease; with fewer round
/// trips in it, one that is lost or late costs the lock.
const ROUND_TRIPS: u32 = 10;
/// A lease that is this many times as long as a round trip has room for a bad moment.
const ROUND_TRIPS_WITH_ROOM: u32 = 30;
/// A lease has to outlive a broken connection and the making of its successor.
const CONNECTS: u32 = 4;

/// Judges what every backend has in common, and adds the facts that it is judged by.
pub(crate) fn judge(diagnosis: &mut Diagnosis, scheme: &Scheme, settings: &Settings, stall: Duration) {
    diagnosis.fact("this host", "longest stall in a second", figure(stall));
    if is_in_clear_text(scheme, &settings.scheme) {
        let asked = settings.hosts.iter().map(|(host, _)| host.as_str());
        diagnosis.findings.extend(clear_text(asked.chain(diagnosis.answers.iter().flat_map(hosts))));
    }
    if let Some((setting, lease)) = diagnosis.lease {
        diagnosis.findings.extend(slow_answers(setting, lease, &diagnosis.answers));
        diagnosis.findings.extend(stalls(setting, lease, stall));
    }
}

/// Whether what a URL that begins so reaches is reached over a network, and without TLS.
fn is_in_clear_text(scheme: &Scheme, name: &str) -> bool {
    scheme.form.contains("HOST") && scheme.with_tls != Some(name)
}

/// The hosts of those who answered. What is on this machine has an address of another form.
fn hosts(answer: &Answer) -> impl Iterator<Item = &str> {
    let servers = answer.server.split(',').filter(|server| !server.contains("://"));
    servers.map(|server| server.rsplit_once(':').map_or(server, |(host, _)| host))
}

/// Whether what is sent to this host does not leave the machine.
fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost") || host.to_lowercase().ends_with(".localhost"),
    }
}

fn clear_text<'a>(hosts: impl Iterator<Item = &'a str>) -> Option<Finding> {
    let mut far: Vec<&str> = hosts.filter(|host| !is_loopback(host)).collect();
    far.sort_unstable();
    far.dedup();
    if far.is_empty() {
        return None;
    }
    Some(Finding::warning(
        "clear-text",
        far.join(","),
        "Requests, passwords among them, go over the network without TLS.",
        "Use the scheme with TLS, or a network that nobody else can read and write.",
    ))
}

fn slow_answers(setting: &'static str, lease: Duration, answers: &[Answer]) -> Option<Finding> {
    let slowest = answers.iter().max_by_key(|answer| answer.round_trip)?;
    let round_trip = slowest.round_trip?;
    let connected_in = answers.iter().map(|answer| answer.connected_in).max().unwrap_or_default();
    let what = format!(
        "A lease of {} is short beside round trips of {} ({}) and connections that take {}: a renewal that is lost or late \
         costs the lock.",
        figure(lease),
        figure(round_trip),
        slowest.server,
        figure(connected_in),
    );
    let needed = (round_trip * ROUND_TRIPS_WITH_ROOM).max(connected_in * CONNECTS);
    let cure =
        format!("Set {setting} to {} or more, or bring program and servers nearer to each other.", figure(needed));
    if lease < round_trip * ROUND_TRIPS {
        Some(Finding::problem("short-lease", setting, what, cure))
    } else if lease < needed {
        Some(Finding::warning("short-lease", setting, what, cure))
    } else {
        None
    }
}

fn stalls(setting: &'static str, lease: Duration, stall: Duration) -> Option<Finding> {
    // Renewals leave about two thirds of a lease when one of them is missed.
    let (unsafe_at, doubtful_at) = (lease / 3, lease / 10);
    let what = format!(
        "Within {} this program was not run for {}; a lease is {} long.",
        figure(LOOK),
        figure(stall),
        figure(lease)
    );
    let cure =
        format!("Give this host or container more processor time, or set {setting} to {} or more.", figure(stall * 10));
    if stall > unsafe_at {
        Some(Finding::problem("host-stalls", "this host", what, cure))
    } else if stall > doubtful_at {
        Some(Finding::warning("host-stalls", "this host", what, cure))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::Severity;

    const MS: Duration = Duration::from_millis(1);

    const SCHEME: Scheme = Scheme {
        name: "chalk",
        summary: "marks on a board",
        form: "chalk://HOST",
        example: "chalk://h",
        with_tls: Some("chalks"),
    };

    fn answer(connected_in: Duration, round_trip: Duration) -> Answer {
        Answer { server: "h:1".to_owned(), connected_in, round_trip: Some(round_trip) }
    }

    fn severity(finding: Option<Finding>) -> Option<Severity> {
        finding.map(|finding| finding.severity)
    }

    #[test]
    fn what_leaves_the_machine_in_clear_text_is_found_and_loopback_is_not() {
        for near in
            ["127.0.0.1", "127.8.0.1", "::1", "[::1]", "localhost", "LOCALHOST.", "a.localhost", "::ffff:127.0.0.1"]
        {
            assert!(is_loopback(near), "{near}");
        }
        let found = clear_text(["10.0.0.1", "localhost", "redis", "10.0.0.1"].into_iter()).unwrap();
        assert_eq!((found.severity, found.subject.as_str()), (Severity::Warning, "10.0.0.1,redis"));
        assert!(is_in_clear_text(&SCHEME, "chalk") && !is_in_clear_text(&SCHEME, "chalks"));
        assert!(!is_in_clear_text(&Scheme { form: "memory://NAME", ..SCHEME }, "chalk"));
    }

    #[test]
    fn servers_that_were_found_by_asking_others_count_too() {
        let mut diagnosis = Diagnosis::new();
        diagnosis.answered("memory://a:1", MS, None);
        diagnosis.answered("10.0.0.7:1,[::1]:2", MS, None);
        judge(&mut diagnosis, &SCHEME, &Settings::new("redis+sentinel"), Duration::ZERO);
        assert_eq!(diagnosis.findings[0].key, "clear-text");
        assert_eq!(diagnosis.findings[0].subject, "10.0.0.7");
    }

    #[test]
    fn a_lease_is_many_round_trips() {
        let found = |lease, answers: &[Answer]| severity(slow_answers("ttl", lease, answers));
        assert_eq!(found(MS * 99, &[answer(MS, MS * 10)]), Some(Severity::Problem));
        assert_eq!(found(MS * 299, &[answer(MS, MS), answer(MS, MS * 10)]), Some(Severity::Warning));
        assert_eq!(found(MS * 300, &[answer(MS, MS * 10)]), None);
        assert_eq!(found(MS * 399, &[answer(MS * 100, MS)]), Some(Severity::Warning));
        assert_eq!(found(MS, &[]), None);
        let what = slow_answers("ttl", MS * 99, &[answer(MS, MS * 10)]).unwrap().what;
        assert!(what.contains("99.0ms") && what.contains("10.0ms") && what.contains("h:1"), "{what}");
    }

    #[test]
    fn a_lease_outlives_the_stalls_of_the_host() {
        let found = |stall| severity(stalls("ttl", MS * 3_000, stall));
        assert_eq!(
            [MS * 1_001, MS * 1_000, MS * 300].map(found),
            [Some(Severity::Problem), Some(Severity::Warning), None]
        );
    }
}
