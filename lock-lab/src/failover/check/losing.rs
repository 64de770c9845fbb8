//! **L**: a holder that lost the lock knows it: before its deadline while it runs, at its first look when it was stopped.

use serde::{Deserialize, Serialize};

use super::{
    Moments,
    holds::Hold,
    verdict::{Chance, Verdict},
};
use crate::failover::events::{Attempt, History, ProcessFault};

/// How the holders learnt of their losses.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Losing {
    /// Every holder that lost the lock while it held it.
    pub losers: Vec<Loser>,
    /// Looks at or after the deadline that said that the lock is held.
    pub late: usize,
    /// Losers whose `lost()` never resolved.
    pub never_told: usize,
    /// Whether every loser knew in time.
    pub verdict: Verdict,
}

impl Losing {
    /// The longest time from the fault until a loser knew, by its own look; `None` without one after the fault.
    #[must_use]
    pub fn longest_after_fault_ms(&self) -> Option<f64> {
        let after = self.losers.iter().filter_map(|loser| loser.knew_ms).filter(|knew| *knew >= 0.0);
        after.max_by(f64::total_cmp)
    }
}

/// A holder that lost the lock. Times are in milliseconds from the fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Loser {
    /// Whose.
    pub whose: Attempt,
    /// Why, in the words of `Loss`; empty when `lost()` did not resolve.
    pub loss: String,
    /// Its last deadline.
    pub deadline_ms: f64,
    /// The clock right before its last look that said that the lock is held.
    pub last_valid_ms: Option<f64>,
    /// Its first look that said that it is not.
    pub knew_ms: Option<f64>,
    /// When `lost()` had resolved.
    pub told_ms: Option<f64>,
    /// How long after the deadline the first look was that said so: negative when the servers told of the loss before;
    /// while the process runs, at most the time between two looks.
    pub knew_after_deadline_ms: Option<f64>,
    /// How long after the deadline `lost()` had resolved.
    pub told_after_deadline_ms: Option<f64>,
    /// Whether its process was stopped, or its runtime stood still, in the meantime: then it can know only afterwards, and
    /// what counts is that its first look says so.
    pub was_still: bool,
}

/// Whether `process` stood still at some time between these two moments, or had just begun to go on.
fn was_still(history: &History, process: usize, hold: &Hold) -> bool {
    let until = hold.lost.as_ref().map_or(hold.valid_until(), |(at, _)| (*at).max(hold.valid_until()));
    history.fault_events.iter().any(|struck| {
        let still = matches!(struck.fault, ProcessFault::Stopped | ProcessFault::Starved { .. });
        still && struck.process == process && hold.granted <= struck.at && struck.at <= until
    })
}

/// `chance`: whether a holder must lose the lock in such a run.
pub(super) fn losing(
    history: &History,
    locks: &[Vec<Hold>],
    at: Moments,
    chance: Chance,
    tame: Option<&str>,
) -> Losing {
    let (mut losers, mut late, mut never_told) = (Vec::new(), 0, 0);
    for hold in locks.iter().flatten().filter(|hold| hold.is_loser()) {
        let (deadline, lost) = (hold.valid_until(), hold.lost.as_ref());
        let (knew, last_valid) = hold.invalid.map_or((None, None), |(at, last)| (Some(at), last));
        // Safeguard: a look past the deadline that says held is late (checker)
        late += usize::from(last_valid.is_some_and(|last| last >= deadline));
        // A process that was killed meanwhile cannot be told.
        // Safeguard: a loser that was never told counts (checker)
        never_told += usize::from(lost.is_none() && hold.killed.is_none());
        losers.push(Loser {
            whose: hold.whose,
            loss: lost.map_or(String::new(), |(_, why)| why.clone()),
            deadline_ms: at.ms(deadline),
            last_valid_ms: last_valid.map(|last| at.ms(last)),
            knew_ms: knew.map(|knew| at.ms(knew)),
            told_ms: lost.map(|(told, _)| at.ms(*told)),
            knew_after_deadline_ms: knew.map(|knew| at.ms(knew) - at.ms(deadline)),
            told_after_deadline_ms: lost.map(|(told, _)| at.ms(*told) - at.ms(deadline)),
            was_still: was_still(history, hold.whose.process, hold),
        });
    }
    let tame = match (tame, chance) {
        (None, Chance::Certain) if losers.is_empty() => Some("no holder lost the lock"),
        (tame, _) => tame,
    };
    let what =
        || format!("{late} looks past the deadline said that the lock is held, {never_told} losers were never told");
    let verdict = Verdict::of(late + never_told, Chance::Never, what, tame);
    Losing { losers, late, never_told, verdict }
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
    use crate::failover::events::{Lock, What};

    fn of(history: &History, chance: Chance) -> Losing {
        losing(
            history,
            &[LockHolds::of(history, Lock::Kept).holds],
            Moments { fault: at(100), end: at(1000) },
            chance,
            None,
        )
    }

    #[test]
    fn a_holder_that_sees_its_deadline_pass_has_known_in_time() {
        let history = HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 200).lost(198, 201, kept(0, 1)).done();
        let found = of(&history, Chance::Certain);
        assert_eq!((found.late, found.never_told, &found.verdict), (0, 0, &Verdict::Holds));
        assert_eq!(found.losers[0].knew_after_deadline_ms, Some(1.0));
        assert_eq!(found.longest_after_fault_ms(), Some(101.0));
        assert!(!found.losers[0].was_still);
    }

    #[test]
    fn a_look_past_the_deadline_that_says_held_breaks_the_promise() {
        let history = HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 200).lost(200, 203, kept(0, 1)).done();
        assert!(of(&history, Chance::Possible).verdict.is_broken());
        let renewed = HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 200).extended(150, kept(0, 1), 300).lost(
            299,
            301,
            kept(0, 1),
        );
        assert_eq!(of(&renewed.done(), Chance::Possible).verdict, Verdict::Holds);
    }

    #[test]
    fn a_stopped_holder_may_know_late_if_its_first_look_says_so() {
        let history = HistoryBuilder::default()
            .granted(0, 5, kept(0, 1), 1, 200)
            .struck(110, 0, ProcessFault::Stopped)
            .struck(900, 0, ProcessFault::Continued)
            .lost(109, 901, kept(0, 1))
            .done();
        let found = of(&history, Chance::Certain);
        assert_eq!((found.losers[0].was_still, &found.verdict), (true, &Verdict::Holds));
        assert_eq!(found.losers[0].knew_after_deadline_ms, Some(701.0));
    }

    #[test]
    fn a_loser_that_is_never_told_breaks_the_promise() {
        let history = HistoryBuilder::default()
            .granted(0, 5, kept(0, 1), 1, 200)
            .event(201, kept(0, 1), What::FirstInvalid { last_valid: Some(at(199)) })
            .done();
        let found = of(&history, Chance::Possible);
        assert_eq!((found.never_told, found.verdict.is_broken()), (1, true));
    }

    #[test]
    fn a_run_in_which_nobody_lost_what_must_be_lost_proves_nothing() {
        let history = HistoryBuilder::default().granted(0, 5, kept(0, 1), 1, 200).released(10, 11, kept(0, 1)).done();
        assert!(matches!(of(&history, Chance::Certain).verdict, Verdict::ProvesNothing { .. }));
        assert_eq!(of(&history, Chance::Possible).verdict, Verdict::Holds);
    }
}
