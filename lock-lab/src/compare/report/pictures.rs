//! The pictures of a comparison.

use maud::Markup;

use super::{Backend, Report};
use crate::report::{BarChart, DistributionChart, DocumentBlock};

/// One picture for each table, in the same order.
pub(super) fn all(report: &Report) -> [DocumentBlock; 4] {
    [uncontended(report), contended(report), holder_killed(report), server_killed(report)]
}

fn picture(file: &'static str, title: &'static str, svg: Markup) -> DocumentBlock {
    DocumentBlock::Picture { file, title, svg }
}

fn rows(report: &Report, values: impl Fn(&Backend) -> Option<[f64; 2]>) -> Vec<(String, [f64; 2])> {
    report.backends.iter().filter_map(|backend| Some((backend.title.clone(), values(backend)?))).collect()
}

fn uncontended(report: &Report) -> DocumentBlock {
    let bars = BarChart {
        title: "Acquire and release, uncontended",
        counts: "microseconds (logarithmic)",
        is_logarithmic: true,
        series: ["p50", "p99"],
        rows: rows(report, |backend| {
            backend.uncontended.measured().map(|figures| [figures.both.p50, figures.both.p99])
        }),
    };
    picture("uncontended.svg", bars.title, bars.draw())
}

/// The distribution of the waits: a fair backend's line is flat.
fn contended(report: &Report) -> DocumentBlock {
    let curves = DistributionChart {
        title: "Contended: how long a client waits for the lock",
        shares: "share of the grants that waited at most so long (logarithmic)",
        curves: report
            .backends
            .iter()
            .filter_map(|backend| Some((&*backend.title, &*backend.contended.measured()?.waits.curve)))
            .collect(),
    };
    picture("contended.svg", curves.title, curves.draw())
}

fn holder_killed(report: &Report) -> DocumentBlock {
    let bars = BarChart {
        title: "Holder killed: time until the next grant",
        counts: "milliseconds",
        is_logarithmic: false,
        series: ["median", "longest"],
        rows: rows(report, |backend| {
            backend.holder_killed.measured().map(|figures| [figures.median_ms(), figures.longest_ms()])
        }),
    };
    picture("holder-killed.svg", bars.title, bars.draw())
}

fn server_killed(report: &Report) -> DocumentBlock {
    let bars = BarChart {
        title: "Server or leader killed",
        counts: "milliseconds",
        is_logarithmic: false,
        series: ["no grant of the busy lock", "two holders of the held lock"],
        rows: rows(report, |backend| {
            backend.server_killed.measured().map(|figures| [figures.no_grant_ms, figures.overlap_ms])
        }),
    };
    picture("server-killed.svg", bars.title, bars.draw())
}
