//! What happened when, in one run.

use lock_core::BootInstant;
use serde::{Deserialize, Serialize};

use crate::failover::check::Moments;

/// What happened when, in milliseconds from the moment at which the fault began; what came before is negative.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Timeline {
    /// The whole run.
    pub whole: Span,
    /// The part that is worth a closer look: there every grant is listed by itself, elsewhere neighbours are joined.
    pub close: Span,
    /// From the fault to its end; the end of the run if it stayed.
    pub fault: Span,
    /// The longest time without a grant of the busy lock.
    pub gap: Span,
    /// Other moments, with what happened.
    pub marks: Vec<Mark>,
    /// Who held when, a lane for each client.
    pub lanes: Vec<Lane>,
    /// When two holders were valid.
    pub overlaps: Vec<Span>,
}

/// From when until when; as data, a pair of numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "(f64, f64)", into = "(f64, f64)")]
#[allow(missing_docs)] // Named by what they are.
pub struct Span {
    pub from: f64,
    pub until: f64,
}

/// A moment with a name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // Named by what they are.
pub struct Mark {
    pub at: f64,
    pub text: String,
}

/// One client of one lock.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// Name of the lock.
    pub lock: String,
    /// The client, and the process that it is in.
    pub client: String,
    /// The times at which the client held the lock.
    pub holds: Vec<Hold>,
    /// Writes of the client that came too late.
    pub late_writes: Vec<LateWrite>,
}

/// One time of holding, or several with hardly anything between them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    /// From the grant to the release or the end of validity, whichever came first.
    pub held: Span,
    /// Number of grants.
    pub grants: usize,
    /// End of the validity of a holder that did not release in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_until: Option<f64>,
    /// When the holder knew that the lock was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knew: Option<f64>,
}

/// A write that came when a later holder had written already.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LateWrite {
    /// When the write came.
    pub at: f64,
    /// Whether the sink without a fence took it.
    pub taken_unfenced: bool,
    /// Whether the sink with a fence took it.
    pub taken_fenced: bool,
}

impl From<(f64, f64)> for Span {
    fn from((from, until): (f64, f64)) -> Self {
        Self { from, until }
    }
}

impl From<Span> for (f64, f64) {
    fn from(Span { from, until }: Span) -> Self {
        (from, until)
    }
}

impl Span {
    /// Whether `at` is inside the span.
    #[must_use]
    pub fn contains(self, at: f64) -> bool {
        (self.from..=self.until).contains(&at)
    }

    /// Whether the two have something in common.
    #[must_use]
    pub fn meets(self, other: Self) -> bool {
        self.from <= other.until && other.from <= self.until
    }

    /// Length of the span.
    #[must_use]
    pub fn length(self) -> f64 {
        self.until - self.from
    }
}

impl Timeline {
    /// Joins holds that are nearer to each other than a picture of the whole run can show, except in the part that is
    /// looked at closely.
    pub(crate) fn condense(&mut self) {
        let (gap, close) = (self.whole.length() / 1000.0, self.close);
        for lane in &mut self.lanes {
            lane.holds = joined(&lane.holds, gap, |hold| !hold.held.meets(close));
        }
    }
}

/// The holds with neighbours that are at most `gap` apart as one, as far as `may_join` says that of both.
pub(super) fn joined(holds: &[Hold], gap: f64, may_join: impl Fn(&Hold) -> bool) -> Vec<Hold> {
    let plain = |hold: &Hold| hold.valid_until.is_none() && hold.knew.is_none() && may_join(hold);
    let mut all: Vec<Hold> = Vec::new();
    for hold in holds {
        match all.last_mut() {
            Some(last) if plain(last) && plain(hold) && hold.held.from - last.held.until <= gap => {
                last.held.until = hold.held.until;
                last.grants += hold.grants;
            }
            _ => all.push(hold.clone()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(from: f64, until: f64) -> Hold {
        Hold { held: Span { from, until }, grants: 1, ..Hold::default() }
    }

    #[test]
    fn neighbours_are_joined_outside_of_the_part_that_is_looked_at() {
        let holds = vec![hold(0.0, 1.0), hold(1.5, 2.0), hold(50.0, 51.0), hold(51.5, 52.0)];
        let mut timeline = Timeline {
            whole: Span { from: 0.0, until: 1000.0 },
            close: Span { from: 40.0, until: 60.0 },
            lanes: vec![Lane { holds, ..Lane::default() }],
            ..Timeline::default()
        };
        timeline.condense();
        let holds = &timeline.lanes[0].holds;
        assert_eq!(holds.len(), 3);
        assert_eq!((holds[0].grants, holds[0].held), (2, Span { from: 0.0, until: 2.0 }));
    }

    #[test]
    fn a_lost_hold_is_never_joined_with_another() {
        let lost = Hold { valid_until: Some(3.0), ..hold(1.0, 2.0) };
        assert_eq!(joined(&[hold(0.0, 1.0), lost, hold(2.0, 3.0)], 1.0, |_| true).len(), 3);
    }
}

/// What a timeline shows beside the findings: when the fault began and ended, and other moments.
#[derive(Debug, Clone)]
pub(crate) struct TimelineContext {
    /// When the fault struck, and until when the run was watched.
    pub(crate) moments: Moments,
    /// When the fault ended; `None` if it stayed.
    pub(crate) healed: Option<BootInstant>,
    /// Other moments, with what happened.
    pub(crate) marks: Vec<(BootInstant, String)>,
}
