//! The tables of a comparison.

use super::{Backend, OldHolder, Report};
use crate::report::{NONE, Outcome, ReportTable, TableRow, count, micros, millis, yes};

/// All tables of `report`, the summary apart.
pub(super) fn all(report: &Report) -> Vec<ReportTable> {
    vec![uncontended(report), contended(report), holder_killed(report), server_killed(report)]
}

/// One row for each backend, with the figures that matter most.
pub(super) fn summary(report: &Report) -> ReportTable {
    let row = |backend: &Backend| {
        if let Outcome::Missing(why) = &backend.uncontended {
            return TableRow::new(&*backend.title, Err(why.clone()));
        }
        let (contended, struck) = (&backend.contended, &backend.server_killed);
        let cells = vec![
            short(&backend.uncontended, |figures| micros(figures.both.p50)),
            short(contended, |figures| format!("{:.0}", figures.moves_per_second)),
            short(contended, |figures| format!("{:.0} %", figures.utilisation * 100.0)),
            short(contended, |figures| format!("{:.2}", figures.overtakes)),
            short(&backend.holder_killed, |figures| millis(figures.median_ms())),
            short(struck, |figures| millis(figures.no_grant_ms)),
            short(struck, |figures| two_holders(figures.overlap_ms)),
        ];
        TableRow::new(&*backend.title, Ok(cells))
    };
    ReportTable {
        title: "Summary",
        how: "Each column is explained below, with how it was taken.".into(),
        columns: vec![
            "backend",
            "acquire + release",
            "hand-offs per second",
            "utilisation",
            "overtakes per hand-off",
            "holder killed: next grant",
            "server killed: no grant",
            "two holders",
        ],
        rows: report.backends.iter().map(row).collect(),
        ..ReportTable::default()
    }
}

/// A figure, or in a word why there is none: a backend without servers has no problem, and no figure of theirs.
fn short<T>(outcome: &Outcome<T>, figure: impl FnOnce(&T) -> String) -> String {
    match outcome {
        Outcome::Measured(figures) => figure(figures),
        Outcome::Failed(_) => "failed".into(),
        Outcome::Missing(_) => NONE.into(),
    }
}

fn two_holders(overlap_ms: f64) -> String {
    if overlap_ms > 0.0 { format!("for {}", millis(overlap_ms)) } else { "never".into() }
}

/// A row for each backend.
fn rows<'a, T: 'a>(
    report: &'a Report,
    outcome: impl Fn(&'a Backend) -> &'a Outcome<T>,
    cells: impl Fn(&'a Backend, &T) -> Vec<String>,
) -> Vec<TableRow> {
    let row = |backend: &'a Backend| {
        TableRow::new(&*backend.title, outcome(backend).cells(|figures| cells(backend, figures)))
    };
    report.backends.iter().map(row).collect()
}

fn uncontended(report: &Report) -> ReportTable {
    let redis = report.backends.iter().find(|backend| backend.key == "redis");
    let base = redis.and_then(|backend| backend.uncontended.measured()).map(|figures| figures.both.p50);
    ReportTable {
        title: "Uncontended",
        how: format!(
            "One client, with a thread to itself, acquires and releases one lock {} times, after a warm-up; the times are from the call to its \
             result, in one HDR histogram each. *Requests* is what all servers counted themselves as received from \
             clients during that (commands of Redis, a script being one; packets of ZooKeeper, its heartbeats \
             included), divided by the number of pairs. *to Redis* divides the median of the pair by that of Redis in \
             this same run. Where processors sleep when idle, waking one for client or server can take longer than the \
             request itself, in one run and not in the next: then the median is far above the shortest.",
            report.settings.uncontended
        ),
        columns: vec![
            "backend",
            "acquire p50",
            "acquire p99",
            "release p50",
            "both min",
            "both p50",
            "both p99",
            "to Redis",
            "requests",
            "failed attempts",
            "tokens rise",
        ],
        rows: rows(
            report,
            |backend| &backend.uncontended,
            |_, figures| {
                vec![
                    micros(figures.acquire.p50),
                    micros(figures.acquire.p99),
                    micros(figures.release.p50),
                    micros(figures.both.min),
                    micros(figures.both.p50),
                    micros(figures.both.p99),
                    base.map_or_else(|| NONE.into(), |base| format!("{:.2}", figures.both.p50 / base)),
                    figures.requests.map_or_else(|| NONE.into(), |requests| format!("{requests:.2}")),
                    count(figures.errors),
                    yes(figures.tokens_rise),
                ]
            },
        ),
        ..ReportTable::default()
    }
}

fn contended(report: &Report) -> ReportTable {
    let settings = &report.settings;
    ReportTable {
        title: "Contended",
        how: format!(
            "{} clients, each with a connection of its own, hold one lock {} times each for {} ms (a sleep of the \
             operating system; *held* is what it really took). *Hand-offs* counts grants to another client than the \
             one before; *hand-off* is the time from such a release to the grant. *Utilisation* is the time held over \
             the time from the first grant to the last release. *Overtakes* counts, for each hand-off, the waiters that had asked earlier than the one that was granted, \
             by the clients' own clock: requests that are sent in the same instant can change places on the way. \
             *Wait* is from asking to the grant.",
            settings.clients, settings.holds, settings.hold_ms
        ),
        columns: vec![
            "backend",
            "hand-offs per second",
            "hand-off p50",
            "hand-off p99",
            "utilisation",
            "held p50",
            "overtakes per hand-off",
            "wait p50",
            "wait p99",
            "requests per grant",
            "failed attempts",
            "overlapping grants",
            "tokens rise",
        ],
        rows: rows(
            report,
            |backend| &backend.contended,
            |_, figures| {
                vec![
                    format!("{:.0}", figures.moves_per_second),
                    micros(figures.hand_off.p50),
                    micros(figures.hand_off.p99),
                    format!("{:.0} %", figures.utilisation * 100.0),
                    micros(figures.held.p50),
                    format!("{:.2}", figures.overtakes),
                    micros(figures.waits.p50),
                    micros(figures.waits.p99),
                    figures.requests.map_or_else(|| NONE.into(), |requests| format!("{requests:.1}")),
                    count(figures.errors),
                    count(figures.overlaps),
                    yes(figures.tokens_rise),
                ]
            },
        ),
        ..ReportTable::default()
    }
}

fn holder_killed(report: &Report) -> ReportTable {
    ReportTable {
        title: "Holder killed",
        how: format!(
            "A second process holds the lock and another client waits for it; the process is killed with \
             SIGKILL at a random moment of its renewals, {} times. The time runs from just before the kill to the \
             waiter's grant. The lease (ttl, or session time-out) is {} ms: the server keeps the lock for what is left \
             of it since the last renewal. *Promised at most* is the lease and 250 ms, with ZooKeeper two ticks more.",
            report.settings.kills, report.settings.lease_ms
        ),
        columns: vec!["backend", "next grant, median", "next grant, longest", "promised at most", "each"],
        rows: rows(
            report,
            |backend| &backend.holder_killed,
            |_, figures| {
                let each: Vec<String> = figures.next_grant_ms.iter().map(|ms| format!("{ms:.0}")).collect();
                vec![
                    millis(figures.median_ms()),
                    millis(figures.longest_ms()),
                    millis(figures.bound_ms),
                    format!("{} ms", each.join(", ")),
                ]
            },
        ),
        ..ReportTable::default()
    }
}

fn server_killed(report: &Report) -> ReportTable {
    ReportTable {
        title: "Server or leader killed",
        how: format!(
            "{} clients keep one lock busy; of a second lock there is one holder and one client that waits. Then SIGKILL \
             strikes, as the column *fault* says. *No grant* is the longest time without a grant of the busy lock from \
             the kill on. The holder keeps its lock until it is told that it is lost, or releases it {} ms after the \
             kill. *Two holders* is for how long both the old and the next holder were valid by their own clocks; *grants \
             that overlap* counts the same on the busy lock. The lease is {} ms.",
            report.settings.load_clients,
            report.settings.lease_ms * crate::compare::HOLD_FOR_LEASES,
            report.settings.lease_ms
        ),
        columns: vec![
            "backend",
            "fault",
            "no grant",
            "old holder",
            "next grant of its lock",
            "two holders",
            "grants that overlap",
            "failed attempts",
            "tokens rise",
        ],
        rows: rows(
            report,
            |backend| &backend.server_killed,
            |backend, figures| {
                let (holder, next) = match &figures.old_holder {
                    OldHolder::Kept { released_ms } => {
                        let after = figures.next_grant_ms - released_ms;
                        ("kept it".to_string(), format!("{} after its release", millis(after)))
                    }
                    OldHolder::Lost { after_ms, why } => (
                        format!("knew after {}: {why}", millis(*after_ms)),
                        format!("{} after the kill", millis(figures.next_grant_ms)),
                    ),
                };
                vec![
                    backend.fault.clone(),
                    millis(figures.no_grant_ms),
                    holder,
                    next,
                    two_holders(figures.overlap_ms),
                    count(figures.busy_overlaps),
                    count(figures.errors),
                    yes(figures.tokens_rise),
                ]
            },
        ),
        sentences: &["fault", "old holder", "next grant of its lock"],
    }
}
