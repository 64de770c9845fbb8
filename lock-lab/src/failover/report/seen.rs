//! From what a run says to its timeline.

use std::collections::BTreeMap;

use lock_core::BootInstant;

use super::timeline::{Hold, Lane, LateWrite, Mark, Span, Timeline, TimelineContext};
use crate::failover::{
    check::{Ending, Findings, Moments, Span as Seen},
    events::{Attempt, Lock, Write},
};

/// What is around the part that is looked at closely, in milliseconds.
const AROUND: f64 = 150.0;

/// How much of the time before the fault is shown at most, in milliseconds.
const BEFORE: f64 = 2_500.0;

impl Timeline {
    /// The timeline of a run.
    pub(crate) fn of(findings: &Findings, writes: &[Write], scenery: &TimelineContext) -> Self {
        let ms = |at: BootInstant| scenery.moments.ms(at);
        let end = ms(scenery.moments.end);
        let first = findings.spans.iter().map(|span| span.granted_ms).fold(-AROUND, f64::min);
        let last = findings.spans.iter().map(|span| span.granted_ms).fold(end, f64::max);
        // A busy machine takes its time until all clients are at work.
        let whole = Span { from: first.max(-BEFORE).floor(), until: last.ceil() };
        let both = findings.exclusion.overlaps.iter();
        let mut timeline = Self {
            whole,
            close: Span::default(),
            fault: Span { from: 0.0, until: rounded(scenery.healed.map_or(whole.until, ms)) },
            gap: longest_gap(&findings.spans, end),
            marks: scenery.marks.iter().map(|(at, text)| Mark { at: rounded(ms(*at)), text: text.clone() }).collect(),
            lanes: lanes(findings, writes, scenery.moments),
            overlaps: both.map(|both| Span { from: rounded(both.from_ms), until: rounded(both.until_ms) }).collect(),
        };
        timeline.close = timeline.worth_a_look();
        timeline.condense();
        timeline
    }

    /// From the fault to the end of what it did: two holders, a loss, or else the longest time without a grant.
    fn worth_a_look(&self) -> Span {
        let holds = self.lanes.iter().flat_map(|lane| &lane.holds);
        let losses = holds.filter_map(|hold| hold.knew.or(hold.valid_until)).filter(|at| *at >= 0.0);
        let overlaps = self.overlaps.iter().map(|span| span.until);
        let last = overlaps.chain(losses).max_by(f64::total_cmp).unwrap_or(self.gap.until);
        let first = self.overlaps.iter().map(|span| span.from).fold(0.0, f64::min);
        // A closer look is at less than the whole.
        let longest = self.whole.length() * 0.6;
        let from = (first - AROUND).max(self.whole.from);
        Span { from, until: (last + AROUND).min(from + longest).min(self.whole.until) }
    }
}

/// The longest time without a grant of the busy lock, from the fault to the end of the run.
fn longest_gap(spans: &[Seen], end: f64) -> Span {
    let busy = spans.iter().filter(|span| span.whose.lock == Lock::Busy).map(|span| span.granted_ms);
    let mut grants: Vec<f64> = busy.filter(|at| (0.0..end).contains(at)).chain([0.0, end]).collect();
    grants.sort_by(f64::total_cmp);
    let gaps = grants.windows(2).map(|pair| Span { from: rounded(pair[0]), until: rounded(pair[1]) });
    gaps.max_by(|one, other| one.length().total_cmp(&other.length())).unwrap_or_default()
}

/// The kept lock first: what becomes of it is the story of most runs.
fn order(whose: &Attempt) -> (bool, usize, usize) {
    (whose.lock == Lock::Busy, whose.process, whose.client)
}

fn lanes(findings: &Findings, writes: &[Write], moments: Moments) -> Vec<Lane> {
    let mut lanes: BTreeMap<(bool, usize, usize), Lane> = BTreeMap::new();
    for span in &findings.spans {
        let Attempt { process, client, .. } = span.whose;
        if rounded(span.ended_ms) < -BEFORE {
            continue;
        }
        let new = || Lane {
            lock: if span.whose.lock == Lock::Busy { "busy" } else { "kept" }.into(),
            client: format!("process {}, client {}", process + 1, client + 1),
            ..Lane::default()
        };
        lanes.entry(order(&span.whose)).or_insert_with(new).holds.push(hold(span));
    }
    for write in writes.iter().filter(|write| write.went_back || !write.fenced) {
        let at = rounded(moments.ms(write.at));
        let late = LateWrite { at, taken_unfenced: write.went_back, taken_fenced: write.went_back && write.fenced };
        if let Some(lane) = lanes.get_mut(&order(&write.whose)) {
            lane.late_writes.push(late);
        }
    }
    lanes.into_values().collect()
}

fn hold(span: &Seen) -> Hold {
    let released = span.end == Ending::Released;
    // Validity ends with the deadline, or when the holder is told that it is lost.
    let valid_until = span.knew_ms.map_or(span.valid_until_ms, |knew| knew.min(span.valid_until_ms));
    Hold {
        held: Span { from: rounded(span.granted_ms), until: rounded(span.ended_ms) },
        grants: 1,
        valid_until: (!released).then(|| rounded(valid_until.max(span.ended_ms))),
        knew: span.knew_ms.map(rounded),
    }
}

/// To a hundredth: less cannot be seen in a picture, and makes the data long.
fn rounded(ms: f64) -> f64 {
    (ms * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use lock_core::FencingToken;

    use super::*;
    use crate::failover::{
        check::{Expected, check},
        events::{Event, FaultEvent, History, ProcessFault, What},
    };

    const KEPT: Attempt = Attempt { lock: Lock::Kept, process: 0, client: 0, attempt: 1 };
    const TOKEN: FencingToken = FencingToken { era: 0, number: 1 };

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos((10_000 + millis) * 1_000_000)
    }

    fn event(millis: u64, what: What) -> Event {
        Event { at: at(millis), whose: KEPT, what }
    }

    fn granted(valid_until: u64) -> Event {
        event(900, What::Granted { token: TOKEN, valid_until: at(valid_until) })
    }

    /// The fault strikes at 1000.
    fn timeline(events: Vec<Event>, writes: Vec<Write>, fault_events: Vec<FaultEvent>) -> Timeline {
        let moments = Moments { fault: at(1000), end: at(3000) };
        let history = History { events, writes, fault_events, ..History::default() };
        let findings = check(&history, &[], moments, &Expected::default());
        Timeline::of(
            &findings,
            &history.writes,
            &TimelineContext { moments, healed: Some(at(1500)), marks: Vec::new() },
        )
    }

    fn only_hold(events: Vec<Event>, fault_events: Vec<FaultEvent>) -> Hold {
        timeline(events, Vec::new(), fault_events).lanes[0].holds[0].clone()
    }

    #[test]
    fn a_released_lock_is_held_until_the_release() {
        let events = vec![granted(1900), event(1200, What::Releasing), event(1210, What::Released)];
        let hold = only_hold(events, Vec::new());
        assert_eq!(hold, Hold { held: Span { from: -100.0, until: 200.0 }, grants: 1, valid_until: None, knew: None });
    }

    #[test]
    fn a_lock_that_runs_out_is_held_until_its_last_deadline() {
        let events = vec![
            granted(1300),
            event(1000, What::Extended { valid_until: at(1400) }),
            event(1450, What::FirstInvalid { last_valid: None }),
            event(1460, What::Releasing),
        ];
        let hold = only_hold(events, Vec::new());
        assert_eq!((hold.held.until, hold.valid_until, hold.knew), (400.0, Some(400.0), Some(450.0)));
    }

    #[test]
    fn a_killed_holder_holds_until_then_and_its_validity_goes_on() {
        let kill = FaultEvent { at: at(1000), process: 0, fault: ProcessFault::Killed };
        let hold = only_hold(vec![granted(1900)], vec![kill]);
        assert_eq!((hold.held.until, hold.valid_until), (0.0, Some(900.0)));
    }

    #[test]
    fn a_late_write_is_drawn_with_its_client() {
        let write = Write { at: at(1600), whose: KEPT, token: TOKEN, fenced: false, went_back: true };
        let lanes = timeline(vec![granted(1300)], vec![write], Vec::new()).lanes;
        assert_eq!(lanes[0].late_writes, [LateWrite { at: 600.0, taken_unfenced: true, taken_fenced: false }]);
    }

    #[test]
    fn a_lock_that_nobody_was_granted_has_one_gap_to_the_end() {
        assert_eq!(timeline(vec![granted(1300)], Vec::new(), Vec::new()).gap, Span { from: 0.0, until: 2000.0 });
    }
}
