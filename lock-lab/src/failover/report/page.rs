//! The report for people: a page that needs nothing else, and the same as Markdown.

use std::fmt::Write;

use maud::{Markup, PreEscaped, html};

use super::{
    Figures, Report, Run, Turned, Verdict,
    picture::{self, draw, millis},
    table::{Pair, table},
};
use crate::report::{
    Table,
    html::{emphasis, page, rows_with},
    markdown,
};

const TITLE: &str = "Failover: what happens to locks when servers fail";

/// How to read the report: a paragraph each.
const READ: [&str; 4] = [
    "In each run, clients in several processes acquire and release locks on real servers of this machine; then a fault \
     strikes. Every process writes down what it saw on the one clock that all share, and what the servers hold is looked up \
     beside that. A checker then looks for violations of what the locks promise.",
    "The promises: no two holders inside their own validity (*M*); validity is never overstated against what the servers \
     hold (*T*); a store that checks fencing tokens never takes a write of an earlier holder after one of a later holder \
     (*F*); a holder that lost its lock knows it by the end of its validity, or at its first look after it was stopped \
     (*L*); the lock goes on (*P*); and nothing is left behind on a server (*O*): what a process had that ended in order is \
     gone with it, what a killed one had goes with its lease. Fencing counters and the notes of undone attempts go later, by \
     themselves, and keep nobody out.",
    "ZooKeeper and Redlock promise all of them as long as at most a minority of their servers fails. One Redis alone, and \
     Redis with replicas, promise F, L, P and O only: replication is asynchronous, so a failover can lose a lock that was \
     granted, and a server without persistence forgets all of them when it restarts. Runs of these are here to show just \
     that, with the fence that makes it harmless.",
    "A run counts only when it could have shown a violation: with at least fifty operations a second before the fault, and, \
     where late writes are to be expected, with at least one that the store without a fence took. A run that could not is \
     repeated once, and marked if that does not help.",
];

/// How to read the pictures.
const PICTURES: &str = "Time runs to the right, in milliseconds from the fault; the second panel enlarges the part of the \
first in which most happened. Each line is a client, by lock and process: the *kept* lock is held until it is lost or asked \
back, the *busy* one is taken and released as quickly as it goes. Point at a bar for its times.";

impl Report {
    /// The report as one HTML page, its pictures inside.
    #[must_use]
    pub fn html(&self) -> String {
        let pairs = Pair::all(self);
        let body = html! {
            style { (PreEscaped(STYLE)) (PreEscaped(picture::STYLE)) }
            p.sum { (self.sum()) }
            h2 { "How to read it" }
            @for text in READ { p.how { (emphasis(text)) } }
            (matrix(&table(&pairs), &pairs))
            @for section in self.sections() {
                h2 { (section.title) }
                (crate::report::html::rows(&section))
                p.how { (emphasis(&section.how)) }
            }
            h2 { "Run by run" }
            p.how { (emphasis(PICTURES)) }
            (picture::legend())
            @for (number, pair) in pairs.iter().enumerate() { (pictures(number, pair)) }
            (self.not_run())
            h2 { "Machine, versions, settings" }
            p.how { (emphasis(&self.circumstances())) }
        };
        page(TITLE, body)
    }

    /// The report as Markdown; the pictures are in the page.
    #[must_use]
    pub fn markdown(&self) -> String {
        let table = table(&Pair::all(self));
        let mut text = format!("# {TITLE}\n\n{}\n\n", self.sum());
        READ.iter().for_each(|paragraph| text.push_str(&format!("{paragraph}\n\n")));
        // Writing to a string cannot fail.
        let _ = write!(text, "## {}\n\n{}\n\n{}\n", table.title, markdown::table(&table), table.how);
        for section in self.sections() {
            let _ = write!(text, "\n## {}\n\n{}\n\n{}\n", section.title, markdown::table(&section), section.how);
        }
        text.push_str("\n## Run by run\n\nThe pictures are in `index.html`. Each run can be repeated by itself:\n\n");
        for run in &self.runs {
            let _ = writeln!(
                text,
                "- {}, {}: {}. `{}`",
                run.backend_title,
                run.fault_title,
                run.verdict.words(),
                run.command
            );
        }
        if !self.left_out.is_empty() {
            text.push_str("\n## Does not apply\n\n");
        }
        for pair in &self.left_out {
            let _ = writeln!(text, "- {}, {}: {}", pair.backend, pair.fault, pair.why);
        }
        text + &format!("\n## Machine, versions, settings\n\n{}\n", self.circumstances())
    }

    fn not_run(&self) -> Markup {
        html! {
            @if !self.left_out.is_empty() {
                h2 { "Does not apply" }
                ul { @for pair in &self.left_out { li { code { (pair.backend) } ", " code { (pair.fault) } ": " (pair.why) } } }
            }
        }
    }
}

fn matrix(table: &Table, pairs: &[Pair<'_>]) -> Markup {
    let class = |row: usize| match pairs[row].verdict() {
        Verdict::Kept => "kept",
        Verdict::Shown(_) | Verdict::Recorded(_) => "shown",
        Verdict::ProvesNothing(_) | Verdict::Failed(_) | Verdict::Broken(_) => "broken",
    };
    html! {
        h2 { (table.title) }
        div.matrix { (rows_with(table, class, |row| Some(format!("#{}", anchor(row))))) }
        p.how { (emphasis(&table.how)) }
    }
}

fn anchor(pair: usize) -> String {
    format!("run-{}", pair + 1)
}

fn pictures(number: usize, pair: &Pair<'_>) -> Markup {
    let first = pair.first();
    let title = format!("{}: {}", first.backend_title, first.fault_title);
    html! {
        h3 id=(anchor(number)) { (title) }
        p.how {
            (first.what)
            @if !first.not_promised.is_empty() { " That two hold the lock at once is not excluded here: " (first.not_promised) "." }
        }
        @for run in &pair.runs { (one_run(run, &title)) }
    }
}

fn one_run(run: &Run, title: &str) -> Markup {
    let again = if run.second_try { ", tried again" } else { "" };
    html! {
        p.run {
            @if run.repetition > 1 || run.second_try { "Run " (run.repetition) (again) ": " }
            strong { (run.verdict.words()) } ". " code { (run.command) }
        }
        @if let Some(figures) = run.outcome.measured() {
            p.how { (beside(figures)) }
            (draw(&figures.timeline, title))
        }
    }
}

/// What the table has no room for.
fn beside(figures: &Figures) -> String {
    let mut text = format!("{} grants", figures.grants);
    if let Some(took) = figures.take_over_ms {
        text.push_str(&format!("; the next holder was granted the kept lock {} after the fault", millis(took)));
    }
    if let Some(compared) = figures.compared {
        text.push_str(&format!("; validity was compared {compared} times with what the servers held"));
    }
    if let Some(after) = figures.empty_after_ms {
        text.push_str(&format!("; the servers had nothing left {} after the last process had ended", millis(after)));
    }
    let lost = figures.updates.unfenced;
    if lost.lost > 0 {
        text.push_str(&format!("; of {} updates the store without a fence lost {}", lost.acknowledged, lost.lost));
    }
    if let Some(segments) = figures.retransmitted {
        text.push_str(&format!("; the kernel sent {segments} segments again"));
    }
    if let Some(turned) = figures.strangers {
        let Turned { of, clients, times } = turned;
        text.push_str(&format!("; {clients} of {of} clients that disagree were refused, {times} times in all"));
    }
    for (count, what) in [
        (figures.refused, "late writes refused by the fence"),
        (figures.unknown, "requests of which nobody knows whether they were carried out"),
    ] {
        if count > 0 {
            text.push_str(&format!("; {what}: {count}"));
        }
    }
    text + "."
}

const STYLE: &str = "
body { max-width: 84rem; } h3 { font-size: 1rem; margin: 2.2rem 0 .3rem; } p.run { margin: .2rem 0; }
code { font-size: .85em; background: #f1f3f6; padding: 0 .25em; } p.sum { font-size: 1.1rem; font-weight: 600; }
div.matrix td:nth-child(2), div.matrix td:last-child, div.matrix th:nth-child(2), div.matrix th:last-child { text-align: left; }
div.matrix table { font-size: .8rem; line-height: 1.3; } div.matrix th, div.matrix td { padding: .3rem .45rem; }
div.matrix td { white-space: nowrap; } div.matrix td:last-child, div.matrix td:nth-child(2), div.matrix td:first-child { white-space: normal; }
div.matrix td:last-child { min-width: 12rem; } div.matrix td:nth-child(2) { min-width: 8rem; } div.matrix a { color: inherit; }
tr.kept td:last-child { color: #1b6e3c; } tr.shown td:last-child { color: #8a4b08; }
tr.broken td { background: #fde8ec; } tr.broken td:last-child { color: #b00020; font-weight: 700; }
";
