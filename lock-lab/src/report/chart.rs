//! Charts, as SVG that needs no style sheet: bars, curves of a distribution, and whatever else is drawn on an area.

use std::error::Error;

use maud::{Markup, PreEscaped, html};
use plotters::{
    coord::{
        Shift,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

/// The drawing area of an SVG chart.
pub(crate) type ChartArea<'a> = DrawingArea<SVGBackend<'a>, Shift>;
/// The result of drawing a chart or a part of one.
pub(crate) type DrawResult<T = ()> = Result<T, Box<dyn Error>>;

/// Room for the names of rows, left of a chart.
pub(crate) const LEFT: u32 = 150;
const WIDTH: u32 = 860;
const ROW: u32 = 46;
/// Told apart by all common kinds of colour vision, and in grey.
const COLOURS: [RGBColor; 5] =
    [RGBColor(38, 84, 124), RGBColor(230, 159, 0), RGBColor(0, 140, 110), RGBColor(190, 70, 120), RGBColor(90, 90, 90)];
const INK: RGBColor = RGBColor(29, 36, 48);

/// A bar chart: for each row a value of each of two series.
#[derive(Debug)]
pub(crate) struct BarChart {
    pub(crate) title: &'static str,
    /// What the axis counts.
    pub(crate) counts: &'static str,
    /// Powers of ten at equal distances.
    pub(crate) is_logarithmic: bool,
    pub(crate) series: [&'static str; 2],
    pub(crate) rows: Vec<(String, [f64; 2])>,
}

/// A chart of cumulative distributions: for each name the share of cases that took at most so many microseconds.
#[derive(Debug)]
pub(crate) struct DistributionChart<'a> {
    pub(crate) title: &'static str,
    /// What the shares are of.
    pub(crate) shares: &'static str,
    pub(crate) curves: Vec<(&'a str, &'a [(f64, f64)])>,
}

impl BarChart {
    pub(crate) fn draw(&self) -> Markup {
        let values = || self.rows.iter().flat_map(|(_, values)| *values);
        let low = 10_f64.powf(values().fold(1.0, f64::min).max(1e-3).log10().floor());
        let low = if self.is_logarithmic { low } else { 0.0 };
        let high = values().fold(low.max(0.1) * 10.0, f64::max);
        svg(self.title, (WIDTH, 92 + lanes(self.rows.len() + 1, ROW)), |area| {
            if self.is_logarithmic {
                self.along((low..high).log_scale(), low, area)
            } else {
                self.along(low..high, low, area)
            }
        })
    }

    #[allow(clippy::cast_precision_loss)] // A handful of rows.
    fn along<X>(&self, axis: X, low: f64, area: &ChartArea<'_>) -> DrawResult<Markup>
    where
        X: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, font(18))
            // Room for the number behind the longest bar.
            .margin_right(56)
            .x_label_area_size(48)
            .y_label_area_size(LEFT)
            // The legend stands above the first row.
            .build_cartesian_2d(axis, self.rows.len() as f64..-1.0)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .max_light_lines(0)
            .disable_y_axis()
            .y_labels(0)
            .x_labels(8)
            .x_label_formatter(&|value| number(*value))
            .x_desc(self.counts)
            .label_style(font(12))
            .draw()?;
        let rows = || self.rows.iter().enumerate().map(|(row, (name, values))| (row as f64, name, values));
        let text =
            |x, y, shift, text: String, at| EmptyElement::at((x, y)) + Text::new(text, (shift, 0), beside(12, at));
        chart.draw_series(rows().map(|(row, name, _)| text(low, row + 0.5, -8, name.clone(), HPos::Right)))?;
        for (index, name) in self.series.into_iter().enumerate() {
            let (top, colour) = (0.15 + index as f64 * 0.35, COLOURS[index].filled());
            let ends = || rows().map(|(row, _, values)| (row + top, values[index].max(low)));
            chart
                .draw_series(ends().map(|(y, end)| Rectangle::new([(low, y), (end, y + 0.32)], colour)))?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 14, y + 4)], colour));
            let numbers = rows().map(|(row, _, values)| (row + top + 0.16, values[index]));
            chart.draw_series(numbers.map(|(y, end)| text(end.max(low), y, 5, number(end), HPos::Left)))?;
        }
        let labels = &mut chart.configure_series_labels();
        labels.position(SeriesLabelPosition::UpperRight).margin(2).label_font(font(12)).draw()?;
        Ok(html! {})
    }
}

impl DistributionChart<'_> {
    pub(crate) fn draw(&self) -> Markup {
        svg(self.title, (WIDTH, 380), |area| self.on(area))
    }

    fn on(&self, area: &ChartArea<'_>) -> DrawResult<Markup> {
        let values = self.curves.iter().flat_map(|(_, curve)| *curve).map(|(_, micros)| *micros);
        let mut chart = ChartBuilder::on(area)
            .caption(self.title, font(18))
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..1.0, (1.0..values.fold(10.0, f64::max) * 1.5).log_scale())?;
        chart
            .configure_mesh()
            .max_light_lines(0)
            .x_labels(11)
            .y_labels(8)
            .x_label_formatter(&|share| format!("{:.0} %", share * 100.0))
            .y_label_formatter(&|micros| power(*micros))
            .x_desc(self.shares)
            .label_style(font(12))
            .draw()?;
        for (index, (name, curve)) in self.curves.iter().enumerate() {
            let style = COLOURS[index % COLOURS.len()].stroke_width(2);
            // When the colours are used up, lines are told apart by their dashes.
            let dash = if index < COLOURS.len() { 10_000 } else { 6 };
            let points = curve.iter().map(|(share, micros)| (*share, micros.max(1.0)));
            chart
                .draw_series(DashedLineSeries::new(points, dash, 3, style))?
                .label(*name)
                .legend(move |(x, y)| DashedPathElement::new([(x, y), (x + 24, y)], dash, 3, style));
        }
        let labels = &mut chart.configure_series_labels();
        labels.position(SeriesLabelPosition::LowerRight).background_style(WHITE.mix(0.8));
        labels.margin(4).legend_area_size(32_u32).label_font(font(12)).draw()?;
        Ok(html! {})
    }
}

/// A picture with its title. It has a size of its own, and can be scaled. What `draw` returns lies on top.
pub(crate) fn svg(title: &str, size: (u32, u32), draw: impl FnOnce(&ChartArea<'_>) -> DrawResult<Markup>) -> Markup {
    let mut text = String::new();
    let top = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        area.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&area))
    };
    let top = top.unwrap_or_else(|error| html! { text y="20" { "not drawn: " (error) } });
    let root = format!("<svg role=\"img\" aria-label=\"{}\"", html! { (title) }.0);
    PreEscaped(text.replacen("<svg", &root, 1).replace("</svg>", &format!("{}</svg>", top.0)))
}

/// Height of so many lanes.
pub(crate) fn lanes(count: usize, height: u32) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX).saturating_mul(height)
}

pub(crate) fn font(size: u32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK)
}

/// Text that begins or ends at a point, halfway up.
pub(crate) fn beside(size: u32, at: HPos) -> TextStyle<'static> {
    font(size).pos(Pos::new(at, VPos::Center))
}

/// So many microseconds, a power of ten.
fn power(micros: f64) -> String {
    match micros {
        ..999.0 => format!("{micros:.0} µs"),
        ..999e3 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.0} s", micros / 1e6),
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
            let bars = BarChart { title, counts, is_logarithmic, series: ["p50", "p99"], rows: rows.clone() };
            let svg = bars.draw().into_string();
            assert!(svg.contains("viewBox=\"0 0 860 230\""), "{svg}");
            for text in ["250", "441", "1.5", "0.25", "memory", "p99"] {
                assert!(svg.contains(&format!(">\n{text}\n</text>")), "{text}: {svg}");
            }
            assert!(!svg.contains("NaN") && !svg.contains("width=\"-"), "{svg}");
        }
    }

    #[test]
    fn a_chart_of_nothing_can_be_drawn() {
        let bars = BarChart { title: "None", counts: "", is_logarithmic: true, series: ["a", "b"], rows: Vec::new() };
        let curves = DistributionChart { title: "None", shares: "", curves: vec![("Redis", &[])] };
        for svg in [bars.draw().into_string(), curves.draw().into_string()] {
            assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("not drawn"), "{svg}");
        }
    }

    #[test]
    fn powers_of_ten_are_named_as_times() {
        assert_eq!([1.0, 100.0, 1e3, 1e5, 1e6].map(power), ["1 µs", "100 µs", "1 ms", "100 ms", "1 s"]);
    }
}
