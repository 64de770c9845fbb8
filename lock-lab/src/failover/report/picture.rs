//! The picture of one run: who held when, where the fault struck, until when validity ran.

use maud::{Markup, html};

use super::timeline::{Hold, Lane, LateWrite, Span, Timeline, joined};
use crate::report::{Axis, millis, px};

const WIDTH: f64 = 1120.0;
/// Where time begins, right of the lanes' names.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 16.0;
const LANE: f64 = 17.0;
/// Above the lanes of each panel: its heading and the names of moments.
const HEAD: f64 = 44.0;
/// Below them: the axis.
const FOOT: f64 = 30.0;
/// What is narrower than this is drawn this wide, in pixels.
const THINNEST: f64 = 0.8;

/// One panel: a span of time across the width.
struct Panel {
    span: Span,
    axis: Axis,
    top: f64,
    bottom: f64,
}

impl Panel {
    fn new(span: Span, top: f64, bottom: f64) -> Self {
        Self { span, axis: Axis { values: span.into(), pixels: (LEFT, WIDTH - RIGHT) }, top, bottom }
    }

    fn x(&self, at: f64) -> f64 {
        self.axis.at(at)
    }

    /// The left edge and the width of a span, if any of it is to be seen.
    fn bar(&self, span: Span) -> Option<(f64, f64)> {
        span.meets(self.span).then(|| (self.x(span.from), (self.x(span.until) - self.x(span.from)).max(THINNEST)))
    }
}

/// The picture as SVG, for use inside an HTML page that has [`STYLE`].
pub(super) fn draw(timeline: &Timeline, title: &str) -> Markup {
    #[allow(clippy::cast_precision_loss)] // A few dozen.
    let lanes = timeline.lanes.len() as f64 * LANE;
    let height = HEAD + lanes + FOOT;
    let panel = |span, number: f64| Panel::new(span, height * number + HEAD, height * number + HEAD + lanes);
    let view = format!("0 0 {WIDTH} {}", height * 2.0);
    html! {
        svg.run xmlns="http://www.w3.org/2000/svg" viewBox=(view) role="img" aria-label=(title) {
            (draw_panel(timeline, &panel(timeline.whole, 0.0), "the whole run"))
            (draw_panel(timeline, &panel(timeline.close, 1.0), "a closer look"))
        }
    }
}

fn draw_panel(timeline: &Timeline, panel: &Panel, name: &str) -> Markup {
    let height = panel.bottom - panel.top;
    html! {
        text.heading x="0" y=(px(panel.top - 26.0)) { (name) }
        @if let Some((x, width)) = panel.bar(timeline.fault) {
            rect.fault x=(px(x)) y=(px(panel.top)) width=(px(width)) height=(px(height)) {}
        }
        @for span in &timeline.overlaps {
            @if let Some((x, width)) = panel.bar(*span) {
                rect.overlap x=(px(x)) y=(px(panel.top)) width=(px(width.max(2.0))) height=(px(height)) {
                    title { "two valid holders for " (millis(span.length())) }
                }
            }
        }
        (axis(panel))
        (draw_gap(timeline, panel))
        @for (number, lane) in timeline.lanes.iter().enumerate() {
            (draw_lane(lane, panel, number, number > 0 && timeline.lanes[number - 1].lock != lane.lock))
        }
        (moments(timeline, panel))
    }
}

/// The longest time without a grant, below the lanes.
fn draw_gap(timeline: &Timeline, panel: &Panel) -> Markup {
    let y = panel.bottom - 2.5;
    html! {
        @if let Some((x, width)) = panel.bar(timeline.gap) {
            path.gap d=(format!("M{} {}h{}", px(x), px(y), px(width))) {
                title { "no grant of the busy lock for " (millis(timeline.gap.length())) }
            }
        }
    }
}

#[allow(clippy::cast_precision_loss)] // A few dozen lanes.
fn draw_lane(lane: &Lane, panel: &Panel, number: usize, first_of_lock: bool) -> Markup {
    let top = panel.top + number as f64 * LANE;
    let drawn = joined(&lane.holds, panel.axis.pixel(), |_| true);
    html! {
        @if first_of_lock { line.lock x1="0" x2=(WIDTH) y1=(px(top)) y2=(px(top)) {} }
        text.lane x=(LEFT - 8.0) y=(px(top + 12.5)) { (lane.lock) " · " (lane.client) }
        path.held d=(short_holds(&drawn, panel, top)) {}
        @for hold in drawn.iter().filter(|hold| !is_short(hold, panel)) { (draw_hold(hold, panel, top)) }
        @for write in &lane.late_writes { (draw_late_write(*write, panel, top)) }
    }
}

/// Whether the hold was released in time, and is drawn too short for anybody to point at.
fn is_short(hold: &Hold, panel: &Panel) -> bool {
    hold.valid_until.is_none() && hold.knew.is_none() && hold.held.length() < panel.axis.pixel() * 12.0
}

/// All short holds of a lane as one path: there are thousands.
fn short_holds(holds: &[Hold], panel: &Panel, top: f64) -> String {
    let bars = holds.iter().filter(|hold| is_short(hold, panel)).filter_map(|hold| panel.bar(hold.held));
    bars.map(|(x, width)| format!("M{} {}h{}", px(x), px(top + 8.5), px(width))).collect()
}

fn draw_hold(hold: &Hold, panel: &Panel, top: f64) -> Markup {
    let validity = hold.valid_until.and_then(|until| panel.bar(Span { from: hold.held.from, until }));
    let words = format!(
        "held from {} to {}{}{}",
        millis(hold.held.from),
        millis(hold.held.until),
        if hold.grants > 1 { format!(", {} grants", hold.grants) } else { String::new() },
        hold.valid_until.map(|until| format!("; validity until {}", millis(until))).unwrap_or_default(),
    );
    html! {
        @if let Some((x, width)) = validity {
            rect.validity x=(px(x)) y=(px(top + 6.0)) width=(px(width)) height="5" {}
            line.end x1=(px(x + width)) x2=(px(x + width)) y1=(px(top + 2.0)) y2=(px(top + 15.0)) {}
        }
        @if let Some((x, width)) = panel.bar(hold.held) {
            rect.held x=(px(x)) y=(px(top + 3.0)) width=(px(width)) height="11" { title { (words) } }
        }
        @if let Some(at) = hold.knew && panel.span.contains(at) {
            path.knew d=(cross(panel.x(at), top + 8.5)) { title { "knew that it was lost at " (millis(at)) } }
        }
    }
}

fn draw_late_write(write: LateWrite, panel: &Panel, top: f64) -> Markup {
    let (class, words) = match write {
        LateWrite { taken_fenced: true, .. } => ("late fenced", "late write, taken by the sink with the fence"),
        LateWrite { taken_unfenced: true, .. } => ("late", "late write, taken without the fence, refused with it"),
        LateWrite { .. } => ("late refused", "late write, refused"),
    };
    html! {
        @if panel.span.contains(write.at) {
            path class=(class) d=(triangle(panel.x(write.at), top + 10.0)) { title { (words) " at " (millis(write.at)) } }
        }
    }
}

/// The fault's beginning and end and the other moments, with their names above the lanes.
fn moments(timeline: &Timeline, panel: &Panel) -> Markup {
    let mut moments = vec![(timeline.fault.from, "the fault strikes".to_owned())];
    if timeline.fault.until < timeline.whole.until {
        moments.push((timeline.fault.until, "the fault ends".to_owned()));
    }
    moments.extend(timeline.marks.iter().map(|mark| (mark.at, mark.text.clone())));
    moments.retain(|(at, _)| panel.span.contains(*at));
    moments.sort_by(|one, other| one.0.total_cmp(&other.0));
    // Names take turns in two rows, so that neighbours do not cover each other.
    html! {
        @for (number, (at, text)) in moments.iter().enumerate() {
            @let x = panel.x(*at);
            @let top = panel.top - if number % 2 == 0 { 16.0 } else { 4.0 };
            @let right_half = x > f64::midpoint(LEFT, WIDTH);
            line.moment x1=(px(x)) x2=(px(x)) y1=(px(top - 8.0)) y2=(px(panel.bottom)) {}
            text.moment x=(px(if right_half { x - 3.0 } else { x + 3.0 })) y=(px(top)) text-anchor=(if right_half { "end" } else { "start" }) { (text) }
        }
    }
}

fn axis(panel: &Panel) -> Markup {
    html! {
        rect.frame x=(LEFT) y=(px(panel.top)) width=(px(WIDTH - LEFT - RIGHT)) height=(px(panel.bottom - panel.top)) {}
        @for at in panel.axis.ticks(11.0) {
            line.tick x1=(px(panel.x(at))) x2=(px(panel.x(at))) y1=(px(panel.bottom)) y2=(px(panel.bottom + 4.0)) {}
            @let anchor = if panel.x(at) > WIDTH - RIGHT - 24.0 { "end" } else { "middle" };
            text.tick x=(px(panel.x(at))) y=(px(panel.bottom + 15.0)) text-anchor=(anchor) { (millis(at)) }
        }
    }
}

fn cross(x: f64, y: f64) -> String {
    let (left, right, top, bottom) = (px(x - 4.0), px(x + 4.0), px(y - 4.0), px(y + 4.0));
    format!("M{left} {top}L{right} {bottom}M{left} {bottom}L{right} {top}")
}

fn triangle(x: f64, y: f64) -> String {
    format!("M{} {}h6l-3 6z", px(x - 3.0), px(y))
}

/// What each sign means, once for all pictures.
pub(super) fn legend() -> Markup {
    let signs = [
        (html! { rect.held x="2" y="3" width="26" height="11" {} }, "holds the lock"),
        (
            html! { rect.validity x="2" y="6" width="25" height="5" {} line.end x1="27" x2="27" y1="2" y2="15" {} },
            "validity of a holder that did not release, and its end",
        ),
        (html! { path.knew d=(cross(15.0, 8.5)) {} }, "the holder knew that its lock was lost"),
        (html! { rect.fault x="0" y="0" width="30" height="17" {} }, "the fault lasts"),
        (html! { rect.overlap x="0" y="0" width="30" height="17" {} }, "two holders are valid"),
        (html! { path.gap d="M2 9h26" {} }, "the longest time without a grant of the busy lock"),
        (
            html! { path.late d=(triangle(15.0, 6.0)) {} },
            "a late write that the store without a fence took, the fenced one not",
        ),
        (html! { path.late.refused d=(triangle(15.0, 6.0)) {} }, "a late write that neither took"),
    ];
    html! {
        ul.legend {
            @for (sign, words) in &signs { li { svg.sign viewBox="0 0 30 17" aria-hidden="true" { (sign) } (words) } }
        }
    }
}

/// What the classes of the pictures look like.
pub(super) const STYLE: &str = "
ul.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.6rem; font-size: .85rem; }
svg.sign { width: 30px; height: 17px; margin: 0 .5em 0 0; vertical-align: -4px; }
svg.run { width: 100%; font: 11px system-ui, sans-serif; }
svg.run text { fill: #1d2430; } text.heading { font-weight: 600; font-size: 12px; }
text.lane { text-anchor: end; font-size: 10px; } text.tick { fill: #4a5568; font-size: 10px; }
text.moment { font-size: 10px; font-weight: 600; }
rect.frame { fill: none; stroke: #d8dde6; } line.tick { stroke: #4a5568; } line.lock { stroke: #a0a8b6; }
line.moment { stroke: #b4460f; stroke-dasharray: 3 2; } rect.fault { fill: #fbe3c8; }
rect.held { fill: #26547c; } path.held { stroke: #26547c; stroke-width: 11; } rect.validity { fill: #9cc3e6; } line.end { stroke: #26547c; }
rect.overlap { fill: #d62246; opacity: .45; } path.knew { stroke: #111; stroke-width: 2; fill: none; }
path.gap { stroke: #e69f00; stroke-width: 4; } path.late { fill: #d62246; } path.late.refused { fill: none; stroke: #d62246; } path.late.fenced { fill: #7a00a8; }
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_outside_of_a_panel_is_not_drawn() {
        let panel = Panel::new(Span { from: 0.0, until: 10.0 }, 0.0, 1.0);
        assert!(panel.bar(Span { from: 20.0, until: 30.0 }).is_none());
        let (x, width) = panel.bar(Span { from: -5.0, until: 5.0 }).unwrap();
        assert!((x - LEFT).abs() < 1e-9 && width < WIDTH / 2.0);
    }
}
