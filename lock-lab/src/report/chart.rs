//! Charts, as SVG that needs no style sheet: bars, and curves of a distribution.

use maud::{Markup, html};

use super::picture::{Axis, px};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 136.0;
const RIGHT: f64 = 24.0;
/// Above the chart: the title, then the legend.
const TOP: f64 = 62.0;
/// Below it: the numbers of the axis and what they count.
const FOOT: f64 = 48.0;
/// The bars of one row.
const ROW: f64 = 46.0;
/// The curves.
const HEIGHT: f64 = 270.0;
/// Told apart by all common kinds of colour vision, and in grey.
const COLOURS: [&str; 5] = ["#26547c", "#e69f00", "#008c6e", "#be4678", "#5a5a5a"];
const INK: &str = "#1d2430";

/// Bars: for each row a value of each series.
#[derive(Debug)]
pub(crate) struct Bars {
    pub(crate) title: &'static str,
    /// What the axis counts.
    pub(crate) counts: &'static str,
    /// Powers of ten at equal distances.
    pub(crate) is_logarithmic: bool,
    pub(crate) series: [&'static str; 2],
    pub(crate) rows: Vec<(String, [f64; 2])>,
}

/// Curves: for each name the share of cases, from 0 to 1, that took at most so many microseconds.
#[derive(Debug)]
pub(crate) struct Curves<'a> {
    pub(crate) title: &'static str,
    /// What the shares are of.
    pub(crate) shares: &'static str,
    pub(crate) curves: Vec<(&'a str, &'a [(f64, f64)])>,
}

impl Bars {
    #[allow(clippy::cast_precision_loss)] // A handful of rows.
    pub(crate) fn draw(&self) -> Markup {
        let bottom = TOP + self.rows.len().max(1) as f64 * ROW;
        let axis = self.axis();
        let label = |at: f64| if self.is_logarithmic { number(10_f64.powf(at)) } else { number(at) };
        let ticks = if self.is_logarithmic { powers(&axis) } else { axis.ticks(8.0) };
        frame(
            self.title,
            bottom + FOOT,
            &html! {
                (legend(&self.series))
                (across(&axis, bottom, &ticks, label, self.counts))
                @for (row, (name, values)) in self.rows.iter().enumerate() {
                    @let top = TOP + row as f64 * ROW;
                    text x=(LEFT - 8.0) y=(px(top + ROW / 2.0 + 5.0)) text-anchor="end" font-size="13" { (name) }
                    @for (index, value) in values.iter().enumerate() {
                        @let height = ROW * 0.35;
                        @let y = top + ROW * 0.15 + index as f64 * height;
                        @let end = axis.at(self.position(*value));
                        rect x=(LEFT) y=(px(y)) width=(px(end - LEFT)) height=(px(height * 0.92)) fill=(COLOURS[index]) {}
                        text x=(px(end + 5.0)) y=(px(y + height * 0.5 + 4.0)) { (number(*value)) }
                    }
                }
            },
        )
    }

    fn axis(&self) -> Axis {
        let values = || self.rows.iter().flat_map(|(_, values)| values).map(|value| self.position(*value));
        let low = if self.is_logarithmic { values().fold(0.0, f64::min).floor() } else { 0.0 };
        let high = values().fold(low + 1.0, f64::max);
        // Room for the number behind the longest bar.
        Axis { values: (low, low + (high - low) * 1.13), pixels: (LEFT, WIDTH - RIGHT) }
    }

    /// Where a value stands on the axis.
    fn position(&self, value: f64) -> f64 {
        if self.is_logarithmic { value.max(1e-3).log10() } else { value }
    }
}

impl Curves<'_> {
    pub(crate) fn draw(&self) -> Markup {
        let bottom = TOP + HEIGHT;
        let position = |micros: f64| micros.max(1.0).log10();
        let values = self.curves.iter().flat_map(|(_, curve)| *curve).map(|(_, micros)| position(*micros));
        let waits = Axis { values: (0.0, values.fold(1.0, f64::max) * 1.05), pixels: (bottom, TOP) };
        let shares = Axis { values: (0.0, 1.0), pixels: (LEFT, WIDTH - RIGHT) };
        let path = |curve: &[(f64, f64)]| -> String {
            let points = curve.iter().map(|(share, micros)| (px(shares.at(*share)), px(waits.at(position(*micros)))));
            points.enumerate().map(|(at, (x, y))| format!("{}{x} {y}", if at == 0 { "M" } else { "L" })).collect()
        };
        let names: Vec<&str> = self.curves.iter().map(|(name, _)| *name).collect();
        let tenths = shares.ticks(10.0);
        frame(
            self.title,
            bottom + FOOT,
            &html! {
                (legend(&names))
                (across(&shares, bottom, &tenths, |share| format!("{:.0} %", share * 100.0), self.shares))
                @for at in powers(&waits) {
                    line x1=(LEFT) x2=(WIDTH - RIGHT) y1=(px(waits.at(at))) y2=(px(waits.at(at))) stroke="#d8dde6" {}
                    text x=(LEFT - 8.0) y=(px(waits.at(at) + 4.0)) text-anchor="end" { (power(at)) }
                }
                @for (number, (_, curve)) in self.curves.iter().enumerate() {
                    path d=(path(curve)) fill="none" stroke=(colour(number)) stroke-width="2" stroke-dasharray=[dashes(number)] {}
                }
            },
        )
    }
}

/// A picture with its title. It has a size of its own, and can be scaled.
fn frame(title: &str, height: f64, body: &Markup) -> Markup {
    html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox=(format!("0 0 {WIDTH} {height}"))
            role="img" aria-label=(title) font-family="system-ui, sans-serif" font-size="12" fill=(INK) {
            rect width="100%" height="100%" fill="#ffffff" {}
            text x=(WIDTH / 2.0) y="24" text-anchor="middle" font-size="18" { (title) }
            (body)
        }
    }
}

/// What each colour means, side by side below the title, in as many lines as it takes.
#[allow(clippy::cast_precision_loss)] // A dozen names.
fn legend(names: &[&str]) -> Markup {
    let mut next = (12.0, 44.0);
    let places = names.iter().map(|name| {
        // Some seven pixels for each letter; the mark and the gaps besides.
        let width = name.chars().count() as f64 * 7.2 + 32.0;
        let (x, y) = if next.0 + width > WIDTH { (12.0, next.1 + 14.0) } else { next };
        next = (x + width, y);
        (x, y)
    });
    let places: Vec<(f64, f64)> = places.collect();
    html! {
        @for (number, (name, (x, y))) in names.iter().zip(places).enumerate() {
            line x1=(px(x)) x2=(px(x + 14.0)) y1=(y) y2=(y) stroke=(colour(number)) stroke-width="8" stroke-dasharray=[dashes(number)] {}
            text x=(px(x + 20.0)) y=(y + 4.0) { (name) }
        }
    }
}

/// The axis below a chart: a line up from each tick, its number below it, and what the numbers count.
fn across(axis: &Axis, bottom: f64, ticks: &[f64], label: impl Fn(f64) -> String, counts: &str) -> Markup {
    html! {
        @for at in ticks {
            line x1=(px(axis.at(*at))) x2=(px(axis.at(*at))) y1=(TOP) y2=(px(bottom)) stroke="#d8dde6" {}
            text x=(px(axis.at(*at))) y=(px(bottom + 16.0)) text-anchor="middle" { (label(*at)) }
        }
        text x=(px(f64::midpoint(LEFT, WIDTH))) y=(px(bottom + 36.0)) text-anchor="middle" { (counts) }
    }
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// When the colours are used up, lines are told apart by their dashes.
fn dashes(number: usize) -> Option<&'static str> {
    (number >= COLOURS.len()).then_some("6 3")
}

/// The powers of ten on a logarithmic axis.
fn powers(axis: &Axis) -> Vec<f64> {
    axis.ticks(10.0).into_iter().filter(|at| at.fract().abs() < 1e-9).collect()
}

/// So many microseconds, as a power of ten.
fn power(at: f64) -> String {
    match at {
        ..2.5 => format!("{:.0} µs", 10_f64.powf(at)),
        ..5.5 => format!("{:.0} ms", 10_f64.powf(at - 3.0)),
        _ => format!("{:.0} s", 10_f64.powf(at - 6.0)),
    }
}

fn number(value: f64) -> String {
    match value {
        _ if value.fract() == 0.0 => format!("{value:.0}"),
        ..1.0 => format!("{value:.2}"),
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_scales_and_has_every_value() {
        let rows = vec![("Redis".into(), [250.0, 441.0]), ("memory".into(), [1.5, 0.25])];
        let (title, counts) = ("Costs", "microseconds");
        for is_logarithmic in [true, false] {
            let bars = Bars { title, counts, is_logarithmic, series: ["p50", "p99"], rows: rows.clone() };
            let svg = bars.draw().into_string();
            assert!(svg.contains("viewBox=\"0 0 860 202\""), "{svg}");
            for text in ["250", "441", "1.5", "0.25", "memory", "p99"] {
                assert!(svg.contains(&format!(">{text}</text>")), "{text}: {svg}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("width=\"-"), "{svg}");
        }
    }

    #[test]
    fn a_chart_of_nothing_can_be_drawn() {
        let bars = Bars { title: "None", counts: "", is_logarithmic: true, series: ["a", "b"], rows: Vec::new() };
        let curves = Curves { title: "None", shares: "", curves: vec![("Redis", &[])] };
        for svg in [bars.draw().into_string(), curves.draw().into_string()] {
            assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{svg}");
        }
    }

    #[test]
    fn powers_of_ten_are_named_as_times() {
        assert_eq!([0.0, 2.0, 3.0, 5.0, 6.0].map(power), ["1 µs", "100 µs", "1 ms", "100 ms", "1 s"]);
    }
}
