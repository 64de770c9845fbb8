//! **P**: the lock goes on after a fault, and after its holder's death within the bound that the backend states.

use std::time::Duration;

use lock_core::BootInstant;
use serde::{Deserialize, Serialize};

use super::{
    Moments,
    holds::Hold,
    verdict::{Chance, Verdict},
};
use crate::failover::events::{History, ProcessFault};

/// How the locks went on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The longest time without a grant of the busy lock from the fault to the end, in milliseconds.
    pub longest_gap_ms: f64,
    /// The same before the fault, for comparison.
    pub longest_gap_before_ms: f64,
    /// How many times the busy lock was granted after the fault.
    pub grants_after: usize,
    /// From each fault of a process that held the kept lock to the next grant of that lock, in milliseconds.
    pub take_overs: Vec<TakeOver>,
    /// The bound on these, in milliseconds.
    pub bound_ms: Option<f64>,
    /// How often the kept lock was lost, from the fault on, by a process that was not struck itself.
    pub kept_lost: usize,
    /// Whether it went on.
    pub verdict: Verdict,
}

/// A lock whose holder was killed, stopped or starved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TakeOver {
    /// What its process was struck by.
    pub fault: ProcessFault,
    /// When, in milliseconds from the fault.
    pub at_ms: f64,
    /// How long after that the next holder was granted it; `None` when there was none.
    pub next_grant_ms: Option<f64>,
}

/// The bounds on the time without a grant that a run is checked against.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ProgressBounds {
    /// From the death of a holder to the next grant.
    pub(super) crash: Option<Duration>,
    /// The longest time without a grant.
    pub(super) gap: Option<Duration>,
    /// Whether the kept lock survives the fault.
    pub(super) survives: bool,
    /// Whether the machine stood still for most of the time after the fault: nobody is granted anything meanwhile.
    pub(super) stood_still: bool,
    pub(super) stops: Chance,
}

pub(super) fn progress(
    history: &History,
    [busy, kept]: [&[Hold]; 2],
    at: Moments,
    bounds: ProgressBounds,
    tame: Option<&str>,
) -> Progress {
    let first = busy.first().map_or(at.fault, |hold| hold.granted);
    let (longest_gap, grants_after) = (longest_gap(busy, at.fault, at.end), grants(busy, at.fault, at.end));
    let take_overs = take_overs(history, kept, at);
    let too_late = |over: &&TakeOver| {
        // Safeguard: a dead holder is followed within the bound (checker)
        let late = |bound| over.next_grant_ms.is_none_or(|took| took > millis(bound));
        over.fault == ProcessFault::Killed && bounds.crash.is_some_and(late)
    };
    let slow = take_overs.iter().filter(too_late).count();
    let gaps = usize::from(bounds.gap.is_some_and(|bound| longest_gap > bound));
    let stopped = grants_after == 0;
    let still =
        (stopped && bounds.stood_still).then_some("the machine stood still for most of the time after the fault");
    let kept_lost = kept_lost(history, kept, at);
    // Safeguard: a lock that must survive and does not is a broken promise (checker)
    let lost = if bounds.survives { kept_lost } else { 0 };
    let what = || {
        let gap = millis(longest_gap);
        format!(
            "{slow} take-overs later than their bound, {grants_after} grants after the fault, longest gap {gap:.0} ms, the \
             kept lock lost {lost} times"
        )
    };
    Progress {
        longest_gap_ms: millis(longest_gap),
        longest_gap_before_ms: millis(self::longest_gap(busy, first, at.fault)),
        grants_after,
        take_overs,
        bound_ms: bounds.crash.map(millis),
        kept_lost,
        verdict: Verdict::of(
            slow + gaps + usize::from(stopped && still.is_none()) + lost,
            bounds.stops,
            what,
            tame.or(still),
        ),
    }
}

fn grants(holds: &[Hold], from: BootInstant, until: BootInstant) -> usize {
    holds.iter().filter(|hold| from <= hold.granted && hold.granted < until).count()
}

pub(super) fn longest_gap(holds: &[Hold], from: BootInstant, until: BootInstant) -> Duration {
    let within = holds.iter().map(|hold| hold.granted).filter(|granted| from <= *granted && *granted < until);
    let (mut before, mut longest) = (from, Duration::ZERO);
    for granted in within.chain([until]) {
        longest = longest.max(granted.saturating_since(before));
        before = granted;
    }
    longest
}

/// Losses from the fault on of who was not struck itself.
fn kept_lost(history: &History, kept: &[Hold], at: Moments) -> usize {
    let was_struck = |hold: &Hold| history.fault_events.iter().any(|struck| struck.process == hold.whose.process);
    kept.iter().filter(|hold| hold.is_loser() && hold.ended() >= at.fault && !was_struck(hold)).count()
}

fn take_overs(history: &History, kept: &[Hold], at: Moments) -> Vec<TakeOver> {
    let mut found = Vec::new();
    for struck in history.fault_events.iter().filter(|struck| struck.fault != ProcessFault::Continued) {
        let held = |hold: &&Hold| {
            hold.whose.process == struck.process && hold.granted <= struck.at && struck.at <= hold.ended()
        };
        let Some(holder) = kept.iter().find(held) else { continue };
        let next = kept.iter().find(|hold| hold.granted > struck.at && hold.whose != holder.whose);
        found.push(TakeOver {
            fault: struck.fault,
            at_ms: at.ms(struck.at),
            next_grant_ms: next.map(|hold| millis(hold.granted.saturating_since(struck.at))),
        });
    }
    found
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            fixtures::{HistoryBuilder, at, kept},
            holds::LockHolds,
        },
        *,
    };
    use crate::failover::events::Lock;

    fn of(history: &History, end: u64, bounds: ProgressBounds) -> Progress {
        let [busy, kept] = [Lock::Busy, Lock::Kept].map(|lock| LockHolds::of(history, lock).holds);
        progress(history, [&busy, &kept], Moments { fault: at(1000), end: at(end) }, bounds, None)
    }

    #[test]
    fn the_longest_gap_counts_from_the_fault() {
        let history = HistoryBuilder::default().traffic(0, 990, 0).traffic(1400, 2000, 0).done();
        let found = of(&history, 2000, ProgressBounds::default());
        assert_eq!((found.longest_gap_ms, found.longest_gap_before_ms), (401.0, 19.0));
        assert_eq!((found.grants_after, &found.verdict), (60, &Verdict::Holds));
    }

    #[test]
    fn a_lock_that_is_never_granted_again_is_broken() {
        let found = of(&HistoryBuilder::default().traffic(0, 990, 0).done(), 2000, ProgressBounds::default());
        assert!(found.verdict.is_broken());
        let lenient = ProgressBounds { stops: Chance::Possible, ..ProgressBounds::default() };
        assert!(!of(&HistoryBuilder::default().traffic(0, 990, 0).done(), 2000, lenient).verdict.is_broken());
    }

    #[test]
    fn a_dead_holder_is_followed_within_the_bound_or_the_promise_is_broken() {
        let history = HistoryBuilder::default()
            .traffic(0, 2000, 2)
            .granted(0, 5, kept(0, 1), 1, 1300)
            .struck(1001, 0, ProcessFault::Killed)
            .granted(10, 1301, kept(1, 1), 2, 1800)
            .done();
        let within =
            |millis| ProgressBounds { crash: Some(Duration::from_millis(millis)), ..ProgressBounds::default() };
        let found = of(&history, 2000, within(300));
        assert_eq!((found.take_overs[0].next_grant_ms, &found.verdict), (Some(300.0), &Verdict::Holds));
        assert!(of(&history, 2000, within(299)).verdict.is_broken());
    }

    #[test]
    fn a_kept_lock_that_is_lost_breaks_the_promise_that_it_survives_unless_its_holder_was_struck() {
        let lost = || {
            HistoryBuilder::default().traffic(0, 2000, 2).granted(0, 5, kept(0, 1), 1, 1500).lost(
                1498,
                1501,
                kept(0, 1),
            )
        };
        let survives = ProgressBounds { survives: true, ..ProgressBounds::default() };
        let found = of(&lost().done(), 2000, survives);
        assert_eq!((found.kept_lost, found.verdict.is_broken()), (1, true));
        assert!(!of(&lost().done(), 2000, ProgressBounds::default()).verdict.is_broken());
        let struck = lost().struck(1001, 0, ProcessFault::Stopped).done();
        assert_eq!(of(&struck, 2000, survives).verdict, Verdict::Holds);
        let kept = HistoryBuilder::default().traffic(0, 2000, 2).granted(0, 5, kept(0, 1), 1, 3000).done();
        assert_eq!(of(&kept, 2000, survives).verdict, Verdict::Holds);
    }
}
