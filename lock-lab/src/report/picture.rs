//! The pictures of a report, as SVG.

use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Backend, Report};

/// One picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Picture {
    /// Its name as a file.
    pub(super) id: &'static str,
    /// What it shows.
    pub(super) title: &'static str,
    pub(super) svg: String,
}

/// Bars: for each backend that was measured, a value of each series.
struct Bars {
    id: &'static str,
    title: &'static str,
    /// What the axis counts.
    axis: &'static str,
    /// Powers of ten at equal distances.
    logarithmic: bool,
    series: Vec<&'static str>,
    rows: Vec<(String, Vec<f64>)>,
}

const WIDTH: u32 = 860;
const ROW: u32 = 46;
/// Told apart by all common kinds of colour vision, and in grey.
const COLOURS: [RGBColor; 5] =
    [RGBColor(38, 84, 124), RGBColor(230, 159, 0), RGBColor(0, 140, 110), RGBColor(190, 70, 120), RGBColor(90, 90, 90)];
const INK: RGBColor = RGBColor(29, 36, 48);

type Drawn = Result<(), Box<dyn std::error::Error>>;

impl Report {
    /// One picture for each table, in the same order.
    pub(super) fn pictures(&self) -> Vec<Picture> {
        vec![self.uncontended(), self.contended(), self.holder_killed(), self.server_killed()]
    }

    fn uncontended(&self) -> Picture {
        let bars = Bars {
            id: "uncontended",
            title: "Acquire and release, uncontended",
            axis: "microseconds (logarithmic)",
            logarithmic: true,
            series: vec!["p50", "p99"],
            rows: self
                .bars(|backend| backend.uncontended.measured().map(|figures| vec![figures.both.p50, figures.both.p99])),
        };
        bars.picture()
    }

    fn holder_killed(&self) -> Picture {
        let bars = Bars {
            id: "holder-killed",
            title: "Holder killed: time until the next grant",
            axis: "milliseconds",
            logarithmic: false,
            series: vec!["median", "longest"],
            rows: self.bars(|backend| {
                backend.holder_killed.measured().map(|figures| vec![figures.median_ms(), figures.longest_ms()])
            }),
        };
        bars.picture()
    }

    fn server_killed(&self) -> Picture {
        let bars = Bars {
            id: "server-killed",
            title: "Server or leader killed",
            axis: "milliseconds",
            logarithmic: false,
            series: vec!["no grant of the busy lock", "two holders of the held lock"],
            rows: self.bars(|backend| {
                backend.server_killed.measured().map(|figures| vec![figures.no_grant_ms, figures.overlap_ms])
            }),
        };
        bars.picture()
    }

    fn bars(&self, values: impl Fn(&Backend) -> Option<Vec<f64>>) -> Vec<(String, Vec<f64>)> {
        self.backends.iter().filter_map(|backend| Some((backend.title.clone(), values(backend)?))).collect()
    }

    /// The distribution of the waits: a fair backend's line is flat.
    fn contended(&self) -> Picture {
        let title = "Contended: how long a client waits for the lock";
        let curves: Vec<(&str, &[(f64, f64)])> = self
            .backends
            .iter()
            .filter_map(|backend| Some((backend.title.as_str(), &*backend.contended.measured()?.waits.curve)))
            .collect();
        let svg = svg((WIDTH, 380), |area| curves_on(area, title, &curves));
        Picture { id: "contended", title, svg }
    }
}

/// Draws on an area of that size. A failure of the drawing is said in the picture's place.
fn svg(size: (u32, u32), draw: impl FnOnce(&DrawingArea<SVGBackend<'_>, Shift>) -> Drawn) -> String {
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        draw(&area).and_then(|()| Ok(area.present()?))
    };
    match drawn {
        Ok(()) => text,
        Err(error) => format!("<svg xmlns=\"http://www.w3.org/2000/svg\"><desc>not drawn: {error:?}</desc></svg>\n"),
    }
}

fn font(size: u32) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK)
}

impl Bars {
    fn picture(&self) -> Picture {
        let rows = u32::try_from(self.rows.len().max(1)).unwrap_or(1);
        let svg = svg((WIDTH, 130 + rows * ROW), |area| self.draw(area));
        Picture { id: self.id, title: self.title, svg }
    }

    /// Where a value stands on the axis.
    fn position(&self, value: f64) -> f64 {
        if self.logarithmic { value.max(1e-3).log10() } else { value }
    }

    #[allow(clippy::cast_precision_loss)] // A handful of rows.
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        area.fill(&WHITE)?;
        let values = || self.rows.iter().flat_map(|(_, values)| values).map(|value| self.position(*value));
        let low = if self.logarithmic { values().fold(f64::INFINITY, f64::min).min(0.0).floor() } else { 0.0 };
        let high = values().fold(low + 1.0, f64::max);
        // Room for the number behind the longest bar.
        let high = low + (high - low) * 1.13;
        let count = self.rows.len().max(1) as f64;
        let caption = font(18).pos(Pos::new(HPos::Center, VPos::Top));
        area.draw(&Text::new(self.title, (i32::try_from(WIDTH)? / 2, 10), caption))?;
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            // The title, then the legend.
            .margin_top(62)
            .x_label_area_size(44)
            .y_label_area_size(110)
            .build_cartesian_2d(low..high, count..0.0)?;
        let tick = |at: &f64| if self.logarithmic { power_of_ten(*at) } else { format!("{at:.0}") };
        // At most: with a logarithmic axis those between two powers of ten have no label.
        let ticks = if self.logarithmic { 10 } else { 8 };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(WHITE)
            .disable_y_axis()
            .y_labels(0)
            .x_labels(ticks)
            .x_label_formatter(&tick)
            .x_desc(self.axis)
            .label_style(font(12))
            .draw()?;
        for (row, (name, values)) in self.rows.iter().enumerate() {
            let (left, middle) = chart.backend_coord(&(low, row as f64 + 0.5));
            let to_the_left = font(14).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(name.clone(), (left - 8, middle), to_the_left))?;
            let height = 0.7 / self.series.len().max(1) as f64;
            for (index, value) in values.iter().enumerate() {
                let top = row as f64 + 0.15 + index as f64 * height;
                let end = self.position(*value);
                let bar = [(low, top), (end, top + height * 0.92)];
                chart.draw_series([Rectangle::new(bar, COLOURS[index % COLOURS.len()].filled())])?;
                let behind = font(12).pos(Pos::new(HPos::Left, VPos::Center));
                let (x, y) = chart.backend_coord(&(end, top + height / 2.0));
                area.draw(&Text::new(number(*value), (x + 5, y), behind))?;
            }
        }
        self.legend(area)
    }

    fn legend(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Drawn {
        let mut x = 120;
        for (index, name) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            area.draw(&Rectangle::new([(x, 36), (x + 12, 48)], colour.filled()))?;
            area.draw(&Text::new(*name, (x + 18, 42), font(12).pos(Pos::new(HPos::Left, VPos::Center))))?;
            x += 40 + i32::try_from(name.len()).unwrap_or(0) * 8;
        }
        Ok(())
    }
}

fn curves_on(area: &DrawingArea<SVGBackend<'_>, Shift>, title: &str, curves: &[(&str, &[(f64, f64)])]) -> Drawn {
    area.fill(&WHITE)?;
    let position = |micros: f64| micros.max(1.0).log10();
    let highest = curves.iter().flat_map(|(_, curve)| *curve).map(|(_, micros)| position(*micros)).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption(title, font(18))
        .margin(10)
        .x_label_area_size(44)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..100.0, 0.0..highest * 1.05)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc("share of the grants, in per cent")
        .y_desc("wait of at most (logarithmic)")
        .x_labels(11)
        .y_labels(8)
        .x_label_formatter(&|share| format!("{share:.0}"))
        .y_label_formatter(&|at| if at.fract().abs() < 1e-9 { duration(10f64.powf(*at)) } else { String::new() })
        .label_style(font(12))
        .draw()?;
    for (index, (name, curve)) in curves.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points = curve.iter().map(|(quantile, micros)| (quantile * 100.0, position(*micros)));
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 1), (x + 16, y + 2)], colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .background_style(WHITE.mix(0.8))
        .label_font(font(12))
        .draw()?;
    Ok(())
}

fn power_of_ten(at: f64) -> String {
    if at.fract().abs() < 1e-9 { number(10f64.powf(at)) } else { String::new() }
}

fn duration(micros: f64) -> String {
    match micros {
        ..999.0 => format!("{micros:.0} µs"),
        ..999_000.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.0} s", micros / 1e6),
    }
}

fn number(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        ..1.0 => format!("{value:.2}"),
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
