//! **F**: a store that checks the token never accepts a lower one after a higher, and a store that does not check it shows
//! what that is good for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{
    holds::Hold,
    updates::{self, Updates},
    verdict::{Chance, Verdict},
};
use crate::failover::events::{History, Write};

/// What the register without a fence must show, as the control of the fenced one, for a run to count.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnfencedControl {
    /// A stale write.
    pub(super) stale: Chance,
    /// A lost update.
    pub(super) lost_update: Chance,
}

/// What the two registers saw, and in which order the tokens were given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fencing {
    /// Writes that arrived.
    pub writes: usize,
    /// Writes that the fenced register took although it had taken a higher token before.
    pub let_through: usize,
    /// Writes that the fenced register refused.
    pub refused: usize,
    /// Writes by which the register without a fence went back: each would have damaged what the lock protects.
    pub stale: usize,
    /// Updates, and how many of them were lost.
    pub updates: Updates,
    /// Grants with a token that was not above that of the grant before.
    pub fell: usize,
    /// Whether the fence held.
    pub verdict: Verdict,
}

/// `fell` counts for nothing here but the report where `overlaps`
/// may happen: two servers that do not know of each other give out numbers on their own.
pub(super) fn fencing(history: &History, locks: &[Vec<Hold>], control: UnfencedControl, tame: Option<&str>) -> Fencing {
    let let_through = lower_after_higher(&history.writes);
    let shown = history.writes.iter().filter(|write| write.went_back).count();
    let fell = locks.iter().flat_map(|holds| holds.windows(2)).filter(|pair| pair[1].token <= pair[0].token).count();
    let updates = updates::updates(&history.updates);
    let tame = match tame {
        None if history.writes.is_empty() => Some("nothing was written"),
        // Safeguard: a fence without a stale write at the control proves nothing (checker)
        None if control.stale == Chance::Certain && shown == 0 => {
            Some("the control without a fence shows no stale write")
        }
        // Safeguard: a fence without a lost update at the control proves nothing (checker)
        None if control.lost_update == Chance::Certain && updates.unfenced.lost == 0 => {
            Some("the control without a fence has lost no update")
        }
        tame => tame,
    };
    let lost = updates.fenced.lost;
    let what =
        || format!("the fence let {let_through} writes with a lower token through, {lost} updates were lost behind it");
    Fencing {
        writes: history.writes.len(),
        let_through,
        refused: history.writes.iter().filter(|write| !write.fenced).count(),
        stale: shown,
        updates,
        fell,
        // Safeguard: a lost update is found behind the fence, too (checker)
        verdict: Verdict::of(let_through + lost, Chance::Never, what, tame),
    }
}

/// Judged by the order of arrival alone, whatever the store says of itself.
fn lower_after_higher(writes: &[Write]) -> usize {
    let mut highest = BTreeMap::new();
    let mut count = 0;
    for write in writes.iter().filter(|write| write.fenced) {
        let highest = highest.entry(write.whose.lock).or_insert(write.token);
        // Safeguard: the order of arrival judges the fence, not its own word (checker)
        count += usize::from(write.token < *highest);
        *highest = write.token.max(*highest);
    }
    count
}

#[cfg(test)]
mod tests {
    use super::{
        super::fixtures::{HistoryBuilder, at, busy, held, kept, token},
        *,
    };
    use crate::failover::events::{Update, Values};

    const POSSIBLE: UnfencedControl = UnfencedControl { stale: Chance::Possible, lost_update: Chance::Possible };
    const CERTAIN: UnfencedControl = UnfencedControl { stale: Chance::Certain, ..POSSIBLE };

    /// An update that had read what the given one wrote, behind the fence.
    fn updated(history: HistoryBuilder, millis: u64, process: usize, read: u64) -> HistoryBuilder {
        let (at, whose, read) = (at(millis), busy(process, millis), Values { fenced: read, unfenced: read });
        let mut history = history.wrote(millis, whose, millis, true, false);
        history.0.updates.push(Update { at, whose, token: token(millis), read, fenced: true });
        history
    }

    #[test]
    fn a_fence_behind_which_an_update_is_lost_is_found_out() {
        let whole = updated(updated(HistoryBuilder::default(), 1, 0, 0), 2, 1, 1);
        assert_eq!(fencing(&whole.0, &[], POSSIBLE, None).verdict, Verdict::Holds);
        let broken = fencing(&updated(whole, 3, 0, 1).0, &[], POSSIBLE, None);
        assert_eq!((broken.let_through, broken.updates.fenced.lost, broken.verdict.is_broken()), (0, 1, true));
    }

    #[test]
    fn without_a_lost_update_at_the_control_the_fence_has_shown_nothing() {
        let whole = updated(updated(HistoryBuilder::default(), 1, 0, 0), 2, 1, 1);
        let certain = UnfencedControl { lost_update: Chance::Certain, ..POSSIBLE };
        assert!(matches!(fencing(&whole.0, &[], certain, None).verdict, Verdict::ProvesNothing { .. }));
        let mut refused = updated(whole, 3, 0, 0).0;
        refused.updates[2].fenced = false;
        let found = fencing(&refused, &[], certain, None);
        assert_eq!((found.updates.unfenced.lost, &found.verdict), (2, &Verdict::Holds));
    }

    #[test]
    fn a_fence_that_takes_a_lower_token_is_found_out() {
        let history = HistoryBuilder::default()
            .wrote(1, kept(0, 1), 5, true, false)
            .wrote(2, kept(1, 1), 6, true, false)
            .wrote(3, kept(0, 1), 5, true, true)
            .done();
        let found = fencing(&history, &[], POSSIBLE, None);
        assert_eq!((found.let_through, found.stale, found.verdict.is_broken()), (1, 1, true));
    }

    #[test]
    fn a_refused_write_that_the_control_took_is_what_the_fence_is_for() {
        let history = HistoryBuilder::default()
            .wrote(1, kept(1, 1), 6, true, false)
            .wrote(2, kept(0, 1), 5, false, true)
            .wrote(3, kept(1, 1), 6, true, false)
            .done();
        let found = fencing(&history, &[], CERTAIN, None);
        assert_eq!((found.refused, found.stale, found.let_through), (1, 1, 0));
        assert_eq!(found.verdict, Verdict::Holds);
    }

    #[test]
    fn without_a_stale_write_at_the_control_the_fence_has_shown_nothing() {
        let history = HistoryBuilder::default().wrote(1, kept(1, 1), 6, true, false).done();
        let found = fencing(&history, &[], CERTAIN, None);
        assert!(matches!(found.verdict, Verdict::ProvesNothing { .. }));
        assert_eq!(fencing(&history, &[], POSSIBLE, None).verdict, Verdict::Holds);
        let silent = fencing(&History::default(), &[], UnfencedControl::default(), None);
        assert!(matches!(silent.verdict, Verdict::ProvesNothing { .. }));
    }

    #[test]
    fn tokens_that_do_not_rise_from_grant_to_grant_are_counted() {
        let holds = vec![held(7, 0, 1, 2), held(7, 2, 3, 4), held(9, 4, 5, 6), held(8, 6, 7, 8)];
        assert_eq!(fencing(&History::default(), &[holds], UnfencedControl::default(), None).fell, 2);
    }
}
