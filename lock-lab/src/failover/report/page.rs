//! What the report says to people.

use super::{
    Figures, Report, Run, Turned, lost, picture,
    table::{RunGroup, table},
};
use crate::{
    failover::frozen,
    report::{Document, DocumentBlock, millis},
};

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
const PICTURES: &str = "Each run can be repeated by itself, with the command beside its verdict. Its picture is on the page \
`index.html`: time runs to the right, in milliseconds from the fault; the second panel enlarges the part of the first in which \
most happened. Each line is a client, by lock and process: the *kept* lock is held until it is lost or asked back, the *busy* \
one is taken and released as quickly as it goes. Point at a bar for its times.";

impl Report {
    /// The report for people.
    pub(super) fn document(&self) -> Document {
        let pairs = RunGroup::all(self);
        let section = |title: &str| DocumentBlock::Section(title.to_owned());
        let mut blocks =
            vec![DocumentBlock::Strong { beginning: self.sum(), rest: String::new() }, section("How to read it")];
        blocks.extend(READ.map(|text| DocumentBlock::Text(text.to_owned())));
        blocks.push(DocumentBlock::Table(table(&pairs)));
        let frozen = self.frozen.as_ref().map(frozen::tables::of).unwrap_or_default();
        blocks.extend(lost::section(&self.runs).into_iter().chain(frozen).map(DocumentBlock::Table));
        blocks.extend([
            section("Run by run"),
            DocumentBlock::Text(PICTURES.to_owned()),
            DocumentBlock::Drawn(picture::legend()),
        ]);
        blocks.extend(pairs.iter().flat_map(of_pair));
        if !self.left_out.is_empty() {
            let why = self.left_out.iter().map(|pair| format!("`{}`, `{}`: {}", pair.backend, pair.fault, pair.why));
            blocks.extend([section("Does not apply"), DocumentBlock::List(why.collect())]);
        }
        blocks.extend([section("Machine, versions, settings"), DocumentBlock::Text(self.circumstances())]);
        Document { title: "Failover: what happens to locks when servers fail", blocks }
    }
}

/// What was seen of one fault on one arrangement of servers.
fn of_pair(pair: &RunGroup<'_>) -> Vec<DocumentBlock> {
    let (first, title) = (pair.first(), pair.title());
    let mut what = first.what.clone();
    if !first.not_promised.is_empty() {
        what.push_str(&format!(" That two hold the lock at once is not excluded here: {}.", first.not_promised));
    }
    let mut blocks = vec![DocumentBlock::Part { title: title.clone(), id: pair.anchor() }, DocumentBlock::Text(what)];
    blocks.extend(pair.runs.iter().flat_map(|run| of_run(run, &title)));
    blocks
}

fn of_run(run: &Run, title: &str) -> Vec<DocumentBlock> {
    let number = match (run.repetition, run.second_try) {
        (number, true) => format!("Run {number}, tried again: "),
        (2.., false) => format!("Run {}: ", run.repetition),
        _ => String::new(),
    };
    let beginning = format!("{number}{}.", run.verdict.words());
    let mut blocks = vec![DocumentBlock::Strong { beginning, rest: format!("`{}`", run.command) }];
    if let Some(figures) = run.outcome.measured() {
        blocks.extend([
            DocumentBlock::Text(beside(figures)),
            DocumentBlock::Drawn(picture::draw(&figures.timeline, title)),
        ]);
    }
    blocks
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
