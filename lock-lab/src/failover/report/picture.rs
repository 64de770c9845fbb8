//! The picture of one run: who held when, where the fault struck, until when validity ran.

use maud::{Markup, html};
use plotters::{
    coord::{cartesian::Cartesian2d, types::RangedCoordf64},
    prelude::*,
    style::text_anchor::HPos,
};

use super::timeline::{Hold, Lane, LateWrite, Span, Timeline, joined};
use crate::report::{ChartArea, DrawResult, LEFT, beside, font, lanes, millis, svg};

const WIDTH: u32 = 1120;
const RIGHT: u32 = 28;
const LANE: u32 = 17;

const HELD: RGBColor = RGBColor(38, 84, 124);
const VALIDITY: RGBColor = RGBColor(156, 195, 230);
const KNEW: RGBColor = RGBColor(17, 17, 17);
const FAULT: RGBColor = RGBColor(251, 227, 200);
const OVERLAP: RGBColor = RGBColor(235, 148, 163);
const GAP: RGBColor = RGBColor(230, 159, 0);
const LATE: RGBColor = RGBColor(214, 34, 70);
pub(super) const LATE_FENCED: RGBColor = RGBColor(122, 0, 168);
const MOMENT: RGBColor = RGBColor(180, 70, 15);

/// What each sign means.
pub(super) const SIGNS: [(&str, RGBColor, &str); 9] = [
    ("■", HELD, "holds the lock"),
    ("▬", VALIDITY, "validity of a holder that did not release, up to its end"),
    ("✕", KNEW, "the holder knew that its lock was lost"),
    ("■", FAULT, "the fault lasts"),
    ("■", OVERLAP, "two holders are valid"),
    ("▬", GAP, "the longest time without a grant of the busy lock"),
    ("▲", LATE, "a late write that the store without a fence took, the fenced one not"),
    ("○", LATE, "a late write that neither took"),
    ("▲", LATE_FENCED, "a late write that the fenced store took"),
];

/// One panel of a timeline's picture: a span of time across the width, and a lane for each client.
struct TimelinePanel<'a> {
    chart: ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>,
    span: Span,
    hints: Vec<Markup>,
}

/// The picture as SVG.
pub(super) fn draw(timeline: &Timeline, title: &str) -> Markup {
    // Above the lanes of each panel the names of moments, below them the axis.
    let height = lanes(timeline.lanes.len() + 4, LANE);
    svg(title, (WIDTH, height * 2), |area| {
        let (above, below) = area.split_vertically(height);
        let whole = draw_panel(&above, timeline, timeline.whole, "the whole run")?;
        let close = draw_panel(&below, timeline, timeline.close, "a closer look")?;
        Ok(html! { (whole) (close) })
    })
}

/// What each sign means, once for all pictures.
pub(super) fn legend() -> Markup {
    html! {
        ul.legend {
            @for (sign, RGBColor(red, green, blue), words) in SIGNS {
                li { span style=(format!("color: rgb({red} {green} {blue})")) { (sign) } " " (words) }
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)] // A few dozen lanes.
fn draw_panel(area: &ChartArea<'_>, timeline: &Timeline, span: Span, name: &str) -> DrawResult<Markup> {
    let bottom = timeline.lanes.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .margin_right(RIGHT)
        .x_label_area_size(LANE * 3 / 2)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(span.from..span.until, bottom..-2.5)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .max_light_lines(0)
        .disable_y_axis()
        .y_labels(0)
        .x_labels(11)
        .x_label_formatter(&|at| millis((at * 1e3).round() / 1e3))
        .label_style(font(11))
        .draw()?;
    let mut panel = TimelinePanel { chart, span, hints: Vec::new() };
    panel.text(span.from, -1.8, 8 - LEFT.cast_signed(), name, beside(14, HPos::Left))?;
    panel.bar(timeline.fault, (0.0, bottom), FAULT)?;
    for overlap in &timeline.overlaps {
        panel.bar(*overlap, (0.0, bottom), OVERLAP)?;
        panel.hint(*overlap, (0.0, bottom), &format!("two valid holders for {}", millis(overlap.length())));
    }
    for (number, lane) in timeline.lanes.iter().enumerate() {
        if number > 0 && timeline.lanes[number - 1].lock != lane.lock {
            let line = vec![(span.from, number as f64), (span.until, number as f64)];
            panel.chart.draw_series([PathElement::new(line, BLACK.mix(0.4))])?;
        }
        panel.lane(lane, number as f64)?;
    }
    let gap = (bottom - 0.2, bottom);
    panel.bar(timeline.gap, gap, GAP)?;
    panel.hint(timeline.gap, gap, &format!("no grant of the busy lock for {}", millis(timeline.gap.length())));
    panel.moments(timeline, bottom)?;
    Ok(html! { @for hint in &panel.hints { (hint) } })
}

impl TimelinePanel<'_> {
    /// Length of one pixel, in time.
    fn pixel(&self) -> f64 {
        self.span.length() / f64::from(WIDTH - LEFT - RIGHT)
    }

    /// The part of a span that is to be seen, at least as wide as can be seen.
    fn seen(&self, span: Span) -> Option<Span> {
        let from = span.from.max(self.span.from);
        let until = span.until.min(self.span.until).max(from + self.pixel());
        span.meets(self.span).then_some(Span { from, until })
    }

    fn bar(&mut self, span: Span, (top, bottom): (f64, f64), colour: RGBColor) -> DrawResult {
        let seen =
            self.seen(span).map(|span| Rectangle::new([(span.from, top), (span.until, bottom)], colour.filled()));
        self.chart.draw_series(seen)?;
        Ok(())
    }

    fn text(&mut self, at: f64, y: f64, shift: i32, text: &str, style: TextStyle<'_>) -> DrawResult {
        self.chart.draw_series([EmptyElement::at((at, y)) + Text::new(text.to_owned(), (shift, 0), style)])?;
        Ok(())
    }

    /// Words for whoever points at a bar, or at a sign that is little more than a point.
    fn hint(&mut self, span: Span, (top, bottom): (f64, f64), words: &str) {
        if let Some(Span { from, until }) = self.seen(span) {
            let ((x, y), (right, low)) =
                (self.chart.backend_coord(&(from, top)), self.chart.backend_coord(&(until, bottom)));
            let hint = html! {
                rect x=(x - 3) y=(y) width=(right - x + 6) height=(low - y) fill="transparent" { title { (words) } }
            };
            self.hints.push(hint);
        }
    }

    fn lane(&mut self, lane: &Lane, top: f64) -> DrawResult {
        let (span, pixel) = (self.span, self.pixel());
        let (high, middle, low) = (top + 0.15, top + 0.5, top + 0.85);
        self.text(span.from, middle, -8, &format!("{} · {}", lane.lock, lane.client), beside(11, HPos::Right))?;
        let holds = joined(&lane.holds, pixel, |_| true);
        for until in holds.iter().filter_map(|hold| hold.valid_until.map(|until| Span { from: hold.held.from, until }))
        {
            self.bar(until, (top + 0.3, top + 0.7), VALIDITY)?;
            self.bar(moment(until.until), (high, low), HELD)?;
        }
        // One shape for all holds of the lane, up and down: there are thousands.
        let corners = |Span { from, until }| [(from, low), (from, high), (until, high), (until, low)];
        let shape: Vec<_> = holds.iter().filter_map(|hold| self.seen(hold.held)).flat_map(corners).collect();
        self.chart.draw_series([Polygon::new(shape, HELD)])?;
        for hold in holds.iter().filter(|hold| !is_short(hold, pixel)) {
            let whole = Span { until: hold.valid_until.unwrap_or(hold.held.until).max(hold.held.until), ..hold.held };
            self.hint(whole, (high, low), &words(hold));
        }
        for at in holds.iter().filter_map(|hold| hold.knew).filter(|at| span.contains(*at)) {
            self.chart.draw_series([Cross::new((at, middle), 4, KNEW.stroke_width(2))])?;
            self.hint(moment(at), (high, low), &format!("knew that it was lost at {}", millis(at)));
        }
        for write in lane.late_writes.iter().filter(|write| span.contains(write.at)) {
            let at = (write.at, middle);
            let (sign, words) = match write {
                LateWrite { taken_fenced: true, .. } => {
                    (TriangleMarker::new(at, 4, LATE_FENCED).into_dyn(), "taken by the sink with the fence")
                }
                LateWrite { taken_unfenced: true, .. } => {
                    (TriangleMarker::new(at, 4, LATE).into_dyn(), "taken without the fence, refused with it")
                }
                LateWrite { .. } => (Circle::new(at, 3, LATE).into_dyn(), "refused"),
            };
            self.chart.draw_series([sign])?;
            self.hint(moment(write.at), (high, low), &format!("late write, {words} at {}", millis(write.at)));
        }
        Ok(())
    }

    /// The fault's beginning and end and the other moments, with their names above the lanes.
    fn moments(&mut self, timeline: &Timeline, bottom: f64) -> DrawResult {
        let mut moments = vec![(timeline.fault.from, "the fault strikes")];
        if timeline.fault.until < timeline.whole.until {
            moments.push((timeline.fault.until, "the fault ends"));
        }
        moments.extend(timeline.marks.iter().map(|mark| (mark.at, &*mark.text)));
        moments.retain(|(at, _)| self.span.contains(*at));
        moments.sort_by(|one, other| one.0.total_cmp(&other.0));
        for (number, (at, text)) in moments.into_iter().enumerate() {
            // Names take turns in two rows, so that neighbours do not cover each other.
            let y = if number % 2 == 0 { -1.4 } else { -0.6 };
            self.chart.draw_series([PathElement::new(vec![(at, y), (at, bottom)], MOMENT)])?;
            let is_left = at < f64::midpoint(self.span.from, self.span.until);
            let (shift, side) = if is_left { (3, HPos::Left) } else { (-3, HPos::Right) };
            self.text(at, y, shift, text, beside(11, side).color(&MOMENT))?;
        }
        Ok(())
    }
}

fn moment(at: f64) -> Span {
    Span { from: at, until: at }
}

/// Whether the hold was released in time, and is drawn too short for anybody to point at.
fn is_short(hold: &Hold, pixel: f64) -> bool {
    hold.valid_until.is_none() && hold.knew.is_none() && hold.held.length() < pixel * 12.0
}

fn words(hold: &Hold) -> String {
    format!(
        "held from {} to {}{}{}",
        millis(hold.held.from),
        millis(hold.held.until),
        if hold.grants > 1 { format!(", {} grants", hold.grants) } else { String::new() },
        hold.valid_until.map(|until| format!("; validity until {}", millis(until))).unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_a_panel_is_not_drawn() {
        let part = |from, until| Span { from, until };
        let lane = Lane { holds: vec![Hold { held: part(-5.0, 5.0), ..Hold::default() }], ..Lane::default() };
        let timeline =
            Timeline { whole: part(0.0, 10.0), close: part(20.0, 30.0), lanes: vec![lane], ..Timeline::default() };
        let svg = draw(&timeline, "").into_string();
        let held: Vec<_> = svg.lines().filter(|line| line.contains("polygon") && line.contains("#26547C")).collect();
        assert!(held[0].contains(&format!("points=\"{LEFT},")) && held[0].contains(" 620,"), "{held:?}");
        assert!(held[1..].iter().all(|line| line.contains("points=\"\"")), "{held:?}");
    }
}
